"""headscope study: a data set through one model or two variants, with figures and tables."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from pydantic import ValidationError

import headscope

from ..effects.quantities import EFFECT_COLUMNS, JUDGES
from ..errors import FigureNotDrawn, HeadscopeError
from ..figures.images import MEDIA, render
from ..figures.studies import STUDY_FIGURES, build_table
from ..mechanisms import MECHANISMS
from ..settings import Settings
from ..studies.results import table_files, tables
from .options import (
    KIND,
    LENS,
    MAX_TOKENS,
    MECHANISM,
    MODEL,
    REFERENCE,
    MethodType,
    measure_option,
    read_lines,
    split_pair,
)
from .output import JSON, format_number, print_table, progress_bar

# Size of a picture in px of 1/96 inch.
WIDTH, HEIGHT = 640, 400
FIGURE_FORMATS = (*MEDIA, "json", "csv")
FORMATS = tuple(dict.fromkeys((*FIGURE_FORMATS, *table_files.WRITERS)))
# Bad rows and failed inputs that are listed; the table `failed` has more.
LISTED = 5
NO_PICTURE = (
    "Pictures are drawn by Chromium or Chrome, which is missing on this machine or failed. Install it (apt-get install chromium), or choose "
    "--format csv or json. The results are kept: run the command again, and nothing is computed twice."
)


@click.command()
@click.argument("dataset")
@MODEL
@click.option("--against", metavar="MODEL", help="A second model to compare with the first one, input by input.")
@MECHANISM
@click.option(
    "--against-mechanism",
    type=MethodType("mechanism", MECHANISMS),
    help="How the second variant attends; without --against, both variants use the same model.",
)
@LENS
@measure_option("entropy, patterns, special_tokens")
@click.option(
    "--effect",
    "effects",
    multiple=True,
    type=MethodType("method", JUDGES),
    help="What every head does to a prediction of each input: contribution, ablation, attribution-patching:of=zero, ... May be repeated.",
)
@click.option(
    "--target",
    help="Token or class that effects are about, where --column names no target.  [default: the model's own choice]",
)
@click.option("--minus", help="Token or class whose logit is subtracted.")
@click.option("--position", type=int, help="Token at which the model predicts, as in headscope effect.")
@REFERENCE
@click.option(
    "--figure",
    "figures",
    multiple=True,
    type=MethodType("figure", STUDY_FIGURES),
    help="Figure to draw; the lenses and measures it needs are added. May be repeated.",
)
@click.option(
    "--table",
    "listed",
    multiple=True,
    type=click.Choice([*tables.TABLES, *STUDY_FIGURES]),
    metavar="NAME",
    help="Table to write: heads, inputs, failed, or the numbers of a figure. May be repeated.",
)
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=click.Choice(FORMATS),
    help="Format of figures and tables; may be repeated.  [default: svg for figures, csv for tables]",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    show_default=True,
    help="Folder to write to.",
)
@click.option("--save", type=click.Path(path_type=Path, dir_okay=False), help="Save the study as a safetensors file.")
@click.option("--limit", type=click.IntRange(1), help="Sample that many inputs from the whole data set.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the sample.")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="ROLE=COLUMN",
    help="Column for a role: text, text_pair, words, pos, labels, label, target, minus or against. May be repeated.",
)
@click.option(
    "--bad-rows",
    type=click.Choice(["skip", "fail"]),
    default="skip",
    show_default=True,
    help="Skip rows that cannot be read, or fail.",
)
@MAX_TOKENS
@KIND
@JSON
def study(
    dataset: str,
    figures: Sequence[Mapping[str, Any]],
    listed: Sequence[str],
    formats: Sequence[str],
    out: Path,
    save: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a data set through a model, and write figures and tables.

    DATASET is a file, or hub: and the name of a data set on the hub. Run the same command again to resume a study that was interrupted.
    """
    options |= {"target": _target(options.pop("target"), options.pop("minus"))}
    options["reference"] = options["reference"] and read_lines(options["reference"])
    drawn = _parse_figures(figures)
    _check_formats(formats, drawn, listed)
    tabled = [name for name in listed if name in STUDY_FIGURES]
    only_figures = len(drawn) + len(listed) > 0 and tabled == list(listed)
    arguments = _arguments(options, only_named=only_figures or bool(options["effects"]))
    arguments["figures"] = [*(name for name, _ in drawn), *tabled]
    checkpoint = _checkpoint(dataset, arguments)
    result = _run(dataset, arguments, checkpoint, quiet=as_json)
    files = [
        *_draw(result, drawn, [name for name in formats if name in FIGURE_FORMATS] or ["svg"]),
        *_tabulate(result, listed, [name for name in formats if name in table_files.WRITERS] or ["csv"]),
    ]
    try:
        for path in _write(result, out, files, save):
            click.echo(str(path), err=as_json)
    except OSError as error:
        raise HeadscopeError("The files could not be written. Choose another place with --out or --save.") from error
    # Not before: the same command, run again, would begin with its first input.
    shutil.rmtree(checkpoint, ignore_errors=True)
    if as_json:
        click.echo(json.dumps({**result.document, "id": result.id}))
        return
    click.echo("\n".join(_summary(result)))
    if not (drawn or listed):
        _print_heads(result)


def _check_formats(formats: Sequence[str], drawn: Sequence[Any], listed: Sequence[str]) -> None:
    """Raise UsageError for formats without anything to write in one of them."""
    if formats and not (drawn or listed):
        raise click.UsageError("--format is for figures and tables. Name them with --figure and --table.")
    for what, asked, known in (("Figures", drawn, FIGURE_FORMATS), ("Tables", listed, table_files.WRITERS)):
        if asked and formats and not set(formats) & set(known):
            raise click.UsageError(f"{what} have the formats {', '.join(known)}.")


