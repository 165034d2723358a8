"""One client's requests neither delay other clients nor use up the server's disk or memory."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.api.test_bad_input import check_problem
from tests.api.users import Users, users
from tests.support.models import tiny_model
from tests.support.server import API, Server, eventually, gone

OCTETS = {"content-type": "application/octet-stream"}
NO_LIMIT = (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Users]:
    """A server with two users and a model whose maps do not fit into a connection's buffers."""
    folder = tmp_path_factory.mktemp("fair")
    shutil.copytree(models, folder / "models")
    tiny_model(folder / "models" / "wide", "bert", layers=4, heads=16)
    with users(folder / "home", folder / "models") as running:
        yield running


def send(client: httpx.Client, name: str, content: str) -> str:
    """Upload a data set and return its address."""
    answer = client.post(f"{API}/datasets", params={"name": name}, content=content, headers=OCTETS)
    assert answer.status_code == 201, answer.text
    return f"{API}/datasets/{answer.json()['id']}"


def read(client: httpx.Client, place: str, column: int) -> httpx.Response:
    """Parse a data set with this column as the text."""
    return client.get(place, params={"columns": json.dumps({"text": f"c{column}"})})


def test_data_sets_of_one_user(lab: Users) -> None:
    """Of 40 concurrent parses a few succeed and the others are rejected; another user's list does not wait, and repeating a parse is free."""
    columns = range(40)
    lines = (",".join(f"A cat {row} in {column}" for column in columns) for row in range(2000))
    place = send(lab.ada, "wide.csv", ",".join(f"c{column}" for column in columns) + "\n" + "\n".join(lines))
    answers: list[httpx.Response] = []

    def reading(column: int) -> None:
        with lab.server.visitor(lab.tokens["ada"]) as client:
            answers.append(read(client, place, column))

    threads = [threading.Thread(target=reading, args=(column,)) for column in columns]
    for thread in threads:
        thread.start()
    longest = 0.0
    while any(thread.is_alive() for thread in threads):
        begun = time.monotonic()
        assert lab.emmy.get(f"{API}/analyses").status_code == 200
        longest = max(longest, time.monotonic() - begun)
    assert longest < 8  # other tests may run on the machine
    statuses = Counter(answer.status_code for answer in answers)
    assert statuses.keys() == {200, 429}
    assert 6 <= statuses[200] < statuses[429]  # more than six if some end before the last of the 40 arrive
    rejected = next(answer for answer in answers if answer.status_code == 429)
    check_problem(rejected)
    assert rejected.json()["code"] == "too-many-requests"
    assert int(rejected.headers["retry-after"]) > 0
    known = next(answer.json() for answer in answers if answer.status_code == 200)
    _damage(lab.server)
    assert read(lab.ada, place, int(known["chosen"]["text"][1:])).json() == known
    assert lab.ada.get(place, params={"format": "text"}).json()["code"] == "unknown-dataset"


def _damage(server: Server) -> None:
    files = list((server.home / "files" / "results").rglob("data"))
    assert files
    for file in files:
        file.write_bytes(b"\0" * file.stat().st_size)


def test_readers_of_exports_that_stop_reading(lab: Users) -> None:
    """Readers with only a share key hold at most four exports and no copy on disk; other clients do not wait."""
    id_ = lab.submit(lab.ada, "The cat sat. " * 80, model="wide", max_tokens=256)
    key = lab.ada.post(f"{API}/analyses/{id_}/share").json()["key"]
    before = _stored(lab.server)
    sockets = [_reader(lab.server, f"{API}/analyses/{id_}/export?format=npz&share={key}") for _ in range(12)]
    try:
        statuses = eventually(lambda: _statuses(sockets, 8), "eight answers")
        assert statuses == {"200": 4, "429": 4}
        assert _stored(lab.server) - before < 1_000_000
        for format_ in ("safetensors", "npz", "headvis"):
            assert lab.ada.get(f"{API}/analyses/{id_}/export", params={"format": format_}).status_code in (200, 409)
    finally:
        for one in sockets:
            one.close()
    waiting = {"format": "npz", "share": key}
    eventually(
        lambda: lab.anonymous.get(f"{API}/analyses/{id_}/export", params=waiting).status_code == 200, "an export"
    )


