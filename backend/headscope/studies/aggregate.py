"""What a study keeps of its inputs: statistics and a few examples, never maps. Chunks give one each, and they are merged in the order of the chunks."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidRequest
from ..measures import MEASURES
from ..measures.base import Measure
from ..measures.compare import COMPARISONS
from . import sequences, shown, statistics
from .data.dataset import Row
from .request import StudyRequest
from .results.summary import StudySummary

Array = NDArray[Any]
# Inputs that failed beyond these are only counted.
KEPT_FAILED = 100
# Characters of a text that is kept as an example.
TEXT = 1_000
TOKEN_AXES = frozenset({"Q", "K"})
# What is counted, and so adds up.
COUNTS = ("inputs", "tokens", "cut", "failed_count", "unaligned")


@dataclass(frozen=True)
class Aggregate:
    """Counts, failures and times as JSON, and arrays by the names that summary.py lists."""

    document: dict[str, Any]
    arrays: dict[str, Array]

    def merge(self, other: Aggregate) -> Aggregate:
        """Both together: these inputs, then the other's."""
        arrays: dict[str, Array] = {}
        ours, theirs = grouped(self.arrays), grouped(other.arrays)
        for name in dict.fromkeys([*ours, *theirs]):
            if name in ours and name in theirs:
                parts = _MERGE[name.split("/")[0]](ours[name], theirs[name])
            else:
                parts = ours.get(name) or theirs[name]
            arrays |= {f"{name}/{part}" if part else name: values for part, values in parts.items()}
        document = _merged(self.document, other.document)
        arrays["sample/row"] = statistics.drawn(document["seed"], arrays["sample/row"])
        return Aggregate(document, _with_examples(sequences.pruned(arrays, document["seed"])))

    def summary(self, request: StudyRequest, report: Mapping[str, Any]) -> StudySummary:
        """The finished study of a data set that `report` describes. Raises InvalidRequest if no input came through."""
        found = self.document
        if found["inputs"] == 0:
            raise InvalidRequest(_nothing(found), pointer="/dataset")
        document = {
            "kind_of": "study",
            "request": request.model_dump(exclude={"dataset": {"data"}}),
            "dataset": dict(report),
            "lenses": request.analysis.lens_names,
            "skipped": report.get("bad_count", 0),
            **{name: found[name] for name in found if name != "seed"},
        }
        return StudySummary(document, self.arrays)


