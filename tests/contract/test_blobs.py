"""Blobs, in every kind of store: what is stored is read back to the last byte, whatever its size, or reported as missing."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from headscope.errors import StorageFull
from headscope.store import Blobs, Results, blobs
from tests.support.extent import extent
from tests.support.stores import KINDS, LARGE, Place, new_place

PIECE = 4096
ID, OTHER, THIRD = "a" * 32, "b" * 32, "c" * 32


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """An empty store of each kind, which verifies blobs in small pieces."""
    monkeypatch.setattr(blobs, "PIECE", PIECE)
    return new_place(request.param, request, tmp_path)


def store(place: Place, quota: int = LARGE) -> Blobs:
    """The blobs, opened as another process would."""
    return place.open(quota, Blobs)


def put(place: Place, id_: str, data: bytes, folder: Path, quota: int = LARGE) -> None:
    """Store a file with these bytes."""
    (folder / "source").write_bytes(data)
    store(place, quota).put(id_, folder / "source", {"name": "given.csv"})


def flip(place: Place, path: str, offset: int) -> None:
    """Flip a bit of a stored file."""
    data = bytearray(place.files.cat_file(path))
    data[offset] ^= 1
    place.files.pipe_file(path, bytes(data))


def test_files_are_stored_as_they_are(place: Place, tmp_path: Path) -> None:
    """Any number of bytes, of whole pieces or not; the stored file is the file itself. Its document has its size."""
    sizes = (3 * PIECE + 5, PIECE - 1, PIECE, PIECE + 1, 1, 3, 4)[: extent(7, 2 if place.kind == "bucket" else 7)]
    for number, data in enumerate([b"", b"\xff" * 17, b"\0" * PIECE, *map(os.urandom, sizes)]):
        id_ = f"{number:032x}"
        put(place, id_, data, tmp_path)
        assert store(place).copy(id_, tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == data == place.files.cat_file(place.file(id_, "data"))
        document = store(place).document(id_)
        assert document is not None
        assert (document["name"], document["bytes"]) == ("given.csv", len(data))
    assert len(store(place).ids()) == len(sizes) + 3


def test_bytes_are_named_by_their_digest(place: Place) -> None:
    """They are read back by their SHA-256, in another process too; the same bytes are stored once."""
    for data in (b"\x89PNG and more", b"\0", os.urandom(50_000)):
        name = store(place).put_bytes(data)
        assert name == hashlib.sha256(data).hexdigest()
        assert store(place).put_bytes(data) == name
        assert store(place).read(name) == data
    assert len([path for path in place.paths() if path.endswith("manifest.json")]) == 3


def test_a_missing_blob(place: Place, tmp_path: Path) -> None:
    """One that was never stored, and one that was deleted."""
    assert store(place).document(ID) is None
    assert store(place).read(ID) is None
    assert not store(place).copy(ID, tmp_path / "copy")
    put(place, ID, b"One.", tmp_path)
    assert store(place).delete(ID)
    assert store(place).document(ID) is None
    assert store(place).ids() == set()


@pytest.mark.parametrize("file", ["data", "manifest.json"])
def test_a_damaged_blob_is_missing(place: Place, tmp_path: Path, file: str) -> None:
    """Any flipped bit is found: the blob is quarantined and can be stored again."""
    data = os.urandom(3 * PIECE)
    put(place, ID, data, tmp_path)
    flip(place, place.file(ID, file), -PIECE - 7 if file == "data" else -7)
    assert not store(place).copy(ID, tmp_path / "copy")
    assert store(place).document(ID) is None
    put(place, ID, data, tmp_path)
    assert store(place).read(ID) == data
    name = store(place).put_bytes(data)
    flip(place, place.file(name, file), -7)
    assert store(place).put_bytes(data) == name
    assert store(place).read(name) == data


def test_an_entry_that_is_no_blob_is_missing(place: Place, tmp_path: Path) -> None:
    """It is quarantined: nothing fails, and nothing of it is left in the store."""
    with place.open().writer(ID) as writer:
        writer.finish({"bytes": 1}, {})
    assert store(place).document(ID) is None
    assert store(place).ids() == set()
    put(place, ID, b"One.", tmp_path)
    assert store(place).read(ID) == b"One."


def test_the_least_used_is_evicted(place: Place, tmp_path: Path) -> None:
    """To stay within the quota; a file larger than that is rejected."""
    quota = 15_000
    for id_ in (ID, OTHER):
        put(place, id_, os.urandom(10_000), tmp_path, quota)
    assert store(place, quota).ids() == {OTHER}
    assert store(place).read(ID) is None
    with pytest.raises(StorageFull):
        put(place, ID, os.urandom(20_000), tmp_path, quota)
    with pytest.raises(StorageFull):
        store(place, quota).put_bytes(os.urandom(20_000))
    assert place.open(quota, Results).ids() == {OTHER}


def test_a_blob_that_is_only_listed_is_not_used(place: Place, tmp_path: Path) -> None:
    """It is evicted before those that were stored, or used, after it."""
    room = 25_000
    for id_ in (ID, OTHER):
        put(place, id_, os.urandom(10_000), tmp_path, room)
    blobs = store(place, room)
    assert blobs.document(ID, used=False)
    blobs.put(THIRD, tmp_path / "source", {})
    assert blobs.ids() == {OTHER, THIRD}
    assert blobs.document(OTHER)
    blobs.put(ID, tmp_path / "source", {})
    assert blobs.ids() == {OTHER, ID}
