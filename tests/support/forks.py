"""A process forked from this one: what is imported and loaded here is there, which a new one takes seconds for."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable
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


def forked(work: Callable[..., Any], *given: Any, seconds: float = 120, **variables: str) -> Any:
    """Return what `work` returns in a process of its own with these environment variables; fail if it raises, or takes longer than `seconds`."""
    reader, writer = FORKS.Pipe(duplex=False)

    def answer() -> None:
        os.environ.update(variables)
        writer.send(work(*given))

    process = fork(answer)
    process.join(seconds)
    assert process.exitcode == 0, f"ended with {process.exitcode}; what it raised is on standard error"
    return reader.recv()
