"""A real Headscope server for tests: started as a process, asked over HTTP, killed, and started again on the same home."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import httpx
import psutil

from headscope.server.accounts import open_accounts
from headscope.settings import Settings
from tests.support.preloaded import PreloadedProcess

T = TypeVar("T")
API = "/api/v1"
DEADLINE = 120.0
# A request that takes seconds: long enough to be killed, cancelled or watched half-way. See the fixture `models`.
SLOW: dict[str, Any] = {
    "model": "slow",
    "text": "The cat sat on the mat because it was tired. " * 24,
    "lenses": ["weights"],
    "measures": ["entropy"],
    "maps": False,
}


def eventually(condition: Callable[[], T], what: str, seconds: float = DEADLINE) -> T:
    """The first true value of `condition`; fails after `seconds`. What takes long is asked for less often: a request to a server is work, for it and for the test."""
    start = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - start
        assert waited < seconds, f"not within {seconds:g} s: {what}"
        time.sleep(min(max(waited / 10, 0.02), 0.25))
    return value


def gone(process: psutil.Process) -> bool:
    """Whether it has ended; it may end while it is asked."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def variables(**settings: Any) -> dict[str, str]:
    """Settings as environment variables."""
    return {
        f"HEADSCOPE_{name.upper()}": str(value) if isinstance(value, (str, Path)) else json.dumps(value)
        for name, value in settings.items()
    }


