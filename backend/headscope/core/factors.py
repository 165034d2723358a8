"""Maps as factors: what determines the map of a head, from which any tile of it is computed.

A map has Q · K entries, its factors about (Q + K) · D. A tile of R queries and C keys takes R · C · D operations, whatever the number of tokens, and numpy alone.
Products are computed in float64, so that a tile differs from the exact one by no more than the rounding to float32.

Axis letters: H heads, G key/value heads, Q queries, K keys, D head width. Head h of H reads key/value head h // (H // G).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Entries of a map computed at once where much of it is computed, and the most rows of them: in float64 these fit the processor's cache, and so do the keys, which
# are converted for every block.
BLOCK = 128 * 1024
ROWS = 256
# By how much factors may differ from a map.
NOISE = 1e-5
EVERY = slice(None)


@dataclass(frozen=True, slots=True)
class Visible:
    """Which keys a query sees: all, those up to itself (prefix), an interval from `begin` [Q] to before `end` [Q], or those that are True in `mask` [Q, K]."""

    rule: Literal["all", "prefix", "interval", "mask"] = "all"
    begin: Array | None = None
    end: Array | None = None
    mask: Array | None = None

    @classmethod
    def of(cls, mask: Array) -> Visible:
        """Describe a mask [Q, K] (bool) as briefly as possible."""
        if mask.all():
            return cls()
        ends = mask.argmax(1), mask.shape[1] - mask[:, ::-1].argmax(1)
        for found in (cls("prefix"), cls("interval", *(one.astype(np.int32) for one in ends))):
            if np.array_equal(mask, found.tile(*(np.arange(side) for side in mask.shape))):
                return found
        return cls("mask", mask=mask)

    def tile(self, rows: Array, columns: Array) -> Array:
        """Return whether these queries [R] see these keys [C], [R, C]."""
        queries = rows[:, None]
        if self.mask is not None:
            seen: Array = self.mask[np.ix_(rows, columns)]
        elif self.begin is not None and self.end is not None:
            seen = (columns >= self.begin[rows, None]) & (columns < self.end[rows, None])
        elif self.rule == "all":
            seen = np.ones((len(rows), len(columns)), bool)
        else:
            seen = columns <= queries
        return seen

    def any(self, rows: Array, columns: Array) -> bool:
        """Return whether any of these queries sees any of these keys."""
        return self.rule == "all" or bool(self.tile(rows, columns).any())


@dataclass(frozen=True, slots=True)
class Bias:
    """What is added to scores: `values` [1 or H, K] by key, [1 or H, Q + K - 1] by offset of the key from the query (from 1 - Q on), or a matrix [1 or H, Q, K]."""

    by: Literal["key", "offset", "matrix"]
    values: Array
    queries: int

    @classmethod
    def of(cls, matrix: Array) -> Bias:
        """Describe a bias [1 or H, Q, K] as briefly as possible."""
        queries = matrix.shape[1]
        if (matrix == matrix[:, :1]).all():
            return cls("key", matrix[:, 0], queries)
        if (matrix[:, 1:, 1:] == matrix[:, :-1, :-1]).all():
            return cls("offset", np.concatenate([matrix[:, :0:-1, 0], matrix[:, 0]], axis=1), queries)
        return cls("matrix", matrix, queries)

    def head(self, head: int) -> Bias:
        """Return the bias of one head alone."""
        return replace(self, values=self.values[head : head + 1])

    def tile(self, head: int, rows: Array, columns: Array) -> Array:
        """Return what is added to the scores of these queries [R] and keys [C], broadcastable to [R, C]."""
        values: Array = self.values[head if len(self.values) > 1 else 0]
        match self.by:
            case "key":
                chosen: Array = values[columns]
            case "offset":
                chosen = values[columns - rows[:, None] + self.queries - 1]
            case "matrix":
                chosen = values[np.ix_(rows, columns)]
        return chosen


class Factors(ABC):
    """The factors of the maps of some heads, [H, Q, K]. Subclasses are dataclasses."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries and keys."""

    @abstractmethod
    def exact(self, head: int, rows: Array, columns: Array) -> Array:
        """Return the entries of these queries [R] and keys [C] in float64, [R, C]."""

    @abstractmethod
    def head(self, head: int) -> Self:
        """Return the factors of one head alone."""

    def tile(self, head: int, rows: slice = EVERY, columns: slice = EVERY, out: Array | None = None) -> Array:
        """Return a window of the map of a head, float32 [R, C], in `out` if given. It is computed in blocks, so that all else stays small."""
        queries, keys = (np.arange(*part.indices(n)) for part, n in zip((rows, columns), self.shape[1:], strict=True))
        found = np.empty((len(queries), len(keys)), np.float32) if out is None else out
        for down, across in _blocks(len(queries), len(keys)):
            found[down, across] = self.exact(head, queries[down], keys[across])
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return _bytes(self)


