"""Options of the C library's memory."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from headscope.models import free_memory


def test_freed_memory_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """glibc gets both thresholds, and accepts them; another C library has no such function."""
    given: list[tuple[int, int]] = []
    accepted: list[int] = []
    own = ctypes.CDLL(None)

    def mallopt(*option: int) -> None:
        given.append(option)
        accepted.append(own.mallopt(*option))

    monkeypatch.setattr(free_memory.ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    free_memory.keep_freed()
    assert dict(given) == {-3: 32 * 2**20, -1: 64 * 2**20}
    assert accepted == [1, 1]
    monkeypatch.setattr(free_memory.ctypes, "CDLL", lambda name: SimpleNamespace())
    free_memory.keep_freed()
    free_memory.release()
    assert len(given) == 2
