"""Options of the C library's memory, and the limits of a container."""

from __future__ import annotations

import ctypes
from pathlib import Path
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


@pytest.mark.parametrize(("limit", "cores"), [("200000 100000", 2), ("150000 100000", 2), ("max 100000", 8), (None, 8)])
def test_a_container_may_use_some_cores(
    limit: str | None, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is a limit; without one, all of the machine's."""
    monkeypatch.setattr(free_memory, "CONTROL_GROUP", tmp_path)
    if limit is not None:
        (tmp_path / "cpu.max").write_text(f"{limit}\n")
    assert free_memory.container_cores(8) == cores
