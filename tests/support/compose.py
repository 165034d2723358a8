"""docker-compose.yml as Docker Compose reads it, and its services as local processes. Tests start parts of a cluster only in this way.

There is no container engine. A process gets what its container would: the command of the file, the environment of image and file, the mounted files.
Only addresses and folders are replaced in the text. Tests add what else they need: settings as environment, options of
redis-server after those of the file, and a name for a worker, because a container keeps its host name and process number over a restart.
"""

from __future__ import annotations

import functools
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import psutil
import redis
import yaml

from tests.support.postgres import PASSWORD, PROGRAMS, Postgres
from tests.support.server import Program, eventually, value_of, variables

ROOT = Path(__file__).resolve().parents[2]
PASSWORDS = {"DATABASE_PASSWORD": PASSWORD, "BROKER_PASSWORD": "a" * 64, "CACHE_PASSWORD": "b" * 64}


@functools.cache
def read(**variables: str) -> dict[str, Any]:
    """The services of docker-compose.yml, all profiles, as `docker-compose config` resolves them. Raises CalledProcessError if it refuses the file."""
    environment = {"PATH": os.environ["PATH"], **variables}
    with tempfile.NamedTemporaryFile() as nothing:  # instead of the .env of this checkout
        command = ["docker-compose", "--env-file", nothing.name, "--profile", "gpu", "config"]
        shown = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    file = yaml.safe_load(shown.stdout)
    for service in file["services"].values():
        service["ports"] = [_port(port) for port in service.get("ports", [])]
        service["volumes"] = [_volume(volume) for volume in service.get("volumes", [])]
    return file


def _port(port: str | dict[str, Any]) -> str:
    """Return the form of Compose 1; Compose 2 writes a mapping."""
    if isinstance(port, str):
        return port
    return f"{port['host_ip']}:{port['published']}:{port['target']}/{port['protocol']}"


def _volume(volume: str | dict[str, Any]) -> str:
    if isinstance(volume, str):
        return volume
    return f"{volume['source']}:{volume['target']}:{'ro' if volume.get('read_only') else 'rw'}"


def image(dockerfile: str) -> dict[str, Any]:
    """Return `env`, `user` and `cmd` of an image's last stage."""
    stage = re.split(r"^FROM ", (ROOT / dockerfile).read_text("utf-8"), flags=re.MULTILINE)[-1].replace("\\\n", " ")
    env = [line.removeprefix("ENV ") for line in stage.splitlines() if line.startswith("ENV ")]
    return {
        "env": dict(re.findall(r"(\w+)=(\S+)", " ".join(env))),
        "user": re.search(r"^USER (.+)$", stage, re.MULTILINE)[1],
        "cmd": yaml.safe_load(re.search(r"^CMD (.+)$", stage, re.MULTILINE)[1]),
    }


# How this machine multiplies matrices. Another choice changes last bits, and the numbers of a cluster are compared with those of other processes.
BLAS = {name: value for name, value in os.environ.items() if name.startswith(("OPENBLAS_", "OMP_"))}


