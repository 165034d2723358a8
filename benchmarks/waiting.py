"""What one waits for: imports and commands, the first analysis of a server, warm ones, and maps on their way to a client, in ms.

`import` and `command` are new processes, beside one that imports torch alone. `first analysis` is sent once /readyz answers, when a server has loaded MiniLM and
SmolLM2, and again after the process that runs models was killed: the next one loads a model when it is asked for it. `over REST` is an analysis of 16 tokens with
MiniLM, from the request to the answer, without the time that the model and the lenses took, by the server's own timing. `page's defaults` is an analysis with
SmolLM2 of the page's lenses and measures, from the request to the answer. Rates are those of 60 maps of 512 tokens at a time, read from a connection of their own
without a library, from a result that keeps maps, or factors.

`of_goal` is the time over the goal, which is met up to 1; of a rate, the goal over the rate. On a slower machine it is larger. `times_reference` depends less on
the machine, since both times are of the same turn. The reference of new processes and of first analyses is a process that imports torch; of an analysis over REST,
the time of the model and the lenses; of the page's defaults, the model's eager pass; and of maps, the same bytes from one plain socket to another.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.support.server import API, Server

import headscope
from headscope.core.streams import PIECE
from headscope.models.catalog import Catalog
from headscope.settings import Settings

from .common import Spread, interleaved, ratios
from .costs import DEFAULT_MEASURES
from .study_memory import WORDS

REPEATS = 5
REFERENCE = "import torch"
# What a new process runs, and its goal in ms.
PROCESSES = {
    REFERENCE: (["-c", "import torch"], None),
    "import headscope": (["-c", "import headscope"], 50),
    "command --help": (["-m", "headscope", "--help"], 250),
    "import headscope.analyze": (["-c", "import headscope; headscope.analyze"], 2_000),
}
# Goals of the first analysis, in ms: of a server that is ready, and after the process that runs models was killed.
FIRST = {"minilm": (500, 3_000), "smollm2": (800, 4_500)}
WARM, DECODER = 12, {51: 250, 351: 1_100}
# Of maps in float32 that a result keeps, and of those that are computed from factors, in MB/s.
RATES = {"kept": 1_000, "computed": 250}
LAYERS = 5  # read at once, of MiniLM's 6
SMALLEST: dict[str, Any] = {"repeats": 1, "processes": ("import headscope",), "models": (), "tokens": 16}

Rows = Iterator[dict[str, Any]]


def measure(
    repeats: int = REPEATS,
    processes: tuple[str, ...] = tuple(PROCESSES),
    models: tuple[str, ...] = tuple(FIRST),
    tokens: int = 512,
) -> list[dict[str, Any]]:
    """Return one row per wait. `models` are those of first analyses; SmolLM2 is left out where it is not installed."""
    installed = Catalog(Settings()).installed("smollm2").is_dir()
    models = tuple(name for name in models if installed or name != "smollm2")
    rows = [*_processes({REFERENCE, *processes}, repeats), *_first(models, min(3, repeats))]
    with _server() as server:
        rows += [*_warm(server, 6 * repeats), *_maps(server, "computed", tokens, 2 * repeats)]
        if "smollm2" in models:
            rows += _decoder(server, repeats)
    with _server(keep="maps") as server:
        rows += _maps(server, "kept", tokens, 2 * repeats)
    return rows


@contextmanager
def _server(**settings: Any) -> Iterator[Server]:
    """Run a server that sees the models of this user, with as many threads as torch takes."""
    models = Catalog(Settings()).installed("smollm2").parent
    with (
        tempfile.TemporaryDirectory() as folder,
        Server(Path(folder) / "home", models, threads=0, **settings) as server,
    ):
        yield server


def _row(what: str, milliseconds: list[float], reference: list[float], goal: float | None) -> dict[str, Any]:
    digits = 0 if max(milliseconds) >= 100 else 1
    row: dict[str, Any] = {"what": what, "ms": Spread.of(milliseconds).text(digits=digits)}
    if goal is not None:
        row |= {"goal": f"{goal} ms", "of_goal": Spread.of([one / goal for one in milliseconds]).text(1, 2)}
        row["times_reference"] = ratios(milliseconds, reference).text(1, 3)
    return row


def _processes(names: set[str], repeats: int) -> Rows:
    chosen = {name: partial(_run, arguments) for name, (arguments, _) in PROCESSES.items() if name in names}
    seconds = interleaved(chosen, repeats, 1)
    milliseconds = {name: [one * 1e3 for one in taken] for name, taken in seconds.items()}
    for name, taken in milliseconds.items():
        yield _row(name, taken, milliseconds[REFERENCE], PROCESSES[name][1])


def _run(arguments: list[str]) -> None:
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def _timed(work: Callable[[], object]) -> float:
    """Return the milliseconds that some work takes."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def _first(models: tuple[str, ...], repeats: int) -> Rows:
    """Measure the first analysis of a server that is ready, and the first one after its process that runs models was killed."""
    if not models:
        return
    ready: dict[str, list[float]] = {model: [] for model in models}
    killed: dict[str, list[float]] = {model: [] for model in models}
    reference = list[float]()
    for _ in range(repeats):
        for model in models:
            with _server(prewarm=True) as server:
                ready[model].append(_timed(partial(_analyse, server, model, "The cat sat.")))
                server.kill_child()
                killed[model].append(_timed(partial(_analyse, server, model, "The dog sat.")))
        reference.append(_timed(partial(_run, PROCESSES[REFERENCE][0])))
    for model in models:
        yield _row(f"first analysis, {model}", ready[model], reference, FIRST[model][0])
        yield _row(f"after a kill, {model}", killed[model], reference, FIRST[model][1])


