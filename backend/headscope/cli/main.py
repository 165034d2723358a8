"""The command line: headscope serve | worker | token | analyze | study | models | mechanisms | lenses | measures | doctor."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from .. import __version__
from ..core.declarations import Declaration
from ..errors import HeadscopeError
from ..lenses import LENSES
from ..measures import MEASURES
from ..mechanisms import MECHANISMS
from ..models.catalog import Catalog
from ..models.tokens import check_text
from ..settings import Settings
from .doctor import doctor
from .output import JSON, KIND, MODEL, Bar, MethodType, listed, summary, table
from .output import pair as parameter
from .serve import serve
from .study import study
from .token import token
from .worker import worker


class _Group(click.Group):
    """Turns every error of ours into one plain sentence and exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HeadscopeError as error:
            click.echo(f"headscope: {error.detail} [{error.code}]", err=True)
            ctx.exit(1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headscope")
def main() -> None:
    """See what attention heads do, and how much of what a head map shows reaches the output."""


@main.command()
@click.argument("text", required=False)
@click.option("--pair", help="A second text, for models that read pairs; the decoder's text of an encoder-decoder.")
@click.option(
    "--image",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="An image instead of TEXT, for vision models.",
)
@MODEL
@click.option(
    "--mechanism",
    type=MethodType("mechanism", MECHANISMS),
    help="How the model attends; `headscope mechanisms` lists them.  [default: as it was trained]",
)
@click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    metavar="PARAMETER=VALUE",
    help="Parameter of the mechanism, or of the model's own; may be given several times.",
)
@click.option(
    "-l",
    "--lens",
    "lenses",
    multiple=True,
    type=MethodType("lens", LENSES),
    help="Lens; may be given several times; `headscope lenses` lists them.  [default: weights, effective]",
)
@click.option(
    "-x",
    "--measure",
    "measures",
    multiple=True,
    type=MethodType("measure", MEASURES),
    help="Measure; may be given several times; `headscope measures` lists them.  [default: entropy, null_share]",
)
@KIND
@click.option("--generate", metavar="N", type=click.IntRange(1, 4096), help="Let the model add up to N tokens first.")
@click.option("--max-tokens", type=click.IntRange(1), help="Cut the text to that many tokens.")
@click.option(
    "--words", is_flag=True, help="Read words: the strongest connection of every head; with --json the maps by word."
)
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, dir_okay=False), help="Save everything as a safetensors file."
)
@JSON
def analyze(model: str, out: Path | None, params: tuple[str, ...], as_json: bool, words: bool, **asked: Any) -> None:
    """Analyse TEXT ("-" reads standard input) or an image, and print a summary of every head."""
    request, given = _request(**asked), dict(parameter(one) for one in params)
    if not Path(model).expanduser().is_dir():
        Catalog(Settings(hub="any")).locate(model, pointer=None)

    # Only now: torch takes seconds to load.
    from ..library.analysis import analyze as run
    from ..library.analysis import load

    bar = Bar(quiet=as_json)
    bar(0.0, "loading", model)
    loaded = load(model)
    if given:
        request["mechanism"] = {**(request["mechanism"] or loaded.facts.mechanism), **given}
    a = run(loaded, **request, maps=out is not None or words, progress=bar)
    bar.close()
    if out is not None:
        try:
            a.save(out)
        except OSError as error:
            raise HeadscopeError("The file could not be written. Choose another place with --out.") from error
    click.echo(json.dumps(summary(a, words=words)) if as_json else table(a, words=words))


def _request(
    text: str | None,
    pair: str | None,
    image: Path | None,
    mechanism: dict[str, Any] | None,
    lenses: tuple[dict[str, Any], ...],
    measures: tuple[dict[str, Any], ...],
    generate: int | None,
    **rest: Any,
) -> dict[str, Any]:
    """The options as the library takes them. A usage error unless there is either a text or an image."""
    if (text is None) == (image is None):
        raise click.UsageError("Give a TEXT, or an image with --image: one of them.")
    text = sys.stdin.read() if text == "-" else text
    if text is not None:
        check_text(text)
    return {
        "text": text,
        "text_pair": pair,
        "image": image,
        "mechanism": mechanism,
        "lenses": lenses or ("weights", "effective"),
        "measures": measures or ("entropy", "null_share"),
        "generate": None if generate is None else {"max_new_tokens": generate},
        **rest,
    }


def _list_methods(what: str, known: Mapping[str, Declaration]) -> None:
    """A command that lists what there is of one sort, with parameters and their defaults."""

    @main.command(what, help=f"List the {what}, with their parameters and defaults.")
    @JSON
    def command(as_json: bool) -> None:
        click.echo(json.dumps([method.describe() for method in known.values()]) if as_json else listed(known))


_list_methods("mechanisms", MECHANISMS)
_list_methods("lenses", LENSES)
_list_methods("measures", MEASURES)


@main.command()
@JSON
def models(as_json: bool) -> None:
    """List the models on offer."""
    catalog = Catalog(Settings())
    cards = [catalog.describe(name) for name in catalog.names()]
    if as_json:
        click.echo(json.dumps(cards))
        return
    for card in cards:
        state = (
            card["reason"]
            if not card["available"]
            else "here"
            if card["local"]
            else "fetched from the hub on first use"
        )
        trained = "" if card["mechanism"]["name"] == "softmax" else f"; attends by {card['mechanism']['name']}"
        beside = f"; beside {', '.join(card['siblings'])}" if card["available"] and card["siblings"] else ""
        shape = f"{card['layers']:>3} layers × {card['heads']:>2} heads  {card['kind']}" if card["layers"] else ""
        click.echo(f"{card['name']:<22} {shape:<40} {state}{trained}{beside}")


main.add_command(study)
main.add_command(serve)
main.add_command(worker)
main.add_command(token)
main.add_command(doctor)