def grouped(arrays: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """Flat names -> what is merged together: the parts of a statistic, of a ranking; one array that stands alone has the part ""."""
    found: dict[str, dict[str, Array]] = defaultdict(dict)
    for name, values in arrays.items():
        whole, part = (name, "") if name.split("/")[0] in ("class", "class_boot", "fixed") else name.rsplit("/", 1)
        found[whole][part] = values
    return dict(found)


def _added(a: dict[str, Array], b: dict[str, Array]) -> dict[str, Array]:
    return {name: a[name] + b[name] for name in a}


def _both(a: dict[str, Array], b: dict[str, Array]) -> dict[str, Array]:
    return {name: np.concatenate([a[name], b[name]]) for name in a}


def _texts(a: dict[str, Array], b: dict[str, Array]) -> dict[str, Array]:
    return _packed({**_unpacked(a), **_unpacked(b)})


_MERGE = {
    "stat": statistics.merge,
    "pair": statistics.merge,
    "top": statistics.merge_top,
    "class": _added,
    "class_boot": _added,
    "shown": shown.better,
    "sparse": lambda a, b: a,
    "alike": _added,
    "fixed": lambda a, b: a,
    "sample": _both,
    "example": _texts,
}


def collected(
    variant: int, measured: Sequence[Mapping[str, Mapping[str, Array]]], rows: Array, seed: int
) -> dict[str, Array]:
    """Arrays of some inputs in a variant: of each its measures (measure -> lens -> values, as a Result has them), and its row."""
    arrays: dict[str, Array] = {}
    for name, by_lens in measured[0].items() if measured else ():
        for lens in by_lens:
            values, starts = _laid([one[name][lens] for one in measured], MEASURES[name])
            of = f"{variant}/{name}/{lens}"
            parts, means = statistics.describe(values, starts, rows, seed, _edges(MEASURES[name]))
            arrays |= {f"stat/{of}/{part}": array for part, array in parts.items()}
            arrays |= {f"top/{of}/{part}": array for part, array in statistics.top(means, rows).items()}
            if MEASURES[name].classes:
                kinds = _classes(means, MEASURES[name])
                arrays[f"class/{of}"] = kinds.sum(-1)
                arrays[f"class_boot/{of}"] = statistics.bootstrap_counts(kinds.sum(1), rows, seed)
    return arrays


def compared(comparison: str, lens: str, values: Array, rows: Array, seed: int) -> dict[str, Array]:
    """Arrays of the two variants' comparison, [L, H, I], and of the inputs where a head's maps are least alike."""
    declared, of = COMPARISONS[comparison], f"{comparison}/{lens}"
    edges = statistics.edges_for(*declared.range, declared.unit, columns=False)
    parts, means = statistics.describe(values, range(len(rows)), rows, seed, edges)
    arrays = {f"pair/{of}/{part}": array for part, array in parts.items()}
    least = statistics.top(1 - means if declared.similar else means, rows)
    return arrays | {f"top/pair/{of}/{part}": array for part, array in least.items()}


def with_rows(arrays: dict[str, Array], rows: Iterable[Row], seed: int) -> dict[str, Array]:
    """The same with a sample of the rows, and the texts of all that are named."""
    listed = list(rows)
    arrays = arrays | {"sample/row": statistics.drawn(seed, np.array([row.number for row in listed], np.int64))}
    texts = {row.number: _text(row) for row in listed}
    return _with_examples(arrays | {f"example/{part}": array for part, array in _packed(texts).items()})


def shapes(arrays: Mapping[str, Array]) -> dict[str, dict[str, list[int]]]:
    """Measure -> lens -> shape without token axes, of the first variant."""
    found: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for name, values in arrays.items():
        group, *of = name.split("/")
        if (group == "stat" and of[0] == "0" and of[-1] == "count") or (group == "fixed" and of[0] == "0"):
            found[of[1]][of[2]] = list(values.shape)
    return dict(found)


def _laid(values: Sequence[Array], measure: Measure) -> tuple[Array, list[int]]:
    """One input's values after the other along a last axis that stands for the measure's token axes, and where each begins."""
    axes = measure.shape.split()
    over = [place for place, axis in enumerate(axes) if axis in TOKEN_AXES]
    flat = [_flat(one, over) for one in values]
    sizes = [one.shape[-1] for one in flat]
    return np.concatenate(flat, axis=-1), [0, *np.cumsum(sizes[:-1]).tolist()]


def _flat(values: Array, over: Sequence[int]) -> Array:
    moved = np.moveaxis(values, over, range(values.ndim - len(over), values.ndim))
    kept = values.ndim - len(over)
    return moved.reshape(*moved.shape[:kept], prod(moved.shape[kept:]))


def _edges(measure: Measure) -> Array:
    # The range is that of a measure as a whole; columns may be ratios, places and numbers of classes side by side.
    return statistics.edges_for(*measure.range, measure.unit, columns=bool(measure.columns) or "C" in measure.shape)


def _classes(means: Array, measure: Measure) -> Array:
    """Which class each input has, [L, H, C, I] -> [L, H, classes, I], 0 or 1."""
    found = means[..., measure.columns.index("class"), :]
    return np.stack([found == number for number in range(len(measure.classes))], axis=-2).astype(np.int64)


def _merged(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Counts added, failures in order, times added; the rest is the same in both, or known to one only."""
    known, other = (a, b) if a["inputs"] else (b, a)
    times = [
        {name: round(one.get(name, 0.0) + two.get(name, 0.0), 1) for name in {**one, **two}}
        for one, two in zip(a["timing_ms"], b["timing_ms"], strict=True)
    ]
    return {
        **other,
        **known,
        **{name: a[name] + b[name] for name in COUNTS},
        "failed": sorted(a["failed"] + b["failed"], key=lambda one: one["row"])[:KEPT_FAILED],
        "timing_ms": times,
    }


def _with_examples(arrays: dict[str, Array]) -> dict[str, Array]:
    """Only the texts of rows that are named: by a ranking or by the sample."""
    named = {int(row) for row in np.unique(np.concatenate([part.ravel() for part in _naming(arrays)]))}
    texts = _unpacked({part: arrays[f"example/{part}"] for part in ("row", "json")})
    kept = _packed({row: text for row, text in texts.items() if row in named})
    return arrays | {f"example/{part}": array for part, array in kept.items()}


def _naming(arrays: Mapping[str, Array]) -> Iterator[Array]:
    yield arrays["sample/row"]
    for name, values in arrays.items():
        if name.startswith(("top/", "shown/")) and name.endswith("/row"):
            yield values


def _text(row: Row) -> dict[str, str]:
    found = {"text": row.text, "text_pair": row.text_pair, "label": row.label}
    return {name: value[:TEXT] for name, value in found.items() if value is not None}


def _packed(texts: Mapping[int, dict[str, str]]) -> dict[str, Array]:
    rows = sorted(texts)
    data = json.dumps([texts[row] for row in rows], separators=(",", ":")).encode()
    return {"row": np.array(rows, np.int64), "json": np.frombuffer(data, np.uint8)}


def _unpacked(parts: Mapping[str, Array]) -> dict[int, dict[str, str]]:
    return dict(zip(parts["row"].tolist(), json.loads(parts["json"].tobytes()), strict=True))


def _nothing(document: Mapping[str, Any]) -> str:
    if not document["failed"]:
        return "The data set has no row that can be analysed."
    first = document["failed"][0]
    return f"None of the inputs could be analysed. Row {first['row']}: {first['detail']}"
