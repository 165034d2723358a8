"""Measurements next to peer tools, in the same run: prints a table per benchmark, then everything as one JSON document, and ratios beside those on record.

Fails if a ratio is worse than in every one of the latest runs on this machine, even in its best repeat.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from . import record
from .common import machine

BENCHMARKS = (
    "lenses",
    "costs",
    "effects",
    "targets",
    "memory",
    "long",
    "large_model",
    "batch",
    "study",
    "workers",
    "jobs",
    "study_memory",
    "training",
    "load",
    "growth",
    "find",
    "waiting",
    "generation",
    "scaling",
    "page",
    "page_head",
    "page_zoom",
    "page_grid",
    "page_windows",
    "page_live",
    "page_peers",
)


def main() -> None:
    """Run the named benchmarks, or all."""
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"benchmarks to run (default: all): {', '.join(BENCHMARKS)}"
    )
    parser.add_argument(
        "--smallest", action="store_true", help="smallest sizes, to test that they run; the numbers mean nothing"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="minutes instead of hours: the benchmarks whose ratios go on record, with smaller sizes",
    )
    parser.add_argument(
        "--record", action="store_true", help="add the ratios of this run to docs/measured/ratios.jsonl"
    )
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(BENCHMARKS):
        parser.error(f"unknown benchmarks: {', '.join(sorted(unknown))}")
    found: dict[str, Any] = {"machine": machine()}
    for name in chosen.names or (record.QUICK if chosen.quick else BENCHMARKS):
        module = import_module(f".{name}", __package__)
        print(f"\n## {name}\n\n{module.__doc__.strip()}\n")
        started = time.monotonic()
        found[name] = module.measure(**_sizes(name, module, chosen))
        print(f"{_table(found[name])}\n\nThat took {time.monotonic() - started:.0f} s.", flush=True)
    print(json.dumps(found))
    if not chosen.smallest:
        sys.exit(judge(found, keep=chosen.record))


def _sizes(name: str, module: Any, chosen: argparse.Namespace) -> dict[str, Any]:
    if chosen.smallest:
        return dict(module.SMALLEST)
    return dict(record.QUICK.get(name, {})) if chosen.quick else {}


def judge(found: dict[str, Any], *, keep: bool) -> str | None:
    """Print the ratios of a run beside those on record, and return what got worse, as a sentence."""
    ratios: record.Ratios = {}
    for name in record.TRACKED:
        ratios |= record.read_ratios(name, found.get(name, ()))
    if not ratios:
        return None
    compared = record.compare(found["machine"], ratios, record.load())
    print("\n## Ratios beside the record of this machine\n")
    print(_table([_beside(one) for one in compared]))
    if keep:
        record.append(found["machine"], ratios, commit=_commit(), date=datetime.now(UTC).date().isoformat())
    worse = [one.name for one in compared if one.worse]
    return f"Worse than every earlier result on record: {'; '.join(worse)}." if worse else None


def _beside(one: record.Compared) -> dict[str, Any]:
    goal = record.goal_of(one.name)
    aimed = (
        {} if goal is None else {"goal": f"{goal:g}", "met": "yes" if record.is_met(one.name, one.now, goal) else "no"}
    )
    earlier = {"on record": f"{min(one.earlier):g} to {max(one.earlier):g}"} if one.earlier else {}
    worse = {"worse": "yes"} if one.worse else {}
    return {"ratio": one.name, "now": one.now.text(1, 2), **aimed, **earlier, "runs": len(one.earlier), **worse}


def _commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _table(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    lines += ["| " + " | ".join(str(row.get(column, "–")) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
