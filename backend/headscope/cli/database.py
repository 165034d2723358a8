"""headscope database: the tables of a cluster's database."""

from __future__ import annotations

import click

from .. import stores
from ..database import schema
from ..settings import Settings


@click.group()
def database() -> None:
    """Upgrade the database of a cluster."""


@database.command()
def upgrade() -> None:
    """Create the tables, or upgrade them to this version. Stop all servers and workers, and make a backup first."""
    facts = stores.open_database(Settings(), patient=True)
    try:
        schema.upgrade(facts)
    finally:
        facts.close()
    click.echo("The database is up to date.")
