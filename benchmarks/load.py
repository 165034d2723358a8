"""Throughput and latency of reading finished analyses from one server process, next to a bare FastAPI route that returns the same bytes, in the same run.

`metadata` is the document of an analysis, `map` the weights of one head for 128 tokens (64 KB); with `each`, every request is for another analysis, or another
head of one. Both deployments are measured, the cluster with its cache. The bare route runs on the same uvicorn with the same settings, without Headscope.
`requests/s` is the throughput of 32 connections that send the next request immediately; ratios compare measurements of the same repeat. Latencies are measured
at 60 % of that rate, in an open loop: from the time at which a request was scheduled. `crowd` is 500 connections that request the document every two seconds
for a minute. The clients run on the same machine and take one core.

python -m benchmarks.load [--short] [NOTE] also measures `growth`, and writes the tables of docs/reliability.md. Finished deployments are kept in build/load.json
and not measured again until it is removed. A deployment takes about 15 minutes, with --short two.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.cluster import Cluster
from tests.support.models import tiny_model
from tests.support.server import API, Server

from . import growth
from .common import Spread, machine, ratios
from .visitors import Tally, closed, open_loop

ROOT = Path(__file__).resolve().parents[1]
FINISHED, TABLE = ROOT / "build" / "load.json", ROOT / "docs" / "measured" / "load.json"
VISITORS, CROWD, PAUSE, SHARE = 32, 500, 2.0, 0.6
BODY = {"model": "gpt2", "max_tokens": 128, "lenses": ["weights"], "measures": ["entropy"]}
# Analyses of different texts, and the layers and heads of their model: many more responses than a server caches.
ANALYSES, LAYERS, HEADS = 64, 6, 8
DEPLOYMENTS = ("embedded", "cluster")
SMALLEST: dict[str, Any] = {
    "repeats": 1,
    "seconds": 0.1,
    "deployments": ("embedded",),
    "analyses": 2,
    "crowd": 10,
    "finished": None,
}

Row = dict[str, Any]


def measure(
    repeats: int = 5,
    seconds: float = 10.0,
    deployments: tuple[str, ...] = DEPLOYMENTS,
    analyses: int = ANALYSES,
    crowd: int = CROWD,
    finished: Path | None = FINISHED,
) -> list[Row]:
    """Return one row per deployment and response, and one for each crowd. Each phase takes `seconds`, the crowd six times as long.

    Deployments in the file `finished` are not measured again; with None, all are measured and nothing is written.
    """
    rows: dict[str, Row] = json.loads(finished.read_text("utf-8")) if finished and finished.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        tiny_model(models / "gpt2", "gpt2", layers=LAYERS, heads=HEADS)
        for deployment in deployments:
            if f"{deployment} crowd {seconds:g}" not in rows:
                with _running(deployment, Path(folder) / deployment / "home", models) as server:
                    rows |= _measure(server, deployment, repeats, seconds, analyses, crowd)
                if finished:
                    finished.parent.mkdir(exist_ok=True)
                    finished.write_text(json.dumps(rows, indent=1), "utf-8")
    return [row for name, row in rows.items() if name.endswith(f" {seconds:g}")]


def _running(deployment: str, folder: Path, models: Path) -> Server:
    folder.parent.mkdir()
    return Server(folder, models) if deployment == "embedded" else Cluster(folder, models)


def _measure(
    server: Server, deployment: str, repeats: int, seconds: float, analyses: int, crowd: int
) -> dict[str, Row]:
    with ExitStack() as bare:
        rows, questions = {}, _questions(server, analyses)
        address = f"{server.token or ''}@{server.url}"
        for name, paths in questions.items():
            answer = server.client.get(paths[0])
            file = server.home.parent / name
            other = bare.enter_context(_bare(answer.content, answer.headers["content-type"], file))
            rows[f"{deployment} {name} {seconds:g}"] = {
                "deployment": deployment,
                "answer": name,
                "bytes": len(answer.content),
                **_side_by_side(address, paths, other, repeats, seconds),
            }
        rows[f"{deployment} crowd {seconds:g}"] = {
            "deployment": deployment,
            "answer": "crowd",
            **_crowd(address, questions["metadata"], 6 * seconds, crowd),
        }
        return rows


def _questions(server: Server, analyses: int) -> dict[str, list[str]]:
    """Return the paths of each kind of response. The texts differ in one number, so that all documents have the same length."""
    texts = [f"{number} cats sat on mats. " * 40 for number in range(100, 100 + analyses)]
    ids = server.post({**BODY, "inputs": [{"text": text} for text in texts]}, "/analyses/batch").json()["ids"]
    assert all(server.ended(id_)["status"] == "done" for id_ in ids)
    documents = [f"{API}/analyses/{id_}" for id_ in ids]
    heads = [f"maps/weights?layer={layer}&head={head}" for layer in range(LAYERS) for head in range(HEADS)]
    maps = [f"{document}/{head}" for head in heads for document in documents]
    return {"metadata": documents[:1], "metadata each": documents, "map": maps[:1], "map each": maps}


def _side_by_side(address: str, paths: list[str], other: str, repeats: int, seconds: float) -> Row:
    """Measure both servers in turn: the highest throughput, and latencies at SHARE of Headscope's throughput."""
    places = {"headscope": (address, paths), "bare": (other, ["/"])}
    rates: dict[str, list[float]] = {name: [] for name in places}
    times: dict[str, list[Tally]] = {name: [] for name in places}
    for place in places.values():
        closed(*place, VISITORS, min(1.0, seconds))  # warm up
    for _ in range(repeats):
        for name, place in places.items():
            rates[name].append(len(closed(*place, VISITORS, seconds).seconds) / seconds)
        for name, place in places.items():
            times[name].append(open_loop(*place, VISITORS, seconds, SHARE * rates["headscope"][-1]))
    row = {f"{name}, requests/s": Spread.of(values).text() for name, values in rates.items()}
    row["ratio"] = ratios(rates["headscope"], rates["bare"]).text(1, 2)
    for name, tallies in times.items():
        for share in (0.5, 0.99):
            found = Spread.of([tally.quantile(share) for tally in tallies])
            row[f"{name}, p{share * 100:.0f} ms"] = found.text(1e3, 1)
    return row


