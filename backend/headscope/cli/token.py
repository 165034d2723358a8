"""headscope token: create, list and revoke access tokens."""

from __future__ import annotations

import json
import time

import click

from ..server.accounts import FILE, Accounts
from ..settings import Settings
from .output import JSON


@click.group()
def token() -> None:
    """Manage the users of the service.

    Once the first token exists, every request needs one. The commands take effect on a running server.
    """


def _accounts() -> Accounts:
    return Accounts(Settings().home / FILE)


@token.command()
@click.argument("name")
def create(name: str) -> None:
    """Create a user NAME and print its token. It cannot be shown again."""
    click.echo(_accounts().create(name))
    click.echo(f"This is the token of {name}. Only its hash is stored, so copy it now.", err=True)


@token.command(name="list")
@JSON
def list_(as_json: bool) -> None:
    """List the users."""
    accounts = _accounts().list()
    if as_json:
        click.echo(json.dumps([{"name": account.name, "created": account.created} for account in accounts]))
        return
    for account in accounts:
        click.echo(f"{account.name:<32} since {time.strftime('%Y-%m-%d', time.localtime(account.created))}")


@token.command()
@click.argument("name")
def revoke(name: str) -> None:
    """Revoke the token of NAME immediately. Its analyses are kept."""
    _accounts().revoke(name)
    click.echo(f"The token of {name} has been revoked.", err=True)
