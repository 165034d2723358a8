"""headscope mechanisms, lenses and measures: the available methods, with their parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping

import click

from ..core.declarations import Declaration
from ..lenses import LENSES
from ..measures import MEASURES
from ..mechanisms import MECHANISMS
from .output import JSON


def _list_command(kind: str, methods: Mapping[str, Declaration]) -> click.Command:
    @click.command(kind, help=f"List the {kind}, with their parameters and defaults.")
    @JSON
    def command(as_json: bool) -> None:
        if as_json:
            click.echo(json.dumps([method.describe() for method in methods.values()]))
            return
        for name, method in methods.items():
            click.echo(f"{name:<22} {method.title}")
            for parameter, schema in method.params.model_json_schema().get("properties", {}).items():
                click.echo(f"  {parameter}={json.dumps(schema.get('default'))}")

    return command


mechanisms = _list_command("mechanisms", MECHANISMS)
lenses = _list_command("lenses", LENSES)
measures = _list_command("measures", MEASURES)
