"""Inputs of waiting requests, in every kind of store: what is put in comes out as it was, or a plain refusal does."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from headscope.errors import InvalidImage, StorageFull
from headscope.store import Inputs
from headscope.store.inputs import SHARE
from tests.support.stores import KINDS, LARGE, Place, new_place


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty store of each kind."""
    return new_place(request.param, request, tmp_path)


def opened(place: Place, quota: int = LARGE) -> Inputs:
    """Its inputs, as a process of its own would open them."""
    if place.kind == "local":
        return Inputs.local(Path(place.root), quota)
    return Inputs.shared(place.root, place.redis, quota, Path(place.staging))


def held(place: Place) -> list[str]:
    """Names of the inputs that lie in the store."""
    return [path.rpartition("/")[0] for path in place.lying("inputs/results") if path.endswith("manifest.json")]


def test_what_is_put_in_comes_out(place: Place) -> None:
    """Bytes come back under their SHA-256, in another process too; the same bytes are kept once."""
    for data in (b"\x89PNG and more", b"\0", os.urandom(50_000)):
        name = opened(place).put(data)
        assert name == hashlib.sha256(data).hexdigest()
        assert opened(place).put(data) == name
        assert opened(place).get(name) == data
    assert len(held(place)) == 3
    assert place.lying("results") == []


def test_what_made_room_or_is_damaged_is_refused(place: Place) -> None:
    """The oldest go when there is no room; the refusal says what to do, and sending it again helps."""
    inputs = opened(place, SHARE * 3_500)
    names = [inputs.put(os.urandom(2_000)) for _ in range(2)]
    with pytest.raises(InvalidImage, match="Send the image itself"):
        inputs.get(names[0])
    for path in place.files.find(f"{place.path}/inputs/results"):
        place.files.pipe_file(path, b"damaged")
    with pytest.raises(InvalidImage):
        inputs.get(names[1])
    assert inputs.get(inputs.put(b"image")) == b"image"
    with pytest.raises(StorageFull):
        inputs.put(os.urandom(4_000))
