"""python -m tests.attacks [--seconds N] [--attack NAME]: the effect of each attack on another user, as a table. Exit status 1 if it is too large."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.attacks.attacks import ATTACKS
from tests.attacks.stage import LATENCY_SECONDS, MEMORY_BYTES, Watch, target


def main() -> None:
    """Run the attacks one after the other against one server."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks")
    parser.add_argument("--seconds", type=float, default=60, help="how long each attack goes on")
    parser.add_argument("--attack", action="append", choices=list(ATTACKS), help="only this one; may be repeated")
    chosen = parser.parse_args()
    held = []
    with tempfile.TemporaryDirectory(prefix="headscope-attacks-") as folder, target(Path(folder)) as attacked:
        print("| attack | largest latency | largest memory | requests of another user |\n| --- | --- | --- | --- |")
        for name in chosen.attack or ATTACKS:
            with Watch(attacked) as seen:
                ATTACKS[name](attacked, chosen.seconds)
            print(f"| {name} | {seen.latency:.2f} s | {seen.memory / 2**20:.0f} MiB | {seen.requests} |", flush=True)
            held.append(not seen.failures and seen.latency < LATENCY_SECONDS and seen.memory < MEMORY_BYTES)
    sys.exit(not all(held))


if __name__ == "__main__":
    main()
