"""headscope serve: the service and the page."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import cast

import click
import uvicorn

from .. import logs
from ..api.app import create
from ..api.http.connection import Connection, max_connections
from ..errors import DatabaseDamaged, DatabaseUnavailable, HeadscopeError
from ..models.device import resolve
from ..server import doctor
from ..server.accounts import open_accounts
from ..server.audit import open_audit
from ..settings import Settings

logger = logging.getLogger("headscope")

# Connections that may wait to be accepted, and connections accepted per turn of the event loop, before idle ones are closed for them.
BACKLOG, ACCEPTED_AT_ONCE = 2048, 16
# Bytes of a response that the kernel buffers per connection; twice as much on Linux.
SEND_BUFFER = 256 * 1024


@click.command()
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. An address that other machines can reach requires users (headscope token).",
)
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on.")
@click.option(
    "--open/--no-open", "open_page", default=True, help="Open the page in a browser once the server is ready."
)
def serve(host: str, port: int, open_page: bool) -> None:
    """Start the service and the page.

    Nothing else has to be installed: one child process runs the models, and results are stored in a folder (HEADSCOPE_HOME).
    """
    settings, reachable = Settings(), not _is_loopback(host)
    logs.configure(settings.log_format, settings.log_level)
    open_audit(settings)
    if reachable:
        _refuse_without_users(settings)
        settings = _allow_host(settings, host)
    doctor.refuse_evicting_broker(settings)
    if settings.redis_url is None and settings.device != "auto":  # auto is resolved where models run
        resolve(settings.device)
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


def _allow_host(settings: Settings, host: str) -> Settings:
    """Return the settings of a server that other machines reach under this address."""
    if not _is_every_address(host):
        name = f"[{host}]" if ":" in host else host.lower()
        return settings.model_copy(update={"allowed_hosts": (*settings.allowed_hosts, name)})
    if not settings.allowed_hosts:
        logger.warning(
            "only requests to loopback names are accepted: add this machine's name to HEADSCOPE_ALLOWED_HOSTS"
        )
    return settings


def _refuse_without_users(settings: Settings) -> None:
    """Raise HeadscopeError if there is no user yet, nor an identity provider. A database that may still be starting, or is about to be quarantined, is ignored."""
    with suppress(DatabaseUnavailable, DatabaseDamaged), open_accounts(settings) as accounts:
        if settings.oidc_issuer is None and not accounts.list():
            raise HeadscopeError(
                "Other machines can reach this address, but there are no access tokens yet. Create one first: headscope token create NAME"
            )


class _ListeningSocket(socket.socket):
    """A socket with its own backlog: asyncio accepts as many connections per turn as its `backlog` says."""

    def listen(self, backlog: int = BACKLOG, /) -> None:
        super().listen(max(backlog, BACKLOG))


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket bound to that address. Raises HeadscopeError if the port is not available."""
    # asyncio sets TCP_NODELAY only if the protocol is given; without it some responses are delayed by 40 ms.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = _ListeningSocket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # inherited by accepted connections
        listening.bind((host, port))
    except OSError:
        listening.close()
        raise HeadscopeError(f"Port {port} is in use or not permitted. Choose another one with --port.") from None
    return listening


class _Server(uvicorn.Server):
    """A server that calls `on_ready` with its address once it is listening."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._on_ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/")


def _announce(settings: Settings, address: str, open_page: bool) -> None:
    if settings.log_format == "json":
        click.echo(logs.line("json", "listening", address=address))
    else:
        click.echo(f"Headscope is at {address}  (Ctrl+C stops it)")
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
