"""Aggregates: what a study keeps of its inputs, which is statistics and a few examples. Each chunk yields one, and they are merged in the order of the chunks."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.declarations import TOKEN_AXES, Quantity
from ..errors import InvalidRequest
from ..measures.compare import COMPARISONS
from . import kept_maps, statistics
from .data.dataset import Row
from .quantities import QUANTITIES
from .request import StudyRequest
from .results.summary import StudySummary, unpack_examples

# Failed inputs that are listed; further ones are only counted.
MAX_FAILED = 100
# Maximum characters of an example text.
TEXT_CHARACTERS = 1_000
# Fields of the document that are added when merging.
COUNTS = ("inputs", "tokens", "cut", "failed_count", "unaligned")


@dataclass(frozen=True)
class Aggregate:
    """Counts, failures and times as JSON, and arrays by the names that results/summary.py lists."""

    document: dict[str, Any]
    arrays: dict[str, Array]

    def merge(self, other: Aggregate) -> Aggregate:
        """Merge two aggregates: these inputs, then the other's."""
        arrays: dict[str, Array] = {}
        ours, theirs = _group_parts(self.arrays), _group_parts(other.arrays)
        for name in dict.fromkeys([*ours, *theirs]):
            if name in ours and name in theirs:
                parts = _MERGE[name.split("/")[0]](ours[name], theirs[name])
            else:
                parts = ours.get(name) or theirs[name]
            arrays |= {f"{name}/{part}" if part else name: values for part, values in parts.items()}
        document = _merge_documents(self.document, other.document)
        arrays["sample/row"] = statistics.draw_rows(document["seed"], arrays["sample/row"])
        return Aggregate(document, _prune_examples(kept_maps.prune_sparse(arrays, document["seed"])))

    def summary(self, request: StudyRequest, report: Mapping[str, Any]) -> StudySummary:
        """Return the finished study of the data set that `report` describes. Raises InvalidRequest if every input failed."""
        counted = self.document
        if counted["inputs"] == 0:
            raise InvalidRequest(_explain_empty(counted), pointer="/dataset")
        document = {
            "kind_of": "study",
            "request": request.model_dump(exclude={"dataset": {"data"}}),
            "dataset": dict(report),
            "lenses": request.analysis.lens_names,
            "skipped": report.get("bad_count", 0),
            **{name: counted[name] for name in counted if name != "seed"},
            "timing_ms": [{name: round(ms, 1) for name, ms in times.items()} for times in counted["timing_ms"]],
        }
        return StudySummary(document, self.arrays)


