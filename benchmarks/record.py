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
    """The columns of a benchmark that are ratios (a regular expression), what is better, and the sizes of --quick; None if it takes too long for that.

    `absolute` columns are a time over a fixed goal: they go on record, but a slower machine is no regression.
    """

    columns: str
    better: Literal["lower", "higher"]
    quick: Mapping[str, Any] | None
    absolute: str = "^$"


TRACKED = {
    "lenses": Tracked(
        r"_ratio$|^effective_adds_percent$", "lower", {"lengths": (128,), "decoder_lengths": (51,), "repeats": 5}
    ),
    "targets": Tracked(r" \d+$", "lower", {"lengths": (128,), "repeats": 5, "long": None}),
    "effects": Tracked(r"_of_", "lower", {"lengths": (32,), "repeats": 2}),
    "memory": Tracked(r"^ratio$", "lower", {"repeats": 2}),
    "long": Tracked(r"^times_forward$|^headscope_added_gib$", "lower", None),
    "batch": Tracked(r" times the loop$", "higher", {"lengths": (16,), "repeats": 3}),
    "study": Tracked(r"ratio$", "higher", {"count": 200, "decoder_count": 8, "repeats": 2}),
    "generation": Tracked(r"^ratio$", "higher", {"new": 64, "repeats": 2}),
    "scaling": Tracked(
        r"exponent$",
        "lower",
        {
            "tokens": (32, 128, 512),
            "heads": ((6, 12), (12, 12), (24, 16)),
            "inputs": (10, 100, 1_000),
            "repeats": 3,
            "processes": 0,
        },
    ),
    "waiting": Tracked(r"^of_goal$|^times_reference$", "lower", {"repeats": 2}, r"^of_goal$"),
    "page": Tracked(r"^grid_painted_ms_of_budget$", "lower", {"lengths": {512: 5}}),
}
# Goals by the names of ratios, as regular expressions; the first that fits counts.
GOALS = {
    r"targets: lens effective, bert-base 32": 1.02,
    r"targets: lens effective, bert-base 128": 1.12,
    r"targets: lens effective, bert-base 512": 1.08,
    r"targets: lens effective, gpt2-small 128": 1.12,
    r"targets: lens effective, gpt2-small \d+": 1.2,
    r"targets: default measures, bert-base \d+": 1.08,
    r"targets: default measures, gpt2-small \d+": 1.2,
    r"lenses: smollm2, \w+, 51, effective_adds_percent": 10,
    r"lenses: smollm2, \w+, \d+, effective_adds_percent": 20,
    r"lenses: random, 128, analysis_ratio": 1.15,
    r"lenses: random, 512, analysis_ratio": 1.25,
    r"study: .*": 0.85,
    r"generation: .*": 0.8,
    r"waiting: .*, of_goal": 1,
    r"page: .*": 1,
    r"long: 8192, times_forward": 2,
    r"long: 8192, headscope_added_gib": 1,
}
QUICK = {name: tracked.quick for name, tracked in TRACKED.items() if tracked.quick is not None}
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


def goal_of(name: str) -> float | None:
    """Return the goal of a ratio, None if it has none."""
    return next((goal for pattern, goal in GOALS.items() if re.fullmatch(pattern, name)), None)


def is_met(name: str, now: Spread, goal: float) -> bool:
    """Return whether the median of a ratio meets its goal."""
    return now.median <= goal if TRACKED[name.partition(":")[0]].better == "lower" else now.median >= goal


def load(path: Path = RECORD) -> list[dict[str, Any]]:
    """Return the record, oldest first."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def append(machine: Mapping[str, Any], ratios: Ratios, path: Path = RECORD, **about: str) -> None:
    """Add a run to the record, with the goals of its ratios and those that it missed; `about` are other facts about it, such as its commit."""
    goals = {name: goal for name, goal in ((name, goal_of(name)) for name in ratios) if goal is not None}
    missed = [name for name, goal in goals.items() if not is_met(name, ratios[name], goal)]
    found = {name: list(spread) for name, spread in ratios.items()}
    entry = {**about, "machine": dict(machine), "ratios": found, "goals": goals, "missed": missed}
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
    tracked = TRACKED[name.partition(":")[0]]
    if re.search(tracked.absolute, name.rpartition(", ")[2]):
        return False
    if tracked.better == "lower":
        return now.low > max(earlier)
    return now.high < min(earlier)
