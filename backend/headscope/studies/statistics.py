"""Statistics of a stream of inputs, merged chunk by chunk. Samples are drawn by hashes, so that they do not depend on the order of the chunks.

Plain numpy in float64. The last axis of values is reduced: it holds the entries of all inputs of a chunk, one input after another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..core.arrays import Array, divide

Parts = dict[str, Array]

# Inputs kept as examples: those with the largest values of every number, and a random sample.
TOP, SAMPLE = 5, 32
# Bins of the histograms of a measure without columns, and of each column.
BINS, COLUMN_BINS = 400, 100
# Bootstrap replicates: fewer if those of one measure would exceed BOOT_BYTES, but at least MIN_REPLICATES.
REPLICATES, MIN_REPLICATES, BOOT_BYTES = 200, 100, 8_000_000
# Outer bins grow by a constant factor up to this value.
FAR = 1e6
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# Cumulative distribution of Poisson(1) at 0, 1, 2, ...
_POISSON = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(20)])


def describe(values: Array, starts: Sequence[int], rows: Array, seed: int, edges: Array) -> tuple[Parts, Array]:
    """Return the parts of a Stat and each input's mean [..., I], given values [..., N]. Input i has the values from starts[i] on, at least one. Only finite values count."""
    values = np.asarray(values, np.float64)
    defined = np.isfinite(values)
    finite = values if defined.all() else np.where(defined, values, np.nan)
    number = np.add.reduceat(defined, starts, axis=-1, dtype=np.int64)
    total = np.add.reduceat(np.nan_to_num(finite), starts, axis=-1)
    means = divide(total, number)
    parts = dict(zip(("count", "mean", "m2"), moments(values), strict=True))
    parts["low"], parts["high"] = np.fmin.reduce(finite, axis=-1), np.fmax.reduce(finite, axis=-1)
    parts["histogram"], parts["edges"] = histogram(values, defined, edges), edges
    parts |= zip(("inputs", "input_mean", "input_m2"), moments(means), strict=True)
    return parts | bootstrap(means, rows, seed), means


def moments(values: Array) -> tuple[Array, Array, Array]:
    """Return count, mean and sum of squared deviations of the finite values, [..., N] -> [...] each. The mean of no values is NaN."""
    defined = np.isfinite(values)
    count = defined.sum(-1, dtype=np.int64)
    total = np.where(defined, values, 0.0).sum(-1)
    mean = divide(total, count)
    deviations = np.where(defined, values, 0.0) - np.where(count > 0, mean, 0.0)[..., None]
    deviations[~defined] = 0.0
    return count, mean, np.square(deviations, out=deviations).sum(-1)


def merge(a: Parts, b: Parts) -> Parts:
    """Merge the parts of two Stats: the inputs of `a`, then those of `b`."""
    merged = {name: a[name] + b[name] for name in ("histogram", "boot_sum", "boot_weight")}
    for names in (("count", "mean", "m2"), ("inputs", "input_mean", "input_m2")):
        merged |= zip(names, _merge_moments([a[name] for name in names], [b[name] for name in names]), strict=True)
    merged["low"], merged["high"] = np.fmin(a["low"], b["low"]), np.fmax(a["high"], b["high"])
    return merged | {"edges": a["edges"]}


def _merge_moments(a: Sequence[Array], b: Sequence[Array]) -> tuple[Array, Array, Array]:
    """Merge count, mean and sum of squares of two sets (Chan, Golub & LeVeque 1979, eq. 2.1)."""
    (n, mean, m2), (n_b, mean_b, m2_b) = a, b
    count = n + n_b
    share = np.divide(n_b, count, out=np.zeros(count.shape), where=count > 0)
    difference = np.where((n > 0) & (n_b > 0), mean_b - mean, 0.0)
    merged = np.where(n > 0, mean + difference * share, mean_b)
    return count, merged, m2 + m2_b + difference * difference * n * share


def edges_for(low: float | None, high: float | None, unit: str, columns: bool) -> Array:
    """Return the edges of histogram bins, which depend on a measure's range and unit only.

    Measures in nats have bins from 0 to 10 (22,026 tokens); those with a bounded range, bins over that range. Other bins have equal width from -1 to 1
    (from 0 if the range begins there), then grow by a constant factor up to a million on either side.
    """
    bins = COLUMN_BINS if columns else BINS
    if unit == "nats":
        return np.linspace(0.0, 10.0, bins + 1)
    if low is not None and high is not None:
        return np.linspace(low, high, bins + 1)
    if low == 0:
        half = bins // 2
        return np.concatenate([np.linspace(0.0, 1.0, half + 1), np.geomspace(1.0, FAR, bins - half + 1)[1:]])
    side = bins // 4
    tail = np.geomspace(1.0, FAR, side + 1)[1:]
    return np.concatenate([-tail[::-1], np.linspace(-1.0, 1.0, bins - 2 * side + 1), tail])


