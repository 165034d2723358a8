"""Cached manifests: results are returned without waiting as long as their files are unchanged, and their use is noted."""

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
    """A result returned from the cache counts as used once its use is noted."""
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
def test_cached_results_are_unchanged(results: Results, place: Place, file: str, how: str) -> None:
    """A result is cached once it has been read, until any process changes one of its files."""
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
    """A read that must not wait for a disk returns the right data or raises BlockingIOError; damage is detected."""
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


def test_the_cache_is_bounded() -> None:
    """The most recently used manifests stay cached."""
    manifests = [Manifest(name(number), sealed(name(number), "folder", 1.0, 0, {}, {})) for number in range(3)]
    kept = ManifestCache(2 * manifests[0].length)
    for manifest in manifests[:2]:
        kept.put("fingerprint", manifest)
    assert kept.get(name(0)) == ("fingerprint", manifests[0])
    kept.put("other", manifests[2])
    assert [kept.get(name(number))[0] for number in range(3)] == ["fingerprint", None, "other"]
    kept.put("new", manifests[2])
    assert [kept.get(name(number))[0] for number in range(3)] == ["fingerprint", None, "new"]
