"""headscope models: the available models."""

from __future__ import annotations

import json
from typing import Any

import click

from ..models.catalog import Catalog
from ..settings import Settings
from .output import JSON, print_table


@click.command()
@JSON
def models(as_json: bool) -> None:
    """List the available models."""
    catalog = Catalog(Settings())
    cards = [catalog.describe(name) for name in catalog.names()]
    if as_json:
        click.echo(json.dumps(cards))
        return
    print_table(
        [(card["name"], card["layers"] or "", card["heads"] or "", card["kind"], _state(card)) for card in cards],
        ("model", "layers", "heads", "kind", "state"),
        numbers=(1, 2),
    )


def _state(card: dict[str, Any]) -> str:
    """Return why the model is not available, or where it is, how it attends and which models were trained beside it."""
    if not card["available"]:
        return str(card["reason"])
    parts = ["on this machine" if card["local"] else "downloaded from the hub on first use"]
    if card["mechanism"]["name"] != "softmax":
        parts.append(f"attends by {card['mechanism']['name']}")
    if card["siblings"]:
        parts.append(f"beside {', '.join(card['siblings'])}")
    return "; ".join(parts)
