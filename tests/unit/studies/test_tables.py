"""Tables of a study hold its numbers, and every format gives back what was written."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import headscope
from headscope.errors import InvalidRequest, Unknown
from headscope.figures.figure import Drawing
from headscope.figures.studies import STUDY_FIGURES, build_table
from headscope.studies.results import table_files, tables
from headscope.studies.results.table_files import ResultTable
from tests.support.variants import variants

from .texts import texts

AWKWARD = ResultTable(
    "awkward",
    "50 % of A & B",
    ("text", "number", "whole", "mixed", "nothing"),
    [
        ['a, "b"\nc_{1} \\ ~^ $5 #7', 0.5, 3, "x", None],
        ["Grünwald", float("nan"), None, None, None],
        ["", -1.5e-9, 10**12, 7, None],
    ],
)


# More tokens than the model can read.
LONG = "word " * 600


@pytest.fixture(scope="module")
def study(minilm: headscope.Model) -> Any:
    return headscope.study(
        minilm, [*texts(12), LONG], lenses=("weights",), measures=("entropy", "patterns", "output_overlap")
    )


def test_json_is_strict() -> None:
    """Undefined numbers are null."""
    found = json.loads(table_files.as_json(AWKWARD))
    assert found["columns"] == list(AWKWARD.columns)
    assert found["rows"][0][0] == AWKWARD.rows[0][0]
    assert found["rows"][1] == ["Grünwald", None, None, None, None]


@variants("text", ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "a\r=1"])
def test_csv_has_no_formulas(text: str) -> None:
    """In a spreadsheet such text is text, in tables and figures, rows and headings; numbers stay numbers."""
    numbers = (-0.5, -3, "-0.5", "+1e-3", "1-2", "'")
    written = table_files.as_csv(ResultTable("t", "T", (text, *"abcdef"), [[text, *numbers]])).decode()
    assert Drawing((), {}, "", (text, *"abcdef"), [[text, *numbers]]).csv() == written
    for row, rest in zip(csv.reader(io.StringIO(written, newline="")), ("abcdef", numbers), strict=True):
        assert row == [text if text[0] == "a" else f"'{text}", *map(str, rest)]


def test_csv_is_read_back() -> None:
    head, *rows = csv.reader(io.StringIO(table_files.as_csv(AWKWARD).decode()))
    assert head == list(AWKWARD.columns)
    assert [row[0] for row in rows] == [row[0] for row in AWKWARD.rows]
    assert rows[1][1:] == ["", "", "", ""]
    assert float(rows[2][1]) == -1.5e-9


def test_parquet_has_types() -> None:
    """Text, numbers, whole numbers; a column of both is text."""
    found = pq.read_table(io.BytesIO(table_files.as_parquet(AWKWARD)))
    assert [str(field.type) for field in found.schema] == ["string", "double", "int64", "string", "double"]
    assert found.column("whole").to_pylist() == [3, None, 10**12]
    assert found.column("number").to_pylist() == [0.5, None, -1.5e-9]
    assert found.schema.metadata[b"headscope.title"] == b"50 % of A & B"


def test_latex_is_escaped() -> None:
    """One line per row, no foreign commands, and dashes for undefined cells."""
    lines = table_files.as_latex(AWKWARD).decode().splitlines()
    body = lines[lines.index(r"\midrule") + 1 : lines.index(r"\bottomrule")]
    assert body[0] == (
        r"a, \textquotedbl{}b\textquotedbl{} c\_\{1\} \textbackslash{} \textasciitilde{}\textasciicircum{} \$5 \#7"
        r" & $0.5$ & $3$ & x & -- \\"
    )
    assert body[2] == r" & $-1.5 \times 10^{-9}$ & $1000000000000$ & $7$ & -- \\"
    assert r"\begin{tabular}{lrrlr}" in lines
    assert r"\caption{50 \% of A \& B}" in lines


@pytest.mark.parametrize("form", table_files.WRITERS)
def test_a_table_without_rows(form: Any) -> None:
    assert table_files.WRITERS[form](ResultTable("empty", "Nothing", ("row", "code"), []))


def test_heads_have_every_number(study: Any) -> None:
    """Means with intervals, shares of classes, and what is the same for all inputs."""
    found = build_table(study, "heads")
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    assert [(row["layer"], row["head"]) for row in rows] == [(layer, head) for layer in range(6) for head in range(12)]
    stat = study.stat("entropy")
    assert [row["entropy/weights"] for row in rows] == stat.input_mean.ravel().tolist()
    assert all(row["entropy_low/weights"] <= row["entropy/weights"] <= row["entropy_high/weights"] for row in rows)
    counts = study.classes()
    assert [row["patterns_share_vertical/weights"] for row in rows] == pytest.approx(
        (counts[..., 0] / counts.sum(-1)).ravel().tolist()
    )
    assert not any(column.startswith("patterns_class") for column in found.columns)
    assert np.isfinite([row["patterns_margin/weights"] for row in rows]).all()


def test_inputs_and_failures_are_listed(study: Any) -> None:
    """Those that were kept, with their texts; and the one that is too long, with the reason."""
    shown = build_table(study, "inputs")
    assert shown.rows
    assert all(row[1] == texts(12)[row[0] - 1] for row in shown.rows)
    ((row, code, problem),) = build_table(study, "failed").rows
    assert (row, study.inputs) == (13, 12)
    assert code in ("too-many-tokens", "invalid-request")
    assert "tokens" in problem


def test_tables_have_the_names_of_figures(study: Any) -> None:
    assert tables.table_names(study.document) == ["pattern-shares", "entropy", "pattern-grid", *tables.TABLES]
    assert set(tables.table_names(study.document)) <= {*STUDY_FIGURES, *tables.TABLES}
    assert build_table(study, "entropy", {"layer": 3}).rows[0][:2] == [3, 0]


def test_what_is_refused(study: Any) -> None:
    with pytest.raises(Unknown, match="heads, inputs, failed"):
        build_table(study, "no-such-table")
    with pytest.raises(InvalidRequest, match="no parameters"):
        build_table(study, "heads", {"layer": 3})
    with pytest.raises(InvalidRequest, match="Invalid parameter"):
        build_table(study, "entropy", {"colour": "red"})
