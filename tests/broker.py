"""A real redis-server for tests: started on a socket in a folder of its own, killed, paused, and started again on the same files."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import redis

from tests.server import DEADLINE, eventually


class Broker:
    """One redis-server whose writes are on disk before they are answered, as the one of a cluster must be. `settings` are further options of its command line."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.socket = folder / "s"  # the path of a socket is short
        self.url = f"unix://{self.socket}"
        options = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(folder), "--save", ""]
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"]
        self._command = ["redis-server", *options, *durable, *settings]
        self._log = folder / "redis.log"

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> Broker:
        """Start and wait until it answers."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)
        try:
            eventually(self._answers, "redis-server")
        except BaseException:
            self.kill()
            raise
        return self

    def _answers(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        with redis.Redis.from_url(self.url) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False

    def send(self, how: signal.Signals) -> None:
        """Send it a signal: SIGSTOP and SIGCONT make it a black hole for a while."""
        self.process.send_signal(how)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it and wait for its end; nothing happens if it has ended."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(timeout=DEADLINE)

    def restart(self) -> None:
        """Kill it in the middle of whatever it does, and start it again on the same files."""
        self.kill()
        self.start()

    def flush(self) -> None:
        """Lose everything."""
        with redis.Redis.from_url(self.url) as client:
            client.flushall()
