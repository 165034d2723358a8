"""Reads heads of long inputs some queries after others: lenses, measures and thumbnails, without anything of the size of a map."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..capture import Batch
from ..core.attention import Layer, Reading, required
from ..core.factors import Factors
from ..core.rows import Scratch
from ..core.tokens import BatchTokens
from ..lenses import LENSES
from ..lenses.base import RowLens
from ..measures import MEASURES
from ..measures.base import ByRows, Measure
from ..measures.thumbnail import TILE, RowPool

# Keys of a map that are computed at once for a thumbnail: they stay in the cache of one core.
KEYS = 1024


@dataclass
class _RowMeasure:
    """A measure of a lens, and its statistics of the rows so far, the last ones first."""

    measure: Measure
    lens: str
    params: Any
    statistics: list[torch.Tensor] = field(default_factory=list)

    @property
    def by_rows(self) -> ByRows:
        return required(self.measure.by_rows)

    def add(self, found: torch.Tensor) -> None:
        """Add the statistics of the rows before these."""
        if self.by_rows.summed and self.statistics:
            fewer, found = sorted((self.statistics.pop(), found), key=lambda one: one.shape[1])
            found[:, : fewer.shape[1]] += fewer
        self.statistics.append(found)

    def values(self, layer: Layer, facts: Mapping[str, Reading]) -> torch.Tensor:
        """Return the values of the measure."""
        statistics, combine = torch.cat(self.statistics[::-1], 1), self.by_rows.combine
        return statistics if combine is None else combine(layer, facts, statistics, self.params)


@dataclass(frozen=True)
class _RowResults:
    """What is computed of some rows: parts of the thumbnails and factors by lens, seconds by lens, and statistics by measure."""

    pooled: dict[str, Any]
    parts: dict[str, Any]
    seconds: dict[str, float]
    statistics: list[torch.Tensor]


class RowwiseReader:
    """Reads the heads of one batch with deferred weights. `measures` are parameters with a lens; `shown` are the lenses with thumbnails, `kept` those of which factors are kept."""

    def __init__(
        self,
        batch: Batch,
        tokens: BatchTokens,
        lenses: Mapping[str, RowLens],
        measures: Iterable[tuple[Any, str]],
        shown: Collection[str],
        kept: Collection[str],
    ) -> None:
        self._batch, self._tokens, self._lenses = batch, tokens, lenses
        self._measures = [
            _RowMeasure(MEASURES[choice.name], lens, choice)
            for choice, lens in measures
            if MEASURES[choice.name].of == "heads" and lens in lenses
        ]
        self._scratch = Scratch()
        self._mapped = {one.lens for one in self._measures if one.by_rows.reads_map}
        self._pools = {name: self._pool(name) for name in lenses if name in shown}
        self._parts: dict[str, list[Any]] = {name: [] for name in lenses if name in kept}
        self.seconds = dict.fromkeys(lenses, 0.0)
        self.facts: dict[str, Reading] = {}

    def _pool(self, lens: str) -> RowPool:
        layer = self._batch.layer
        return RowPool(len(layer.heads), layer.output.shape[1], layer.values.shape[1], TILE, LENSES[lens].signed)

    def read(self) -> dict[str, torch.Tensor]:
        """Read all rows and return the thumbnails by lens, [H, t, t'] each."""
        first, multiple = (max(getattr(lens, name) for lens in self._lenses.values()) for name in ("first", "multiple"))
        with closing(self._batch.each(self._compute, first, multiple)) as rows:  # an error ends its threads
            for found in rows:
                for name, part in found.pooled.items():
                    self._pools[name].add(part)
                for name, parts in self._parts.items():
                    parts.append(found.parts[name])
                for name, spent in found.seconds.items():
                    self.seconds[name] += spent
                for one, statistics in zip(self._measures, found.statistics, strict=True):
                    one.add(statistics)
        self.facts = {name: lens.facts() for name, lens in self._lenses.items()}
        return {name: pool.cells() for name, pool in self._pools.items()}

    def _compute(self, rows: Layer) -> _RowResults:
        """Compute everything about some rows."""
        readings, found = {}, _RowResults({}, {}, {}, [])
        rows = replace(rows, inputs=self._tokens)
        for name, lens in self._lenses.items():
            started = time.perf_counter()
            reading, part = lens.read(rows)
            if name in self._mapped and not reading.map.numel():
                reading = replace(reading, map=lens.map(rows, part, slice(rows.weights.shape[2])))
            readings[name], found.parts[name] = reading, part
            found.seconds[name] = time.perf_counter() - started
        for one in self._measures:
            found.statistics.append(one.by_rows.statistics(rows, one.lens, readings, one.params))
        for name, pool in self._pools.items():
            pieces = [readings[name].map] if readings[name].map.numel() else self._pieces(name, rows, found)
            found.pooled[name] = pool.part(rows.keys.first, pieces)
        return found

    def _pieces(self, lens: str, rows: Layer, found: _RowResults) -> Iterator[torch.Tensor]:
        """Yield the map of some rows, some keys after others."""
        heads, count, keys = rows.weights.shape
        for low in range(0, keys, KEYS):
            started, size = time.perf_counter(), min(KEYS, keys - low)
            out = self._scratch.tensor("map", (heads, count, size), rows.weights)
            piece = self._lenses[lens].map(rows, found.parts[lens], slice(low, low + size), out)
            found.seconds[lens] += time.perf_counter() - started
            yield piece

    def values(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        """Yield measure, lens and values, once all rows have been read."""
        for one in self._measures:
            yield one.measure.name, one.lens, one.values(self._batch.layer, self.facts)

    def factors(self) -> dict[str, list[Factors]]:
        """Return the factors of each head by lens."""
        heads = range(len(self._batch.layer.heads))
        found = {name: self._lenses[name].factors(parts[::-1]) for name, parts in self._parts.items()}
        return {name: [factors.head(head) for head in heads] for name, factors in found.items()}


def row_lenses(layer: Layer, lenses: Mapping[str, Any]) -> dict[str, RowLens] | None:
    """Return the lenses of heads on rows of a layer; None if one has to read whole maps."""
    found: dict[str, RowLens] = {}
    for name, params in lenses.items():
        if LENSES[name].of == "heads":
            lens = required(LENSES[name].factoring).rows(layer, params)
            if lens is None:
                return None
            found[name] = lens
    return found