def test_readers_of_maps_that_stop_reading(lab: Users) -> None:
    """Unread responses count against their reader's limit, not the server's memory; the limit is free again afterwards."""
    id_ = lab.submit(lab.ada, "The cat sat. " * 80, model="wide", max_tokens=256)
    path = f"{API}/analyses/{id_}/maps/weights"
    key = lab.ada.post(f"{API}/analyses/{id_}/share").json()["key"]
    size = len(lab.ada.get(path).content)
    process = psutil.Process(lab.server.process.pid)
    before, most = process.memory_info().rss, round(160 * 1024**2 / size)
    sockets = [_reader(lab.server, f"{path}?share={key}&layer=0:9{number:02}") for number in range(4 * most)]
    try:
        statuses = eventually(lambda: _statuses(sockets, 4 * most), "every answer")
        assert statuses == {"200": most, "429": 3 * most}
        assert (
            process.memory_info().rss - before < 3 * most * size
        )  # with what the allocator keeps of eight reads at a time
        assert lab.ada.get(path).status_code == 200
    finally:
        for one in sockets:
            one.close()
    eventually(lambda: lab.anonymous.get(path, params={"share": key}).status_code == 200, "room")


def _reader(server: Server, path: str) -> socket.socket:
    host, _, port = server.url.partition(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((host, int(port)))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {server.url}\r\n\r\n".encode())
    connection.setblocking(False)
    return connection


def _statuses(sockets: list[socket.socket], count: int) -> Counter[str]:
    """Return the statuses of the responses once there are enough."""
    found = Counter[str]()
    for one in sockets:
        try:
            found[one.recv(12, socket.MSG_PEEK).decode().split()[1]] += 1
        except BlockingIOError:
            continue
    return found if found.total() >= count else Counter()


def _stored(server: Server) -> int:
    """Return the bytes below the server's home, except for its databases."""
    paths = (path for path in server.home.rglob("*") if not path.match("*.db*"))
    return sum(path.stat().st_size for path in paths if path.is_file())


def test_a_full_disk(lab: Users) -> None:
    """Exports need no disk space. Requests that have to write first are rejected with 507 and leave nothing behind."""
    id_ = lab.submit(lab.ada, "Before the disk was full.")
    place = send(lab.ada, "cats.csv", "text,label\nA cat.,0\n")
    process = psutil.Process(lab.server.process.pid)
    process.rlimit(psutil.RLIMIT_FSIZE, (1, psutil.RLIM_INFINITY))
    try:
        for format_ in ("safetensors", "npz", "parquet", "csv"):
            assert lab.ada.get(f"{API}/analyses/{id_}/export", params={"format": format_}).status_code == 200
        sent = lab.ada.post(f"{API}/datasets", params={"name": "a.txt"}, content="A cat.\n", headers=OCTETS)
        for answer in (sent, lab.ada.get(place, params={"format": "text"})):
            assert (answer.status_code, answer.json()["code"]) == (507, "storage-full")
            check_problem(answer)
    finally:
        process.rlimit(psutil.RLIMIT_FSIZE, NO_LIMIT)
    assert lab.ada.get(place, params={"format": "text"}).status_code == 200


def test_a_reader_ends_with_its_server(new_server: Callable[..., Server]) -> None:
    """The process that parses a data set ends with a server that is killed."""
    server = new_server()
    text = "text,label\n" + "".join(f"The cat number {row} sat,{row % 3}\n" for row in range(250_000))
    sending = threading.Thread(target=_send_in_vain, args=(server, text))
    sending.start()
    (reader,) = eventually(lambda: _readers(server), "a process that reads")
    os.kill(server.process.pid, 9)
    eventually(lambda: gone(reader), "its end", 2)
    sending.join()


def _send_in_vain(server: Server, text: str) -> None:
    with pytest.raises(httpx.TransportError):
        server.client.post(f"{API}/datasets", params={"name": "a.csv"}, content=text, headers=OCTETS)


def _readers(server: Server) -> list[Any]:
    """Return the parsing processes that are busy with the file."""
    children = psutil.Process(server.process.pid).children()
    reading = [child for child in children if "headscope.studies.data.sandbox" in " ".join(child.cmdline())]
    return [child for child in reading if child.cpu_times().user > 0.5]