class Service(Program):
    """A process of a service, with `options` after its command and `more` environment."""

    def __init__(self, log: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        super().__init__(log)
        self.command, self.environment = list(command), dict(environment)

    def start(self, *options: str, **more: str) -> Service:
        """Start the process."""
        self.launch([*self.command, *options], env={**self.environment, **more})
        return self


class Redis(Service):
    """The broker or the cache. Tests have the permissions of Headscope's user: they fill the memory with a value, and empty the broker by deleting its files."""

    def __init__(self, log: Path, command: Sequence[str], environment: Mapping[str, str], url: str, data: Path) -> None:
        super().__init__(log, command, environment)
        self.url, self.data = url, data

    def start(self, *options: str, **more: str) -> Redis:
        """Start it and wait until it responds. The last of several values of an option counts."""
        super().start(*options, **more)
        self.await_answer(self._answers)
        return self

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log()
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.AuthenticationError:  # the test has changed the password
            return True
        except redis.RedisError:
            return False

    def client(self, **options: Any) -> redis.Redis:
        """Connect as Headscope's user."""
        return redis.Redis.from_url(self.url, decode_responses=True, retry=None, **options)

    def restart(self, *options: str) -> None:
        """Kill it and start it again with the same files."""
        self.kill()
        self.start(*options)

    def flush(self) -> None:
        """Remove everything while it runs, as FLUSHALL does, which Headscope's user may not. Raises RedisError if it does not answer."""
        with self.client(socket_connect_timeout=1, socket_timeout=5) as client:
            while keys := list(client.scan_iter(count=1000)):
                client.delete(*keys)

    def empty(self) -> None:
        """Kill it and start it again without its files."""
        self.kill()
        shutil.rmtree(self.data / "appendonlydir", ignore_errors=True)
        self.start()

    @contextmanager
    def full(self) -> Iterator[None]:
        """Fill the memory up to its limit of 512 MB with one value."""
        with self.client() as client:
            client.setrange("ballast", 512 * 1024**2 - 1, "x")
            try:
                yield
            finally:
                client.delete("ballast")


class Worker(Service):
    """`headscope worker` and its child, which runs models. Its metrics are at `port`."""

    def __init__(self, log: Path, command: Sequence[str], environment: Mapping[str, str], name: str, port: int) -> None:
        super().__init__(log, command, environment)
        self.name, self.port = name, port

    def start(self, *options: str, **more: str) -> Worker:
        """Start it; it runs jobs once it is listed, which `Cluster.ready` waits for."""
        super().start(*options, **more)
        return self

    def child(self) -> psutil.Process:
        """Wait for the process that runs models and return it."""
        return eventually(lambda: psutil.Process(self.process.pid).children(), f"a child of {self.name}")[0]

    def metric(self, name: str) -> int:
        """Return a number of its /metrics; zero if it has not counted yet. Waits until a worker that is starting serves them."""
        text = eventually(self._metrics, f"metrics of {self.name}")
        return value_of(text, name) if f"headscope_{name} " in text else 0

    def _metrics(self) -> str:
        assert self.running, self.log()
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/metrics", trust_env=False, verify=False).text
        except httpx.ConnectError:
            return ""


class Stack:
    """The services as processes, with their own folders and ports; `settings` are added to the environment of Headscope, those of HF_ and OTEL_ as they are. Stops all on exit.

    `constants` of headscope.jobs, such as supervisor.STALE_SECONDS, have other values in its servers and workers.
    """

    def __init__(
        self,
        folder: Path,
        models: Path | None = None,
        *,
        home: Path | None = None,
        logs: Path | None = None,
        constants: Mapping[str, float] | None = None,
        **settings: Any,
    ) -> None:
        self.folder, self.home, self._logs = folder, home or folder / "home", logs or folder
        self._constants = constants or {}
        found = {} if models is None else {"model_dirs": [str(models)]}
        hub = {name: str(settings.pop(name)) for name in list(settings) if name.startswith(("HF_", "OTEL_"))}
        self._ours = {**variables(**{"hub": "off", "prewarm": False, "threads": 1, **found, **settings}), **hub}
        self.services = read(**PASSWORDS)["services"]
        self.ports = {name: free_port() for name in ("db", "broker", "cache", "api")}
        self._programs: dict[str, Program] = {}
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "headscope-workers").symlink_to(ROOT / "deploy" / "workers.sh")

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, *_: object) -> None:
        for program in reversed(self._programs.values()):
            program.close() if isinstance(program, Postgres) else program.kill(signal.SIGTERM)

    def start(self, name: str, *, service: str | None = None, **more: str) -> None:
        """Start a process of a service, by default the service `name`. `more` is added to the environment."""
        if name == "db":
            self.database().start()
            return
        port = self.ports.setdefault(name, free_port(2))  # two, for a container of two workers
        words, environment = self.words(service or name, port=port), self.environment(service or name, port)
        self._programs[name] = Service(self.log(name), words, environment).start(**more)

    def database(self) -> Postgres:
        """Return the service `db`, not started yet. Its image has created the user and the database already."""
        environment, options = self.environment("db"), self.words("db")[1:]
        made = self._programs["db"] = Postgres(self.log("db"), self.ports["db"], options, environment)
        return made

    def redis(self, name: str) -> Redis:
        """Return the service `broker` or `cache`, not started yet."""
        url = self.environment("api")[{"broker": "HEADSCOPE_REDIS_URL", "cache": "HEADSCOPE_CACHE_URL"}[name]]
        made = Redis(self.log(name), self.words(name), self.environment(name), url, self.folder / f"{name}-data")
        self._programs[name] = made
        return made

    def worker(self, name: str, **settings: Any) -> Worker:
        """Return a new worker, not started yet."""
        port = self.ports.setdefault(name, free_port())
        words = [*self._changed(self.words("worker")), "--name", name]
        environment = {**self.environment("worker", port), **variables(**settings)}
        made = self._programs[name] = Worker(self.log(name), words, environment, name, port)
        return made

    def api(self, name: str) -> tuple[list[str], dict[str, str]]:
        """Return the command and environment of a new server."""
        self.ports.setdefault(name, free_port())
        return self._changed(self.words("api", port=self.ports[name])), self.environment("api")

    def _changed(self, words: list[str]) -> list[str]:
        """Return a command of Headscope that overrides the constants."""
        if not self._constants:
            return words
        for name in self._constants:
            module, constant = name.split(".")
            getattr(import_module(f"headscope.jobs.{module}"), constant)  # a misspelt name would change nothing
        modules = "".join(f"import headscope.jobs.{name.split('.')[0]}\n" for name in self._constants)
        values = "".join(f"headscope.jobs.{name} = {value}\n" for name, value in self._constants.items())
        return [sys.executable, "-c", f"{modules}{values}from headscope.cli.main import main\nmain()", *words[1:]]

    def run(self, service: str, command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
        """Run another command in place of a service's own and wait for it, as docker compose run does."""
        environment = {**self.environment(service), **more}
        words = self.words(service, command)
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def process(self, name: str) -> subprocess.Popen[bytes]:
        """Return the process of that name."""
        return self._programs[name].process

    def healthy(self, service: str) -> bool:
        """Return whether the service's health check passes."""
        kind, *words = self.services[service]["healthcheck"]["test"]
        # Compose writes a dollar sign twice, so that it is not taken for a variable of its own.
        words = [word.replace("$$", "$") for word in words]
        return self.run(service, words if kind == "CMD" else ["/bin/sh", "-c", *words]).returncode == 0

    def wait(self, service: str) -> None:
        """Wait until the service is healthy; fails with its log."""

        def look() -> bool:
            process = self.process(service)
            assert process.poll() is None, (
                f"{service} ended with {process.returncode}:\n{self.log(service).read_text()}"
            )
            return self.healthy(service)

        eventually(look, f"{service} is healthy")

    def log(self, name: str) -> Path:
        """Return the output of the process of that name."""
        return self._logs / f"{name}.log"

    def stop(self, name: str) -> int:
        """Stop a process with SIGTERM, as Docker does; return its exit status."""
        program = self._programs.pop(name)
        program.kill(signal.SIGTERM)
        return int(program.process.returncode)

    def environment(self, service: str, port: int | None = None) -> dict[str, str]:
        """Return the environment that a container of the service would have, with the PATH of its programs."""
        file = self.services[service]
        built = file.get("build", {}).get("dockerfile", "Dockerfile") if "build" in file else None
        values = {**(image(built)["env"] if built else {}), **file["environment"]}
        values = {name: self._here(service, value, port) for name, value in values.items() if value is not None}
        ours = {**self._ours, "PYTHONPATH": str(ROOT / "backend")} if built else {}
        path = f"{Path(sys.executable).parent}:{self.folder / 'bin'}:{os.environ['PATH']}:{PROGRAMS}"
        return {**BLAS, **values, **ours, "PATH": path, "LANG": "C.UTF-8"}

    def words(self, service: str, command: list[str] | None = None, port: int | None = None) -> list[str]:
        """Return the command of a service, or another one, as this machine runs it."""
        words = [self._here(service, word, port) for word in command or self.services[service]["command"]]
        found = shutil.which(words[0], path=self.environment(service)["PATH"])
        assert found, f"{words[0]} is not installed"
        return [found, *words[1:]]

    def _here(self, service: str, text: str, port: int | None = None) -> str:
        """Replace addresses and folders in a text of the file by those of this machine."""
        own = {"/data": "data", "/run/redis": "run"}
        folders = {there: self.folder / f"{service}-{name}" for there, name in own.items()}
        for there, here in {**folders, "/var/lib/headscope": self.home}.items():
            here.mkdir(parents=True, exist_ok=True)
            text = text.replace(there, str(here))
        text = text.replace("/etc/headscope", str(ROOT / "deploy" / "redis"))
        for name, port_ in (("db", 5432), ("broker", 6379), ("cache", 6379)):
            text = text.replace(f"@{name}:{port_}", f"@127.0.0.1:{self.ports[name]}")
        own_port = str(port or self.ports[service if service in self.ports else "api"])
        return re.sub(r"(?<!\d)(5432|6379|8000|9101)(?!\d)", own_port, text)


@contextmanager
def redis_server(*options: str, service: str = "broker") -> Iterator[Redis]:
    """Run a broker or a cache as the file starts it, in its own folder."""
    with tempfile.TemporaryDirectory(prefix="headscope-") as folder, Stack(Path(folder)) as stack:
        yield stack.redis(service).start(*options)


def free_port(count: int = 1) -> int:
    """Return the first of some adjacent ports for this process alone, which stay free after their servers have stopped: outgoing connections never use ports below 32768."""
    while True:
        first = random.SystemRandom().randrange(20_000, 32_000)
        if all(_reserve(port) for port in range(first, first + count)):
            return first


def _reserve(port: int) -> bool:
    """Tell other test processes that a port is taken, before its server listens; return False if it is taken already."""
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f"\0headscope-test-port-{port}")
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", port))
    except OSError:
        reservation.close()
        return False
    reservation.detach()  # stays open as long as this process
    return True


@contextmanager
def database_server(*options: str) -> Iterator[Postgres]:
    """Run a PostgreSQL as the file starts it, in its own folder."""
    with tempfile.TemporaryDirectory(prefix="headscope-") as folder, Stack(Path(folder)) as stack:
        yield stack.database().start(*options)