def _write(result: headscope.Study, out: Path, files: Sequence[tuple[str, bytes]], save: Path | None) -> Iterator[Path]:
    """Write all files, and yield their paths."""
    for name, data in files:
        out.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(data)
        yield out / name
    if save is not None:
        save.parent.mkdir(parents=True, exist_ok=True)
        result.save(save)
        yield save


def _parse_figures(figures: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """Return names and parameters of the figures. Invalid parameters are a usage error."""
    parsed = []
    for figure in figures:
        name, given = figure["name"], {key: value for key, value in figure.items() if key != "name"}
        try:
            parsed.append((name, STUDY_FIGURES[name].params.model_validate(given)))
        except ValidationError as error:
            raise click.UsageError(
                f"The parameters of figure {name} are not valid: {error.errors()[0]['msg']}."
            ) from None
    return parsed


def _target(target: str | None, minus: str | None) -> Any:
    """Return the target of effects: a token or class, or two for a difference."""
    if minus is not None and target is None:
        raise click.UsageError("--minus needs a --target from which it is subtracted.")
    return target if minus is None else [target, minus]


def _arguments(options: Mapping[str, Any], *, only_named: bool) -> dict[str, Any]:
    """Return the options as arguments of headscope.study. With `only_named`, lenses and measures are those that are named, or that figures need."""
    usage = "Columns are given as ROLE=COLUMN, for example text=sentence."
    columns = {role.strip(): column for role, column in (split_pair(one, usage) for one in options["columns"])}
    given = {name: value for name, value in {**options, "columns": columns}.items() if value not in ((), {}, None)}
    return {"lenses": (), "measures": (), **given} if only_named else given


def _checkpoint(dataset: str, arguments: Mapping[str, Any]) -> Path:
    """Return the folder of the finished chunks of such a study."""
    named = json.dumps([str(Path(dataset).resolve()), arguments], sort_keys=True)
    return Settings().home / "studies" / hashlib.sha256(named.encode()).hexdigest()[:32]


def _run(dataset: str, arguments: Mapping[str, Any], checkpoint: Path, *, quiet: bool) -> headscope.Study:
    """Run the study, from the last finished chunk of an interrupted run."""
    with progress_bar(quiet=quiet) as progress:
        return headscope.study(dataset=dataset, **arguments, checkpoint=checkpoint, progress=progress)


def _draw(
    result: headscope.Study, figures: Sequence[tuple[str, Any]], formats: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the figures' files."""
    for name, params in figures:
        drawing = STUDY_FIGURES[name].build(result, params)
        for format_ in formats:
            if format_ == "csv":
                data = drawing.csv().encode()
            elif format_ == "json":
                data = json.dumps(drawing.figure(), allow_nan=False).encode()
            else:
                data = _picture(drawing.figure(), format_)
            yield f"{name}.{format_}", data


def _picture(figure: dict[str, Any], format_: str) -> bytes:
    """Return a figure as a picture. Raises FigureNotDrawn, with what to do here in place of what to do on a server."""
    try:
        return asyncio.run(render(figure, format_, WIDTH, HEIGHT))  # type: ignore[arg-type]
    except FigureNotDrawn as error:
        raise FigureNotDrawn(NO_PICTURE) from error


def _tabulate(result: headscope.Study, names: Sequence[str], formats: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the tables' files."""
    for name in names:
        table = build_table(result, name)
        for format_ in formats:
            yield f"{table.name}.{table_files.SUFFIXES[format_]}", table_files.WRITERS[format_](table)  # type: ignore[index]


def _summary(result: headscope.Study) -> list[str]:
    """Return lines that say what was read, and what was left out."""
    document = result.document
    data = document["dataset"]
    lines = [f"{result.inputs} inputs of {data['name']}, {document['tokens']} tokens"]
    if data["chosen"]:
        lines.append("columns: " + ", ".join(f"{role} is {column}" for role, column in data["chosen"].items()))
    bad, failed = (
        [(row["row"], row["problem"]) for row in data["bad_rows"]],
        [(row["row"], row["detail"]) for row in result.failed],
    )
    lines += _left_out("rows cannot be used", data["bad_count"], bad)
    lines += _left_out("inputs failed", document["failed_count"], failed)
    if document["cut"]:
        lines.append(f"{document['cut']} inputs were truncated")
    return lines


def _left_out(what: str, count: int, first: Sequence[tuple[int, str]]) -> list[str]:
    return [f"{count} {what}", *(f"  row {row}: {problem}" for row, problem in first[:LISTED])] if count else []


def _print_heads(result: headscope.Study) -> None:
    """Print a table of the first variant: the mean over inputs of every measure with one number per head, and of effects."""
    shape = (len(result.layers), len(result.heads))
    columns = {
        measure if len(lenses) == 1 else f"{measure}/{lens}": values
        for measure, lenses in result.document["measures"].items()
        for lens in lenses
        if f"stat/0/{measure}/{lens}/mean" in result.arrays
        and (values := result.stat(measure, lens).input_mean).shape == shape
    }
    for method in (name for name in JUDGES if name in result.document["measures"]):
        found = result.stat(method).input_mean
        columns |= {f"{method}.{column}": found[..., place] for place, column in enumerate(EFFECT_COLUMNS)}
    rows = (
        [f"{result.layers[i]}.{result.heads[j]}", *(format_number(float(values[i, j])) for values in columns.values())]
        for i, j in np.ndindex(shape)
    )
    click.echo()
    print_table(rows, ["head", *columns], range(1, len(columns) + 1))