def _blocks(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Split a window into blocks of BLOCK entries and at most ROWS rows."""
    height = max(1, min(rows, ROWS))
    width = BLOCK // height
    for low in range(0, rows, height):
        for left in range(0, columns, width):
            yield slice(low, low + height), slice(left, left + width)


def _bytes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    return sum(_bytes(getattr(value, one.name)) for one in fields(value)) if is_dataclass(value) else 0


@dataclass(frozen=True)
class Whole(Factors):
    """Maps [H, Q, K] that no factors determine, or larger ones only."""

    map: Array

    @property
    def shape(self) -> tuple[int, int, int]:
        heads, queries, keys = self.map.shape
        return heads, queries, keys

    def exact(self, head: int, rows: Array, columns: Array) -> Array:
        entries: Array = self.map[head][np.ix_(rows, columns)].astype(np.float64)
        return entries

    def head(self, head: int) -> Whole:
        return Whole(self.map[head : head + 1])

    def tile(self, head: int, rows: slice = EVERY, columns: slice = EVERY, out: Array | None = None) -> Array:
        window: Array = self.map[head, rows, columns]
        if out is not None:
            np.copyto(out, window)
        return window if out is None else out


@dataclass(frozen=True)
class WeightFactors(Factors):
    """Weights of a softmax: exp(score - lse), where score = cap(query · key * scaling) + bias.

    query [H, Q, D], key [G, K, D]  as the model multiplies them, float32
    lse   [H, Q]     logarithm of the sum of exponentials of a row, a learned sink included, in float64: scores reach 30, where float32 is off by 2e-6
    """

    query: Array
    key: Array
    scaling: float
    lse: Array
    visible: Visible = Visible()
    softcap: float | None = None
    bias: Bias | None = None

    @classmethod
    def of(
        cls,
        query: Array,
        key: Array,
        scaling: float,
        visible: Visible,
        *,
        softcap: float | None = None,
        bias: Array | None = None,
        sink: Array | None = None,
    ) -> WeightFactors:
        """Compute the sums of exponentials block by block. bias [1 or H, Q, K] is added to scores; sink [H, 1 or Q] is the logit of a learned sink."""
        described = None if bias is None else Bias.of(bias)
        factors = cls(query, key, scaling, np.zeros(query.shape[:2]), visible, softcap, described)
        for head in range(len(query)):
            factors.lse[head] = np.concatenate([_log_sum(block) for block in factors._score_blocks(head)])
        if sink is not None:
            np.logaddexp(factors.lse, sink.astype(np.float64), out=factors.lse)
        return factors

    @property
    def shape(self) -> tuple[int, int, int]:
        return (*self.query.shape[:2], self.key.shape[1])

    def head(self, head: int) -> WeightFactors:
        one, group = slice(head, head + 1), head // (len(self.query) // len(self.key))
        bias = self.bias if self.bias is None or len(self.bias.values) == 1 else self.bias.head(head)
        return replace(self, query=self.query[one], key=self.key[group : group + 1], lse=self.lse[one], bias=bias)

    def exact(self, head: int, rows: Array, columns: Array) -> Array:
        if not self.visible.any(rows, columns):
            return np.zeros((len(rows), len(columns)))
        entries = self.scores(head, rows, columns)
        entries -= self.lse[head, rows, None]
        return np.exp(entries, out=entries)

    def scores(self, head: int, rows: Array, columns: Array) -> Array:
        """Return scores in float64, [R, C]; -inf where a query does not see a key."""
        group = head // (len(self.query) // len(self.key))
        scores: Array = self.query[head, rows].astype(np.float64) @ self.key[group, columns].astype(np.float64).T
        scores *= self.scaling
        if self.softcap is not None:
            scores = np.tanh(scores / self.softcap) * self.softcap
        if self.bias is not None:
            scores += self.bias.tile(head, rows, columns)
        if self.visible.rule != "all":
            np.copyto(scores, -np.inf, where=~self.visible.tile(rows, columns))
        return scores

    def _score_blocks(self, head: int) -> Iterator[Array]:
        _, queries, keys = self.shape
        step = max(1, BLOCK // keys)
        for low in range(0, queries, step):
            yield self.scores(head, np.arange(low, min(low + step, queries)), np.arange(keys))


def _log_sum(scores: Array) -> Array:
    """Return the logarithm of the sum of exponentials of every row, [R]."""
    largest = scores.max(1, keepdims=True)
    total: Array = np.log(np.exp(scores - largest).sum(1)) + largest[:, 0]
    return total


@dataclass(frozen=True)
class ProjectionFactors(Factors):
    """Rows in the span of some columns: coefficients · basisᵀ, of a causal model without the keys that a row does not see.

    coefficients [H, Q - F, r], basis [G, K, r]  float32
    first        [H, F, F]  the first rows themselves, which have no coefficients
    """

    coefficients: Array
    basis: Array
    first: Array
    causal: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        return (len(self.coefficients), self.coefficients.shape[1] + self.first.shape[1], self.basis.shape[1])

    def head(self, head: int) -> ProjectionFactors:
        one, group = slice(head, head + 1), head // (len(self.coefficients) // len(self.basis))
        return replace(
            self, coefficients=self.coefficients[one], basis=self.basis[group : group + 1], first=self.first[one]
        )

    def exact(self, head: int, rows: Array, columns: Array) -> Array:
        group, count = head // (len(self.coefficients) // len(self.basis)), self.first.shape[1]
        late, seen = rows >= count, columns < count
        entries = np.zeros((len(rows), len(columns)))
        hidden = columns > rows[:, None] if self.causal else None
        if hidden is not None and hidden.all():
            return entries
        entries[late] = self.coefficients[head, rows[late] - count].astype(np.float64) @ self.basis[group, columns].T
        if hidden is not None:
            np.copyto(entries, 0, where=hidden)
        entries[np.ix_(~late, seen)] = self.first[head][np.ix_(rows[~late], columns[seen])]
        return entries


@dataclass(frozen=True)
class Remainder(Factors):
    """The difference of two maps: what one has beyond the other.

    A row that is kept as it is, and differs by less than NOISE everywhere, is 0: a row without a null space has exactly nothing beyond it.
    """

    whole: Factors
    part: ProjectionFactors

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.whole.shape

    def head(self, head: int) -> Remainder:
        return Remainder(self.whole.head(head), self.part.head(head))

    def exact(self, head: int, rows: Array, columns: Array) -> Array:
        entries, count = self._difference(head, rows, columns), self.part.first.shape[1]
        first, step = np.flatnonzero(rows < count), max(1, BLOCK // max(1, count))
        for low in range(0, len(first), step):
            some = first[low : low + step]
            beyond = self._difference(head, rows[some], np.arange(count))  # these rows see no other keys
            entries[some[np.abs(beyond).max(1) < NOISE]] = 0
        return entries

    def _difference(self, head: int, rows: Array, columns: Array) -> Array:
        return self.whole.exact(head, rows, columns) - self.part.exact(head, rows, columns)


def undefined_map(queries: int, keys: int) -> Factors:
    """Return the factors of the map of a head that does not exist: undefined everywhere."""
    undefined = np.full((1, queries, 1), np.nan, np.float32)
    return ProjectionFactors(undefined, np.ones((1, keys, 1), np.float32), np.zeros((1, 0, 0), np.float32))
