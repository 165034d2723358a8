"""headscope serve: the service and the page, in this process."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import click

from .. import logs
from ..errors import HeadscopeError
from ..server import doctor
from ..server.accounts import FILE, Accounts
from ..settings import Settings

logger = logging.getLogger("headscope")

# Connections that wait to be accepted; and those accepted before others are closed for them, which takes a turn of the event loop.
BACKLOG, ACCEPTED_AT_ONCE = 2048, 16
# Bytes of an answer that the kernel keeps for a connection; twice as much on Linux.
SEND_BUFFER = 256 * 1024


@click.command()
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. One that can be reached from elsewhere needs users first (headscope token).",
)
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
    from ..api.http.connection import Connection, max_connections

    settings, reachable = Settings(), not _is_loopback(host)
    logs.configure(settings.log_format, settings.log_level)
    if reachable:
        settings = _opened(settings, host)
    doctor.refuse_evicting_broker(settings)
    app = create(settings, tokens=reachable)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,  # logging is set up already
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
        backlog=ACCEPTED_AT_ONCE,
        h11_max_incomplete_event_size=16384,
        http=cast("type[asyncio.Protocol]", partial(Connection, limit=max_connections())),
        ws="none",
    )
    server = _Server(config, lambda address: _announce(settings, address, open_page))
    server.run(sockets=[_listen(host, port)])
    if not server.started:
        sys.exit(1)


def _opened(settings: Settings, host: str) -> Settings:
    """The settings of a server that others can reach, at that address. Raises HeadscopeError while nobody has a token."""
    if not Accounts(settings.home / FILE).list():
        raise HeadscopeError(
            "That address can be reached from elsewhere, and nobody has an access token yet. Make one first: headscope token create NAME"
        )
    if not _is_every_address(host):
        name = f"[{host}]" if ":" in host else host.lower()
        return settings.model_copy(update={"allowed_hosts": (*settings.allowed_hosts, name)})
    if not settings.allowed_hosts:
        logger.warning("only loopback names are answered: name this machine in HEADSCOPE_ALLOWED_HOSTS")
    return settings


class _Listening(socket.socket):
    """A listening socket with a backlog of its own: asyncio accepts as many connections in one go as it thinks may wait."""

    def listen(self, backlog: int = BACKLOG, /) -> None:
        super().listen(max(backlog, BACKLOG))


def _listen(host: str, port: int) -> socket.socket:
    """A socket at that address. Raises HeadscopeError if it can't be had."""
    # The protocol is named because asyncio sets TCP_NODELAY only then; without it some answers wait 40 ms.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = _Listening(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # which accepted ones inherit
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


def _announce(settings: Settings, address: str, open_page: bool) -> None:
    for_programs = settings.log_format == "json"
    click.echo(
        logs.line("json", "listening", address=address)
        if for_programs
        else f"Headscope is at {address}  (Ctrl+C stops it)"
    )
    if open_page:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_every_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
