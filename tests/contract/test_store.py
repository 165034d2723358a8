"""The store of results: whole or not at all, never wrong, never over its quota, whatever else reads and writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from headscope.errors import StorageFull
from headscope.store import Results
from headscope.store.mapfile import Corrupt

SHAPE = (2, 3, 5, 5)
ALL = slice(None)
LENSES = ["weights", "effective"]
SHAPES = dict.fromkeys(LENSES, SHAPE)
DOCUMENT = {"shapes": {lens: list(SHAPE) for lens in LENSES}}
LARGE = 1_000_000
LENSES_FILES = [f"{lens}.safetensors" for lens in LENSES]
FILES = ["manifest.json", "small.safetensors", *LENSES_FILES]


def name(number: int) -> str:
    """An id."""
    return f"{number:032x}"


def content(number: int) -> np.ndarray:
    """The maps that belong to an id."""
    return np.random.default_rng(number).random(SHAPE, np.float32)


def write(results: Results, number: int) -> None:
    """Store the result of that id, block by block as the pipeline does."""
    maps = content(number)
    with results.writer(name(number)) as writer:
        writer.open(SHAPES)
        for layer in range(SHAPE[0]):
            for lens in LENSES:
                writer.write(lens, layer, 0, maps[layer, :2])
                writer.write(lens, layer, 2, maps[layer, 2:])
        writer.finish({**DOCUMENT, "number": number}, {"keys": np.arange(5, dtype=np.int32)})


def check(results: Results, number: int) -> None:
    """Read everything of a result and compare it with what was written."""
    stored = results.get(name(number))
    assert stored is not None
    assert stored.document == {**DOCUMENT, "number": number}
    assert stored.arrays["keys"].tolist() == [0, 1, 2, 3, 4]
    for lens in LENSES:
        assert np.array_equal(stored.maps(lens, ALL, ALL), content(number))


def folder(home: Path, number: int) -> Path:
    """Where a result lies."""
    return home / "results" / name(number)[:2] / name(number)


def age(results: Results, numbers: list[int]) -> None:
    """Make these results used long ago, the first one longest."""
    for place, number in enumerate(numbers):
        results._connection.execute("UPDATE results SET used = ? WHERE id = ?", (1000.0 + place, name(number)))


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """An empty store."""
    return Results.local(tmp_path, LARGE)


def test_what_is_written_is_read(results: Results, tmp_path: Path) -> None:
    """Document, small arrays and maps come back, also in another process' store."""
    write(results, 1)
    check(results, 1)
    check(Results.local(tmp_path, LARGE), 1)


@pytest.mark.parametrize(
    ("layers", "heads"), [(ALL, ALL), (slice(1, 2), ALL), (ALL, slice(2, 3)), (slice(0, 1), slice(1, 3))]
)
def test_slices_are_slices(results: Results, layers: slice, heads: slice) -> None:
    """A part of a map is that part of the whole."""
    write(results, 1)
    assert np.array_equal(results.get(name(1)).maps("weights", layers, heads), content(1)[layers, heads])


def test_map_files_are_plain_safetensors(results: Results, tmp_path: Path) -> None:
    """Any safetensors reader opens a stored map."""
    write(results, 1)
    assert np.array_equal(load_file(folder(tmp_path, 1) / "weights.safetensors")["map"], content(1))


def test_unknown_results(results: Results) -> None:
    """What was never stored is not there, and deleting it says so."""
    assert results.get(name(1)) is None
    assert not results.has(name(1))
    assert not results.delete(name(1))
    assert not results.quarantine(name(1))


def test_what_is_not_finished_leaves_nothing(results: Results, tmp_path: Path) -> None:
    """A writer that stops half-way is as if it had never been."""
    with results.writer(name(1)) as writer:
        writer.open(SHAPES)
        writer.write("weights", 0, 0, content(1)[0])
    assert not results.has(name(1))
    assert not list((tmp_path / "incoming").iterdir())


def test_nothing_is_visible_before_the_end(results: Results) -> None:
    """A reader sees no result while it is written."""
    with results.writer(name(1)) as writer:
        writer.open({"weights": SHAPE})
        writer.write("weights", 0, 0, content(1)[0])
        assert results.get(name(1)) is None


def test_written_twice_stays_the_first(results: Results) -> None:
    """A result is named by its content: the second writer of the same name changes nothing."""
    write(results, 1)
    write(results, 1)
    check(results, 1)
    assert results.usage()[0] == 1


def test_delete(results: Results, tmp_path: Path) -> None:
    """A deleted result is gone from index and disk, and can be written again."""
    write(results, 1)
    assert results.delete(name(1))
    assert results.get(name(1)) is None
    assert not folder(tmp_path, 1).exists()
    write(results, 1)
    check(results, 1)


def test_usage_is_what_lies_on_disk(results: Results, tmp_path: Path) -> None:
    """The index counts results and their bytes exactly."""
    for number in range(3):
        write(results, number)
    size = sum(path.stat().st_size for path in (tmp_path / "results").rglob("*") if path.is_file())
    assert results.usage() == (3, size)


def test_quota_keeps_what_was_used_last(results: Results, tmp_path: Path) -> None:
    """When room is needed the least recently used go, as many as needed and no more."""
    write(results, 0)
    each = results.usage()[1]
    small = Results.local(tmp_path, int(each * 3.5))
    for number in (1, 2):
        write(small, number)
    age(small, [1, 0, 2])
    small.get(name(1))  # used just now
    write(small, 3)
    assert [small.has(name(number)) for number in range(4)] == [False, True, True, True]
    write(small, 4)
    assert [small.has(name(number)) for number in range(5)] == [False, True, False, True, True]
    assert small.usage()[1] <= each * 3.5


