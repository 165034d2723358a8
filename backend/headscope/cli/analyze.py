"""headscope analyze: one text or image, or both, and a summary of every head."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

import headscope

from ..core.arrays import to_lists
from ..errors import HeadscopeError, InvalidRequest
from ..measures import MEASURES
from ..query.search import token_mean
from .options import KIND, LENS, MAX_TOKENS, MECHANISM, MODEL, check_model, measure_option, parse_parameter, read_text
from .output import JSON, format_number, print_table, progress_bar

# Fields of an analysis' document that --json prints as they are.
FIELDS = ("kind", "tokens", "key_tokens", "layers", "heads", "lenses", "warnings", "timing_ms")
# A measure, or measure/lens, and its values: [L, H] or [L], nested lists with None for NaN.
Column = tuple[str, list[Any]]


@click.command()
@click.argument("text", required=False)
@click.option(
    "--pair", "text_pair", help="A second text, for models that read pairs; the decoder's text of an encoder-decoder."
)
@click.option(
    "--image",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="An image instead of TEXT, for vision models, or beside it, for vision-language models.",
)
@click.option(
    "--messages",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help='A conversation instead of TEXT, for models with a chat template: a JSON file such as [{"role": "user", "content": "Hello"}].',
)
@MODEL
@MECHANISM
@click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    metavar="PARAMETER=VALUE",
    help="Parameter of the mechanism, or of the model's own mechanism; may be repeated.",
)
@LENS
@measure_option("entropy, null_share")
@KIND
@click.option("--generate", metavar="N", type=click.IntRange(1, 4096), help="Let the model add up to N tokens first.")
@MAX_TOKENS
@click.option(
    "--words",
    is_flag=True,
    help="Group tokens by word: add the strongest connection of every head, and with --json the maps by word.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Save everything as a safetensors file, or if its name ends in .html, as a web page with the viewer.",
)
@click.option(
    "--heads",
    metavar="LAYER.HEAD,...",
    callback=lambda _context, _parameter, value: _parse_heads(value),
    help="Only the layers and heads that these have, such as 4.5,7.2. A web page has only these heads.",
)
@JSON
def analyze(
    model: str,
    out: Path | None,
    heads: list[str],
    params: tuple[str, ...],
    as_json: bool,
    words: bool,
    **options: Any,
) -> None:
    """Analyse TEXT ("-" reads standard input), an image or both, and print a summary of every head."""
    request, given = _request(options, heads), dict(parse_parameter(param) for param in params)
    check_model(model)
    with progress_bar(quiet=as_json) as progress:
        progress(0.0, "loading", model)
        loaded = headscope.load(model)
        if given:
            request["mechanism"] = {**(request["mechanism"] or loaded.facts.mechanism), **given}
        a = headscope.analyze(loaded, **request, maps=out is not None or words, progress=progress)
    if out is not None:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            headscope.show(a, heads=heads).save(out) if out.suffix == ".html" else a.save(out)
        except OSError as error:
            raise HeadscopeError("The file could not be written. Choose another place with --out.") from error
    if as_json:
        click.echo(json.dumps(_summary(a, words=words)))
    else:
        _print_heads(a, words=words)


def _parse_heads(text: str | None) -> list[str]:
    """Return the names of heads, separated by commas. Raises UsageError."""
    names = text.split(",") if text else []
    if not all(re.fullmatch(r"\d{1,5}\.\d{1,5}", name) for name in names):
        raise click.UsageError("Heads are given as LAYER.HEAD, separated by commas, for example --heads 4.5,7.2.")
    return names


def _request(options: dict[str, Any], heads: list[str]) -> dict[str, Any]:
    """Return the options as arguments of headscope.analyze. A text, an image or a conversation is required."""
    text, generate, file = options["text"], options["generate"], options["messages"]
    if text is None and options["image"] is None and file is None:
        raise click.UsageError("Give a TEXT, an image with --image, or a conversation with --messages.")
    places = [[int(part) for part in name.split(".")] for name in heads]
    return {
        **options,
        "layers": sorted({layer for layer, _ in places}) or None,
        "heads": sorted({head for _, head in places}) or None,
        "text": None if text is None else read_text(text),
        "messages": None if file is None else _read_messages(file),
        "lenses": options["lenses"] or ("weights", "effective"),
        "measures": options["measures"] or ("entropy", "null_share"),
        "generate": None if generate is None else {"max_new_tokens": generate},
    }


def _read_messages(path: Path) -> Any:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        raise InvalidRequest("The file with the conversation cannot be read as JSON.", pointer="/messages") from None
    if not isinstance(found, list):
        raise InvalidRequest("The file with the conversation must hold a JSON list of messages.", pointer="/messages")
    return found


def _summary(a: headscope.Analysis, *, words: bool) -> dict[str, Any]:
    """Return an analysis as JSON, with measures averaged over tokens; with `words` also the maps by word."""
    document, means = a.source.document, _means(a)
    summary = {
        "id": a.id,
        "model": a.model,
        "mechanism": a.mechanism,
        **{name: document[name] for name in FIELDS},
        "measures": means,
        "columns": {name: list(MEASURES[name].columns) for name in means if MEASURES[name].columns},
    }
    if words:
        by_word = a.by("word")
        summary["words"] = {"queries": by_word.queries, "keys": by_word.keys}
        summary["maps"] = {lens: to_lists(maps) for lens, maps in by_word.maps.items()}
    return summary


def _means(a: headscope.Analysis) -> dict[str, dict[str, Any]]:
    """Return measure -> lens -> values, averaged over tokens, as nested lists."""
    return {
        name: {lens: to_lists(token_mean(values, MEASURES[name].shape.split())) for lens, values in by_lens.items()}
        for name, by_lens in a.measures.items()
    }


def _print_heads(a: headscope.Analysis, *, words: bool) -> None:
    """Print one line per head with a column per measure, then one line per layer for measures of whole layers."""
    shape, milliseconds = f"{len(a.layers)} layers × {len(a.heads)} heads", a.timing_ms["total"]
    click.echo(f"{a.model}: {len(a.tokens)} tokens, {shape}, {milliseconds:.0f} ms")
    for warning in a.warnings:
        click.echo(f"{warning.lens or 'model'}: {warning.message}")
    means = _means(a)
    heads, layers = list(_columns(means, "L H")), list(_columns(means, "L"))
    strongest = _strongest_connections(a) if words else None
    rows = [
        [
            f"{layer}.{head}",
            *(format_number(values[i][j]) for _, values in heads),
            *([strongest[i][j]] if strongest else []),
        ]
        for i, layer in enumerate(a.layers)
        for j, head in enumerate(a.heads)
    ]
    _print_section("head", heads, rows, ["strongest connection"] if words else [])
    if layers:
        rows = [[str(layer), *(format_number(values[i]) for _, values in layers)] for i, layer in enumerate(a.layers)]
        _print_section("layer", layers, rows, [])


def _print_section(name: str, columns: list[Column], rows: list[list[str]], more: list[str]) -> None:
    click.echo()
    print_table(rows, [name, *(title for title, _ in columns), *more], range(1, len(columns) + 1))


def _columns(means: dict[str, Any], axes: str) -> Iterator[Column]:
    """Yield the measures with one number per place along `axes`; of measures with several columns the first one."""
    for name, by_lens in means.items():
        measure = MEASURES[name]
        left = " ".join(axis for axis in measure.shape.split() if axis not in "QK")
        for lens, values in by_lens.items():
            title = name if len(by_lens) == 1 else f"{name}/{lens}"
            if left == axes:
                yield title, values
            elif left == f"{axes} C":
                yield f"{title}.{measure.columns[0]}", np.array(values, dtype=object)[..., 0].tolist()


def _strongest_connections(a: headscope.Analysis) -> list[list[str]]:
    """Return the strongest connection between words of every head, in the first lens that has one map per head."""
    lens = next((name for name, maps in a.maps.items() if maps.shape[1] == len(a.heads)), None)
    if lens is None:
        return [[""] * len(a.heads) for _ in a.layers]
    words = a.by("word")

    def describe(map_: np.ndarray[Any, Any]) -> str:
        query, key = np.unravel_index(np.abs(map_).argmax(), map_.shape)
        return f"{words.queries[query]} → {words.keys[key]} {map_[query, key]:.2f}"

    return [[describe(map_) for map_ in layer] for layer in np.nan_to_num(words.maps[lens])]
