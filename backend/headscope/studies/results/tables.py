"""Tables of a study that belong to no figure: one row per head, the inputs that were kept, and those that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ...core.arrays import Array, divide
from ...core.csv_text import Cell
from ..figure_needs import drawable_figures
from ..quantities import QUANTITIES
from .summary import StudySummary
from .table_files import ResultTable


def table_names(document: Mapping[str, Any]) -> list[str]:
    """Return the tables that can be made of a study, given its document. Each figure has a table of the same name."""
    return [*drawable_figures(document), *TABLES]


def heads(study: StudySummary) -> ResultTable:
    """Return one row per head of each variant: the mean over inputs of every number with its 95 % interval, and shares of classes."""
    by_variant = [_head_rows(study, number, variant) for number, variant in enumerate(study.variants)]
    columns = list(dict.fromkeys(column for rows in by_variant for row in rows for column in row))
    rows = [[row.get(column) for column in columns] for rows in by_variant for row in rows]
    return ResultTable("heads", "All heads: means over inputs with 95 % bootstrap intervals", columns, rows)


def _head_rows(study: StudySummary, number: int, variant: Mapping[str, Any]) -> list[dict[str, Cell]]:
    layers, heads = variant["layers"], variant["heads"]
    shape = (len(layers), len(heads))
    rows: dict[tuple[int, int], dict[str, Cell]] = {
        (i, j): {"variant": number, "model": variant["model"], "layer": layers[i], "head": heads[j]}
        for i, j in np.ndindex(shape)
    }
    for measure, lenses in study.document["measures"].items():
        for lens in lenses:
            for name, values in _numbers(study, measure, lens, number):
                if values.shape == shape:
                    for place, row in rows.items():
                        row[f"{name}/{lens}"] = float(values[place])
    return list(rows.values())


def _numbers(study: StudySummary, measure: str, lens: str, variant: int) -> Iterator[tuple[str, Array]]:
    """Yield the name and values of each number of a measure: means with interval bounds (or fixed values), and shares of classes."""
    declared = QUANTITIES[measure]
    if f"stat/{variant}/{measure}/{lens}/mean" not in study.arrays:
        yield from _columns(measure, study.fixed(measure, lens, variant), declared.columns)
        return
    stat = study.stat(measure, lens, variant)
    low, high = stat.interval()
    for part, values in (("", stat.input_mean), ("_low", low), ("_high", high)):
        for name, column in _columns(measure, values, declared.columns):
            if not (declared.classes and name == f"{measure}_class"):
                yield f"{name}{part}", column
    if declared.classes:
        counts = study.classes(measure, lens, variant)  # [L, H, classes]
        yield from _columns(f"{measure}_share", divide(counts, counts.sum(-1, keepdims=True)), declared.classes)


def _columns(name: str, values: Array, columns: tuple[str, ...]) -> Iterator[tuple[str, Array]]:
    """Yield the values of a measure, or of each of its columns."""
    if not columns:
        yield name, values
    else:
        yield from ((f"{name}_{column}", values[..., place]) for place, column in enumerate(columns))


def inputs(study: StudySummary) -> ResultTable:
    """Return the inputs whose texts the study kept: a random sample, and those at the top of any measure."""
    sample = set(study.sample())
    examples = [study.example(int(row)) for row in study.arrays["example/row"]]
    rows = [
        [each["row"], each["text"], each.get("text_pair"), each.get("label"), str(each["row"] in sample).lower()]
        for each in examples
    ]
    return ResultTable(
        "inputs", "Inputs kept by the study", ("row", "text", "text_pair", "label", "drawn_evenly"), rows
    )


def failed(study: StudySummary) -> ResultTable:
    """Return the first rows that could not be read, and the first inputs that could not be analysed."""
    problems: dict[int, tuple[str, str]] = {
        bad["row"]: ("bad-row", bad["problem"]) for bad in study.document["dataset"].get("bad_rows", ())
    }
    problems |= {failure["row"]: (failure["code"], failure["detail"]) for failure in study.document["failed"]}
    rows: list[list[Cell]] = [[row, *problems[row]] for row in sorted(problems)]
    return ResultTable("failed", "Rows without a result", ("row", "code", "problem"), rows)


TABLES: dict[str, Callable[[StudySummary], ResultTable]] = {"heads": heads, "inputs": inputs, "failed": failed}
