"""Seconds of one study with one process and with several, from the request to the result.

MiniLM on the CPU, sentences as in `study`, weights and effective attention, entropy, patterns and attention to special tokens; models are loaded. A row is a deployment:
the number of processes that run models, and their threads. `times one` is the speed relative to a cluster with one worker of one thread, of the same repeat. `same
numbers` states whether all results are bitwise equal to those of the embedded deployment with the same number of threads.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from tests.support import studies
from tests.support.cluster import Cluster
from tests.support.server import Server

import headscope

from .common import Spread, interleaved, ratios
from .study import COUNT, MEASURES, sentences

REPEATS = 3
Deployments = list[tuple[int, int]]
SMALLEST: dict[str, Any] = {"count": 4, "repeats": 1, "deployments": [(0, 1), (1, 1)]}  # workers, threads


class Deployment:
    """A running deployment, and the studies sent to it."""

    def __init__(self, kind: str, workers: int, threads: int, server: Server, texts: list[str]) -> None:
        self.kind, self.workers, self.threads = kind, workers, threads
        self.server, self._texts, self._asked = server, texts, 0
        self.latest = ""

    def study(self) -> None:
        """Send another study of the same texts, with another seed."""
        data = "".join(json.dumps({"text": text}) + "\n" for text in self._texts)
        body = {"model": "minilm", "dataset": {"name": "texts.jsonl", "data": data}, "seed": self._asked}
        chosen = {"lenses": ["weights", "effective"], "measures": MEASURES, "figures": []}
        self.latest, self._asked = str(studies.done(self.server, {**body, **chosen})["id"]), self._asked + 1


def measure(count: int = COUNT, repeats: int = REPEATS, deployments: Deployments | None = None) -> list[dict[str, Any]]:
    """Return one row per deployment, given as (workers, threads); 0 workers is the embedded one. The first two are always the same."""
    texts = sentences(headscope.load("minilm"), count)
    chosen = deployments or [(0, 1), (1, 1), (2, 1), (0, torch.get_num_threads())]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        started = []
        for number, (workers, threads) in enumerate(chosen):
            place = Path(folder) / str(number) / "home"
            place.parent.mkdir()
            server = Cluster(place, workers=workers, threads=threads) if workers else Server(place, threads=threads)
            kind = "cluster" if workers else "embedded"
            started.append(Deployment(kind, max(1, workers), threads, running.enter_context(server), texts))
        seconds = interleaved({str(place): deployment.study for place, deployment in enumerate(started)}, repeats, 1)
        return [
            _row(deployment, seconds[str(place)], seconds["1"], started, Path(folder))
            for place, deployment in enumerate(started)
        ]


def _row(
    deployment: Deployment, taken: list[float], one: list[float], deployments: list[Deployment], folder: Path
) -> dict[str, Any]:
    alone = next(other for other in deployments if other.kind == "embedded" and other.threads == deployment.threads)
    expected = studies.arrays(alone.server, alone.latest, folder)
    try:
        studies.same(studies.arrays(deployment.server, deployment.latest, folder), expected)
        same = "yes"
    except AssertionError:
        same = "no"
    return {
        "deployment": deployment.kind,
        "processes": deployment.workers,
        "threads each": deployment.threads,
        "seconds": Spread.of(taken).text(1, 1),
        "times one": ratios(one, taken).text(1, 2),
        "same numbers": same,
    }