def environment(home: Path, models: Path | None = None, **settings: Any) -> dict[str, str]:
    """The environment of a Headscope process that sees nothing of this machine but `home` and the folder `models`; settings of HF_ and OTEL_ are added as they are."""
    values = {"home": home, "prewarm": False, "hub": "off", "threads": 1, **settings}
    if models is not None:
        values["model_dirs"] = [str(models)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HEADSCOPE_", "HF_"))}
    others = {name: str(values.pop(name)) for name in list(values) if name.startswith(("HF_", "OTEL_"))}
    return {**clean, "HF_HOME": str(home / "hf"), **others, **variables(**values)}


def bearer(token: str | None) -> dict[str, str]:
    """The header that carries an access token."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def value_of(metrics: str, name: str) -> int:
    """The value of a line of metrics."""
    return int(float(next(line for line in metrics.splitlines() if line.startswith(f"headscope_{name} ")).split()[-1]))


class Program:
    """One process, its log, and what can be done to it."""

    living: ClassVar[list[Program]] = []

    def __init__(self, log: Path) -> None:
        self._log = log

    def __str__(self) -> str:
        return self._log.stem

    def launch(self, command: Sequence[str | Path], **options: Any) -> None:
        """Start the process; what it says on standard error goes to the log."""
        self._launched = command, options
        self.process = self._begin(command, **options)
        Program.living.append(self)

    def _begin(self, command: Sequence[str | Path], **options: Any) -> subprocess.Popen[bytes] | PreloadedProcess:
        with self._log.open("ab") as log:
            return subprocess.Popen(command, **{"stdout": log, "stderr": log, **options})

    def await_answer(self, answers: Callable[[], bool]) -> None:
        """Wait until it answers; end it if it does not."""
        try:
            eventually(answers, str(self))
        except BaseException:
            self.kill()
            raise

    def revive(self) -> None:
        """Start a process that has ended by the same command, without waiting until it is ready: Docker's restart policy."""
        Program.living.remove(self)
        if self.process.stdout is not None:
            self.process.stdout.close()
        command, options = self._launched
        self.launch(command, **options)

    @property
    def running(self) -> bool:
        """Whether it was started and not ended from here."""
        return self in Program.living

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the process and wait for it; nothing happens if it has ended."""
        if not self.running:
            return
        Program.living.remove(self)
        self.process.send_signal(how)
        self.process.send_signal(signal.SIGCONT)
        self.process.communicate(timeout=DEADLINE)

    def pause(self) -> None:
        """Stop the process where it is, until `resume`."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def log(self) -> str:
        """What it has written, over all its starts."""
        return self._log.read_text(errors="replace")

    def written(self) -> float:
        """When it wrote last, in s since 1970."""
        return self._log.stat().st_mtime


class Server(Program):
    """One server process and its home, asked with `token` if it has users; `host` is the address it listens on.

    Settings are those of settings.py; names that begin with HF_ or OTEL_ go to the environment as they are. Instead of all of these, `process` is command and environment.
    With `preloaded`, by default in tests only, it is forked from a process that has imported its modules.
    """

    preloading: ClassVar[bool] = False

    def __init__(
        self,
        home: Path,
        models: Path | None = None,
        *,
        log: str | None = None,
        token: str | None = None,
        host: str | None = None,
        process: tuple[list[str], dict[str, str]] | None = None,
        preloaded: bool | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(home.parent / f"{log or home.name}.log")
        command = [sys.executable, "-m", "headscope", "serve", "--port", "0", "--no-open"]
        own = [*command, *(["--host", host] if host else [])], environment(home, models, **settings)
        self._command, self._environment = process or own
        chosen = Server.preloading if preloaded is None else preloaded
        self._preloaded = chosen and process is None
        self.home, self.token = home, token

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self, ready: int = 200) -> Server:
        """Start and wait until /readyz answers with that status."""
        self.launch(self._command, env=self._environment, stdout=subprocess.PIPE)
        try:
            self._wait(ready)
        except BaseException:
            self.kill()
            raise
        return self

    def _begin(self, command: Sequence[str | Path], **options: Any) -> subprocess.Popen[bytes] | PreloadedProcess:
        if self._preloaded:
            return PreloadedProcess([str(part) for part in command[3:]], options["env"], self._log)
        return super()._begin(command, **options)

    def _wait(self, ready: int) -> None:
        assert self.process.stdout is not None
        announced = self.process.stdout.readline().decode()
        assert "http://" in announced, f"the server did not start:\n{self.log()}"
        self.url = announced.split("http://")[1].split("/")[0].replace("0.0.0.0", "127.0.0.1")
        self.client = self.visitor(self.token)
        eventually(lambda: self.client.get("/readyz").status_code == ready, "readyz")

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the process and wait for it; nothing happens if it has ended."""
        super().kill(how)
        if hasattr(self, "client"):
            self.client.close()

    def restart(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it and start it again on the same home."""
        self.kill(how)
        self.start()

    def children(self) -> list[psutil.Process]:
        """The worker processes it has now."""
        return [child for forks in self.forks() for child in forks.children()]

    def forks(self) -> list[psutil.Process]:
        """The process that worker processes are forked from."""
        found = psutil.Process(self.process.pid).children()
        return [child for child in found if "forkserver" in " ".join(_cmdline(child))]

    def child(self) -> psutil.Process:
        """The worker process, once there is one. Beside it there may be one that downloads models, and so has none in memory."""
        return max(eventually(self.children, "a worker process"), key=_memory)

    def kill_child(self) -> None:
        """Kill the worker process and wait for its end."""
        child = self.child()
        child.kill()
        eventually(lambda: gone(child), "the worker's end")

    def visitor(self, token: str | None = None) -> httpx.Client:
        """A client of this server, with or without a token. It needs no certificates, which take 20 ms to read."""
        return httpx.Client(
            base_url=f"http://{self.url}", timeout=DEADLINE, trust_env=False, verify=False, headers=bearer(token)
        )

    def use(self, token: str) -> None:
        """Send this token with requests from now on."""
        self.client.close()
        self.token, self.client = token, self.visitor(token)

    def create_user(self, name: str) -> str:
        """Create a user as the command line does; its token."""
        with open_accounts(self.settings) as accounts:
            return accounts.create(name)

    def revoke_user(self, name: str) -> None:
        """Revoke a user's token as the command line does."""
        with open_accounts(self.settings) as accounts:
            accounts.revoke(name)

    @property
    def settings(self) -> Settings:
        """Where its users are."""
        return Settings(home=self.home)

    @property
    def headers(self) -> dict[str, str]:
        """What a request to it needs."""
        return bearer(self.token)

    def get(self, path: str, **more: Any) -> httpx.Response:
        """GET below /api/v1."""
        return self.client.get(f"{API}{path}", **more)

    def post(self, body: Any, path: str = "/analyses", **more: Any) -> httpx.Response:
        """POST a JSON body below /api/v1."""
        return self.client.post(f"{API}{path}", json=body, **more)

    def submit(self, **body: Any) -> str:
        """Ask for an analysis; its id."""
        answer = self.post(body)
        assert answer.status_code in (200, 202), answer.text
        return str(answer.json()["id"])

    def events(self, id_: str, last: str | None = None, of: str = "analyses") -> Iterator[dict[str, Any]]:
        """Events of an analysis, or of one of the `studies`, until the terminal one, each with its `event_id`."""
        headers = {"Last-Event-ID": last} if last else {}
        with self.client.stream("GET", f"{API}/{of}/{id_}/events", headers=headers) as stream:
            assert stream.status_code == 200, stream.read()
            number = ""
            for line in stream.iter_lines():
                if line.startswith("id: "):
                    number = line[4:]
                if line.startswith("data: "):
                    yield {**json.loads(line[6:]), "event_id": number}

    def until(self, id_: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first event that satisfies the condition; fails when the analysis ends without one."""
        for event in self.events(id_):
            if condition(event):
                return event
        raise AssertionError(f"ended before: {event}")

    def forward(self, id_: str, attempt: int = 1) -> None:
        """Wait until that attempt is in the middle of its forward pass."""

        def midway(event: dict[str, Any]) -> bool:
            progress = event["progress"]
            return event["attempts"] == attempt and progress["stage"] == "forward" and progress["fraction"] > 0

        self.until(id_, midway)

    def ended(self, id_: str) -> dict[str, Any]:
        """The document of an analysis once it has ended."""
        for _ in self.events(id_):
            pass
        answer = self.get(f"/analyses/{id_}")
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    def analyse(self, **body: Any) -> dict[str, Any]:
        """Ask for an analysis and wait for its end."""
        document = self.ended(self.submit(**body))
        assert document["status"] == "done", document["error"]
        return document

    def idle(self) -> None:
        """Wait until nothing runs or waits."""
        eventually(lambda: not self._unfinished(), "the end of every job")

    def _unfinished(self) -> int:
        states = ('headscope_jobs{status="queued"}', 'headscope_jobs{status="running"}')
        lines = self.client.get("/metrics").text.splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith(states))

    def settled(self, name: str) -> int:
        """A counter of /metrics once nothing runs or waits: what later counts are compared with."""
        self.idle()
        return self.metric(name)

    def metric(self, name: str) -> int:
        """A number of /metrics, by its name with its labels."""
        return value_of(self.client.get("/metrics").text, name)


def _memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
