"""The time that several threads take together."""

from __future__ import annotations

import pytest

from headscope.analysis.stopwatch import Stopwatch


def test_counts_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many use it at a time; it does not run in between."""
    times = iter([1.0, 4.0, 10.0, 12.0])
    monkeypatch.setattr("headscope.analysis.stopwatch.time.perf_counter", lambda: next(times))
    watch = Stopwatch()
    with watch, watch:
        assert watch.runs
    assert not watch.runs
    with watch:
        pass
    assert watch.seconds == 5.0
