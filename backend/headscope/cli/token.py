"""headscope token: who may use the server."""

from __future__ import annotations

import json
import time

import click

from ..server.accounts import FILE, Accounts
from ..settings import Settings
from .output import JSON


@click.group()
def token() -> None:
    """Say who may use the service.

    As soon as there is a token, every request needs one. The commands take effect on a running server.
    """


def _accounts() -> Accounts:
    return Accounts(Settings().home / FILE)


@token.command()
@click.argument("name")
def create(name: str) -> None:
    """Make a user NAME and print its token, which can't be shown again."""
    made = _accounts().create(name)
    click.echo(made)
    click.echo(f"This is the token of {name}. It is kept nowhere: give it to {name} now.", err=True)


@token.command(name="list")
@JSON
def list_(as_json: bool) -> None:
    """List who has a token."""
    everyone = _accounts().list()
    if as_json:
        click.echo(json.dumps([{"name": account.name, "created": account.created} for account in everyone]))
        return
    for account in everyone:
        click.echo(f"{account.name:<32} since {time.strftime('%Y-%m-%d', time.localtime(account.created))}")


@token.command()
@click.argument("name")
def revoke(name: str) -> None:
    """End the access of NAME, at once. Its analyses are kept."""
    _accounts().revoke(name)
    click.echo(f"The token of {name} is no longer taken.", err=True)
