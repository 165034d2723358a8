"""A process forked from this one: what is imported and loaded here is there, which a new one takes seconds for."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from typing import Any

FORKS = multiprocessing.get_context("fork")


def fork(work: Callable[..., object], *given: Any) -> BaseProcess:
    """Start `work` in a process of its own, with `given`."""
    process = FORKS.Process(target=work, args=given)
    with warnings.catch_warnings():
        # Newer versions of Python warn of threads, whose locks the fork may find taken; those of pytest-xdist hold none of ours.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    return process


def forked(work: Callable[..., Any], *each: Sequence[Any], seconds: float = 120) -> list[Any]:
    """Return what `work` returns for each of these arguments, in processes of their own at the same time; fail if one raises, or takes longer than `seconds`."""
    ways = [FORKS.Pipe(duplex=False) for _ in each]
    processes = [
        fork(lambda writer, given: writer.send(work(*given)), writer, given)
        for (_, writer), given in zip(ways, each, strict=True)
    ]
    for process in processes:
        process.join(seconds)
        assert process.exitcode == 0, f"ended with {process.exitcode}; what it raised is on standard error"
    return [reader.recv() for reader, _ in ways]
