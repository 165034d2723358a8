"""Whole files, in every kind of store: what is put in comes out to the last byte, whatever its size, or is said not to be there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headscope.errors import StorageFull
from headscope.store import Files
from headscope.store import files as files_module
from headscope.store.inputs import SHARE
from tests.support.stores import KINDS, Place, new_place

ROOM = 100_000_000
PIECE = 4096
ID, OTHER = "a" * 32, "b" * 32


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """An empty store of each kind, which keeps files in small pieces."""
    monkeypatch.setattr(files_module, "PIECE", PIECE)
    return new_place(request.param, request, tmp_path)


def opened(place: Place, quota: int = ROOM) -> Files:
    """Its files, as a process of its own would open them."""
    if place.kind == "local":
        return Files.local(Path(place.root), quota)
    return Files.shared(place.root, place.redis, quota, Path(place.staging))


def put(place: Place, id_: str, data: bytes, folder: Path, quota: int = ROOM) -> None:
    """Keep a file of these bytes."""
    (folder / "given").write_bytes(data)
    opened(place, quota).put(id_, folder / "given", {"name": "given.csv"})


def test_what_is_put_in_comes_out(place: Place, tmp_path: Path) -> None:
    """Any number of bytes, of whole pieces or not, those that are no numbers too; beside them the document."""
    sizes = (1, 3, 4, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5)
    for number, data in enumerate([b"\xff" * 17, b"\0" * PIECE, *map(os.urandom, sizes)]):
        id_ = f"{number:032x}"
        put(place, id_, data, tmp_path)
        assert opened(place).copy(id_, tmp_path / "taken")
        assert (tmp_path / "taken").read_bytes() == data
        document = opened(place).document(id_)
        assert document is not None
        assert (document["name"], document["bytes"]) == ("given.csv", len(data))
    assert len(opened(place).ids()) == len(sizes) + 2


def test_what_is_not_there(place: Place, tmp_path: Path) -> None:
    """One that was never put in, one that was deleted."""
    assert opened(place).document(ID) is None
    assert not opened(place).copy(ID, tmp_path / "taken")
    put(place, ID, b"One.", tmp_path)
    assert opened(place).delete(ID)
    assert opened(place).document(ID) is None
    assert opened(place).ids() == set()


def test_a_damaged_piece_is_no_file(place: Place, tmp_path: Path) -> None:
    """Any bit that is wrong is noticed: the file is not there any more, and can be put in again."""
    data = os.urandom(3 * PIECE)
    put(place, ID, data, tmp_path)
    (path,) = [path for path in place.lying("files/results") if path.endswith("file.safetensors")]
    held = bytearray(place.files.cat_file(path))
    held[-PIECE - 7] ^= 1
    place.files.pipe_file(path, bytes(held))
    assert not opened(place).copy(ID, tmp_path / "taken")
    assert opened(place).document(ID) is None
    put(place, ID, data, tmp_path)
    assert opened(place).copy(ID, tmp_path / "taken")
    assert (tmp_path / "taken").read_bytes() == data


def test_the_least_used_makes_room(place: Place, tmp_path: Path) -> None:
    """Within the share of the quota; what is larger than that is refused."""
    quota = SHARE * 15_000
    for id_ in (ID, OTHER):
        put(place, id_, os.urandom(10_000), tmp_path, quota)
    assert opened(place, quota).ids() == {OTHER}
    with pytest.raises(StorageFull):
        put(place, ID, os.urandom(20_000), tmp_path, quota)
