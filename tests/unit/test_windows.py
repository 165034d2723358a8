"""Windows of the maps of heads: what is read of a stored map, and the memory that a request reserves for it, have the size of the window."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load

from headscope.api.documents.arrays import pool_cells
from headscope.api.http.grouping import Grouping
from headscope.api.routes import maps as routes
from headscope.api.routes.maps import MapSlice
from headscope.api.windows import Window, has_windows, held_bytes
from headscope.core.factors import EVERY, Whole
from headscope.core.words import group
from headscope.database import Database, schema
from headscope.server.limiters import Limiters, MemoryLimiter
from headscope.store import Results, Stored
from headscope.store.map_file import BLOCK, Corrupt
from tests.support.threads import in_thread

Array = NDArray[Any]
N = 2100
ID = "0" * 32
WINDOW = slice(700, 703), slice(1990, 2050)


class Room(MemoryLimiter):
    """A limit that notes what is reserved."""

    def __init__(self) -> None:
        super().__init__(10**9, 10**9)
        self.taken = list[int]()

    def take(self, size: int) -> None:
        self.taken.append(size)


class Analysis(SimpleNamespace):
    """What routes have of an analysis."""

    async def respond(self, format_: str, read: Callable[[Any], Any]) -> Any:
        return await anyio.to_thread.run_sync(read, self.stored)


@pytest.fixture(scope="module")
def head() -> Array:
    """A map that is larger than a block, with a row without a reading."""
    values = np.random.default_rng(0).random((N, N), np.float32)
    values[5] = np.nan
    return values


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, head: Array) -> Results:
    """A store of one result: the map of one head, as it is and as factors."""
    folder = tmp_path_factory.mktemp("windows")
    database = Database(folder / "headscope.db")
    schema.prepare(database)
    results = Results.local(folder, 10**9, database)
    shapes = {"weights": (1, 1, N, N), "effective": (1, 1, N, N)}
    axes = {"layers": [0], "heads": [0], "tokens": [{}] * N, "key_tokens": None, "request": {"model": "tiny"}}
    with results.writer(ID) as writer:
        writer.open(shapes, ["effective"])
        writer.write("weights", 0, 0, head[None])
        writer.write_factors("effective", 0, 0, [Whole(head[None])])
        writer.finish(
            {"id": ID, "shapes": shapes, "kept": list(shapes), "lenses": list(shapes), **axes}, {"none": np.zeros(1)}
        )
    return results


@pytest.fixture
def stored(results: Results) -> Stored:
    """The result."""
    found = results.get(ID)
    assert found is not None
    return found


@pytest.fixture
def peak() -> Iterator[Callable[[], int]]:
    """The most memory since the test began, in bytes."""
    in_thread(int)  # the first call imports modules
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def fetch(stored: Stored, room: Room, lens: str = "weights", **query: Any) -> Array:
    """Return a slice of the map."""
    return load(in_thread(MapSlice(**query).respond, room, lens, "safetensors", stored).body)["map"][0, 0]


def test_a_window_of_a_large_map_is_all_that_is_read(stored: Stored, head: Array, peak: Callable[[], int]) -> None:
    """In tokens or groups; little memory is taken, and little is reserved."""
    room = Room()
    found = fetch(stored, room, query="700:703", key="1990:2050")
    np.testing.assert_array_equal(found, head[WINDOW])
    merged = fetch(stored, room, groups="700-702|1990-2049", query="700")
    np.testing.assert_allclose(merged[0, 700], head[700:703, 700:703].sum(1).mean(), rtol=1e-6)
    assert room.taken == []
    assert peak() < head.nbytes / 4


def test_an_overview_of_a_large_map(stored: Stored, head: Array) -> None:
    """Pooled cells, sums and edges of the map are those of whole maps; no request reserves a client's share."""
    room = Room()
    np.testing.assert_array_equal(fetch(stored, room, pool=64), pool_cells(head, 64, 64, False))
    service = SimpleNamespace(limiters=SimpleNamespace(memory=room))
    analysis: Any = Analysis(stored=stored, service=service, request=None)
    sums = load(anyio.run(routes.sums, analysis, "weights", 0, 0, "safetensors").body)
    np.testing.assert_allclose(sums["queries"], head.sum(1), rtol=1e-5)
    np.testing.assert_allclose(sums["keys"], np.nansum(head, 0), rtol=1e-5)
    asked = {"rule": "top-k", "k": 1, "limit": 3, "format_": "json"}
    for groups in (None, f"0-{N - 1}"):
        anyio.run(partial(routes.edges, analysis, "weights", 0, 0, **asked, groups=groups))
    assert len(room.taken) == 4
    assert max(room.taken) < 32 * 1024**2


