"""Lenses that read a head some queries after others, so that nothing has the size of its map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..core.attention import Layer, Reading, Span, required
from ..core.factors import ProjectionFactors, Remainder, WeightFactors
from ..core.lazy import Tensor, torch
from ..core.rows import largest_weights, squared_norms
from ._causal import PrefixRows
from ._factors import log_sums, projection_factors, weight_factors_of
from ._gram import ROWS, divisors, factorise, gram_matrix, kept_share
from ._rowspace import Basis, facts_of, require_precision


class WeightRows:
    """The weights of some heads, and their sums of exponentials."""

    first, multiple = 0, 1

    def __init__(self, layer: Layer) -> None:
        self._layer = layer

    def read(self, rows: Layer) -> tuple[Reading, tuple[Tensor, Tensor]]:
        """Return the weights, and the largest of each row with its key."""
        return Reading(rows.weights), rows.once(largest_weights)

    def map(self, rows: Layer, part: Any, keys: slice, out: Tensor | None = None) -> Tensor:
        """Return the weights."""
        return rows.weights[..., keys]

    def facts(self) -> Reading:
        """Return an empty reading: a lens that changes nothing has no facts."""
        return Reading(self._layer.weights)

    def factors(self, parts: Sequence[tuple[Tensor, Tensor]]) -> WeightFactors:
        """Return the factors of the weights."""
        largest, place = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        sums = log_sums(self._layer, required(self._layer.terms), largest, place)
        return weight_factors_of(self._layer, sums.cpu().numpy())


class EffectiveRows:
    """Effective attention of some heads whose queries see every key."""

    first, multiple = 0, 1

    def __init__(self, layer: Layer) -> None:
        V = layer.values.double()
        self._layer = layer
        self._basis = Basis.of(V, factorise(gram_matrix(V)), layer.epsilon, layer.values.dtype)

    def read(self, rows: Layer) -> tuple[Reading, Tensor]:
        """Return the share of each row that is kept, and the coordinates of the projected rows."""
        found = self._basis.coordinates(rows.weights, rows.output)
        kept = kept_share(found, divisors(rows.once(squared_norms)))
        return Reading(found.new_empty(0), signed=True, kept=kept), found

    def map(self, rows: Layer, part: Tensor, keys: slice, out: Tensor | None = None) -> Tensor:
        """Return the projected rows with these coordinates."""
        return self._basis.map(part, keys, out)

    def facts(self) -> Reading:
        """Return rank, condition and leverage."""
        return self._basis.facts(len(self._layer.heads))

    def factors(self, parts: Sequence[Tensor]) -> ProjectionFactors:
        """Return the factors of the projected maps."""
        coordinates = torch.cat(list(parts), 1)
        return projection_factors(Span(coordinates, self._basis.basis), coordinates[:, :0, :0])


class CausalRows:
    """Effective attention of some heads whose queries see the keys up to themselves."""

    multiple = ROWS

    def __init__(self, layer: Layer) -> None:
        self._layer, self._V = layer, layer.values.double()
        self._rows = PrefixRows(self._V, layer.values.dtype, layer.epsilon)
        self.first = self._rows.start

    def read(self, rows: Layer) -> tuple[Reading, Tensor]:
        """Return the share of each row that is kept, and the coefficients of the projected rows; of the `first` ones the projected rows themselves."""
        begin = rows.keys.first
        if begin < self.first:
            projected, kept = torch.empty_like(rows.weights), rows.weights.new_ones(rows.weights.shape[:2])
            self._rows.project_first(rows.weights, projected, kept)
            return Reading(projected, signed=True, kept=kept), projected
        solved, kept = self._rows.solve(rows.weights, rows.output, divisors(rows.once(squared_norms)), begin)
        return Reading(solved.new_empty(0), signed=True, kept=kept), solved

    def map(self, rows: Layer, part: Tensor, keys: slice, out: Tensor | None = None) -> Tensor:
        """Return the projected rows with these coefficients."""
        begin = rows.keys.first
        return part[..., keys] if begin < self.first else self._rows.map(part, begin, keys, out)

    def facts(self) -> Reading:
        """Return rank, condition and leverage of all values."""
        return facts_of(self._V, self._rows.factor, self._layer.epsilon, self._layer.output)

    def factors(self, parts: Sequence[Tensor]) -> ProjectionFactors:
        """Return the factors of the projected maps."""
        return projection_factors(Span(torch.cat(list(parts[1:]), 1), self._rows.basis, causal=True), parts[0])


class NullRows:
    """What effective attention removes from the weights of some heads."""

    def __init__(self, layer: Layer, effective: EffectiveRows | CausalRows) -> None:
        self._effective, self._weights = effective, WeightRows(layer)
        self.first, self.multiple = effective.first, effective.multiple

    def read(self, rows: Layer) -> tuple[Reading, tuple[Any, Tensor]]:
        """Return the share of each row that is kept, and what the factors of weights and projected rows are made of."""
        (_, largest), (found, solved) = self._weights.read(rows), self._effective.read(rows)
        return Reading(solved.new_empty(0), signed=True, kept=1 - required(found.kept)), (largest, solved)

    def map(self, rows: Layer, part: tuple[Any, Tensor], keys: slice, out: Tensor | None = None) -> Tensor:
        """Return the weights minus the projected rows."""
        return rows.weights[..., keys] - self._effective.map(rows, part[1], keys, out)

    def facts(self) -> Reading:
        """Return rank and condition of the values, and what is left of the leverage."""
        found = self._effective.facts()
        return replace(found, identical=None, leverage=1 - required(found.leverage))

    def factors(self, parts: Sequence[tuple[Any, Tensor]]) -> Remainder:
        """Return the factors of both maps."""
        largest, solved = [largest for largest, _ in parts], [solved for _, solved in parts]
        return Remainder(self._weights.factors(largest), self._effective.factors(solved))


def weight_rows(layer: Layer, params: Any) -> WeightRows | None:
    """Read the weights of heads by rows."""
    return WeightRows(layer)


def effective_rows(layer: Layer, params: Any) -> EffectiveRows | CausalRows | None:
    """Read effective attention by rows; None where each row has a space of its own, up to as many keys as the head is wide, and where most rows need all others.

    Raises Unsupported as the lens does.
    """
    require_precision(layer.values, layer.epsilon)
    if layer.keys.rule not in ("all", "prefix") or layer.values.shape[1] <= layer.values.shape[2]:
        return None
    if layer.keys.rule == "all":
        return EffectiveRows(layer)
    rows = CausalRows(layer)
    return rows if 2 * rows.first <= layer.values.shape[1] else None


def null_rows(layer: Layer, params: Any) -> NullRows | None:
    """Read the null part by rows, wherever effective attention can be."""
    effective = effective_rows(layer, params)
    return None if effective is None else NullRows(layer, effective)