def _crowd(address: str, paths: list[str], seconds: float, connections: int) -> Row:
    """Measure many connections that send a request now and then."""
    tally = closed(address, paths, connections, seconds, PAUSE)
    return {
        "connections": connections,
        "requests": len(tally.seconds),
        "not 200": tally.refused,
        "transport errors": tally.broken,
        "p50 ms": round(tally.quantile(0.5) * 1e3, 1),
        "p99 ms": round(tally.quantile(0.99) * 1e3, 1),
    }


@contextmanager
def _bare(content: bytes, media: str, file: Path) -> Iterator[str]:
    """Start a server that returns only these bytes, and yield its address."""
    file.write_bytes(content)
    command = [sys.executable, "-m", "benchmarks.load", "bare", str(file), media]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def _serve(file: str, media: str) -> None:
    """Run that server, in its own process."""
    import socket

    import uvicorn
    from fastapi import FastAPI, Response

    app, content = FastAPI(), Path(file).read_bytes()

    @app.get("/")
    async def answer() -> Response:
        return Response(content, media_type=media)

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(2048)  # clients may connect before uvicorn is ready
    print(f"127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False, http="h11", backlog=2048)
    uvicorn.Server(config).run(sockets=[listening])


def _document(short: bool, note: str) -> None:
    """Measure load and the growth of memory, and write the tables of docs/reliability.md."""
    rows = measure(2, 2.0, analyses=16) if short else measure()
    kinds = [[row for row in rows if ("ratio" in row) == side_by_side] for side_by_side in (True, False)]
    grown = growth.measure((200,)) if short else growth.measure()
    where = {**machine("fastapi", "uvicorn", "redis"), **({"note": note} if note else {})}
    TABLE.write_text(json.dumps({"machine": where, "tables": [*kinds, grown]}, indent=1) + "\n", "utf-8")
    subprocess.run([sys.executable, "docs/generate.py"], cwd=ROOT, check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["bare"]:
        _serve(*sys.argv[2:])
    else:
        words = [word for word in sys.argv[1:] if word != "--short"]
        _document("--short" in sys.argv, " ".join(words))