def test_a_head_that_is_larger_than_a_clients_share() -> None:
    """It is read in windows too, so a request for a part of it has room; a remote store has whole heads."""
    document = {"shapes": {"weights": [1, 1, 8000, 8000]}}
    stored: Any = SimpleNamespace(document=document, is_factored=lambda lens: False, remote=False)
    one = slice(0, 1)
    needed = held_bytes(stored, "weights", one, one) + Window(Grouping(), slice(0, 8000), slice(0, 8000)).needs()
    limit = Limiters().memory
    with limit.request():
        limit.take(needed)
    stored.remote = True
    assert held_bytes(stored, "weights", one, one) == 8000 * 8000 * 4


def test_damage_is_found(stored: Stored, head: Array) -> None:
    """Before the head is read, and while it is."""
    path = Path(stored.backend._file(ID, "weights.safetensors"))
    opened = stored.open_map("weights", EVERY, EVERY)
    assert opened is not None
    one = next(opened.heads())
    np.testing.assert_array_equal(one.head(0).exact(0, np.array([9, 7]), np.array([3, 1])), head[[9, 7]][:, [3, 1]])
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(len(data) - 1)
        file.write(bytes([data[-1] ^ 1]))
    with pytest.raises(Corrupt):
        one.tile(0, slice(0, 1))
    opened.close()
    with pytest.raises(Corrupt):
        fetch(stored, Room(), query="5")
    path.write_bytes(data)


def test_a_map_among_factors(stored: Stored, head: Array, peak: Callable[[], int]) -> None:
    """It is in memory once, and reserved."""
    room = Room()
    np.testing.assert_array_equal(fetch(stored, room, "effective", query="700:703", key="1990:2050"), head[WINDOW])
    assert head.nbytes <= room.taken[0] < 1.1 * head.nbytes
    assert peak() < 1.2 * head.nbytes


class Counted(Whole):
    """A map that notes how many entries are computed at once."""

    most = 0

    def tile(self, head: int, rows: slice = EVERY, columns: slice = EVERY, out: Array | None = None) -> Array:
        found = super().tile(head, rows, columns, out)
        Counted.most = max(Counted.most, found.size)
        return found


@pytest.mark.parametrize("sizes", [[300], [1, 250, 49], [100, 100, 100], [1] * 300])
def test_groups_of_any_size(sizes: list[int]) -> None:
    """However many tokens a group has, no more of them are computed at once than of a map of tokens."""
    values = np.random.default_rng(1).random((300, 300), np.float32)
    window = Window(Grouping(sizes, sizes), slice(0, len(sizes)), slice(0, len(sizes)), 20 * 300)
    rows = in_thread(lambda: list(window.read(Counted(values[None]))))
    assert Counted.most == 20 * 300
    merged = np.concatenate([band for _, band in rows])
    assert merged.dtype == np.float32
    np.testing.assert_allclose(merged, group(values, sizes, sizes), rtol=1e-5)
    assert [first for first, _ in rows] == np.cumsum([0, *(len(band) for _, band in rows[:-1])]).tolist()


def test_heads_of_a_block_are_read_whole(stored: Stored) -> None:
    """Several at a time, which is faster; they need no more memory than a block."""
    small: Any = SimpleNamespace(document={"shapes": {"weights": [1, 1, 2048, 2048]}}, is_factored=lambda lens: False)
    assert BLOCK == 2048 * 2048 * 4
    assert not has_windows(small, "weights")
    assert has_windows(stored, "weights")


def test_a_window_is_read_until_its_request_is_cancelled() -> None:
    """The thread ends with the rows that it is reading, and the request with it."""
    values = np.ones((1, 50, 50), np.float32)
    window, read = Window(Grouping(), slice(0, 50), slice(0, 50), 50), list[int]()

    async def request() -> bool:
        with anyio.CancelScope() as scope:
            await anyio.to_thread.run_sync(read_rows, scope)
        return scope.cancelled_caught

    def read_rows(scope: anyio.CancelScope) -> None:
        for first, _ in window.read(Whole(values)):
            read.append(first)
            if first == 3:
                anyio.from_thread.run_sync(scope.cancel)

    assert anyio.run(request)
    assert read == [0, 1, 2, 3]