def _group_parts(arrays: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """Group flat names by what is merged together, such as the parts of a statistic. A single array has the part ""."""
    groups: dict[str, dict[str, Array]] = defaultdict(dict)
    for name, values in arrays.items():
        whole, part = (name, "") if name.split("/")[0] in ("class", "class_boot", "fixed") else name.rsplit("/", 1)
        groups[whole][part] = values
    return dict(groups)


def _add(a: dict[str, Array], b: dict[str, Array]) -> dict[str, Array]:
    return {name: a[name] + b[name] for name in a}


def _concatenate(a: dict[str, Array], b: dict[str, Array]) -> dict[str, Array]:
    return {name: np.concatenate([a[name], b[name]]) for name in a}


def _merge_examples(a: dict[str, Array], b: dict[str, Array]) -> dict[str, Array]:
    return _pack({**unpack_examples(a), **unpack_examples(b)})


_MERGE = {
    "stat": statistics.merge,
    "pair": statistics.merge,
    "top": statistics.merge_top,
    "class": _add,
    "class_boot": _add,
    "shown": kept_maps.choose_shown,
    "sparse": lambda a, b: a,
    "alike": _add,
    "fixed": lambda a, b: a,
    "sample": _concatenate,
    "example": _merge_examples,
}


def collect(
    variant: int, measured: Sequence[Mapping[str, Mapping[str, Array]]], rows: Array, seed: int
) -> dict[str, Array]:
    """Return the arrays of a variant. `measured` has one entry per input (name in QUANTITIES -> lens -> values, as in Result.measures), `rows` their numbers."""
    arrays: dict[str, Array] = {}
    for name, by_lens in measured[0].items() if measured else ():
        for lens in by_lens:
            values, starts = _concatenate_inputs([each[name][lens] for each in measured], QUANTITIES[name])
            of = f"{variant}/{name}/{lens}"
            parts, means = statistics.describe(values, starts, rows, seed, _edges(QUANTITIES[name]))
            arrays |= {f"stat/{of}/{part}": array for part, array in parts.items()}
            arrays |= {f"top/{of}/{part}": array for part, array in statistics.top(means, rows).items()}
            if QUANTITIES[name].classes:
                classes = _one_hot(means, QUANTITIES[name])  # [L, H, classes, I]
                arrays[f"class/{of}"] = classes.sum(-1)
                arrays[f"class_boot/{of}"] = statistics.bootstrap_counts(classes.sum(1), rows, seed)
    return arrays


def collect_comparison(comparison: str, lens: str, values: Array, rows: Array, seed: int) -> dict[str, Array]:
    """Return the arrays of a comparison of two variants, [L, H, I], and of the inputs on which a head's maps differ most."""
    declared, of = COMPARISONS[comparison], f"{comparison}/{lens}"
    edges = statistics.edges_for(*declared.range, declared.unit, columns=False)
    parts, means = statistics.describe(values, range(len(rows)), rows, seed, edges)
    arrays = {f"pair/{of}/{part}": array for part, array in parts.items()}
    least = statistics.top(1 - means if declared.similar else means, rows)
    return arrays | {f"top/pair/{of}/{part}": array for part, array in least.items()}


def add_rows(arrays: dict[str, Array], rows: Sequence[Row], seed: int) -> dict[str, Array]:
    """Add a random sample of the rows, and the texts of all rows that any array refers to."""
    sample = statistics.draw_rows(seed, np.array([row.number for row in rows], np.int64))
    examples = _pack({row.number: _text(row) for row in rows})
    return _prune_examples(
        arrays | {"sample/row": sample} | {f"example/{part}": array for part, array in examples.items()}
    )


def measure_shapes(arrays: Mapping[str, Array]) -> dict[str, dict[str, list[int]]]:
    """Return measure -> lens -> shape without token axes, of the first variant."""
    found: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for name, values in arrays.items():
        group, *of = name.split("/")
        if (group == "stat" and of[0] == "0" and of[-1] == "count") or (group == "fixed" and of[0] == "0"):
            found[of[1]][of[2]] = list(values.shape)
    return dict(found)


def _concatenate_inputs(values: Sequence[Array], quantity: Quantity) -> tuple[Array, list[int]]:
    """Flatten token axes into a last axis and concatenate inputs along it: [..., N], and the index at which each input starts."""
    axes = quantity.shape.split()
    token_axes = [place for place, axis in enumerate(axes) if axis in TOKEN_AXES]
    flat = [_flatten(each, token_axes) for each in values]
    sizes = [each.shape[-1] for each in flat]
    return np.concatenate(flat, axis=-1), [0, *np.cumsum(sizes[:-1]).tolist()]


def _flatten(values: Array, token_axes: Sequence[int]) -> Array:
    kept = values.ndim - len(token_axes)
    moved = np.moveaxis(values, token_axes, range(kept, values.ndim))  # e.g. [L, H, Q, C] -> [L, H, C, Q]
    return moved.reshape(*moved.shape[:kept], prod(moved.shape[kept:]))


def _edges(quantity: Quantity) -> Array:
    # A range is that of all columns, which may be ratios, positions and class numbers side by side.
    return statistics.edges_for(*quantity.range, quantity.unit, columns=bool(quantity.columns) or "C" in quantity.shape)


def _one_hot(means: Array, quantity: Quantity) -> Array:
    """Return the class of each input as 0 or 1, [L, H, C, I] -> [L, H, classes, I]."""
    numbers = means[..., quantity.columns.index("class"), :]  # [L, H, I]
    return np.stack([numbers == number for number in range(len(quantity.classes))], axis=-2).astype(np.int64)


def _merge_documents(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Add counts and times, and concatenate failures. The rest is equal in both, or missing in one without inputs."""
    known, other = (a, b) if a["inputs"] else (b, a)
    times = [
        {name: ours.get(name, 0.0) + theirs.get(name, 0.0) for name in {**ours, **theirs}}
        for ours, theirs in zip(a["timing_ms"], b["timing_ms"], strict=True)
    ]
    return {
        **other,
        **known,
        **{name: a[name] + b[name] for name in COUNTS},
        "failed": sorted(a["failed"] + b["failed"], key=lambda failure: failure["row"])[:MAX_FAILED],
        "timing_ms": times,
    }


def _prune_examples(arrays: dict[str, Array]) -> dict[str, Array]:
    """Drop the texts of rows that no ranking, sample or map refers to."""
    referenced = {int(row) for row in np.unique(np.concatenate([part.ravel() for part in _references(arrays)]))}
    texts = unpack_examples({part: arrays[f"example/{part}"] for part in ("row", "json")})
    kept = _pack({row: text for row, text in texts.items() if row in referenced})
    return arrays | {f"example/{part}": array for part, array in kept.items()}


def _references(arrays: Mapping[str, Array]) -> Iterator[Array]:
    yield arrays["sample/row"]
    for name, values in arrays.items():
        if name.startswith(("top/", "shown/")) and name.endswith("/row"):
            yield values


def _text(row: Row) -> dict[str, str]:
    fields = {"text": row.text, "text_pair": row.text_pair, "label": row.label}
    return {name: value[:TEXT_CHARACTERS] for name, value in fields.items() if value is not None}


def _pack(texts: Mapping[int, dict[str, str]]) -> dict[str, Array]:
    rows = sorted(texts)
    data = json.dumps([texts[row] for row in rows], separators=(",", ":")).encode()
    return {"row": np.array(rows, np.int64), "json": np.frombuffer(data, np.uint8)}


def _explain_empty(document: Mapping[str, Any]) -> str:
    if not document["failed"]:
        return "The data set has no row that can be analysed."
    first = document["failed"][0]
    return f"None of the inputs could be analysed. Row {first['row']}: {first['detail']}"
