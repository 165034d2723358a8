"""PostgreSQL of the system's package, run by a user that is not root, as it refuses to be."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.support.server import Program, eventually, gone

PROGRAMS = max(
    Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), default=Path("/usr/bin")
)
USER, PASSWORD = "headscope", "c" * 64
# As root, the server runs as this user.
AS: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


@functools.cache
def _template() -> Path:
    """Return a data directory with the database and user of docker-compose.yml, as its image creates them. It is copied, which takes a tenth of the time."""
    folder = _folder()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "password").write_text(PASSWORD)
    _own(folder)
    where = ["--pgdata", str(folder / "data"), "--username", USER, "--pwfile", str(folder / "password")]
    command = [PROGRAMS / "initdb", "--no-sync", "--auth-host=scram-sha-256", "--locale=C.UTF-8", *where]
    subprocess.run(command, cwd="/", check=True, capture_output=True, **AS)
    single = [PROGRAMS / "postgres", "--single", "-D", folder / "data", "postgres"]
    subprocess.run(single, input=f"CREATE DATABASE {USER}\n", cwd="/", text=True, check=True, capture_output=True, **AS)
    return folder / "data"


def _folder() -> Path:
    """Return a new folder that the server's user can enter, which pytest's are not."""
    return Path(tempfile.mkdtemp(prefix="headscope-db-", dir="/tmp"))


def _own(folder: Path) -> None:
    if AS:
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, AS["user"], AS["group"])


class Postgres(Program):
    """A PostgreSQL server with its own folder and port."""

    def __init__(
        self, log: Path, port: int, options: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(log)
        self.port, self._options, self._environment = port, list(options), environment
        self._folder = _folder()
        self.data = self._folder / "data"
        self.url = f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{port}/{USER}"

    def start(self, *options: str) -> Postgres:
        """Start it and wait until it responds."""
        if not self.data.exists():
            shutil.copytree(_template(), self.data)
            self.data.chmod(0o700)
            _own(self._folder)
        own = ["-D", str(self.data), "-p", str(self.port), "-k", str(self._folder), "-h", "127.0.0.1"]
        self.launch([PROGRAMS / "postgres", *self._options, *own, *options], cwd="/", env=self._environment, **AS)
        self.await_answer(self._answers)
        return self

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log()
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def restart(self) -> None:
        """Kill it and start it again with the same files."""
        self.kill()
        self.start()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it and the processes of its connections. SIGTERM is what Docker sends in its place: it would wait for all clients."""
        if not self.running:
            return
        family = self._family()
        super().kill(signal.SIGINT if how == signal.SIGTERM else how)
        if how == signal.SIGKILL:
            for process in family:
                with suppress(psutil.NoSuchProcess):  # it has ended by itself
                    process.kill()
        eventually(lambda: all(gone(process) for process in family), f"the end of the connections of {self}")

    def close(self) -> None:
        """End it, and remove its files."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def pause(self) -> None:
        """Stop it and the processes of its connections, until `resume`."""
        self._send(psutil.Process.suspend)

    def resume(self) -> None:
        self._send(psutil.Process.resume)

    def _send(self, what: Callable[[psutil.Process], None]) -> None:
        for process in self._all():
            with suppress(psutil.NoSuchProcess):  # that of a connection which has just ended
                what(process)

    def _all(self) -> list[psutil.Process]:
        """Return its processes, the one that starts the others first."""
        return [psutil.Process(self.process.pid), *self._family()] if self.process.poll() is None else []

    def _family(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children()
        except psutil.NoSuchProcess:
            return []

    @contextmanager
    def full(self) -> Iterator[None]:
        """Let no file grow, as on a full disk. A server that ends because of it is started again afterwards."""
        _limit(self._all(), "1000")
        try:
            yield
        finally:
            _limit(self._all(), "unlimited")
            if self.process.poll() is not None:
                self.restart()

    def create(self) -> str:
        """Create an empty database; return its URL."""
        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
        return self.url.rpartition("/")[0] + f"/{name}"


def _limit(processes: Sequence[psutil.Process], size: str) -> None:
    """Limit the files that processes may write, in bytes. As their own user, because root needs a capability for others'."""
    for process in processes:
        command = ["prlimit", f"--pid={process.pid}", f"--fsize={size}:unlimited"]
        subprocess.run(command, cwd="/", capture_output=True, check=False, **AS)
