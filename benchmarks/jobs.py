"""Jobs per second of tiny analyses, from the first request to the last result, sent as batches and one by one.

A random GPT-2 with two layers on the CPU, inputs of eight tokens, weights and entropy. Every deployment is started with one warm model per worker. `one by one` are
requests of four connections that send the next one immediately. With the folder of another version's source tree, its deployments are measured in turn with ours,
and `times other` are ratios to it of the same repeat.

python -m benchmarks.jobs [--count N] [--repeats N] [--only NAME] [FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from tests.support.cluster import Cluster
from tests.support.models import tiny_model
from tests.support.server import Server

from benchmarks.common import Spread, ratios

ROOT = Path(__file__).resolve().parents[1]
COUNT, REPEATS, BATCH, CONNECTIONS, TOKENS = 2000, 3, 1000, 4, 8
DEPLOYMENTS = {"embedded": 0, "cluster, 1 worker": 1, "cluster, 2 workers": 2}
WAYS = ("as batches", "one by one")
BODY: dict[str, Any] = {"model": "gpt2", "lenses": ["weights"], "measures": ["entropy"]}
SMALLEST: dict[str, Any] = {"count": 4, "repeats": 1, "deployments": ("embedded",)}

Rates = dict[str, float]


def measure(
    count: int = COUNT, repeats: int = REPEATS, deployments: tuple[str, ...] = (), other: Path | None = None
) -> list[dict[str, Any]]:
    """Return one row per deployment and way of sending."""
    rows = []
    for name in deployments or tuple(DEPLOYMENTS):
        trees = {"here": ROOT, **({"other": other} if other else {})}
        taken: dict[str, list[Rates]] = {tree: [] for tree in trees}
        for _ in range(repeats):
            for tree, folder in trees.items():
                taken[tree].append(_measured(folder, DEPLOYMENTS[name], count))
        rows += [_row(name, way, taken) for way in WAYS]
    return rows


def _row(name: str, way: str, taken: dict[str, list[Rates]]) -> dict[str, Any]:
    row: dict[str, Any] = {"deployment": name, "sent": way}
    rates = {tree: [one[way] for one in all_] for tree, all_ in taken.items()}
    for tree, values in rates.items():
        row[f"{tree}, jobs/s"] = Spread.of(values).text()
        row[f"{tree}, processor ms/job"] = Spread.of([one[f"{way}, ms"] for one in taken[tree]]).text(digits=1)
    if "other" in rates:
        row["times other"] = ratios(rates["here"], rates["other"]).text(1, 2)
    return row


def _measured(tree: Path, workers: int, count: int) -> Rates:
    """Return the jobs per second of a source tree, measured in a process that imports it."""
    paths = os.pathsep.join(str(path) for path in (tree / "backend", tree))
    command = [sys.executable, "-P", __file__, "--count", str(count), "--report", str(workers)]
    found = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, cwd=tree, stdout=subprocess.PIPE, check=True
    )
    rates: Rates = json.loads(found.stdout.splitlines()[-1])
    return rates


def _report(workers: int, count: int) -> None:
    """Print the jobs per second of a new deployment with so many workers, 0 for an embedded one."""
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        tiny_model(models / "gpt2", "gpt2")
        home = Path(folder) / "home"
        options: dict[str, Any] = {"max_queue": 10 * count, "user_queue": 10 * count}
        server = Cluster(home, models, workers=workers, **options) if workers else Server(home, models, **options)
        with server:
            draw = np.random.default_rng(0).permuted(np.tile(np.arange(200), (3 * count, 1)), axis=1)[:, :TOKENS]
            inputs = [{"token_ids": row.tolist()} for row in draw]
            _send_batches(server, inputs[2 * count : 2 * count + 2 * max(workers, 1)])
            rates = {}
            for way, send, some in (
                ("as batches", _send_batches, inputs[:count]),
                ("one by one", _send_singly, inputs[count : 2 * count]),
            ):
                began, used = time.perf_counter(), _processor_seconds()
                send(server, some)
                rates[way] = count / (time.perf_counter() - began)
                rates[f"{way}, ms"] = (_processor_seconds() - used) / count * 1e3
    print(json.dumps(rates))


def _processor_seconds() -> float:
    """Return the processor time of all processes below this one."""
    below = psutil.Process().children(recursive=True)
    return sum(sum(process.cpu_times()[:2]) for process in below)


def _send_batches(server: Server, inputs: list[dict[str, Any]]) -> None:
    ids: list[str] = []
    for first in range(0, len(inputs), BATCH):
        answer = server.post({**BODY, "inputs": inputs[first : first + BATCH]}, "/analyses/batch")
        assert answer.status_code == 202, answer.text
        ids += answer.json()["ids"]
    _await(server, ids)


def _send_singly(server: Server, inputs: list[dict[str, Any]]) -> None:
    with ThreadPoolExecutor(CONNECTIONS) as connections:
        _await(server, list(connections.map(lambda one: server.submit(**BODY, **one), inputs)))


def _await(server: Server, ids: list[str]) -> None:
    """Wait until all have ended, by looking five times a second."""
    unfinished = re.compile(r'^headscope_jobs\{status="(queued|running)"\} [1-9]', re.MULTILINE)
    while unfinished.search(server.client.get("/metrics").text):
        time.sleep(0.2)
    assert server.get(f"/analyses/{ids[-1]}").json()["status"] == "done"


def main() -> None:
    """Measure, and print a line per row."""
    parser = argparse.ArgumentParser("python -m benchmarks.jobs")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--only", action="append", default=[], choices=DEPLOYMENTS)
    parser.add_argument("--report", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.report is not None:
        _report(chosen.report, chosen.count)
        return
    for row in measure(chosen.count, chosen.repeats, tuple(chosen.only), chosen.folder and chosen.folder.resolve()):
        print(row)


if __name__ == "__main__":
    main()
