"""headscope token: create, list and revoke access tokens."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from ..server import audit
from ..server.accounts import open_accounts
from ..settings import Settings
from .output import JSON


@contextmanager
def _recorded(event: str, name: str) -> Iterator[None]:
    """Record what is done in the file of the audit log, if there is one."""
    wanted = audit.open_audit(Settings())
    yield
    if wanted:
        audit.record(event, uid=os.getuid(), of=name)


@click.group()
def token() -> None:
    """Manage the users of the service.

    Once the first token exists, every request needs one, or a session of the identity provider. The commands take effect at once on all running servers.
    They need the servers' HEADSCOPE_HOME, or in a cluster their HEADSCOPE_DATABASE_URL and HEADSCOPE_REDIS_URL.
    """


@token.command()
@click.argument("name")
def create(name: str) -> None:
    """Create a user NAME and print its token. It cannot be shown again."""
    with open_accounts(Settings()) as accounts, _recorded("token created", name):
        click.echo(accounts.create(name))
    click.echo(f"This is the token of {name}. Only its hash is stored, so copy it now.", err=True)


@token.command(name="list")
@JSON
def list_(as_json: bool) -> None:
    """List the users."""
    with open_accounts(Settings()) as accounts:
        found = accounts.list()
    if as_json:
        click.echo(json.dumps([{"name": account.name, "created": account.created} for account in found]))
        return
    for account in found:
        click.echo(f"{account.name:<32} since {time.strftime('%Y-%m-%d', time.localtime(account.created))}")


@token.command()
@click.argument("name")
@click.option(
    "--hand-over",
    is_flag=True,
    help="Let the user of the identity provider who next signs in under NAME have its analyses.",
)
def revoke(name: str, hand_over: bool) -> None:
    """Revoke the access of NAME immediately: the token, and all sessions. Its analyses are kept."""
    with (
        open_accounts(Settings()) as accounts,
        _recorded("access handed over" if hand_over else "access revoked", name),
    ):
        accounts.revoke(name, hand_over=hand_over)
    click.echo(f"The access of {name} has been revoked.", err=True)
