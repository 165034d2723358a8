"""The attacks. Each runs for about the given number of seconds and ignores its responses: only the effect on other users counts."""

from __future__ import annotations

import base64
import io
import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.attacks.stage import Target
from tests.support.server import API, SLOW
from tests.unit import pictures

MIB = 1024 * 1024
JSON = {"Content-Type": "application/json"}
Attack = Callable[[Target, float], None]
ATTACKS: dict[str, Attack] = {}


def attack(made: Attack) -> Attack:
    """Register an attack under its name."""
    ATTACKS[made.__name__.replace("_", "-")] = made
    return made


def connect(target: Target, stack: ExitStack) -> socket.socket:
    """Open a connection with a small receive buffer; the stack closes it."""
    connection = stack.enter_context(socket.socket())
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(1)
    connection.connect(target.address)
    return connection


def head(target: Target, line: str, length: int = 0, *, token: bool = True) -> bytes:
    """Return the head of a request, from Ada or without a token."""
    sent = [f"{line} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", f"Content-Length: {length}"]
    sent += [f"Authorization: Bearer {target.token}"] if token else []
    return "\r\n".join([*sent, "", ""]).encode()


def flood(target: Target, seconds: float, send: Callable[[httpx.Client], object], threads: int = 4) -> None:
    """Send a request repeatedly in several threads."""
    deadline = time.monotonic() + seconds

    def repeat() -> None:
        with target.server.visitor(target.token) as ada:
            while (left := deadline - time.monotonic()) > 0:
                ada.timeout = httpx.Timeout(max(left, 0.1))
                with suppress(httpx.TransportError):
                    send(ada)

    with ThreadPoolExecutor(threads) as pool:
        for thread in [pool.submit(repeat) for _ in range(threads)]:
            thread.result()


def posting(body: bytes, path: str = "analyses") -> Callable[[httpx.Client], object]:
    """Return a function that posts a body to a route."""
    return lambda client: client.post(f"{API}/{path}", content=body, headers=JSON)


@attack
def strangers_withhold_bodies(target: Target, seconds: float) -> None:
    """160 connections announce 8 MiB to the route that needs no token, and withhold two bytes."""
    _withhold(target, seconds, "session", 160, 8 * MIB, token=False)


@attack
def users_withhold_bodies(target: Target, seconds: float) -> None:
    """80 connections of one user announce 16 MiB, and withhold two bytes."""
    _withhold(target, seconds, "analyses", 80, 16 * MIB, token=True)


def _withhold(target: Target, seconds: float, path: str, count: int, size: int, *, token: bool) -> None:
    deadline = time.monotonic() + seconds
    body = b"[" + b" " * (size - 3)
    with ExitStack() as stack:
        for _ in range(count):
            connection = connect(target, stack)
            with suppress(OSError):  # rejected before all of it was sent
                connection.sendall(head(target, f"POST {API}/{path}", size, token=token) + body)
        time.sleep(max(deadline - time.monotonic(), 0))


@attack
def slow_heads(target: Target, seconds: float) -> None:
    """1,000 connections send 16 KB of a head, then single bytes slowly."""
    deadline = time.monotonic() + seconds
    with ExitStack() as stack:
        connections = [connect(target, stack) for _ in range(1000)]
        for connection in connections:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 16_000)
        while time.monotonic() < deadline:
            for connection in connections:
                with suppress(OSError):
                    connection.sendall(b"a")
            time.sleep(0.5)


@attack
def slow_files(target: Target, seconds: float) -> None:
    """100 uploads of data sets arrive byte by byte."""
    deadline = time.monotonic() + seconds
    line = head(target, f"POST {API}/datasets?name=a.txt", MIB).replace(
        b"application/json", b"application/octet-stream"
    )
    with ExitStack() as stack:
        connections = [connect(target, stack) for _ in range(100)]
        for connection in connections:
            connection.sendall(line)
        while time.monotonic() < deadline:
            for connection in connections:
                with suppress(OSError):
                    connection.sendall(b"a")
            time.sleep(0.1)


@attack
def many_keys(target: Target, seconds: float) -> None:
    """700,000 keys that do not exist."""
    flood(target, seconds, posting(b"{" + b",".join(b'"%d":0' % key for key in range(700_000)) + b"}"))


@attack
def many_faults(target: Target, seconds: float) -> None:
    """1,000 inputs with 400,000 entries of the wrong type, the most that is parsed."""
    inputs = [{"token_ids": ["x"] * 100, "pos": [0] * 300}] * 1000
    flood(target, seconds, posting(json.dumps({"model": "bert", "inputs": inputs}).encode(), "analyses/batch"))


