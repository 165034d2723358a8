"""Results that are open: had without waiting, for as long as nothing of them has changed, and used all the same."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from headscope.store import Results
from headscope.store.manifest import Manifest, ManifestCache, sealed
from headscope.store.map_file import Corrupt, values_of
from tests.contract.test_store import ALL, age, content, name, place, results, write
from tests.support.stores import Place

__all__ = ["place", "results"]


def test_uses_that_are_noted_later_count(results: Results, place: Place) -> None:
    """A result that was only had opened is used, too, once that is noted."""
    write(results, 0)
    each = results.usage()[1]
    small = place.open(int(each * 2.5))
    write(small, 1)
    age(small, [0, 1])
    for number in (0, 1):
        assert small.get(name(number)) is not None
    age(small, [0, 1])
    near = place.kind != "bucket"
    assert (small.get_cached(name(0)) is not None) == near
    small.note_uses()
    write(small, 2)
    assert [small.has(name(number)) for number in range(3)] == [near, not near, True]


@pytest.mark.parametrize("file", ["manifest.json", "weights.safetensors"])
@pytest.mark.parametrize("how", ["changed", "removed", "deleted", "quarantined"])
def test_what_is_open_is_what_lies_there(results: Results, place: Place, file: str, how: str) -> None:
    """A result is had opened once it has been read, until any of its files changes, whoever changes it."""
    write(results, 1)
    assert results.get_cached(name(1)) is None
    first = results.get(name(1))
    near = place.kind != "bucket"
    opened = results.get_cached(name(1))
    assert (opened is not None) == near
    assert opened is None or (opened.digest, opened.document) == (first.digest, first.document)
    path = place.file(name(1), file)
    data = place.files.cat_file(path)
    if how == "deleted":
        place.open().delete(name(1))
    else:
        place.files.pipe_file(path, data[:-1]) if how == "changed" else place.files.rm(path)
        if how == "quarantined":
            place.open().quarantine(name(1))
            write(results, 1)
    assert results.get_cached(name(1)) is None
    if how == "quarantined":
        assert results.get(name(1)).digest != first.digest
        assert (results.get_cached(name(1)) is not None) == near


def test_reading_what_is_in_memory(results: Results, place: Place) -> None:
    """Where nobody is to wait for a disk the answer is right, or that it is not in memory; what is damaged is found."""
    write(results, 1)
    stored = results.get(name(1))

    def now() -> np.ndarray | None:
        try:
            return values_of(stored.map_file("weights", ALL, slice(1, 3), wait=False))
        except BlockingIOError:
            return None

    assert place.kind != "bucket" or now() is None
    for found in (now(), stored.maps("weights", ALL, slice(1, 3)), now()):
        assert found is None or np.array_equal(found, content(1)[:, 1:3])
    place.files.pipe_file(place.file(name(1), "weights.safetensors"), content(2).tobytes() + bytes(200))
    with suppress(Corrupt):
        assert now() is None


def test_few_manifests_stay_open() -> None:
    """Those that were asked for last, as many as there is room for."""
    manifests = [Manifest(name(number), sealed(name(number), "folder", 1.0, 0, {}, {})) for number in range(3)]
    kept = ManifestCache(2 * manifests[0].length)
    for manifest in manifests[:2]:
        kept.put("fingerprint", manifest)
    assert kept.get(name(0)) == ("fingerprint", manifests[0])
    kept.put("other", manifests[2])
    assert [kept.get(name(number))[0] for number in range(3)] == ["fingerprint", None, "other"]
    kept.put("new", manifests[2])
    assert [kept.get(name(number))[0] for number in range(3)] == ["fingerprint", None, "new"]
