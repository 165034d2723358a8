"""An identity provider for tests: oidc-provider, as a process."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import httpx

from tests.support.server import Program

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_suffix("").with_name("identity_provider.mjs")


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Provider(Program):
    """A provider whose address is known before it runs, as a server names it when it starts, and it names the server."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "identity_provider.log")
        self.port = free_port()
        self.issuer = f"http://localhost:{self.port}"

    def start(self, page: str, secret: str = "") -> None:
        """Start for the client `headscope`, whose page has this address, and wait until it answers."""
        # `node` may be a script that starts it: the provider ends with its standard input, not with that script.
        self.launch(["node", SCRIPT, str(self.port), page, secret], cwd=ROOT, stdin=subprocess.PIPE)
        self.await_answer(self._answers)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.issuer}/.well-known/openid-configuration", trust_env=False).status_code == 200
        except httpx.TransportError:
            assert self.process.poll() is None, self.log()
            return False
