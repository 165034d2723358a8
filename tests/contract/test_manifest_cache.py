"""Cached manifests: a manifest is read again as soon as a file of its entry has changed, and uses are noted once per second."""

from __future__ import annotations

from itertools import cycle, product, repeat

import numpy as np
import pytest

from headscope.store import Results
from headscope.store.manifest import Manifest, ManifestCache, sealed
from headscope.store.map_file import Corrupt
from tests.contract.test_store import ALL, content, name, place, results, write
from tests.support.extent import mostly_long
from tests.support.server import eventually
from tests.support.stores import KINDS, Place

__all__ = ["place", "results"]


HOW = ("changed", "removed", "deleted", "replaced")
FILES = ("manifest.json", "weights.safetensors")
# In the object store, which takes longest, each of them once.
CASES = mostly_long(
    product(KINDS, HOW, FILES),
    *product(KINDS[:2], HOW, FILES),
    *zip(repeat("bucket"), HOW, cycle(FILES), strict=False),
)


@pytest.mark.parametrize(("place", "how", "file"), CASES, indirect=["place"])
def test_what_another_process_did_to_a_result_is_noticed(results: Results, place: Place, file: str, how: str) -> None:
    """A result that was read before is found damaged, missing or new."""
    write(results, 1)
    assert results.get_cached(name(1)) is None
    first, second = results.get(name(1)), results.get(name(1))
    assert results.get_cached(name(1)) == (None if place.kind == "bucket" else second)
    assert second.manifest is first.manifest
    assert second.fingerprint == first.fingerprint
    assert (first.fingerprint is None) == (place.kind == "bucket")
    path, other = place.file(name(1), file), place.open()
    data = place.files.cat_file(path)
    if how == "deleted":
        other.delete(name(1))
        assert results.get_cached(name(1)) is results.get(name(1)) is None
        return
    place.files.pipe_file(path, data[:-1]) if how == "changed" else place.files.rm(path)
    assert results.get_cached(name(1)) is None
    if how == "replaced":
        other.quarantine(name(1))
        write(other, 1)
        third = results.get(name(1))
        assert third.digest != first.digest
        assert np.array_equal(third.maps("weights", ALL, ALL), content(1))
    elif file == "manifest.json":
        with pytest.raises(Corrupt):
            results.get(name(1))
    else:
        third = results.get(name(1))
        assert third.fingerprint != first.fingerprint or place.kind == "bucket"
        with pytest.raises(Corrupt):
            third.maps("weights", ALL, ALL)


def test_a_use_soon_after_another_one_is_not_noted() -> None:
    """Of each entry one use per second is noted, so that reading a result many times does not ask the index as often."""
    kept = ManifestCache()
    assert not kept.is_used("a")
    kept.mark_used("a")
    assert [kept.is_used(id_) for id_ in "ab"] == [True, False]
    eventually(lambda: not kept.is_used("a"), "the next second")


def test_two_long_texts_can_be_compared() -> None:
    """Parsing the documents of 32,768 tokens takes longer than reading a window of a map, so that two of them stay cached."""
    tokens = [
        {"text": "word", "start": 100_000, "end": 100_004, "id": 10_000, "word": 20_000, "padding": "x" * 60}
    ] * 32_768
    manifests = [
        Manifest(name(number), sealed(name(number), "folder", 1.0, 0, {"tokens": tokens}, {})) for number in range(2)
    ]
    assert manifests[0].length > 5_000_000
    kept = ManifestCache()
    for manifest in manifests:
        kept.put("fingerprint", manifest)
    assert [kept.get(name(number))[1] for number in range(2)] == manifests


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
