"""Headscope processes that are forked from one that has imported its modules: of a new one, importing takes six seconds of processor time, most of them torch."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module, reload
from multiprocessing import forkserver, get_context, reduction, util
from pathlib import Path
from typing import IO, Any

CONTEXT = get_context("forkserver")
STDERR = 2
MODULES = ["headscope.cli.serve", "headscope.worker.preload", __name__]


class PreloadedProcess:
    """`python -m headscope` with these arguments and this environment, and as much of subprocess.Popen as the tests use.

    What it prints is read from `stdout`; what it logs is appended to the file `log`.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        CONTEXT.set_forkserver_preload(MODULES)
        ours, theirs = os.pipe()
        self.stdout: IO[bytes] = os.fdopen(ours, "rb")
        with log.open("ab") as logged, os.fdopen(theirs, "wb") as printed:
            files = [reduction.DupFd(file.fileno()) for file in (printed, logged)]
            self._process = CONTEXT.Process(target=_run, args=(arguments, dict(environment), files))
            self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def poll(self) -> int | None:
        """Return its exit status if it has ended."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return its exit status."""
        self._process.join(timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired("headscope", timeout or 0)
        return status

    def communicate(self, timeout: float | None = None) -> None:
        """Wait for its end, and close what it printed."""
        self.wait(timeout)
        self.stdout.close()
        self._process.close()


def _run(arguments: Sequence[str], environment: Mapping[str, str], files: Sequence[Any]) -> None:
    """Be that process."""
    for number, file in enumerate(files, start=1):
        given = file.detach()
        os.dup2(given, number)
        os.close(given)
    os.environ.clear()
    os.environ.update(environment)
    reload(import_module("huggingface_hub.constants"))  # where its hub is, and its cache
    _fork_forkserver()
    import_module("headscope.cli.main").main(arguments, prog_name="headscope")


def _fork_forkserver() -> None:
    """Have the worker processes of this one forked from a fork of it, which has their modules already, too. If that one ends, the next one is new."""
    new = util.spawnv_passfds
    util.spawnv_passfds = _fork
    try:
        forkserver.ensure_running()
    finally:
        util.spawnv_passfds = new


def _fork(_: object, command: Sequence[str], files: Sequence[int]) -> int:
    """Run the last argument of a Python command in a fork of this process, which has no files but these. Return its id."""
    if pid := os.fork():
        return pid
    try:
        for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
            if number > STDERR and number not in files:
                with suppress(OSError):  # the folder itself is closed by now
                    os.close(number)
        exec(command[-1], {})
    finally:
        os._exit(0)
