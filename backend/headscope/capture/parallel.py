"""Many small computations in parallel, each on one core.

The threads of one operation wait for each other at its end, which costs more than a small operation itself, and very much on a machine that does other work.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from threading import Lock
from typing import TypeVar

import torch

T = TypeVar("T")
S = TypeVar("S")
_lock, _users, _threads = Lock(), [0], [1]


def each(work: Callable[[S], T], items: Sequence[S]) -> Generator[T]:
    """Yield work(item) of all items, in order: in as many threads as operations of torch use."""
    with one_thread() as threads:
        if threads == 1 or len(items) == 1:
            yield from map(work, items)
        else:
            yield from _pool(threads).map(partial(_run, work, torch.is_inference_mode_enabled()), items)


def _run(work: Callable[[S], T], inference: bool, item: S) -> T:
    with torch.inference_mode(inference):  # a thread has a mode of its own
        return work(item)


@contextmanager
def one_thread() -> Iterator[int]:
    """Let operations of torch use one thread, and yield how many they used."""
    with _lock:
        if _users[0] == 0:
            _threads[0] = torch.get_num_threads()
            torch.set_num_threads(1)
        _users[0] += 1
    try:
        yield _threads[0]
    finally:
        with _lock:
            _users[0] -= 1
            if _users[0] == 0:
                torch.set_num_threads(_threads[0])


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "rows", torch.set_num_threads, (1,))
