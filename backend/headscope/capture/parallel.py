"""Many small computations in parallel, each on one core.

The threads of one operation wait for each other at its end, which costs more than a small operation itself, and very much on a machine that does other work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from threading import Lock, local
from typing import TypeVar

import torch

T = TypeVar("T")
S = TypeVar("S")
_lock, _users, _threads, _thread = Lock(), [0], [1], local()


def threads() -> int:
    """Return how many threads operations of torch use, or used before one_thread."""
    with _lock:
        return _threads[0] if _users[0] else torch.get_num_threads()


def each(work: Callable[[S], T], items: Sequence[S]) -> Generator[T]:
    """Yield work(item) of all items, in order: in as many threads as operations of torch use, or one after the other within work(item) of another call.

    Few results wait at a time.
    """
    if len(items) == 1 or getattr(_thread, "works", False):
        yield from map(work, items)
        return
    with one_thread() as most:
        if most == 1:
            yield from map(work, items)
        else:
            yield from _ahead(_pool(most), partial(_run, work, torch.is_inference_mode_enabled()), items, most)


def _ahead(pool: ThreadPoolExecutor, work: Callable[[S], T], items: Sequence[S], most: int) -> Generator[T]:
    """Yield work(item) of all items, in order, while the pool works on up to `most` of the next ones."""
    waiting = deque[Future[T]]()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for one in waiting:
            one.cancel()


def _run(work: Callable[[S], T], inference: bool, item: S) -> T:
    _thread.works = True
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


@contextmanager
def all_threads() -> Iterator[None]:
    """Let operations of torch use all threads within one_thread."""
    torch.set_num_threads(threads())
    try:
        yield
    finally:
        with _lock:
            if _users[0]:
                torch.set_num_threads(1)


@cache
def _pool(size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(size, "rows", torch.set_num_threads, (1,))
