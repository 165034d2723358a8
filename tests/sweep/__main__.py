"""Sweeps over every architecture: python -m tests.sweep [--write] [model type ...]

Exits with status 1 where anything is wrong, or not as the record in the docs has it. With --write the record and the table that ships with Headscope are
written instead, unless anything is wrong; with names the verdicts are printed only.
"""

from __future__ import annotations

import argparse
import json
import sys

from .run import faults, sweep
from .table import FAMILIES, RECORD, families, record, recorded, summary

LEAST_EQUAL = 150


def main() -> int:
    """Returns 1 if anything is wrong: maps that are not the model's own, an error that is not Headscope's, or a verdict that is not the recorded one."""
    parser = argparse.ArgumentParser("python -m tests.sweep", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="MODEL_TYPE", help="only these")
    parser.add_argument("--write", action="store_true", help="write what is found")
    asked = parser.parse_args()
    found = sweep(asked.names or None)
    wrong = faults(found)
    if asked.names:
        print(json.dumps(found, indent=1))
    elif asked.write and not wrong:
        RECORD.write_text(record(found), "utf-8")
        FAMILIES.write_text(families(found), "utf-8")
    elif not asked.write:
        wrong |= _changed(found)
    for name, what in wrong.items():
        print(f"{name}: {what}")
    print(summary(found))
    return 1 if wrong else 0


def _changed(found: dict[str, dict[str, object]]) -> dict[str, object]:
    """Return the differences from the record. Another version of transformers may add types, but not change verdicts."""
    _, known = recorded()
    changed = {name: verdict for name, verdict in found.items() if name in known and verdict != known[name]}
    equal = sum(verdict.get("result") == "equal" for verdict in found.values())
    return changed | ({"equal": f"{equal} only"} if equal < LEAST_EQUAL else {})


if __name__ == "__main__":
    sys.exit(main())
