"""Milliseconds from a sentence to its meaning over REST, while nothing else runs and while analyses do.

One reader asks sentences one after another, each once, so that no answer comes from a cache; MiniLM and the embeddings of the known phrases are loaded. `processor` is
the processor time that the server process takes for a sentence, without that of the process that runs models. `while analyses run`, the queue is never empty.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
from tests.support.cluster import Cluster
from tests.support.server import API, Server
from tests.unit.sentences import COMMON_SENTENCES, LATER_SENTENCES, OWN_SENTENCES, TEXT

from .visitors import Tally, Visitor

SENTENCES = [*OWN_SENTENCES, *COMMON_SENTENCES, *LATER_SENTENCES]
BUSY: dict[str, Any] = {"model": "minilm", "lenses": ["weights", "effective", "norm"], "measures": ["entropy"]}
SMALLEST: dict[str, Any] = {"deployments": ("embedded",), "count": 4, "analyses": 4}


def measure(
    deployments: tuple[str, ...] = ("embedded", "cluster"), count: int = len(SENTENCES), analyses: int = 60
) -> list[dict[str, Any]]:
    """Return a row per deployment, without and with analyses in the queue."""
    rows = []
    for deployment in deployments:
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / deployment / "home"
            home.parent.mkdir()
            with Server(home) if deployment == "embedded" else Cluster(home) as server:
                known = [server.analyse(model="minilm", text=f"{TEXT} {again}")["id"] for again in ("", "Again.")]
                _ask(server, known[0], ["heads with blurred maps"])  # loads MiniLM
                rows.append({"deployment": deployment, "analyses": "none", **_ask(server, known[0], SENTENCES[:count])})
                texts = [f"{number} cats sat on mats. " * 40 for number in range(100, 100 + analyses)]
                ids = server.post({**BUSY, "inputs": [{"text": text} for text in texts]}, "/analyses/batch").json()[
                    "ids"
                ]
                rows.append({"deployment": deployment, "analyses": "run", **_ask(server, known[1], SENTENCES[:count])})
                last = server.get(f"/analyses/{ids[-1]}").json()
                rows[-1]["queue"] = "never empty" if last["status"] in ("queued", "running") else "ended before"
    return rows


def _ask(server: Server, analysis: str, sentences: list[str]) -> dict[str, Any]:
    """Ask every sentence once, and return times in ms."""
    process = psutil.Process(server.process.pid)
    before = process.cpu_times()
    paths = [f"{API}/analyses/{analysis}/ask?q={quote(sentence)}" for sentence in sentences]
    tally = asyncio.run(_visit(f"{server.token or ''}@{server.url}", paths))
    after = process.cpu_times()
    used = after.user + after.system - before.user - before.system
    return {
        "sentences": len(tally.seconds),
        "not 200": tally.refused + tally.broken,
        "processor": round(used / len(sentences) * 1e3, 1),
        **{f"p{share:.0%}".rstrip("%"): round(tally.quantile(share) * 1e3, 1) for share in (0.5, 0.95)},
    }


async def _visit(address: str, paths: list[str]) -> Tally:
    tally = Tally()
    async with Visitor(address, paths) as visitor:
        for _ in paths:
            await visitor.ask(tally, time.perf_counter())
    return tally
