"""Histograms as flat counters, which a job database can increment atomically."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping

from .job import Histogram

# Upper bounds in seconds, from a cached read to a model that hangs.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
TOTAL = -1


def increments(name: str, labels: Mapping[str, str], value: float) -> dict[str, float]:
    """Return the increments of counters for one observation: 1 for its bucket, and the value for the sum."""
    series = [name, dict(sorted(labels.items()))]
    bucket = bisect_left(BUCKETS, value)
    return {json.dumps([*series, bucket]): 1.0, json.dumps([*series, TOTAL]): value}


def histograms(counters: Mapping[str, float]) -> list[Histogram]:
    """Return the histograms that these counters form, sorted by name and labels."""
    series: dict[str, dict[int, float]] = defaultdict(dict)
    for counter, value in counters.items():
        name, labels, bucket = json.loads(counter)
        series[json.dumps([name, labels])][bucket] = value
    return [_histogram(key, series[key]) for key in sorted(series)]


def _histogram(key: str, values: Mapping[int, float]) -> Histogram:
    name, labels = json.loads(key)
    counts = tuple(int(values.get(bucket, 0)) for bucket in range(len(BUCKETS) + 1))
    return Histogram(name, labels, counts, values.get(TOTAL, 0.0))