def histogram(values: Array, defined: Array, edges: Array) -> Array:
    """Count the defined values in each bin, [..., N] -> [..., BINS]. Values on an edge go to the bin above, values beyond the ends to the first or last bin."""
    bins = len(edges) - 1
    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, bins - 1)
    owner = np.arange(math.prod(values.shape[:-1]), dtype=np.int64).reshape(*values.shape[:-1], 1)  # [..., 1]
    flat = (owner * bins + places)[defined]
    return np.bincount(flat, minlength=owner.size * bins).reshape(*values.shape[:-1], bins)


def replicates(entries: int) -> int:
    """Return the number of bootstrap replicates of a measure with `entries` numbers per input."""
    return max(MIN_REPLICATES, min(REPLICATES, BOOT_BYTES // (16 * max(1, entries))))


def bootstrap(means: Array, rows: Array, seed: int) -> Parts:
    """Return sums and weights of `means` [..., I] in every replicate, [B, ...] each. Each input is drawn a Poisson(1) number of times.

    That number depends on seed, row and replicate only, so the sums of chunks add up to the sums over all inputs.
    """
    shape = means.shape[:-1]
    drawn = bootstrap_weights(seed, rows, replicates(math.prod(shape))).astype(np.float64)  # [B, I]
    flat = means.reshape(-1, means.shape[-1]).T  # [..., I] -> [I, ...]
    defined = np.isfinite(flat)
    total = drawn @ np.where(defined, flat, 0.0)
    weight = drawn @ defined.astype(np.float64)
    return {"boot_sum": total.reshape(-1, *shape), "boot_weight": weight.astype(np.int32).reshape(-1, *shape)}


def bootstrap_counts(counts: Array, rows: Array, seed: int) -> Array:
    """Return sums of counts [..., I] in every replicate, [B, ...] int64."""
    flat = counts.reshape(-1, counts.shape[-1]).T  # [..., I] -> [I, ...]
    drawn = bootstrap_weights(seed, rows, replicates(flat.shape[1])).astype(np.int64)
    return (drawn @ flat).reshape(-1, *counts.shape[:-1])


def bootstrap_weights(seed: int, rows: Array, count: int) -> Array:
    """Return how often each row is drawn in each of `count` replicates, [count, I] int64."""
    per_row = hash_rows(seed, rows)
    uniform = _mix(per_row + (np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN)[:, None]) >> np.uint64(11)
    return np.searchsorted(_POISSON, uniform * 2.0**-53, side="right")


def hash_rows(seed: int, rows: Array) -> Array:
    """Hash row numbers with a seed to 64 uniform bits, uint64 [I]."""
    start = _mix(np.array([seed], np.uint64) + _GOLDEN)
    return _mix(start ^ (np.asarray(rows).astype(np.uint64) * _GOLDEN))


def _mix(x: Array) -> Array:
    """Apply the finaliser of SplitMix64 (Steele, Lea & Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = x ^ (x >> np.uint64(31))
    return mixed


def draw_rows(seed: int, rows: Array, count: int = SAMPLE) -> Array:
    """Draw up to `count` rows uniformly: those with the smallest hashes, sorted. Drawing from the union of two draws equals drawing from all rows."""
    rows = np.unique(np.asarray(rows, np.int64))
    return np.sort(rows[np.argsort(hash_rows(seed, rows), kind="stable")[:count]])


def top(means: Array, rows: Array) -> Parts:
    """Return the TOP largest of means [..., I] and their rows, [..., TOP] each, largest first; ties go to the first rows. Padded with NaN and row -1."""
    places = np.argsort(rows, kind="stable")
    values = np.where(np.isfinite(means), means, -np.inf)[..., places]
    return _largest(values, np.broadcast_to(rows[places], values.shape))


def merge_top(a: Parts, b: Parts) -> Parts:
    """Merge two rankings."""
    value, row = (np.concatenate([a[name], b[name]], axis=-1) for name in ("value", "row"))
    value = np.where(row < 0, -np.inf, value)
    order = np.argsort(row, axis=-1, kind="stable")
    return _largest(*(np.take_along_axis(part, order, -1) for part in (value, row)))


def _largest(values: Array, rows: Array) -> Parts:
    """Return the TOP largest of values [..., N] whose rows are sorted; -inf means missing."""
    order = np.argsort(-values, axis=-1, kind="stable")[..., :TOP]
    value, row = np.take_along_axis(values, order, -1), np.take_along_axis(rows, order, -1)
    empty = np.isneginf(value)
    value, row = np.where(empty, np.nan, value), np.where(empty, -1, row).astype(np.int64)
    missing = [(0, 0)] * (value.ndim - 1) + [(0, TOP - value.shape[-1])]
    return {"value": np.pad(value, missing, constant_values=np.nan), "row": np.pad(row, missing, constant_values=-1)}
