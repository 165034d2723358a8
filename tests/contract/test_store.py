"""The store of results, of every kind: results are complete and correct, and within the quota, with any concurrent readers and writers."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter, deque
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load

from headscope.core.attention import required
from headscope.core.factors import Whole
from headscope.database import Database, schema
from headscope.errors import StorageFull
from headscope.store import Results
from headscope.store.map_file import Corrupt
from tests.support.extent import extent, mostly_long
from tests.support.forks import fork, forked
from tests.support.stores import KINDS, LARGE, Place, bucket_long, new_place
from tests.support.variants import variants

SHAPE, ALL = (2, 3, 5, 5), slice(None)
MAPS, FACTORED = ["weights", "effective"], ["null"]
LENSES = [*MAPS, *FACTORED]
SHAPES = dict.fromkeys(LENSES, SHAPE)
DOCUMENT = {"shapes": {lens: list(SHAPE) for lens in LENSES}}
MAP_FILES = [f"{lens}.safetensors" for lens in MAPS]
LENSES_FILES = [*MAP_FILES, *(f"{lens}.factors" for lens in FACTORED)]
FILES = ["manifest.json", "small.safetensors", *LENSES_FILES]


def name(number: int) -> str:
    """Return an id."""
    return f"{number:032x}"


def content(number: int) -> np.ndarray:
    """Return the maps of an id."""
    return np.random.default_rng(number).random(SHAPE, np.float32)


def write(results: Results, number: int) -> None:
    """Store the result of that id, block by block as the pipeline does."""
    maps = content(number)
    with results.writer(name(number)) as writer:
        writer.open(SHAPES, FACTORED)
        for layer in range(SHAPE[0]):
            for lens in MAPS:
                writer.write(lens, layer, 0, maps[layer, :2])
                writer.write(lens, layer, 2, maps[layer, 2:])
            for lens in FACTORED:
                writer.write_factors(lens, layer, 0, [Whole(maps[layer, [head]]) for head in range(SHAPE[1])])
        writer.finish({**DOCUMENT, "number": number}, {"keys": np.arange(5, dtype=np.int32)})


def check(results: Results, number: int) -> None:
    """Read everything of a result and compare it with what was written."""
    stored = required(results.get(name(number)))
    assert stored.document == {**DOCUMENT, "number": number}
    assert stored.arrays["keys"].tolist() == [0, 1, 2, 3, 4]
    for lens in LENSES:
        assert np.array_equal(stored.maps(lens, ALL, ALL), content(number))


def age(results: Results, numbers: list[int]) -> None:
    """Make these results used long ago, the first one longest."""
    for place, number in enumerate(numbers):
        size = results._read(name(number)).manifest.size  # which is no use
        results._index.remove(name(number))
        results._index.add(name(number), size, LARGE, 1000.0 + place)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty store of each kind."""
    return new_place(request.param, request, tmp_path)


@pytest.fixture
def results(place: Place) -> Results:
    """The store."""
    return place.open()


def test_what_is_written_is_read(results: Results, place: Place) -> None:
    """Document, small arrays and maps are read back, in another process too."""
    write(results, 1)
    check(results, 1)
    check(place.open(), 1)


@variants(("layers", "heads"), [(ALL, ALL), (slice(1, 2), ALL), (ALL, slice(2, 3)), (slice(0, 1), slice(1, 3))])
def test_slices_are_slices(results: Results, layers: slice, heads: slice) -> None:
    """A slice of a map equals that slice of the whole map."""
    write(results, 1)
    for lens in LENSES:
        assert np.array_equal(results.get(name(1)).maps(lens, layers, heads), content(1)[layers, heads])


def test_map_files_are_plain_safetensors(results: Results, place: Place) -> None:
    """Any safetensors reader opens a stored map."""
    write(results, 1)
    data = place.files.cat_file(place.file(name(1), "weights.safetensors"))
    assert np.array_equal(load(data)["map"], content(1))


def test_maps_are_sent_from_their_file(results: Results) -> None:
    """Piece by piece the file of a slice is the one that is read at once; remote stores and computed maps have none."""
    write(results, 1)
    stored = required(results.get(name(1)))
    chosen = slice(0, 2), slice(1, 3)
    opened = stored.open_map("weights", *chosen)
    assert (opened is None) == stored.remote
    assert stored.open_map("null", *chosen) is None
    if opened is not None:
        sent = b"".join(opened.pieces())
        assert sent == bytes(stored.map_file("weights", *chosen))
        assert len(sent) == opened.length


