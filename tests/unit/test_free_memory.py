"""Options of the C library's memory."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from headscope.models import free_memory


def test_freed_memory_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """glibc is told so, with numbers that it accepts; another C library has no such function."""
    free_memory.keep_freed()
    told: list[tuple[int, int]] = []
    glibc = SimpleNamespace(mallopt=lambda *option: told.append(option))
    monkeypatch.setattr(free_memory.ctypes, "CDLL", lambda name: glibc)
    monkeypatch.setattr(free_memory.sys, "platform", "linux")
    free_memory.keep_freed()
    assert dict(told) == {-3: 32 * 2**20, -1: 64 * 2**20}
    monkeypatch.setattr(free_memory.ctypes, "CDLL", lambda name: SimpleNamespace())
    free_memory.keep_freed()
    free_memory.release()
    assert len(told) == 2
