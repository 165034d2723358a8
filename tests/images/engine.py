"""A container engine, and the services of docker-compose.yml in it."""

from __future__ import annotations

import json
import os
import resource
import secrets
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.support.compose import ROOT, free_port
from tests.support.server import eventually

PASSWORDS = ("DATABASE_PASSWORD", "BROKER_PASSWORD", "CACHE_PASSWORD")
PROJECT = "headscope-images"
# Longest wait (s) for anything. Databases are created, models are loaded, and other programs run on the machine.
PATIENCE = 240.0


class Engine:
    """The command line of Docker, or of an engine with the same one."""

    def __init__(self, program: str) -> None:
        self.program = program

    def __call__(self, *words: str, check: bool = True, **more: Any) -> str:
        """Run a command and return its standard output. Raises CalledProcessError, with the output, unless `check` is false."""
        return run([self.program, *words], check=check, **more)

    def build(self, tag: str, dockerfile: Path, *options: str, context: Path = ROOT, **arguments: str) -> None:
        """Build an image; its log goes to standard output."""
        words = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
        command = [self.program, "build", "--tag", tag, "--file", str(dockerfile), *options, *words, str(context)]
        subprocess.run(command, check=True, env={**os.environ, "DOCKER_BUILDKIT": "1"})

    def inspect(self, name: str) -> dict[str, Any]:
        """Return what the engine knows of an image or a container."""
        (found,) = json.loads(self("inspect", name))
        return found

    def log(self, container: str) -> list[str]:
        """Return the lines that a container has written to standard error."""
        shown = subprocess.run([self.program, "logs", container], capture_output=True, text=True, check=True)
        return shown.stderr.splitlines()

    def contained(self, image: str, *command: str, check: bool = True, options: tuple[str, ...] = ()) -> str:
        """Run a command as docker-compose.yml runs services: its user, no capabilities, a root file system that is read-only."""
        limits = "--read-only --cap-drop ALL --security-opt no-new-privileges --tmpfs /tmp:mode=1777".split()
        return self("run", "--rm", "--network", "none", *limits, *options, image, *command, check=check)

    def unpacked(self, image: str) -> int:
        """Return the bytes that the files of an image take on a disk."""
        words = ("run", "--rm", "--network", "none", "--user", "0", image, "du", "--summarize", "--one-file-system")
        return int(self(*words, "--block-size=1", "/").split()[0])


def run(command: list[str], *, check: bool = True, **more: Any) -> str:
    """Run a command and return its standard output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if check and done.returncode:
        raise AssertionError(
            f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return done.stdout if done.returncode == 0 else done.stdout + done.stderr


class Stack:
    """All services of the default profile, each a container from its image, in a project of their own; removed on exit with their volumes."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._engine = engine
        self.port = free_port()
        self._environment = {
            **os.environ,
            **{name: secrets.token_hex(32) for name in PASSWORDS},
            "PORT": str(self.port),
            "HEADSCOPE_HUB": "off",
        }
        files = [ROOT / "docker-compose.yml", self._override(folder / "override.yml")]
        plugin = (
            subprocess.run([engine.program, "compose", "version"], capture_output=True, check=False).returncode == 0
        )
        words = [engine.program, "compose"] if plugin or not shutil.which("docker-compose") else ["docker-compose"]
        (folder / "empty").touch()  # instead of the .env of this checkout
        self._words = [*words, "--env-file", str(folder / "empty"), "--project-name", PROJECT]
        self._words += [word for file in files for word in ("--file", str(file))]

    @staticmethod
    def _override(file: Path) -> Path:
        """Write what this machine cannot give: more open files than its own limit."""
        wanted = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]["api"]["ulimits"][
            "nofile"
        ]
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        less = {"api": {"ulimits": {"nofile": hard}}} if hard != resource.RLIM_INFINITY and wanted > hard else {}
        file.write_text(yaml.safe_dump({"services": less} if less else {"networks": {}}))
        return file

    def __enter__(self) -> Stack:
        self.compose("down", "--volumes", "--timeout", "1", check=False)
        return self

    def __exit__(self, *_: object) -> None:
        self.compose("down", "--volumes", "--timeout", "5", check=False)

    def compose(self, *words: str, check: bool = True) -> str:
        """Run a command of Docker Compose for this project."""
        return run([*self._words, *words], check=check, cwd=ROOT, env=self._environment)

    def client(self, token: str) -> httpx.Client:
        """Return a client of the service."""
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=60, trust_env=False)

    def containers(self, service: str) -> list[str]:
        """Return the ids of a service's containers."""
        return self.compose("ps", "--quiet", service).split()

    def wait(self) -> None:
        """Wait until every container is healthy."""
        for service in ("db", "broker", "cache", "api", "worker"):
            eventually(partial(self._healthy, service), f"{service} is healthy", PATIENCE)

    def _healthy(self, service: str) -> bool:
        states = [self._engine.inspect(id_)["State"] for id_ in self.containers(service)]
        return bool(states) and all(state["Health"]["Status"] == "healthy" for state in states)
