"""python -m benchmarks [NAME ...]: prints a table for each that is named, or for all of BENCHMARKS.

The last line is everything as one JSON document.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

from .common import machine

BENCHMARKS = (
    "lenses",
    "costs",
    "targets",
    "memory",
    "long",
    "batch",
    "study",
    "workers",
    "study_memory",
    "load",
    "growth",
    "page",
    "page_head",
    "page_live",
    "page_peers",
)


def main() -> None:
    """Run those that are named, or all."""
    found: dict[str, Any] = {"machine": machine()}
    for name in sys.argv[1:] or BENCHMARKS:
        module = import_module(f".{name}", __package__)
        print(f"\n## {name}\n\n{module.__doc__.strip()}\n")
        found[name] = module.measure()
        print(_table(found[name]), flush=True)
    print(json.dumps(found))


def _table(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    lines += ["| " + " | ".join(str(row.get(column, "–")) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


main()