@pytest.mark.parametrize("how", ["flipped", "cut"])
def test_damage_is_found_in_a_file_that_was_verified(results: Results, place: Place, how: str) -> None:
    """A file that changes is verified again, and while it is sent the rest is not."""
    write(results, 1)
    stored, path = required(results.get(name(1))), place.file(name(1), "weights.safetensors")
    opened = stored.open_map("weights", ALL, ALL)
    if opened is None:  # a remote store
        return
    assert b"".join(opened.pieces())[-4:] == content(1).tobytes()[-4:]
    pieces = required(stored.open_map("weights", ALL, ALL)).pieces()
    next(pieces)
    data = place.files.cat_file(path)
    with open(path, "r+b") as file:  # noqa: PTH123 - in place, so that it stays the file that is open
        file.truncate(len(data) - 1)
        if how == "flipped":
            file.seek(len(data) - 1)
            file.write(bytes([data[-1] ^ 1]))
    with pytest.raises(Corrupt):
        deque(pieces, maxlen=0)
    with pytest.raises(Corrupt):
        stored.open_map("weights", ALL, ALL)


def test_unknown_results(results: Results) -> None:
    """A result that was never stored is missing, and deleting it returns False."""
    assert results.get(name(1)) is None
    assert not results.has(name(1))
    assert not results.delete(name(1))
    assert not results.quarantine(name(1))


def test_what_is_not_finished_leaves_nothing(results: Results, place: Place) -> None:
    """A writer that stops early leaves nothing."""
    with results.writer(name(1)) as writer:
        writer.open(SHAPES)
        writer.write("weights", 0, 0, content(1)[0])
    assert not results.has(name(1))
    assert not list(results.staging.iterdir())
    assert place.paths() == []


def test_nothing_is_visible_before_the_end(results: Results) -> None:
    """A result is not visible before it is published."""
    with results.writer(name(1)) as writer:
        writer.open({"weights": SHAPE})
        writer.write("weights", 0, 0, content(1)[0])
        assert results.get(name(1)) is None


def test_written_twice_stays_the_first(results: Results, place: Place) -> None:
    """The second writer of an id changes nothing and leaves nothing."""
    write(results, 1)
    first = results.get(name(1)).digest
    write(place.open(), 1)
    check(results, 1)
    assert results.get(name(1)).digest == first
    assert results.usage()[0] == 1
    assert len(place.paths()) == len(FILES)


def test_delete(results: Results, place: Place) -> None:
    """A deleted result is removed from index and backend, and can be written again."""
    write(results, 1)
    assert results.delete(name(1))
    assert results.get(name(1)) is None
    assert place.paths() == []
    assert results.usage() == (0, 0)
    write(results, 1)
    check(results, 1)