def test_larger_than_the_quota(tmp_path: Path) -> None:
    """A result that can never fit is refused and pushes nothing out."""
    write(Results.local(tmp_path, LARGE), 0)
    small = Results.local(tmp_path, 1000)
    with pytest.raises(StorageFull):
        write(small, 1)
    check(small, 0)
    assert not list((tmp_path / "incoming").iterdir())


# Damage after which every byte that is read is still what it was.
UNHARMED = {*(("longer", file) for file in LENSES_FILES), ("exchanged", "small.safetensors")}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "longer", "folder", "exchanged"])
def test_damage_is_found(results: Results, tmp_path: Path, file: str, damage: str) -> None:
    """A file that is gone, cut, of another result, or no file at all is reported, never read as data."""
    write(results, 1)
    write(results, 2)
    path = folder(tmp_path, 1) / file
    data = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        other = (folder(tmp_path, 2) / file).read_bytes()
        new = {"empty": b"", "cut": data[:-1], "longer": data + b"\0", "exchanged": other}[damage]
        path.write_bytes(new)
    if (damage, file) in UNHARMED:
        check(results, 1)
    else:
        with pytest.raises(Corrupt):
            check(results, 1)
    check(results, 2)


@pytest.fixture(scope="module")
def damaged_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one result, of which bits are flipped and put back."""
    home = tmp_path_factory.mktemp("store")
    write(Results.local(home, LARGE), 1)
    return home


@settings(max_examples=400, derandomize=True, deadline=None)
@given(file=st.sampled_from(FILES), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_is_found(damaged_home: Path, file: str, place: float, bit: int) -> None:
    """One bit anywhere: the data read is right, or Corrupt is raised; wrong answers are 0."""
    path = folder(damaged_home, 1) / file
    data = path.read_bytes()
    byte = int(place * len(data))
    path.write_bytes(data[:byte] + bytes([data[byte] ^ (1 << bit)]) + data[byte + 1 :])
    results = Results.local(damaged_home, LARGE)
    in_map_header = file in LENSES_FILES and byte < len(data) - content(1).nbytes
    try:
        if in_map_header:  # its header is for other readers; ours knows the shape from the manifest
            check(results, 1)
        else:
            with pytest.raises(Corrupt):
                check(results, 1)
    finally:
        path.write_bytes(data)


def test_quarantine_keeps_the_newest_ten(results: Results, tmp_path: Path) -> None:
    """Corrupt results are put aside for a person to look at, but not for ever."""
    for number in range(12):
        write(results, number)
        assert results.quarantine(name(number))
        assert results.get(name(number)) is None
    aside = sorted(path.name.partition(".")[0] for path in (tmp_path / "quarantine").iterdir())
    assert len(aside) == 10
    assert name(11) in aside
    write(results, 11)
    check(results, 11)


def test_tidy_removes_what_was_left(results: Results, tmp_path: Path) -> None:
    """Half a result, half an export and a result that never reached the index go; finished ones stay."""
    write(results, 1)
    write(results, 2)
    half = tmp_path / "incoming" / f"{name(3)}.abc"
    half.mkdir()
    (half / "weights.safetensors").write_bytes(b"half")
    (tmp_path / "incoming" / "export-abc").write_bytes(b"half")
    results._connection.execute("DELETE FROM results WHERE id = ?", (name(2),))
    Results.local(tmp_path, LARGE).tidy()
    assert not list((tmp_path / "incoming").iterdir())
    assert not folder(tmp_path, 2).exists()
    check(results, 1)


def test_index_and_files_are_private(results: Results, tmp_path: Path) -> None:
    """Other users of the machine can't read results."""
    write(results, 1)
    for path in (tmp_path / "results", tmp_path / "incoming", folder(tmp_path, 1)):
        assert path.stat().st_mode & 0o077 == 0


# Run as a process of its own: writes and reads at random in a store that others use too; prints how many of each it did.
WORKER = """
import json, random, sys
from pathlib import Path
import numpy as np
from headscope.store import Results
from headscope.store.mapfile import Corrupt
from tests.contract.test_store import ALL, content, name, write

results, chance = Results.local(Path(sys.argv[1]), int(sys.argv[3])), random.Random(int(sys.argv[2]))
done = {"written": 0, "read": 0, "gone": 0}
for _ in range(60):
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
print(json.dumps(done))
"""


def test_many_processes_at_once(tmp_path: Path) -> None:
    """Readers and writers in processes, with evictions all the time: no error, no wrong data, the quota holds."""
    write(Results.local(tmp_path, LARGE), 0)
    quota = int(Results.local(tmp_path, LARGE).usage()[1] * 4.5)
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    workers = [
        subprocess.Popen([*command, str(seed), str(quota)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for seed in range(4)
    ]
    for worker in workers:
        out, err = worker.communicate(timeout=120)
        assert worker.returncode == 0, err
        done = json.loads(out)
        assert done["written"] > 0 < done["read"]
    results = Results.local(tmp_path, quota)
    assert results.usage()[1] <= quota
    for number in range(8):
        if results.has(name(number)):
            check(results, number)
