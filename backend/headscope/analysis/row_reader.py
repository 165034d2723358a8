"""Reads heads of long inputs some queries after others: lenses, measures and thumbnails, without anything of the size of a map."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..capture import Batch
from ..core.attention import Layer, Reading, required
from ..core.factors import Factors
from ..lenses import LENSES
from ..lenses.base import RowLens
from ..measures import MEASURES
from ..measures.base import ByRows, Measure
from ..measures.thumbnail import RowPool


@dataclass
class _RowMeasure:
    """A measure of a lens, and its statistics of the rows so far."""

    measure: Measure
    lens: str
    params: Any
    statistics: list[torch.Tensor] = field(default_factory=list)

    @property
    def by_rows(self) -> ByRows:
        return required(self.measure.by_rows)

    def values(self, layer: Layer, facts: Mapping[str, Reading]) -> torch.Tensor:
        """Return the values of the measure."""
        statistics, combine = torch.cat(self.statistics, 1), self.by_rows.combine
        return statistics if combine is None else combine(layer, facts, statistics, self.params)


class RowwiseReader:
    """Reads the heads of one batch with deferred weights. `shown` are the lenses with thumbnails, `kept` those of which factors are kept."""

    def __init__(
        self,
        batch: Batch,
        lenses: Mapping[str, RowLens],
        measures: Mapping[str, Any],
        shown: Collection[str],
        kept: Collection[str],
    ) -> None:
        self._batch, self._lenses, self._kept = batch, lenses, kept
        self._measures = [
            _RowMeasure(MEASURES[name], lens, params)
            for name, params in measures.items()
            for lens in MEASURES[name].lenses
            if MEASURES[name].of == "heads" and lens in lenses
        ]
        self._shown = [name for name in lenses if name in shown]
        self._mapped = {*shown, *(one.lens for one in self._measures if one.by_rows.reads_map)}
        self.facts: dict[str, Reading] = {}
        self.seconds = dict.fromkeys(lenses, 0.0)

    def read(self, tile: int) -> Iterator[tuple[str, torch.Tensor]]:
        """Read all rows and yield the thumbnails by lens, [H, t, t'] each."""
        layer = self._batch.layer
        sides = len(layer.heads), layer.output.shape[1], layer.values.shape[1]
        pools = {name: RowPool(*sides, tile, LENSES[name].signed) for name in self._shown}
        first, multiple = (max(getattr(lens, name) for lens in self._lenses.values()) for name in ("first", "multiple"))
        for rows in self._batch.rows(first, multiple):
            readings = {name: self._apply(name, rows) for name in self._lenses}
            for one in self._measures:
                one.statistics.append(one.by_rows.statistics(rows, one.lens, readings, one.params))
            for name, pool in pools.items():
                pool.add(readings[name].map)
        self.facts = {name: lens.facts() for name, lens in self._lenses.items()}
        for name, pool in pools.items():
            yield name, pool.cells()

    def _apply(self, name: str, rows: Layer) -> Reading:
        started = time.perf_counter()
        reading = self._lenses[name].read(rows, name in self._mapped, name in self._kept)
        self.seconds[name] += time.perf_counter() - started
        return reading

    def values(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        """Yield measure, lens and values, once all rows have been read."""
        for one in self._measures:
            yield one.measure.name, one.lens, one.values(self._batch.layer, self.facts)

    def factors(self) -> dict[str, list[Factors]]:
        """Return the factors of each head by lens."""
        heads = range(len(self._batch.layer.heads))
        found = {name: self._lenses[name].factors() for name in self._lenses if name in self._kept}
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
