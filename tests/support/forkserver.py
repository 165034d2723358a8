"""A fork server for tests: processes of Headscope are forked from one that has imported everything, which takes a tenth of their processor time.

They run the same code in processes of their own, but share what importing read of the environment: a server with a hub, or a process with a preloaded library,
is started by its command.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing import util
from pathlib import Path
from types import ModuleType
from typing import Any

MODULES = ("headscope.cli.serve", "headscope.cli.worker", "headscope.worker.preload")
MAIN = "from headscope.cli.main import main\nmain()"
# Largest message, in bytes, and most file descriptors with it.
BYTES, FILES = 1 << 18, 16
# More than it has open at a time; select knows no more.
DESCRIPTORS = 1024


def can_fork(command: Sequence[str | Path], environment: Mapping[str, str]) -> bool:
    """Return whether this is a command of Headscope that is the same in a forked process."""
    return _parsed(command) is not None and not {"LD_PRELOAD", "HF_ENDPOINT"} & environment.keys()


def _parsed(command: Sequence[str | Path]) -> tuple[str, list[str]] | None:
    """Return the code and the arguments of a command of Headscope, None for another one."""
    words = [str(word) for word in command]
    if words[:3] == [sys.executable, "-m", "headscope"]:
        return MAIN, words[3:]
    if words[:2] == [sys.executable, "-c"]:
        return words[2], words[3:]
    return (MAIN, words[1:]) if Path(words[0]).name == "headscope" else None


class Forked:
    """A process of the fork server, which reports its exit status; used like one of subprocess."""

    def __init__(self, command: Sequence[str | Path], *, env: Mapping[str, str], stdout: Any, stderr: Any) -> None:
        self.returncode: int | None = None
        self.stdout, out = None, stdout
        if stdout == subprocess.PIPE:
            read, write = os.pipe()
            self.stdout, out = os.fdopen(read, "rb"), os.fdopen(write, "wb")
        self._status, status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        files = [file.fileno() for file in (out, stderr, status)]
        socket.send_fds(_fork_server(), [json.dumps([*(_parsed(command) or ()), dict(env)]).encode()], files)
        status.close()
        if out is not stdout:
            out.close()
        self.pid = int(self._status.recv(20))

    def poll(self) -> int | None:
        """Return the exit status, None before its end."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return the exit status. Raises TimeoutExpired."""
        if self.returncode is None:
            _await(self._status, timeout)
            self.returncode = int(self._status.recv(20))
            self._status.close()
        return self.returncode

    def communicate(self, timeout: float) -> None:
        """Wait for its end and that of all processes with the same output, which is discarded. Raises TimeoutExpired."""
        deadline = time.monotonic() + timeout
        if self.stdout is not None:
            while True:
                _await(self.stdout, deadline - time.monotonic())
                if not os.read(self.stdout.fileno(), BYTES):
                    break
            self.stdout.close()
        self.wait(deadline - time.monotonic())

    def send_signal(self, how: int) -> None:
        """Send a signal unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, which is not reported yet
                os.kill(self.pid, how)


def _await(file: Any, seconds: float | None) -> None:
    seconds = None if seconds is None else max(seconds, 0)
    if not select.select([file], [], [], seconds)[0]:
        raise subprocess.TimeoutExpired("headscope", seconds or 0)


@functools.cache
def _fork_server() -> socket.socket:
    """Start the fork server of this process, and return the connection with which it ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HEADSCOPE_", "HF_"))}
    command = [sys.executable, "-m", __name__, str(theirs.fileno())]
    with theirs:
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env={**clean, "HF_HOME": os.devnull})
    atexit.register(process.wait)
    atexit.register(ours.close)  # first
    return ours


def _import_all() -> None:
    import_module("headscope.settings").limit_blas()
    for name in MODULES:
        import_module(name)
    gc.freeze()


def _serve(control: socket.socket) -> str:
    """Fork a process for each message, until the connection ends. Returns in these processes only, with the code to run."""
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}  # process ids, and where to report their exit status
    while True:
        ready = select.select([control, wake], [], [])[0]
        if wake in ready:
            os.read(wake, BYTES)
            _report_ended(running)
        if control not in ready:
            continue
        message, files, _, _ = socket.recv_fds(control, BYTES, FILES)
        if not message:
            sys.exit()
        pid = os.fork()
        if not pid:
            control.detach()
            return _become(*json.loads(message), *files[:2])
        running[pid] = files.pop()
        os.write(running[pid], b"%d" % pid)
        for file in files:
            os.close(file)


def _report_ended(running: dict[int, int]) -> None:
    """Report and forget the processes that have ended."""
    for pid, status in list(running.items()):
        ended, how = os.waitpid(pid, os.WNOHANG)
        if ended:
            with suppress(BrokenPipeError):  # the test no longer waits for it
                os.write(status, b"%d" % os.waitstatus_to_exitcode(how))
            os.close(running.pop(pid))


def _become(code: str, arguments: list[str], environment: dict[str, str], stdout: int, stderr: int) -> str:
    """Make this process what its command would have started."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.closerange(3, DESCRIPTORS)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["headscope", *arguments]
    sys.modules["__main__"] = ModuleType("__main__")  # children of multiprocessing would import another one
    return (_fork_ahead() if arguments[0] == "serve" else None) or code


def _fork_ahead() -> str | None:
    """Fork the process that becomes the forkserver of multiprocessing, as long as there are no threads. Returns its code in it, later, and None in its parent."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid:
        theirs.close()
        util.spawnv_passfds = functools.partial(_spawn, util.spawnv_passfds, [(pid, ours)])
        return None
    ours.close()
    message, files, _, _ = socket.recv_fds(theirs, BYTES, FILES)
    if not message:  # the parent has ended
        os._exit(0)
    code, numbers = json.loads(message)
    theirs.detach()
    above = [fcntl.fcntl(file, fcntl.F_DUPFD, max(numbers) + 1) for file in files]
    os.closerange(3, max(numbers) + 1)
    for file, number in zip(above, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)
    return str(code)


def _spawn(
    real: Callable[..., int],
    ahead: list[tuple[int, socket.socket]],
    program: bytes,
    words: Sequence[str],
    files: Sequence[int],
) -> int:
    """Start a process of multiprocessing; the first forkserver is the process that was forked ahead."""
    if not ahead or "multiprocessing.forkserver" not in words[-1]:
        return real(program, words, files)
    pid, connection = ahead.pop()
    with connection:
        socket.send_fds(connection, [json.dumps([words[-1], list(files)]).encode()], files)
    return pid


if __name__ == "__main__":
    _import_all()
    exec(_serve(socket.socket(fileno=int(sys.argv[1]))), vars(sys.modules["__main__"]))
