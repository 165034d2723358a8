"""Tables of what was measured: the runs that `make faults` and `python -m benchmarks.load` left in docs/measured/."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from declared import table

FOLDER = Path(__file__).resolve().parent / "measured"
COUNTS = ("lost", "duplicate", "wrong", "errors", "refused", "resent", "again")


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return found


def faults() -> str:
    """One row per home and fault, in the order of the matrix."""
    record = _read("faults")
    runs: list[dict[str, Any]] = record["runs"]
    rows = []
    for home in ("embedded", "cluster"):
        for name, title in record["titles"].items():
            found = [run for run in runs if (run["home"], run["fault"]) == (home, name)]
            if found:
                rows.append((title, home, *_summary(found)))
    head = ("what happens", "home", "runs", "jobs", "promises kept", *COUNTS, "s to the next", "s to the last")
    kept = sum(_kept(run) for run in runs)
    return f"{kept} of {len(runs)} runs kept every promise. {_where(record, runs)}\n\n{table(head, rows)}"


def _summary(runs: list[dict[str, Any]]) -> tuple[str, ...]:
    totals = [str(sum(run[name] for run in runs)) for name in ("jobs", *COUNTS)]
    times = [_spread([run[name] for run in runs]) for name in ("first", "all")]
    return str(len(runs)), totals[0], f"{sum(map(_kept, runs))} of {len(runs)}", *totals[1:], *times


def _kept(run: dict[str, Any]) -> bool:
    return not (run["broken"] or any(run[name] for name in COUNTS[:4]))


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({max(values):.1f})"


def _where(record: dict[str, Any], runs: list[dict[str, Any]]) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in record["machine"].items())
    commits = ", ".join(dict.fromkeys(run["commit"] for run in runs))
    return f"Measured on: {machine}; commit {commits}."


def load() -> str:
    """One table per kind of row."""
    record = _read("load")
    return "\n\n".join([_machine(record), *(_table(rows) for rows in record["tables"])])


def _machine(record: dict[str, Any]) -> str:
    return f"Measured on: {', '.join(f'{name} {value}' for name, value in record['machine'].items())}."


def _table(rows: list[dict[str, Any]]) -> str:
    columns = tuple(rows[0])
    return table(columns, [tuple(str(row[column]) for column in columns) for row in rows])