@attack
def many_numbers(target: Target, seconds: float) -> None:
    """Numbers that are slow to parse, up to their limit."""
    numbers = b"1.2345678901234567e-300," * 170_000
    flood(target, seconds, posting(b'{"model": "bert", "token_ids": [' + numbers + b"1]}"))


@attack
def large_strings(target: Target, seconds: float) -> None:
    """Texts of 15 MiB with one character that makes them four times larger in memory."""
    text = "\U0001f600" + "a" * (15 * MIB)
    flood(target, seconds, posting(json.dumps({"model": "bert", "text": text}, ensure_ascii=False).encode()))


@attack
def deep_nesting(target: Target, seconds: float) -> None:
    """16 MiB of opening brackets, and a million inside a field."""
    flood(target, seconds, posting(b"[" * (16 * MIB - 1)), 2)
    flood(target, 0.5, posting(b'{"model": "bert", "lenses": ' + b"[" * MIB + b"]" * MIB + b"}"), 2)


@attack
def image_bombs(target: Target, seconds: float) -> None:
    """Images of a few bytes and far too many pixels."""
    images = [base64.b64encode(make()).decode() for make in (pictures.bomb, pictures.text_bomb)]
    bodies = [json.dumps({"model": "vit", "image": image, "lenses": ["weights"]}).encode() for image in images]
    for body in bodies:
        flood(target, seconds / len(bodies), posting(body))


@attack
def slow_map_readers(target: Target, seconds: float) -> None:
    """40 clients request 48 MiB of maps, half with the token and half with a share key, and read nothing."""
    path = f"GET {API}/analyses/{target.analysis}/maps/weights"
    _stall(target, seconds, [head(target, path), head(target, f"{path}?share={target.key}", token=False)] * 20)


def _stall(target: Target, seconds: float, heads: list[bytes]) -> None:
    deadline = time.monotonic() + seconds
    with ExitStack() as stack:
        for sent in heads:
            connect(target, stack).sendall(sent)
        time.sleep(max(deadline - time.monotonic(), 0))


@attack
def many_streams(target: Target, seconds: float) -> None:
    """600 event streams of a queued analysis, half from one user and half with a share key."""
    deadline = time.monotonic() + seconds
    with _waiting(target) as (id_, key), ExitStack() as stack:
        path = f"GET {API}/analyses/{id_}/events"
        connections = [connect(target, stack) for _ in range(600)]
        for number, connection in enumerate(connections):
            mine = number % 2 == 0
            connection.sendall(head(target, path if mine else f"{path}?share={key}", token=mine))
        time.sleep(max(deadline - time.monotonic(), 0))


@contextmanager
def _waiting(target: Target) -> Iterator[tuple[str, str]]:
    """An analysis of Ada's that no worker can run, and a share key of it."""
    worker, ada = target.server.workers[0], target.lab.ada
    worker.pause()
    try:
        id_ = ada.post(f"{API}/analyses", json={**SLOW, "model": "bert", "max_tokens": 64}).json()["id"]
        yield id_, ada.post(f"{API}/analyses/{id_}/share").json()["key"]
    finally:
        worker.resume()


OCTETS = {"Content-Type": "application/octet-stream"}
COLUMNS = 40


@attack
def data_set_columns(target: Target, seconds: float) -> None:
    """Each of 40 threads parses a data set of 800 kB with a different column as its text."""
    rows = (",".join(f"A cat {row} in {column}" for column in range(COLUMNS)) for row in range(1200))
    file = "\n".join([",".join(f"c{column}" for column in range(COLUMNS)), *rows])
    sent = target.lab.ada.post(f"{API}/datasets?name=wide.csv", content=file, headers=OCTETS).raise_for_status()
    columns = itertools.cycle(range(COLUMNS))

    def read(client: httpx.Client) -> None:
        chosen = json.dumps({"text": f"c{next(columns)}"})
        client.get(f"{API}/datasets/{sent.json()['id']}", params={"columns": chosen})

    flood(target, seconds, read, COLUMNS)


@attack
def parquet_bombs(target: Target, seconds: float) -> None:
    """A file of less than 1 kB that decompresses to 5 GB of text."""
    text = pa.array(["word " * 1000])
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1_000_000, np.int32)), text)
    file = io.BytesIO()
    pq.write_table(pa.table({"text": column}), file, compression="zstd")
    flood(
        target, seconds, lambda ada: ada.post(f"{API}/datasets?name=a.parquet", content=file.getvalue(), headers=OCTETS)
    )


@attack
def slow_export_readers(target: Target, seconds: float) -> None:
    """40 clients with only a share key request exports of 48 MiB in two formats, and read nothing."""
    path = f"GET {API}/analyses/{target.analysis}/export?share={target.key}&format="
    _stall(target, seconds, [head(target, path + name, token=False) for name in ("safetensors", "npz")] * 20)
