"""The record of ratios: what earlier runs on the same machine measured, and which ratios are worse now than in any of them.

One JSON document per line, newest last. Ratios compare two things in the same run, so a busy machine changes them less than it changes seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .common import Spread
from .costs import PLAIN_ROW

RECORD = Path(__file__).resolve().parents[1] / "docs" / "measured" / "ratios.jsonl"
# A ratio is compared with this many of the latest results, and judged once there are FEWEST.
LATEST, FEWEST = 10, 3
# What says that two runs were on the same kind of machine.
MACHINE = ("cpu", "cores", "gpu")


class Tracked(NamedTuple):
    """The columns of a benchmark that are ratios (a regular expression), what is better, and the sizes of --quick."""

    columns: str
    better: Literal["lower", "higher"]
    quick: Mapping[str, Any]


TRACKED = {
    "lenses": Tracked(r"_ratio$", "lower", {"lengths": (128,), "decoder_lengths": (51,), "repeats": 5}),
    "targets": Tracked(r" \d+$", "lower", {"lengths": (128,), "repeats": 5}),
    "effects": Tracked(r"_of_", "lower", {"lengths": (32,), "repeats": 3}),
    "memory": Tracked(r"^ratio$", "lower", {"repeats": 3}),
    "batch": Tracked(r" times the loop$", "higher", {"lengths": (16,), "repeats": 5}),
    "study": Tracked(r"^ratio$", "higher", {"count": 500}),
}
Ratios = dict[str, Spread]


class Compared(NamedTuple):
    """A ratio beside the medians of earlier runs. `worse`: even the best repeat is worse than each of them, if there are FEWEST."""

    name: str
    now: Spread
    earlier: list[float]
    worse: bool


def read_ratios(benchmark: str, rows: Iterable[Mapping[str, Any]]) -> Ratios:
    """Return the ratios in the rows of a benchmark, named after it, the row and the column."""
    return dict(_read(benchmark, rows))


def _read(benchmark: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Spread]]:
    for row in rows:
        spreads = {column: Spread.read(str(value)) for column, value in row.items()}
        of = [str(value) for column, value in row.items() if spreads[column] is None]
        for column, spread in spreads.items():
            if spread and PLAIN_ROW not in of and re.search(TRACKED[benchmark].columns, column):
                yield f"{benchmark}: {', '.join([*of, column])}", spread


def load(path: Path = RECORD) -> list[dict[str, Any]]:
    """Return the record, oldest first."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def append(machine: Mapping[str, Any], ratios: Ratios, path: Path = RECORD, **about: str) -> None:
    """Add a run to the record; `about` are other facts about it, such as its commit."""
    entry = {**about, "machine": dict(machine), "ratios": {name: list(spread) for name, spread in ratios.items()}}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def compare(machine: Mapping[str, Any], ratios: Ratios, record: Sequence[Mapping[str, Any]]) -> list[Compared]:
    """Return every ratio beside the LATEST results of the same machine that have it."""
    here = [run["ratios"] for run in record if all(run["machine"].get(key) == machine.get(key) for key in MACHINE)]
    found = []
    for name, now in ratios.items():
        earlier = [Spread(*run[name]).median for run in here if name in run][-LATEST:]
        found.append(Compared(name, now, earlier, len(earlier) >= FEWEST and _is_worse(name, now, earlier)))
    return found


def _is_worse(name: str, now: Spread, earlier: Sequence[float]) -> bool:
    if TRACKED[name.partition(":")[0]].better == "lower":
        return now.low > max(earlier)
    return now.high < min(earlier)
