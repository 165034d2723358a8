"""headscope serve: the service and the page, in this process."""

from __future__ import annotations

import ipaddress
import logging
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from typing import Any

import click

from ..errors import HeadscopeError
from ..settings import Settings


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; loopback addresses only.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on.")
@click.option(
    "--open/--no-open", "open_page", default=True, help="Open the page in a browser once the server is ready."
)
def serve(host: str, port: int, open_page: bool) -> None:
    """Start the service and the page.

    Needs nothing else: one child process runs the models, results live in a folder (HEADSCOPE_HOME).
    """
    import uvicorn

    from ..api.app import create

    if not _is_loopback(host):
        raise HeadscopeError(
            "Headscope has no access tokens in this version, so it listens on loopback addresses only. To reach it from elsewhere, use an SSH tunnel."
        )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    app = create(Settings())
    app.state.service.take_home()  # said here, where it is one plain sentence
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
        backlog=2048,
        h11_max_incomplete_event_size=16384,
        http="h11",
    )
    server = _Server(config, lambda address: _announce(address, open_page))
    server.run(sockets=[_listen(host, port)])
    if not server.started:
        sys.exit(1)


def _listen(host: str, port: int) -> socket.socket:
    """A socket at that address. Raises HeadscopeError if it can't be had."""
    # The protocol is named because asyncio sets TCP_NODELAY only then; without it some answers wait 40 ms.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError:
        listening.close()
        raise HeadscopeError(f"Port {port} is taken or not allowed. Choose another one with --port.") from None
    return listening


def _server_class() -> Any:
    import uvicorn

    class Server(uvicorn.Server):
        """Says where it listens once it does."""

        def __init__(self, config: Any, ready: Callable[[str], None]) -> None:
            super().__init__(config)
            self._ready = ready

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                host, port = self.servers[0].sockets[0].getsockname()[:2]
                self._ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/")

    return Server


def _Server(config: Any, ready: Callable[[str], None]) -> Any:  # noqa: N802 - stands for the class, made late so that --help stays quick
    return _server_class()(config, ready)


def _announce(address: str, open_page: bool) -> None:
    click.echo(f"Headscope is at {address}  (Ctrl+C stops it)")
    if open_page:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
