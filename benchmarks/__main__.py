"""Measurements next to peer tools, in the same run: prints a table per benchmark, and then everything as one JSON document."""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from typing import Any

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
    "load",
    "growth",
    "find",
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
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(BENCHMARKS):
        parser.error(f"unknown benchmarks: {', '.join(sorted(unknown))}")
    found: dict[str, Any] = {"machine": machine()}
    for name in chosen.names or BENCHMARKS:
        module = import_module(f".{name}", __package__)
        print(f"\n## {name}\n\n{module.__doc__.strip()}\n")
        found[name] = module.measure(**module.SMALLEST if chosen.smallest else {})
        print(_table(found[name]), flush=True)
    print(json.dumps(found))


def _table(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    lines += ["| " + " | ".join(str(row.get(column, "–")) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
