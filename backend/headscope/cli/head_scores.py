"""headscope head-scores: what every head of a model is for, as far as batteries tell."""

from __future__ import annotations

import json
from typing import Any

import click

import headscope

from ..batteries import BATTERIES
from .options import MODEL
from .output import JSON, format_number, print_table, progress_bar


@click.command("head-scores")
@MODEL
@click.option(
    "-b",
    "--battery",
    "batteries",
    multiple=True,
    type=click.Choice([*BATTERIES]),
    help="Battery; may be repeated.  [default: all that the model allows]",
)
@click.option("--prompts", default=20, show_default=True, type=click.IntRange(1, 10_000), help="Prompts per battery.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of the random prompts.")
@click.option(
    "--top", default=3, show_default=True, type=click.IntRange(1), help="Number of heads to print per battery."
)
@JSON
def head_scores(model: str, batteries: tuple[str, ...], top: int, as_json: bool, **given: Any) -> None:
    """Test what every head is for, such as induction, on prompts made for the model."""
    with progress_bar(quiet=as_json) as progress:
        found = headscope.head_scores(model, batteries or None, progress=progress, **given)
    if as_json:
        click.echo(json.dumps(found.to_document()))
        return
    rows = [
        [name, head, format_number(score), format_number(control)]
        for name in found.scores
        for head, score, control in found.top(name, top)
    ]
    print_table(rows, ["battery", "head", "score", "control"], [2, 3])
    for name, reason in found.missing.items():
        click.echo(f"\n{name}: {reason}")
