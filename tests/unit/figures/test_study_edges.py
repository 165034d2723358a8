"""Figures of studies of one input, of variants that share much, and of models whose layers lack heads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headscope
from headscope.figures.studies.figure import variant_names
from headscope.studies.results.summary import StudySummary
from tests.support.models import tiny_model

FIGURES = ("pattern-shares", "pattern-grid", "special-maps", "head-entropy", "residual-ratio")
SOFTMAX, JUMP = {"name": "softmax"}, {"name": "jump", "rho": 0.1}
SHARP, SOFT = ({"name": "hopfield", "alpha": alpha, "initial": "softmax"} for alpha in (0.2, 0.8))


@pytest.fixture(scope="module")
def single(minilm: headscope.Model) -> Any:
    """A study of one input."""
    return headscope.study(minilm, ["The cat sat."], figures=FIGURES)


@pytest.mark.parametrize(
    ("variants", "names"),
    [
        ([("a", JUMP)], ["a"]),
        ([("a", SOFTMAX), ("b", SOFTMAX)], ["a", "b"]),
        ([("a", SOFTMAX), ("a", JUMP)], ["softmax", "jump"]),
        ([("a", SHARP), ("a", SOFT)], ["hopfield alpha=0.2", "hopfield alpha=0.8"]),
        ([("a", SOFTMAX), ("b", JUMP)], ["a", "b"]),
    ],
)
def test_names_of_variants(variants: list[tuple[str, Any]], names: list[str]) -> None:
    """They name what tells them apart, and nothing else."""
    document = {"variants": [{"model": model, "mechanism": mechanism} for model, mechanism in variants]}
    assert variant_names(StudySummary(document, {})) == names


@pytest.mark.parametrize("name", FIGURES)
def test_one_input_has_no_interval(single: Any, name: str) -> None:
    """Neither in tables nor in tooltips, where plotly would write 0 for an end that is missing."""
    table = single.table(name)
    ends = [at for at, column in enumerate(table.columns) if column in ("low", "high")]
    assert {row[at] for row in table.rows for at in ends} <= {None}
    assert "interval" not in json.dumps([trace.to_plotly_json() for trace in single.figure(name).data], default=list)


def test_several_inputs_have_an_interval(minilm: headscope.Model) -> None:
    study = headscope.study(minilm, ["The cat sat.", "It rained all day.", "Why?"], figures=("residual-ratio",))
    tip = study.figure("residual-ratio").data[1].customdata[0][2]
    low, high = study.table("residual-ratio").rows[0][-2:]
    assert tip == f"<br>95 % interval {low:.3g} to {high:.3g}"


def test_the_axis_of_layers_is_that_of_the_deeper_model(tmp_path: Path) -> None:
    """Also if it is the one that is compared with."""
    first, deeper = (tiny_model(tmp_path / str(layers), "bert", layers=layers) for layers in (2, 5))
    figures = ("residual-ratio", "mixing-ratio")
    study = headscope.study(str(first), ["The cat sat."], str(deeper), measures=(), figures=figures)
    assert [tuple(study.figure(name).layout.xaxis.ticktext) for name in figures] == [("0", "1", "2", "3", "4")] * 2


def test_heads_that_a_layer_lacks_have_no_pattern(single: Any) -> None:
    """They are in no row, no tooltip and no sum."""
    counts = single.arrays["class/0/patterns/weights"].copy()
    counts[1, 2:] = 0
    lacking = replace(single, arrays={**single.arrays, "class/0/patterns/weights": counts})
    rows = lacking.table("pattern-grid").rows
    assert [row[2] for row in rows if row[1] == 1] == [0, 1]
    figure, present = lacking.figure("pattern-grid"), np.count_nonzero(counts.sum(-1))
    assert len(rows) == len(figure.data[1].customdata) == len(figure.data[1].x) == present
    assert figure.layout.meta["sentence"].endswith(f"of {present} heads.")
