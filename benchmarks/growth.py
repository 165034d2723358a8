"""Memory of the processes of both deployments over analyses of a tiny model, each of a different text: over the first thousand, in which caches fill, and over ten thousand.

`start` and `end` are resident memory after the first and after all analyses, in MB. The slope is that of a linear fit to the second half, with a 95 % confidence
interval computed from the means of ten blocks, because neighbouring samples are correlated.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from tests.support.cluster import Cluster
from tests.support.models import tiny_model
from tests.support.server import API, Server

JOBS, BATCH = (1_000, 10_000), 20
DEPLOYMENTS = ("embedded", "cluster")
SMALLEST: dict[str, Any] = {"jobs": (12,), "batch": 2, "deployments": ("embedded",)}
# Quantile of Student's t for the slope of a line through ten points.
T95, STRETCHES = 2.306, 10


def measure(
    jobs: tuple[int, ...] = JOBS, batch: int = BATCH, deployments: tuple[str, ...] = DEPLOYMENTS
) -> list[dict[str, Any]]:
    """Return one row per process and number of jobs."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        tiny_model(models / "bert")
        for deployment in deployments:
            (Path(folder) / deployment).mkdir()
            kind = Cluster if deployment == "cluster" else Server
            with kind(Path(folder) / deployment / "home", models) as server:
                rows += [{"deployment": deployment, **row} for row in _grow(server, jobs, batch)]
    return rows


def _grow(server: Server, jobs: tuple[int, ...], batch: int) -> list[dict[str, Any]]:
    for start in range(batch):
        _batch(server, -start - 1, 1)
    processes = {"server": psutil.Process(server.process.pid), "model process": server.child()}
    sizes: dict[str, list[float]] = {name: [] for name in processes}
    for start in range(0, max(jobs), batch):
        _batch(server, start, batch)
        for name, process in processes.items():
            sizes[name].append(process.memory_info().rss / 1024)
    return [_row(name, np.array(found[: count // batch]), count) for count in jobs for name, found in sizes.items()]


def _batch(server: Server, start: int, count: int) -> None:
    inputs = [{"text": f"The cat sat on mat {number}."} for number in range(start, start + count)]
    body = {"model": "bert", "lenses": ["weights"], "measures": ["entropy"], "inputs": inputs}
    answer = server.post(body, "/analyses/batch")
    assert answer.status_code == 202, answer.text
    for id_ in answer.json()["ids"]:
        assert server.ended(id_)["status"] == "done"
        assert server.client.get(f"{API}/analyses/{id_}/grid/weights").status_code == 200


def _row(name: str, sizes: np.ndarray, jobs: int) -> dict[str, Any]:
    """Return a row from the resident `sizes` in KB after each batch."""
    half = sizes[len(sizes) // 2 :]
    stretches = np.array_split(half, min(STRETCHES, len(half)))
    means = np.array([stretch.mean() for stretch in stretches])
    places = np.linspace(0, jobs / 2, len(means), endpoint=False)
    spread = places - places.mean()
    slope = float(spread @ means / (spread @ spread))
    residual = means - means.mean() - slope * spread
    error = float(np.sqrt(residual @ residual / (len(means) - 2) / (spread @ spread)))
    return {
        "process": name,
        "jobs": jobs,
        "start MB": round(sizes[0] / 1024, 1),
        "end MB": round(sizes[-1] / 1024, 1),
        "most MB": round(sizes.max() / 1024, 1),
        "slope, KB/job": f"{slope:.2f} ({slope - T95 * error:.2f} to {slope + T95 * error:.2f})",
    }
