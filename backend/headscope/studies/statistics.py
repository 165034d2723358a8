"""Statistics of a stream of inputs, chunk by chunk: what merges exactly, in the order of the chunks, and what is drawn by hashes, so that it does not depend on order.

Everything here is plain numpy in float64. The last axis of values is the one that is gone over: entries of all inputs of a chunk, one input after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Parts = dict[str, Array]

# Inputs kept as examples: the largest of every number, and some drawn from all.
TOP, SAMPLE = 5, 32
# Bins of histograms: of measures that are one number, and of each column of those that are several.
BINS, COLUMN_BINS = 400, 100
# Replicates of the bootstrap, fewer where one measure's would take more than this; never fewer than LEAST.
REPLICATES, LEAST, BOOT_BYTES = 200, 100, 8_000_000
# Beyond the middle, bins grow by a constant factor up to this.
FAR = 1e6
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# Poisson(1): chances of at most 0, 1, 2, ...
_POISSON = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(20)])


def describe(values: Array, starts: Sequence[int], rows: Array, seed: int, edges: Array) -> tuple[Parts, Array]:
    """The parts of a Stat, and each input's mean [..., I], of values [..., N]; input i has those from starts[i] on, at least one. What is not finite is left out."""
    values = np.asarray(values, np.float64)
    defined = np.isfinite(values)
    every = bool(defined.all())
    known = values if every else np.where(defined, values, 0.0)
    number = np.add.reduceat(defined, starts, axis=-1, dtype=np.int64)
    total = np.add.reduceat(known, starts, axis=-1)
    means = np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0)
    parts = dict(zip(("count", "mean", "m2"), moments(values), strict=True))
    parts["low"] = _extreme(values if every else np.where(defined, values, np.inf), np.min)
    parts["high"] = _extreme(values if every else np.where(defined, values, -np.inf), np.max)
    parts["histogram"], parts["edges"] = histogram(values, defined, edges), edges
    parts |= zip(("inputs", "input_mean", "input_m2"), moments(means), strict=True)
    return parts | bootstrap(means, rows, seed), means


def moments(values: Array) -> tuple[Array, Array, Array]:
    """Number, mean and sum of squared differences to it of what is finite, [..., N] -> [...] each; the mean is NaN where there is nothing."""
    defined = np.isfinite(values)
    count = defined.sum(-1, dtype=np.int64)
    total = np.where(defined, values, 0.0).sum(-1)
    mean = np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
    apart = np.where(defined, values, 0.0) - np.where(count > 0, mean, 0.0)[..., None]
    apart[~defined] = 0.0
    return count, mean, np.square(apart, out=apart).sum(-1)


def merge(a: Parts, b: Parts) -> Parts:
    """The parts of both: of the inputs of `a`, then those of `b`."""
    merged = {name: a[name] + b[name] for name in ("histogram", "boot_sum", "boot_weight")}
    for names in (("count", "mean", "m2"), ("inputs", "input_mean", "input_m2")):
        merged |= zip(names, _joined([a[name] for name in names], [b[name] for name in names]), strict=True)
    merged["low"], merged["high"] = np.fmin(a["low"], b["low"]), np.fmax(a["high"], b["high"])
    return merged | {"edges": a["edges"]}


def _joined(a: Sequence[Array], b: Sequence[Array]) -> tuple[Array, Array, Array]:
    """Number, mean and sum of squares of two sets from those of each (Chan, Golub & LeVeque 1979, eq. 2.1)."""
    (n, mean, m2), (n_b, mean_b, m2_b) = a, b
    count = n + n_b
    share = np.divide(n_b, count, out=np.zeros(count.shape), where=count > 0)
    apart = np.where((n > 0) & (n_b > 0), mean_b - mean, 0.0)
    middle = np.where(n > 0, mean + apart * share, mean_b)
    return count, middle, m2 + m2_b + apart * apart * n * share


def _extreme(values: Array, of: Any) -> Array:
    found: Array = of(values, axis=-1)
    return np.where(np.isfinite(found), found, np.nan)


