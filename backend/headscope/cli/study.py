"""headscope study: a data set through one model or two variants, and the figures and tables of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from pydantic import ValidationError

from ..errors import HeadscopeError
from ..figures.rendering import MEDIA, Renderer
from ..figures.studies import STUDY_FIGURES
from ..lenses import LENSES
from ..measures import MEASURES
from ..mechanisms import MECHANISMS
from ..settings import Settings
from ..studies.results import tables, writing
from .output import JSON, KIND, MODEL, Bar, MethodType, pair

if TYPE_CHECKING:
    from ..studies.study import Study

# Of a picture, in px of 1/96 inch.
WIDTH, HEIGHT = 640, 400
FIGURE_FORMATS = (*MEDIA, "json", "csv")
FORMATS = tuple(dict.fromkeys((*FIGURE_FORMATS, *writing.WRITERS)))
# Bad rows and failed inputs that are named; the table `failed` has more.
NAMED = 5


@click.command()
@click.argument("dataset")
@MODEL
@click.option("--against", metavar="MODEL", help="A second model, compared with the first input by input.")
@click.option(
    "--mechanism",
    type=MethodType("mechanism", MECHANISMS),
    help="How the model attends.  [default: as it was trained]",
)
@click.option(
    "--against-mechanism",
    type=MethodType("mechanism", MECHANISMS),
    help="How the second variant attends; the model is the same without --against.",
)
@click.option(
    "-l",
    "--lens",
    "lenses",
    multiple=True,
    type=MethodType("lens", LENSES),
    help="Lens; may be given several times.  [default: weights, effective]",
)
@click.option(
    "-x",
    "--measure",
    "measures",
    multiple=True,
    type=MethodType("measure", MEASURES),
    help="Measure; may be given several times.  [default: entropy, patterns, special_tokens]",
)
@click.option(
    "--figure",
    "figures",
    multiple=True,
    type=MethodType("figure", STUDY_FIGURES),
    help="Figure to draw; what it needs is measured. May be given several times.",
)
@click.option(
    "--table",
    "listed",
    multiple=True,
    type=click.Choice([*tables.OWN, *STUDY_FIGURES]),
    metavar="NAME",
    help="Table to write: heads, inputs, failed, or the numbers of a figure. May be given several times.",
)
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=click.Choice(FORMATS),
    help="Of figures and tables; may be given several times.  [default: svg for figures, csv for tables]",
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
@click.option("--limit", type=click.IntRange(1), help="Draw so many inputs from the whole data set.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Which inputs are drawn.")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="ROLE=COLUMN",
    help="Which column is which: text, text_pair, words, pos, labels, label.",
)
@click.option(
    "--bad-rows",
    type=click.Choice(["skip", "fail"]),
    default="skip",
    show_default=True,
    help="Leave rows out that can't be read, or stop.",
)
@click.option("--max-tokens", type=click.IntRange(1), help="Cut every input to that many tokens.")
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
    **asked: Any,
) -> None:
    """Run a data set through a model; figures and tables of it.

    DATASET is a file, or hub: and the name of one of the hub. A study that was stopped goes on where it was when it is started again in the same way.
    """
    drawn = _figures(figures)
    tabled = [name for name in listed if name in STUDY_FIGURES]
    wanted = _wanted(asked, only_figures=len(drawn) + len(listed) > 0 and tabled == list(listed))
    found = _run(dataset, {**wanted, "figures": [*(name for name, _ in drawn), *tabled]}, quiet=as_json)
    files = [
        *_drawings(found, drawn, [name for name in formats if name in FIGURE_FORMATS] or ["svg"]),
        *_tables(found, listed, [name for name in formats if name in writing.WRITERS] or ["csv"]),
    ]
    try:
        for path in _written(found, out, files, save):
            click.echo(str(path), err=as_json)
    except OSError as error:
        raise HeadscopeError("The files could not be written. Choose another place with --out or --save.") from error
    shown = json.dumps({**found.document, "id": found.id}) if as_json else _summary(found, heads=not (drawn or listed))
    click.echo(shown)


def _written(found: Study, out: Path, files: Sequence[tuple[str, bytes]], save: Path | None) -> Iterator[Path]:
    """Write everything; the names of the files."""
    for name, data in files:
        out.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(data)
        yield out / name
    if save is not None:
        found.save(save)
        yield save


def _figures(figures: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """Names and parameters of the figures. A usage error for parameters that a figure does not take."""
    found = []
    for figure in figures:
        given = {name: value for name, value in figure.items() if name != "name"}
        try:
            found.append((figure["name"], STUDY_FIGURES[figure["name"]].params.model_validate(given)))
        except ValidationError as error:
            raise click.UsageError(
                f"The figure {figure['name']} does not take that: {error.errors()[0]['msg']}."
            ) from None
    return found


def _wanted(asked: Mapping[str, Any], *, only_figures: bool) -> dict[str, Any]:
    """The options as the library takes them; where nothing but figures is wanted, what they need is enough."""
    columns = dict(pair(one) for one in asked["columns"])
    given = {**asked, "columns": {role: str(column) for role, column in columns.items()} or None}
    chosen = {name: value for name, value in given.items() if value not in ((), None)}
    return {"lenses": (), "measures": (), **chosen} if only_figures else chosen


def _run(dataset: str, wanted: dict[str, Any], *, quiet: bool) -> Study:
    """The study, from its last finished chunk on if it was stopped before."""
    # Only now: torch takes seconds to load.
    from ..library.analysis import study as run

    named = json.dumps([str(Path(dataset).resolve()), wanted], sort_keys=True)
    checkpoint = Settings().home / "studies" / hashlib.sha256(named.encode()).hexdigest()[:32]
    bar = Bar(quiet=quiet)
    found = run(
        wanted.pop("model"), dataset, wanted.pop("against", None), **wanted, checkpoint=checkpoint, progress=bar
    )
    bar.close()
    shutil.rmtree(checkpoint, ignore_errors=True)
    return found


def _drawings(found: Study, drawn: Sequence[tuple[str, Any]], formats: Sequence[str]) -> list[tuple[str, bytes]]:
    """Figures as files: their names and contents."""
    files = []
    for name, params in drawn:
        drawing = STUDY_FIGURES[name].drawn(found, params)
        for format_ in formats:
            if format_ == "csv":
                data = drawing.csv().encode()
            elif format_ == "json":
                data = json.dumps(drawing.figure(), allow_nan=False).encode()
            else:
                data = asyncio.run(Renderer().render(drawing.figure(), format_, WIDTH, HEIGHT))  # type: ignore[arg-type]
            files.append((f"{name}.{format_}", data))
    return files


def _tables(found: Study, listed: Sequence[str], formats: Sequence[str]) -> list[tuple[str, bytes]]:
    """Tables as files: their names and contents."""
    made = [tables.table(found, name) for name in listed]
    return [
        (f"{table.name}.{writing.SUFFIXES[name]}", writing.WRITERS[name](table))  # type: ignore[index]
        for table in made
        for name in formats
    ]


def _summary(found: Study, *, heads: bool) -> str:
    """What went in and what was left out; with `heads` a line per head and a column per measure."""
    document = found.document
    data = document["dataset"]
    lines = [f"{found.inputs} inputs of {data['name']}, {document['tokens']} tokens"]
    if data["chosen"]:
        lines.append("columns: " + ", ".join(f"{role} is {column}" for role, column in data["chosen"].items()))
    lines += _left_out(
        "rows can't be used", data["bad_count"], [(bad["row"], bad["problem"]) for bad in data["bad_rows"]]
    )
    lines += _left_out("inputs failed", document["failed_count"], [(one["row"], one["detail"]) for one in found.failed])
    if document["cut"]:
        lines.append(f"{document['cut']} inputs were cut")
    return "\n".join([*lines, *(_heads(found) if heads else ())])


def _left_out(what: str, count: int, first: Sequence[tuple[int, str]]) -> list[str]:
    return [f"{count} {what}", *(f"  row {row}: {problem}" for row, problem in first[:NAMED])] if count else []


def _heads(found: Study) -> list[str]:
    """A table of the first variant: the mean over inputs of every measure that has one number per head."""
    columns = [
        (measure if len(lenses) == 1 else f"{measure}/{lens}", found.stat(measure, lens).input_mean)
        for measure, lenses in found.document["measures"].items()
        for lens in lenses
        if f"stat/0/{measure}/{lens}/mean" in found.arrays
    ]
    shown = [(name, values) for name, values in columns if values.shape == (len(found.layers), len(found.heads))]
    lines = ["", "  ".join(["head".ljust(6), *(name.rjust(18) for name, _ in shown)])]
    for place in np.ndindex(len(found.layers), len(found.heads)):
        cells = [
            f"{values[place]:.3f}".rjust(18) if np.isfinite(values[place]) else "–".rjust(18) for _, values in shown
        ]
        lines.append("  ".join([f"{found.layers[place[0]]}.{found.heads[place[1]]}".ljust(6), *cells]))
    return lines
