"""Seconds of one study by one process and by several, from the request until it is done.

MiniLM on the CPU, sentences as in `study`, weights and effective attention, entropy, patterns and attention to special tokens; models are warm. A row is a home, how many processes
run models, and how many threads each of them takes. `times one` is the time of the cluster's one worker of one thread over that of the row, of the same turn each. `same numbers`
says whether everything that the study kept is, to the last bit, what the embedded home keeps that runs with as many threads.
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
Homes = list[tuple[int, int]]
SMALLEST: dict[str, Any] = {"count": 4, "repeats": 1, "homes": [(0, 1), (1, 1)]}  # workers, threads


class Home:
    """A running home, and the studies that it was asked for."""

    def __init__(self, kind: str, workers: int, threads: int, server: Server, texts: list[str]) -> None:
        self.kind, self.workers, self.threads = kind, workers, threads
        self.server, self._texts, self._asked = server, texts, 0
        self.latest = ""

    def study(self) -> None:
        """One more study of the same texts: another seed makes it another one."""
        data = "".join(json.dumps({"text": text}) + "\n" for text in self._texts)
        body = {"model": "minilm", "dataset": {"name": "texts.jsonl", "data": data}, "seed": self._asked}
        chosen = {"lenses": ["weights", "effective"], "measures": MEASURES, "figures": []}
        self.latest, self._asked = str(studies.done(self.server, {**body, **chosen})["id"]), self._asked + 1


def measure(count: int = COUNT, repeats: int = REPEATS, homes: Homes | None = None) -> list[dict[str, Any]]:
    """One row per home: how many workers, none in the embedded one, and how many threads each. The first two are always the same."""
    texts = sentences(headscope.load("minilm"), count)
    chosen = homes or [(0, 1), (1, 1), (2, 1), (0, torch.get_num_threads())]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        started = []
        for number, (workers, threads) in enumerate(chosen):
            place = Path(folder) / str(number) / "home"
            place.parent.mkdir()
            server = Cluster(place, workers=workers, threads=threads) if workers else Server(place, threads=threads)
            kind = "cluster" if workers else "embedded"
            started.append(Home(kind, max(1, workers), threads, running.enter_context(server), texts))
        seconds = interleaved({str(place): home.study for place, home in enumerate(started)}, repeats, 1)
        return [
            _row(home, seconds[str(place)], seconds["1"], started, Path(folder)) for place, home in enumerate(started)
        ]


def _row(home: Home, taken: list[float], one: list[float], homes: list[Home], folder: Path) -> dict[str, Any]:
    alone = next(other for other in homes if other.kind == "embedded" and other.threads == home.threads)
    expected = studies.arrays(alone.server, alone.latest, folder)
    try:
        studies.same(studies.arrays(home.server, home.latest, folder), expected)
        same = "yes"
    except AssertionError:
        same = "no"
    return {
        "home": home.kind,
        "processes": home.workers,
        "threads each": home.threads,
        "seconds": Spread.of(taken).text(1, 1),
        "times one": ratios(one, taken).text(1, 2),
        "same numbers": same,
    }
