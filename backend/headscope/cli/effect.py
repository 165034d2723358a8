"""headscope effect: what every head does to a prediction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

import headscope

from ..core.attention import required
from ..effects import EFFECTS
from .options import KIND, MAX_TOKENS, MODEL, REFERENCE, MethodType, check_model, read_lines, read_text
from .output import JSON, format_number, print_table


@click.command()
@click.argument("text")
@click.option("--pair", "text_pair", help="The decoder's text of an encoder-decoder, or a second text.")
@MODEL
@click.option("--target", help='Token or class, such as " Paris", with its space.  [default: the model\'s own choice]')
@click.option("--minus", help="Token or class whose logit is subtracted.")
@click.option("--against", help="Another text with as many tokens, for patching and its estimate.")
@REFERENCE
@click.option(
    "--position",
    type=int,
    help="Token at which the model predicts, from 0, or from the end if negative.  [default: the last one, or the masked one]",
)
@click.option(
    "--mask",
    multiple=True,
    type=int,
    help="Token, from 0, that is replaced by the mask token, for models that fill in masks; may be repeated.",
)
@click.option(
    "--method",
    default="contribution",
    show_default=True,
    type=MethodType("method", EFFECTS),
    help="contribution, ablation, ablation:how=zero, ablation:how=reference, patching, path-patching:receiver=4.5, attribution-patching, gradient-attention, integrated-gradients, "
    "dual-path, alti-logit, or score:head=4.5,query=-1,key=0.",
)
@click.option(
    "--jacobian-lens",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File of a fitted Jacobian lens, for contribution:writes=5.",
)
@KIND
@MAX_TOKENS
@click.option("--top", default=20, show_default=True, type=click.IntRange(1), help="Number of heads to print.")
@JSON
def effect(
    model: str,
    target: str | None,
    minus: str | None,
    reference: Path | None,
    text: str,
    mask: tuple[int, ...],
    top: int,
    as_json: bool,
    **given: Any,
) -> None:
    """Print what every head does to a prediction of TEXT ("-" reads standard input): to one logit, or to a difference."""
    if minus is not None and target is None:
        raise click.UsageError("--minus needs a --target from which it is subtracted.")
    text = read_text(text)
    check_model(model)
    judged = target if target is None or minus is None else (target, minus)
    texts = None if reference is None else read_lines(reference)
    found = headscope.effect(model, text, target=judged, reference=texts, mask=mask or None, **given)
    if as_json:
        click.echo(json.dumps(found.to_document()))
    else:
        _print_heads(found, top)


def _print_heads(e: headscope.Effect, top: int) -> None:
    """Print the target, one line per head, largest effect first, and for contributions one line per part of the sum."""
    click.echo(f"{e.model}: {e.method['name']} of every head; the target, {e.target}, is {e.target.value:.3f} logits")
    strongest = e.sources is not None or e.maps is not None
    compared = e.baseline is not None
    rows = [
        [name, format_number(value), *_share(e, name), *_source(e, name), *_writes(e, name)]
        for name, value in e.top(top)
    ]
    columns = [
        *(["share"] if compared else []),
        *(["through"] if strongest else []),
        *(["raises", "lowers"] if e.writes else []),
    ]
    if compared:
        click.echo(f"in the other text it is {e.baseline:.3f}; shares are of the difference")
    click.echo()
    print_table(rows, ["head", "logits", *columns], [1, 2] if compared else [1])
    if e.completeness_error is not None:
        worst = int(np.abs(e.completeness_error).argmax())
        size = f"{e.completeness_error[worst]:+.2g} logits"
        click.echo(f"\nlargest completeness error: {size}, in layer {e.layers[worst]}")
    if e.together is not None:
        _print_together(e)
    if e.score is not None:
        click.echo(f"\n{e.tokens[e.score.query].text} → {e.key_tokens[e.score.key].text}")
        terms = [[name, format_number(float(row[e.score.key]))] for name, row in e.score.terms.items()]
        print_table(terms, ["term", "value"], [1])
        if e.score.pairs:
            click.echo()
            pairs = [[one.query, one.key, format_number(one.value)] for one in e.score.pairs]
            print_table(pairs, ["through the query", "through the key", "logits"], [2])
    if e.parts:
        click.echo()
        sums = [[name, format_number(float(np.sum(part, dtype=float)))] for name, part in e.parts.items()]
        print_table([*sums, ["sum", format_number(e.target.value - e.remainder)]], ["part", "logits"], [1])


def _print_together(e: headscope.Effect) -> None:
    """Print the effect of several heads together, and the predictions before and after."""
    together = required(e.together)
    click.echo(f"\n{', '.join(together.heads)} together: {together.effect:+.3f} logits\n")
    columns = [zip(one.texts[0], one.probabilities[0], strict=True) for one in (together.before, together.after)]
    rows = [
        [part for text, share in pair for part in (repr(text), f"{share:.3f}")] for pair in zip(*columns, strict=True)
    ]
    print_table(rows[:5], ["before", "p", "after", "p"], [1, 3])


def _place(e: headscope.Effect, name: str) -> tuple[int, int]:
    """Return the places of a head along axes L and H."""
    layer, head = map(int, name.split("."))
    return e.layers.index(layer), e.heads.index(head)


def _share(e: headscope.Effect, name: str) -> list[str]:
    """Return the effect of a head as a share of the difference between two texts, if they are compared."""
    return [] if e.baseline is None else [f"{e.shares[_place(e, name)]:.1%}"]


def _writes(e: headscope.Effect, name: str) -> list[str]:
    """Return the tokens that a head raises most and those that it lowers most, strongest first, if they were asked for."""
    if e.writes is None:
        return []
    layer, head = _place(e, name)
    found, count = e.writes[layer][head], e.method["writes"]
    sides = found[:count], found[::-1][:count]
    return [" ".join(f"{one.text!r} {one.logit:+.2f}" for one in side) for side in sides]


def _source(e: headscope.Effect, name: str) -> list[str]:
    """Return the token through which a head has most of its effect, if heads are split by token, or the query and the key, if they have maps."""
    layer, head = _place(e, name)
    if e.maps is not None:
        row, key = np.unravel_index(np.abs(e.maps[layer, head]).argmax(), e.maps.shape[2:])
        return [f"{e.tokens[row].text} → {e.key_tokens[key].text} {e.maps[layer, head, row, key]:+.3f}"]
    if e.sources is None:
        return []
    key = int(np.abs(e.sources[layer, head]).argmax())
    return [f"{e.key_tokens[key].text} {e.sources[layer, head, key]:+.3f}"]
