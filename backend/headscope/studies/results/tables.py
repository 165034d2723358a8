"""Tables of a study: the rows of every figure under the figure's name, one row per head, the inputs that were kept, and those that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from ...core.csv_text import Cell
from ...errors import InvalidRequest, Unknown
from ...figures.studies import STUDY_FIGURES
from ...measures import MEASURES
from .summary import Stat, StudySummary
from .writing import ResultTable

Array = NDArray[Any]


def names(document: Mapping[str, Any]) -> list[str]:
    """The tables that can be made of a study, by its document."""
    return [*drawable(document), *OWN]


def drawable(document: Mapping[str, Any]) -> list[str]:
    """The figures that can be drawn of a study, by its document."""
    return [name for name in STUDY_FIGURES if _can(name, document)]


def _can(name: str, document: Mapping[str, Any]) -> bool:
    figure = STUDY_FIGURES[name]
    there = {
        "against": len(document["variants"]) > 1 and not document.get("not_compared"),
        # Inputs that were given as they are have no columns.
        "labels": "labels" in (document["dataset"].get("chosen") or {"labels": ""}),
        "lenses": set(figure.lenses) <= set(document["lenses"]),
    }
    return all(there[what] for what in figure.asks) and set(figure.measures) <= set(document["measures"])


def table(study: StudySummary, name: str, params: Mapping[str, Any] | None = None) -> ResultTable:
    """A table by its name; `params` are those of the figure of that name. Raises Unknown, InvalidRequest, and what the figure raises."""
    if name in OWN:
        if params:
            raise InvalidRequest("That table takes no parameters.")
        return OWN[name](study)
    if name not in STUDY_FIGURES:
        known = ", ".join([*OWN, *STUDY_FIGURES])
        raise Unknown("table", f"There is no such table. There are: {known}.", pointer="/table")
    figure = STUDY_FIGURES[name]
    try:
        chosen = figure.params.model_validate(params or {})
    except ValidationError as error:
        raise InvalidRequest(f"The figure does not take that: {error.errors()[0]['msg']}.") from None
    drawn = figure.drawn(study, chosen)
    return ResultTable(name, f"{figure.title}. {figure.citation}", drawn.columns, drawn.rows)


def heads(study: StudySummary) -> ResultTable:
    """One row per head of each variant: the mean over inputs of every number per head with its 95 % interval, and its shares of classes."""
    shown = [_head_rows(study, number, one) for number, one in enumerate(study.variants)]
    columns = list(dict.fromkeys(column for rows in shown for row in rows for column in row))
    rows = [[row.get(column) for column in columns] for rows in shown for row in rows]
    return ResultTable("heads", "Every head: means over inputs with 95 % bootstrap intervals", columns, rows)


def _head_rows(study: StudySummary, number: int, one: Mapping[str, Any]) -> list[dict[str, Cell]]:
    shape = (len(one["layers"]), len(one["heads"]))
    rows: dict[tuple[int, int], dict[str, Cell]] = {
        (i, j): {"variant": number, "model": one["model"], "layer": one["layers"][i], "head": one["heads"][j]}
        for i, j in np.ndindex(shape)
    }
    for measure, lenses in study.document["measures"].items():
        for lens in lenses:
            for name, values in _numbers(study, measure, lens, number):
                if values.shape == shape:
                    for place, row in rows.items():
                        row[f"{name}/{lens}"] = float(values[place])
    return list(rows.values())


def _numbers(study: StudySummary, measure: str, lens: str, number: int) -> Iterator[tuple[str, Array]]:
    """Names and numbers of a measure, column by column: means with the bounds of their intervals, or what is the same for all inputs; shares of classes."""
    declared = MEASURES[measure]
    if f"stat/{number}/{measure}/{lens}/mean" not in study.arrays:
        yield from _columns(measure, study.fixed(measure, lens, number), declared.columns)
        return
    stat: Stat = study.stat(measure, lens, number)
    low, high = stat.interval()
    for part, values in (("", stat.input_mean), ("_low", low), ("_high", high)):
        for name, column in _columns(measure, values, declared.columns):
            if not (declared.classes and name == f"{measure}_class"):
                yield f"{name}{part}", column
    if declared.classes:
        counts = study.classes(measure, lens, number).astype(float)
        shares = counts / np.where(counts.sum(-1, keepdims=True) > 0, counts.sum(-1, keepdims=True), np.nan)
        yield from _columns(f"{measure}_share", shares, declared.classes)


def _columns(name: str, values: Array, columns: tuple[str, ...]) -> Iterator[tuple[str, Array]]:
    """A measure's number per head, or one for each of its columns."""
    if not columns:
        yield name, values
    else:
        yield from ((f"{name}_{column}", values[..., place]) for place, column in enumerate(columns))


def inputs(study: StudySummary) -> ResultTable:
    """The inputs that the study kept the texts of: those drawn evenly, and those at the top of any measure."""
    drawn = set(study.sample())
    kept = [study.example(int(row)) for row in study.arrays["example/row"]]
    rows = [
        [each["row"], each["text"], each.get("text_pair"), each.get("label"), str(each["row"] in drawn).lower()]
        for each in kept
    ]
    return ResultTable(
        "inputs", "Inputs that the study kept", ("row", "text", "text_pair", "label", "drawn_evenly"), rows
    )


def failed(study: StudySummary) -> ResultTable:
    """Rows that could not be read, and inputs that could not be analysed: the first of each."""
    found: dict[int, tuple[str, str]] = {
        bad["row"]: ("bad-row", bad["problem"]) for bad in study.document["dataset"].get("bad_rows", ())
    }
    found |= {one["row"]: (one["code"], one["detail"]) for one in study.document["failed"]}
    return ResultTable(
        "failed", "Rows without a result", ("row", "code", "problem"), [[row, *found[row]] for row in sorted(found)]
    )


OWN: dict[str, Callable[[StudySummary], ResultTable]] = {"heads": heads, "inputs": inputs, "failed": failed}
