"""docker-compose.yml as Docker's own compose reads it, and its services as processes of this machine.

There is no container engine here. A process gets what its container would: the command of the file, the environment of image and file, the files mounted;
only addresses and folders are others. They are replaced by text wherever they stand, and nothing else is.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.server import eventually

ROOT = Path(__file__).resolve().parents[2]
PASSWORDS = {"BROKER_PASSWORD": "a" * 64, "CACHE_PASSWORD": "b" * 64}


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
    """As Compose 1 writes it; Compose 2 writes a mapping."""
    if isinstance(port, str):
        return port
    return f"{port['host_ip']}:{port['published']}:{port['target']}/{port['protocol']}"


def _volume(volume: str | dict[str, Any]) -> str:
    if isinstance(volume, str):
        return volume
    return f"{volume['source']}:{volume['target']}:{'ro' if volume.get('read_only') else 'rw'}"


def image(dockerfile: str) -> dict[str, Any]:
    """Of an image's last stage: `env`, `user`, and `cmd`."""
    stage = re.split(r"^FROM ", (ROOT / dockerfile).read_text("utf-8"), flags=re.MULTILINE)[-1].replace("\\\n", " ")
    env = [line.removeprefix("ENV ") for line in stage.splitlines() if line.startswith("ENV ")]
    return {
        "env": dict(re.findall(r"(\w+)=(\S+)", " ".join(env))),
        "user": re.search(r"^USER (.+)$", stage, re.MULTILINE)[1],
        "cmd": yaml.safe_load(re.search(r"^CMD (.+)$", stage, re.MULTILINE)[1]),
    }


class Stack:
    """The services as processes, with folders and ports of their own. Ends them all when it is left."""

    def __init__(self, folder: Path, models: Path) -> None:
        self.folder, self._models = folder, models
        self.services = read(**PASSWORDS)["services"]
        self.ports = {name: _free_port() for name in ("broker", "cache", "api")}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "bin").mkdir()
        (folder / "bin" / "headscope-workers").symlink_to(ROOT / "deploy" / "workers.sh")

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, name: str, *, service: str | None = None, **more: str) -> None:
        """Start a service's command under that name: a service of the file, unless `service` says of which it is one more. `more` is environment."""
        service = service or name
        words = self._words(service, self.services[service]["command"])
        with self.log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                words, env={**self.environment(service), **more}, stdout=log, stderr=log
            )

    def run(self, service: str, command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
        """Another command in the place of a service's own, to its end: docker compose run."""
        environment = {**self.environment(service), **more}
        return subprocess.run(
            self._words(service, command), env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    def process(self, name: str) -> subprocess.Popen[bytes]:
        """The process of that name."""
        return self._processes[name]

    def healthy(self, service: str) -> bool:
        """Whether the service's health check says so now."""
        kind, *words = self.services[service]["healthcheck"]["test"]
        # Compose writes a dollar sign twice, so that it is not taken for a variable of its own.
        words = [word.replace("$$", "$") for word in words]
        return self.run(service, words if kind == "CMD" else ["/bin/sh", "-c", *words]).returncode == 0

    def wait(self, service: str) -> None:
        """Until the service is healthy; fails with its log."""

        def look() -> bool:
            process = self._processes[service]
            assert process.poll() is None, (
                f"{service} ended with {process.returncode}:\n{self.log(service).read_text()}"
            )
            return self.healthy(service)

        eventually(look, f"{service} is healthy")

    def log(self, name: str) -> Path:
        """What the process of that name prints."""
        return self.folder / f"{name}.log"

    def stop(self, name: str) -> int:
        """End a process as docker does, by SIGTERM; its exit status."""
        process = self._processes.pop(name)
        process.terminate()
        return process.wait(30)

    def environment(self, service: str) -> dict[str, str]:
        """What the container of a service would see, and the PATH on which its programs are."""
        file = self.services[service]
        built = file.get("build", {}).get("dockerfile", "Dockerfile") if "build" in file else None
        values = {**(image(built)["env"] if built else {}), **file["environment"]}
        values = {name: self._here(service, value) for name, value in values.items() if value is not None}
        ours = {"HEADSCOPE_MODEL_DIRS": f'["{self._models}"]', "HEADSCOPE_PREWARM": "false", "HEADSCOPE_THREADS": "1"}
        path = f"{Path(sys.executable).parent}:{self.folder / 'bin'}:{os.environ['PATH']}"
        return {**values, **(ours if built else {}), "HEADSCOPE_HUB": "off", "PATH": path, "LANG": "C.UTF-8"}

    def _words(self, service: str, command: list[str]) -> list[str]:
        words = [self._here(service, word) for word in command]
        found = shutil.which(words[0], path=self.environment(service)["PATH"])
        assert found, f"{words[0]} is not installed"
        return [found, *words[1:]]

    def _here(self, service: str, text: str) -> str:
        """Text of the file with this machine's addresses and folders in it."""
        own = {"/data": "data", "/run/redis": "run", "/var/lib/headscope": "home"}
        for there, name in own.items():
            here = self.folder / (name if name == "home" else f"{service}-{name}")
            here.mkdir(parents=True, exist_ok=True)
            text = text.replace(there, str(here))
        text = text.replace("/etc/headscope", str(ROOT / "deploy" / "redis"))
        for name in ("broker", "cache"):
            text = text.replace(f"@{name}:6379", f"@127.0.0.1:{self.ports[name]}")
        own_port = str(self.ports[service if service in self.ports else "api"])
        return re.sub(r"(?<!\d)(6379|8000)(?!\d)", own_port, text)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
