"""Sweeps over every architecture and writes what was found: python -m tests.sweep [model type ...]

Without names the record in the docs and the table that ships with Headscope are written, unless anything is wrong; with names the verdicts are printed only.
"""

from __future__ import annotations

import json
import sys

from .run import sweep
from .table import FAMILIES, RECORD, families, record, summary


def main(names: list[str]) -> int:
    """Returns 1 if anything is wrong: maps that are not the model's own, or an error that is not Headscope's."""
    found = sweep(names or None)
    if names:
        print(json.dumps(found, indent=1))
    faults = {name: found[name] for name in found if "wrong" in found[name] or "crashed" in found[name]}
    if not names and not faults:
        RECORD.write_text(record(found), "utf-8")
        FAMILIES.write_text(families(found), "utf-8")
    for name, verdict in faults.items():
        print(f"{name} ({verdict['class']}): {verdict.get('wrong') or verdict.get('crashed')}")
    print(summary(found))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