def edges_for(low: float | None, high: float | None, unit: str, columns: bool) -> Array:
    """Edges of bins, fixed in advance by what is known of a measure.

    Between both ends of its range where it has two; up to 10 nats where that is its unit (22,026 tokens); else of equal width from -1 to 1 (from 0 if nothing
    is below), and from there growing by a constant factor up to a million on either side.
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
    """How many defined values lie in each bin, [..., N] -> [..., BINS]. A value on an edge belongs to the bin above, those beyond the ends to the first and last."""
    bins = len(edges) - 1
    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, bins - 1)
    owner = np.arange(math.prod(values.shape[:-1]), dtype=np.int64).reshape(*values.shape[:-1], 1)
    flat = (owner * bins + places)[defined]
    return np.bincount(flat, minlength=owner.size * bins).reshape(*values.shape[:-1], bins)


def replicates(entries: int) -> int:
    """How many bootstrap replicates a measure of so many numbers per input gets."""
    return max(LEAST, min(REPLICATES, BOOT_BYTES // (16 * max(1, entries))))


def bootstrap(means: Array, rows: Array, seed: int) -> Parts:
    """Sums and weights of `means` [..., I] in every replicate, [B, ...] each: inputs are drawn with replacement, each by a Poisson(1) number of times.

    That number follows from seed, row and replicate alone, so chunks add up to what all inputs give at once.
    """
    shape = means.shape[:-1]
    drawn = weights(seed, rows, replicates(math.prod(shape))).astype(np.float64)  # [B, I]
    flat = means.reshape(-1, means.shape[-1]).T
    defined = np.isfinite(flat)
    total = drawn @ np.where(defined, flat, 0.0)
    counted = drawn @ defined.astype(np.float64)
    return {"boot_sum": total.reshape(-1, *shape), "boot_weight": counted.astype(np.int32).reshape(-1, *shape)}


def bootstrap_counts(counts: Array, rows: Array, seed: int) -> Array:
    """The same for whole numbers of every input, [..., I] -> their sums in every replicate, [B, ...] int64."""
    flat = counts.reshape(-1, counts.shape[-1]).T
    drawn = weights(seed, rows, replicates(flat.shape[1])).astype(np.int64)
    return (drawn @ flat).reshape(-1, *counts.shape[:-1])


def weights(seed: int, rows: Array, count: int) -> Array:
    """How often each row is drawn in each of `count` replicates, [count, I] int64."""
    per_row = hashed(seed, rows)
    uniform = _mixed(per_row + (np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN)[:, None]) >> np.uint64(11)
    return np.searchsorted(_POISSON, uniform * 2.0**-53, side="right")


def hashed(seed: int, rows: Array) -> Array:
    """64 evenly spread bits for each row, uint64 [I]; others for another seed."""
    start = _mixed(np.array([seed], np.uint64) + _GOLDEN)
    return _mixed(start ^ (np.asarray(rows).astype(np.uint64) * _GOLDEN))


def _mixed(x: Array) -> Array:
    """The finaliser of SplitMix64 (Steele, Lea & Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = x ^ (x >> np.uint64(31))
    return mixed


def drawn(seed: int, rows: Array, most: int = SAMPLE) -> Array:
    """Up to `most` of the rows, evenly drawn: those of the smallest hashes, in order. Of the union of two sets it draws what it drew from both."""
    rows = np.unique(np.asarray(rows, np.int64))
    return np.sort(rows[np.argsort(hashed(seed, rows), kind="stable")[:most]])


def top(means: Array, rows: Array) -> Parts:
    """The TOP largest of means [..., I] and the rows they are of, [..., TOP] each, largest first; of equal ones the first rows. Row -1 and NaN where there are fewer."""
    places = np.argsort(rows, kind="stable")
    values = np.where(np.isfinite(means), means, -np.inf)[..., places]
    if values.shape[-1] > 4 * TOP:
        values, names = _promising(values, rows[places])
    else:
        names = np.broadcast_to(rows[places], values.shape)
    return _largest(values, names)


def _promising(values: Array, rows: Array) -> tuple[Array, Array]:
    """The largest 2 TOP values of each line and their rows in order, where no tie decides; of equal ones there may be more than that many, so then all."""
    kept = 2 * TOP
    order = np.argpartition(values, values.shape[-1] - kept, axis=-1)[..., -kept:]
    order.sort(axis=-1)
    found = np.take_along_axis(values, order, -1)
    least, ranked = found.min(-1), np.sort(found, axis=-1)[..., -TOP]
    if bool((least < ranked).all()):
        return found, rows[order]
    return values, np.broadcast_to(rows, values.shape)


def merge_top(a: Parts, b: Parts) -> Parts:
    """The largest of both."""
    value, row = (np.concatenate([a[name], b[name]], axis=-1) for name in ("value", "row"))
    value = np.where(row < 0, -np.inf, value)
    order = np.argsort(row, axis=-1, kind="stable")
    return _largest(*(np.take_along_axis(part, order, -1) for part in (value, row)))


def _largest(values: Array, rows: Array) -> Parts:
    """The TOP largest of values [..., N] whose rows are in order; -inf is none."""
    order = np.argsort(-values, axis=-1, kind="stable")[..., :TOP]
    value, row = np.take_along_axis(values, order, -1), np.take_along_axis(rows, order, -1)
    empty = np.isneginf(value)
    value, row = np.where(empty, np.nan, value), np.where(empty, -1, row).astype(np.int64)
    missing = [(0, 0)] * (value.ndim - 1) + [(0, TOP - value.shape[-1])]
    return {"value": np.pad(value, missing, constant_values=np.nan), "row": np.pad(row, missing, constant_values=-1)}