def test_deleted_while_it_is_read(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    """During its deletion a result is complete or missing, but never damaged."""
    write(results, 1)
    backend, found = results._backend, []

    def remove(id_: str) -> bool:
        found.append(results.get(id_))
        gone = type(backend).remove(backend, id_)
        found.append(results.get(id_))
        return gone

    monkeypatch.setattr(backend, "remove", remove)
    assert results.delete(name(1))
    assert found[0] is not None
    assert found[1] is None
    assert results.usage() == (0, 0)


def test_published_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that comes a moment too early finds nothing or everything, but no damage."""
    database = Database(tmp_path / "headscope.db")
    schema.prepare(database)
    results, read = Results.local(tmp_path, LARGE, database), Path.read_bytes

    def read_early(path: Path) -> bytes:
        try:
            return read(path)
        except FileNotFoundError:
            monkeypatch.undo()
            write(results, 1)
            raise

    monkeypatch.setattr(Path, "read_bytes", read_early)
    assert results.get(name(2)) is None
    check(results, 1)
    assert results.delete(name(1))
    monkeypatch.setattr(Path, "read_bytes", read_early)
    assert results.get(name(1)) is not None
    database.close()


def test_usage_is_what_lies_there(results: Results, place: Place) -> None:
    """The index counts results and their bytes exactly."""
    for number in (0, 1, 2, 2):
        write(results, number)
    size = sum(place.files.size(path) for path in place.paths())
    assert results.usage() == (3, size)


def test_quota_keeps_what_was_used_last(results: Results, place: Place) -> None:
    """The least recently used results are evicted, and no more than needed."""
    write(results, 0)
    each = results.usage()[1]
    small = place.open(int(each * 3.5))
    for number in (1, 2):
        write(small, number)
    age(small, [1, 0, 2])
    small.get(name(1))  # used just now
    write(small, 3)
    assert [small.has(name(number)) for number in range(4)] == [False, True, True, True]
    write(small, 4)
    assert [small.has(name(number)) for number in range(5)] == [False, True, False, True, True]
    assert small.usage()[1] <= each * 3.5
    assert len(place.paths()) == 3 * len(FILES)


def test_larger_than_the_quota(results: Results, place: Place) -> None:
    """A result larger than the quota is rejected and evicts nothing."""
    write(results, 0)
    small = place.open(1000)
    with pytest.raises(StorageFull):
        write(small, 1)
    check(small, 0)
    assert not list(results.staging.iterdir())
    assert len(place.paths()) == len(FILES)


# Damage after which every byte that is read is still what it was.
UNHARMED = {*(("longer", file) for file in LENSES_FILES), ("exchanged", "small.safetensors")}
HOW = ["missing", "empty", "cut", "longer", "folder", "exchanged"]
# All of it in folders, or in the folder of one server; in the others, each of which takes longer, every kind of damage and every file, or half of them.
DAMAGE = [(kind, how, file) for kind in KINDS[: extent(2, 1)] for how in HOW for file in FILES]
EACH = [(how, FILES[n % len(FILES)]) for n, how in enumerate(HOW)]
DAMAGE += [(kind, *one) for kind in KINDS[extent(2, 1) :] for one in EACH[:: extent(1, 2) if kind == "bucket" else 1]]


def damage(place: Place, file: str, how: str) -> None:
    """Damage a file of the first result."""
    path, other = (place.file(name(number), file) for number in (1, 2))
    data = place.files.cat_file(path)
    place.files.rm(path)
    if how == "folder":
        place.files.makedirs(path)
        place.files.pipe_file(f"{path}/inside", b"")
    elif how != "missing":
        new = {"empty": b"", "cut": data[:-1], "longer": data + b"\0", "exchanged": place.files.cat_file(other)}
        place.files.pipe_file(path, new[how])


@pytest.mark.parametrize(("place", "how", "file"), DAMAGE, indirect=["place"])
def test_damage_is_found(results: Results, place: Place, file: str, how: str) -> None:
    """A file that is missing, cut, of another result, or a folder is detected. The result is quarantined once and can be written again."""
    write(results, 1)
    write(results, 2)
    damage(place, file, how)
    if (how, file) in UNHARMED:
        check(results, 1)
        assert not results.quarantine(name(1))
    else:
        with pytest.raises(Corrupt):
            check(results, 1)
        assert results.quarantine(name(1))
        assert not place.open().quarantine(name(1))
        assert results.get(name(1)) is None
        write(results, 1)
        check(results, 1)
    check(results, 2)


@pytest.fixture(scope="module", params=mostly_long(KINDS, "local", "folder"))
def damaged_place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A store with one result, whose bits are flipped and restored."""
    place = new_place(request.param, request, tmp_path_factory.mktemp("store"))
    write(place.open(), 1)
    return place


@settings(max_examples=extent(60, 15), derandomize=True, deadline=None)
@given(file=st.sampled_from(FILES), where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_is_found(damaged_place: Place, file: str, where: float, bit: int) -> None:
    """With any bit flipped, the data is right or Corrupt is raised."""
    path, files = damaged_place.file(name(1), file), damaged_place.files
    data = files.cat_file(path)
    byte = int(where * len(data))
    files.pipe_file(path, data[:byte] + bytes([data[byte] ^ (1 << bit)]) + data[byte + 1 :])
    results = damaged_place.open()
    in_map_header = file in MAP_FILES and byte < len(data) - content(1).nbytes
    try:
        if in_map_header:  # its header is for other readers; ours knows the shape from the manifest
            check(results, 1)
        else:
            with pytest.raises(Corrupt):
                check(results, 1)
    finally:
        files.pipe_file(path, data)


@bucket_long
def test_quarantine_keeps_the_newest_ten(results: Results, place: Place) -> None:
    """The ten newest damaged results are kept for inspection; valid ones are not quarantined."""
    for number in range(12):
        write(results, number)
        assert not results.quarantine(name(number))
        place.files.pipe_file(place.file(name(number), "weights.safetensors"), b"damaged")
        assert results.quarantine(name(number))
        assert results.get(name(number)) is None
    quarantined = [path.partition("/quarantine/")[2].partition(".")[0] for path in place.paths("quarantine")]
    assert quarantined == [name(number) for number in range(2, 12) for _ in FILES]
    write(results, 11)
    check(results, 11)


def test_tidy_removes_what_was_left(results: Results, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unfinished results, uploads and exports are removed, in a shared store after an hour; finished results stay."""
    write(results, 1)
    half = results.staging / "abc"
    half.mkdir()
    (half / "weights.safetensors").write_bytes(b"half")
    (results.staging / "export-abc").write_bytes(b"half")
    if place.kind == "bucket":
        for number in (1, 2):
            place.files.pipe_file(f"{place.path}/results/{name(number)}/abc/weights.safetensors", b"half")
    before = place.paths()
    place.open().tidy()
    if place.kind != "local":
        assert len(list(results.staging.iterdir())) == 2
        assert place.paths() == before
        later = time.time() + 3700
        monkeypatch.setattr(time, "time", lambda: later)
        results._backend.tidy()
    assert not list(results.staging.iterdir())
    assert len(place.paths()) == len(FILES)
    check(results, 1)


def forget(place: Place) -> None:
    """Empty the index, as if its database had been restored from an empty one."""
    with place.facts.change() as connection:
        for table in ("results", "stores"):
            connection.exec_driver_sql(f"DELETE FROM {table}")


def test_files_are_private(tmp_path: Path) -> None:
    """Other users of the machine cannot read results."""
    database = Database(tmp_path / "headscope.db")
    schema.prepare(database)
    results = Results.local(tmp_path, LARGE, database)
    write(results, 1)
    database.close()
    for path in (tmp_path / "results", results.staging, tmp_path / "results" / "00" / name(1)):
        assert path.stat().st_mode & 0o077 == 0


def use(place: Place, seed: int, quota: int, rounds: int) -> Counter[str]:
    """Write and read at random in a store that others use too; return how many of each it did."""
    results, chance, done = place.reopen(quota), random.Random(seed), Counter[str]()
    for _ in range(rounds):
        number = chance.randrange(8)
        if chance.random() < 0.5:
            write(results, number)
            done["written"] += 1
            continue
        try:
            stored = results.get(name(number))
            maps = None if stored is None else stored.maps("weights", ALL, ALL)
        except Corrupt:  # made room for another one while it was read
            maps = None
        assert maps is None or np.array_equal(maps, content(number))
        done["gone" if maps is None else "read"] += 1
    return done


@bucket_long
def test_many_processes_at_once(results: Results, place: Place) -> None:
    """Concurrent processes read and write with constant evictions: no error, no wrong data, and the quota holds."""
    write(results, 0)
    quota = int(results.usage()[1] * 4.5)
    rounds = 15 if place.kind == "bucket" else extent(60, 30)
    for done in forked(use, *((place, seed, quota, rounds) for seed in range(4))):
        assert done["written"] > 0 < done["read"]
    assert results.usage()[1] <= quota
    for number in range(8):
        if results.has(name(number)):
            check(results, number)


def write_half(place: Place) -> None:
    """Begin a result, and be killed."""
    with place.reopen().writer(name(1)) as writer:
        writer.open(SHAPES)
        writer.write("weights", 0, 0, content(1)[0])
        os.kill(os.getpid(), signal.SIGKILL)


def test_killed_writer(results: Results, place: Place) -> None:
    """A killed writer leaves nothing visible and blocks no other process."""
    killed = fork(write_half, place)
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL
    assert (results.get(name(1)), results.has(name(1)), place.paths()) == (None, False, [])
    write(results, 1)
    check(results, 1)
