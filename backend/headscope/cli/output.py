"""What the command line reads and prints of an analysis: methods with parameters in, JSON and tables out."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ..core.declarations import Declaration
from ..core.words import group, word_groups
from ..measures import MEASURES

if TYPE_CHECKING:
    from ..library.analysis import Analysis

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
MODEL = click.option(
    "-m", "--model", default="minilm", show_default=True, help="Catalogue name, local directory, or hub id."
)
KIND = click.option(
    "--kind",
    default="self",
    show_default=True,
    type=click.Choice(["self", "encoder", "decoder", "cross"]),
    help="Which attention of an encoder-decoder.",
)


class Bar:
    """Progress on a terminal, with the time left by the pace of this run; silent anywhere else."""

    def __init__(self, *, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()
        self._began: tuple[float, float] | None = None

    def __call__(self, fraction: float, stage: str, detail: str) -> None:
        if self._shown:
            filled = round(fraction * 24)
            left = self._left(fraction)
            click.echo(f"\r\033[K{'━' * filled}{'╌' * (24 - filled)} {stage} {detail}{left}", nl=False, err=True)

    def _left(self, fraction: float) -> str:
        now = time.monotonic()
        if fraction <= 0:
            return ""
        if self._began is None:
            self._began = (now, fraction)
        began, first = self._began
        if fraction <= first or fraction >= 1:
            return ""
        seconds = round((now - began) * (1 - fraction) / (fraction - first))
        return f", {seconds // 60} min {seconds % 60} s left" if seconds >= 60 else f", {seconds} s left"

    def close(self) -> None:
        """Take the bar away."""
        if self._shown:
            click.echo("\r\033[K", nl=False, err=True)


class MethodType(click.ParamType[dict[str, Any]]):
    """A mechanism, lens or measure: NAME, NAME:PARAMETER=VALUE,PARAMETER=VALUE, or a JSON object with its name and parameters."""

    def __init__(self, what: str, known: Mapping[str, Declaration]) -> None:
        self.name, self._known = what, known

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """What the help shows."""
        return "NAME[:PARAMETER=VALUE,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """The name and parameters as one mapping; a usage error for what is none."""
        if isinstance(value, dict):
            return value
        if value.lstrip().startswith("{"):
            try:
                method = json.loads(value)
            except ValueError:
                self.fail("That is not valid JSON.", param, ctx)
        else:
            name, _, listed = value.partition(":")
            method = {"name": name, **dict(pair(part) for part in listed.split(",") if part)}
        if method.get("name") not in self._known:
            self.fail(f"There is no such {self.name}. There are: {', '.join(self._known)}.", param, ctx)
        return dict(method)


def pair(text: str) -> tuple[str, Any]:
    """PARAMETER=VALUE; the value is JSON where it can be read as such, else the text itself."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError("Parameters are given as PARAMETER=VALUE, for example alpha=0.5.")
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        return name.strip(), value


def listed(known: Mapping[str, Declaration]) -> str:
    """One line per method, and one per parameter below it."""
    lines = []
    for name, method in known.items():
        lines.append(f"{name:<22} {method.title}")
        for parameter, schema in method.params.model_json_schema().get("properties", {}).items():
            lines.append(f"  {parameter}={json.dumps(schema.get('default'))}")
    return "\n".join(lines)


def summary(a: Analysis, *, words: bool) -> dict[str, Any]:
    """An analysis as JSON, measures in the mean over tokens; with `words` the maps by word, too."""
    from ..api.documents.arrays import to_lists
    from ..query.search import token_mean

    described = a.result.to_document()
    means = {
        name: {lens: to_lists(token_mean(values, MEASURES[name].shape.split())) for lens, values in by_lens.items()}
        for name, by_lens in a.measures.items()
    }
    fields = ("kind", "tokens", "key_tokens", "layers", "heads", "lenses", "warnings", "timing_ms")
    by_word = {"words": _texts(a), "maps": {lens: to_lists(_by_word(a, lens)) for lens in a.maps}} if words else {}
    return {
        "id": a.id,
        "model": a.model,
        "mechanism": a.mechanism,
        **{name: described[name] for name in fields},
        "measures": means,
        "columns": {name: list(MEASURES[name].columns) for name in means if MEASURES[name].columns},
        **by_word,
    }


def table(a: Analysis, *, words: bool) -> str:
    """One line per head and one column per measure; below it one line per layer, for measures of whole layers."""
    means = summary(a, words=False)["measures"]
    shown = f"{a.model}: {len(a.tokens)} tokens, {len(a.layers)} layers × {len(a.heads)} heads, {a.result.timing_ms['total']:.0f} ms"
    lines = [shown, *(f"{warning.lens or 'model'}: {warning.message}" for warning in a.warnings)]
    heads, layers = _columns(means, "L H"), _columns(means, "L")
    strongest = _strongest(a) if words else None
    lines += ["", _line("head", [name for name, _ in heads])]
    for i, layer in enumerate(a.layers):
        for j, head in enumerate(a.heads):
            line = _line(f"{layer}.{head}", [_cell(values[i][j]) for _, values in heads])
            lines.append(line if strongest is None else f"{line}  {strongest[i][j]}")
    if layers:
        lines += ["", _line("layer", [name for name, _ in layers])]
        lines += [_line(str(layer), [_cell(values[i]) for _, values in layers]) for i, layer in enumerate(a.layers)]
    return "\n".join(lines)


def _columns(means: dict[str, Any], axes: str) -> list[tuple[str, Any]]:
    """Name and values of what has one number per place along `axes`; of measures with columns the first one."""
    found = []
    for name, by_lens in means.items():
        measure = MEASURES[name]
        left = " ".join(axis for axis in measure.shape.split() if axis not in "QK")
        for lens, values in by_lens.items():
            title = name if len(by_lens) == 1 else f"{name}/{lens}"
            if left == axes:
                found.append((title, values))
            elif left == f"{axes} C":
                found.append((f"{title}.{measure.columns[0]}", np.array(values, dtype=object)[..., 0].tolist()))
    return found


def _line(head: str, cells: list[str]) -> str:
    return "  ".join([head.ljust(6), *[cell.rjust(15) for cell in cells]])


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _texts(a: Analysis) -> dict[str, list[str]]:
    return {"queries": word_groups(a.tokens)[1], "keys": word_groups(a.key_tokens)[1]}


def _by_word(a: Analysis, lens: str) -> np.ndarray[Any, Any]:
    return group(a.maps[lens], word_groups(a.tokens)[0], word_groups(a.key_tokens)[0])


def _strongest(a: Analysis) -> list[list[str]]:
    """The strongest connection between words of every head, in the first lens that has a map per head."""
    lens = next((name for name, maps in a.maps.items() if maps.shape[1] == len(a.heads)), None)
    if lens is None:
        return [[""] * len(a.heads) for _ in a.layers]
    maps, names = np.nan_to_num(_by_word(a, lens)), _texts(a)

    def said(one: np.ndarray[Any, Any]) -> str:
        query, key = np.unravel_index(np.abs(one).argmax(), one.shape)
        return f"{names['queries'][query]} → {names['keys'][key]} {one[query, key]:.2f}"

    return [[said(one) for one in layer] for layer in maps]