def _analyse(server: Server, model: str, text: str, **more: Any) -> dict[str, Any]:
    """Return the document of a finished analysis."""
    body = {"model": model, "text": text, "measures": list(DEFAULT_MEASURES), **more}
    answer = server.post(body, headers={"Prefer": "wait=60"})
    document: dict[str, Any] = answer.json()
    assert document["status"] == "done", document
    return document


def _texts(words: int) -> Iterator[str]:
    """Yield texts of so many words, each another one."""
    draw = np.random.default_rng(0)
    while True:
        yield " ".join(draw.choice(WORDS, words))


def _warm(server: Server, repeats: int) -> Rows:
    """Measure what an analysis of 16 tokens takes beside the model and the lenses."""
    beside, computing, texts = list[float](), list[float](), _texts(14)
    for _ in range(repeats + 5):
        began = time.perf_counter()
        document = _analyse(server, "minilm", next(texts))
        computing.append(document["timing_ms"]["total"])
        beside.append((time.perf_counter() - began) * 1e3 - computing[-1])
    yield _row("over REST, MiniLM, 16 tokens", beside[5:], computing[5:], WARM)


def _decoder(server: Server, repeats: int) -> Rows:
    """Measure warm analyses with SmolLM2."""
    model = headscope.load(Catalog(Settings()).installed("smollm2"))
    taken: dict[int, list[float]] = {count: [] for count in DECODER}
    plain: dict[int, list[float]] = {count: [] for count in DECODER}
    texts = _texts(max(DECODER))
    for turn in range(repeats + 1):
        for count in DECODER:
            text = next(texts)
            inputs = model.inputs(model.encode(text, max_tokens=count))
            spent = _timed(partial(_analyse, server, "smollm2", text, max_tokens=count))
            passed = _timed(partial(_plain_pass, model, inputs))
            if turn:
                taken[count].append(spent)
                plain[count].append(passed)
    for count, found in taken.items():
        yield _row(f"page's defaults, SmolLM2, {count} tokens", found, plain[count], DECODER[count])


def _plain_pass(model: headscope.Model, inputs: Mapping[str, Any]) -> None:
    """Run the model's own forward pass, with eager attention, as it was loaded."""
    with torch.inference_mode():
        model.module(**inputs)


def _received(server: Server, path: str) -> int:
    """Return the bytes of a response, read into one buffer: clients such as httpx2 take 2 ms of the processor per MB themselves."""
    with closing(HTTPConnection(server.url)) as connection:
        connection.request("GET", path)
        answer, buffer = connection.getresponse(), bytearray(PIECE)
        assert answer.status == 200, answer.status
        return sum(iter(partial(answer.readinto, buffer), 0))


def _send_over_loopback(data: bytes) -> None:
    """Send data from one thread to another, over a socket of this machine's network."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as ours,
    ):
        theirs, _ = listening.accept()
        sender = threading.Thread(target=_send, args=(theirs, data))
        sender.start()
        buffer = bytearray(PIECE)
        while ours.recv_into(buffer):
            pass
        sender.join()


def _send(to: socket.socket, data: bytes) -> None:
    with to:
        to.sendall(data)


def _maps(server: Server, name: str, tokens: int, repeats: int) -> Rows:
    """Measure the rate of maps as a client receives them."""
    document = _analyse(server, "minilm", next(_texts(tokens)), max_tokens=tokens, lenses=["weights"])
    rates, taken, reference = list[float](), list[float](), list[float]()
    for turn in range(repeats + 1):
        path = f"{API}/analyses/{document['id']}/maps/weights?layer={turn % 2}:{turn % 2 + LAYERS}"
        began = time.perf_counter()
        size = _received(server, path)
        taken.append(time.perf_counter() - began)
        rates.append(size / 1e6 / taken[-1])
        reference.append(_timed(partial(_send_over_loopback, bytes(size))) / 1e3)
    yield {
        "what": f"maps, {name}",
        "MB/s": Spread.of(rates[1:]).text(),
        "goal": f"{RATES[name]} MB/s",
        "of_goal": Spread.of([RATES[name] / rate for rate in rates[1:]]).text(1, 2),
        "times_reference": ratios(taken[1:], reference[1:]).text(1, 3),
    }
