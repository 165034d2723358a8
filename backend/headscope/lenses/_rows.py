"""Lenses that read a head some queries after others, so that nothing has the size of its map."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..core.attention import Layer, Reading, Span, required
from ..core.factors import Factors, Remainder, WeightFactors
from ..core.lazy import Tensor, torch
from ._causal import PrefixRows
from ._factors import log_sums, projection_factors, weight_factors_of
from ._gram import ROWS, factorise, gram_matrix, kept_share
from ._rowspace import Basis, facts_of, require_precision


class WeightRows:
    """The weights of some heads, and their sums of exponentials."""

    first, multiple = 0, 1

    def __init__(self, layer: Layer) -> None:
        self._layer, self._sums = layer, list[Tensor]()

    def read(self, rows: Layer, with_map: bool, keep: bool) -> Reading:
        """Return the weights; their map is there anyway."""
        if keep and rows.terms is not None:
            self._sums.append(log_sums(rows, rows.terms))
        return Reading(rows.weights)

    def facts(self) -> Reading:
        """Return an empty reading: a lens that changes nothing has no facts."""
        return Reading(self._layer.weights)

    def factors(self) -> WeightFactors:
        """Return the factors of the weights."""
        return weight_factors_of(self._layer, torch.cat(self._sums, 1).cpu().numpy())


class EffectiveRows:
    """Effective attention of some heads whose queries see every key."""

    first, multiple = 0, 1

    def __init__(self, layer: Layer) -> None:
        V = layer.values.double()
        self._layer = layer
        self._basis = Basis.of(V, factorise(gram_matrix(V)), layer.epsilon, layer.values.dtype)
        self._coordinates: list[Tensor] = []

    def read(self, rows: Layer, with_map: bool, keep: bool) -> Reading:
        """Return the projected rows, and the share of each that is kept."""
        found = self._basis.coordinates(rows.weights, rows.output)
        if keep:
            self._coordinates.append(found)
        projected = self._basis.map(found) if with_map else rows.weights.new_empty(0)
        return Reading(projected, signed=True, kept=kept_share(found, rows.weights))

    def facts(self) -> Reading:
        """Return rank, condition and leverage."""
        return self._basis.facts(len(self._layer.heads))

    def factors(self) -> Factors:
        """Return the factors of the projected maps."""
        span = Span(torch.cat(self._coordinates, 1), self._basis.basis)
        return projection_factors(span, span.coefficients[:, :0, :0])


class CausalRows:
    """Effective attention of some heads whose queries see the keys up to themselves."""

    multiple = ROWS

    def __init__(self, layer: Layer) -> None:
        self._layer, self._V = layer, layer.values.double()
        self._rows = PrefixRows(self._V, layer.values.dtype, layer.epsilon)
        self._solved: list[Tensor] = []
        self._begun: Tensor | None = None
        self.first = self._rows.start

    def read(self, rows: Layer, with_map: bool, keep: bool) -> Reading:
        """Return the projected rows, and the share of each that is kept: first the `first` ones, then the others."""
        if self._begun is None:
            self._begun, kept = torch.empty_like(rows.weights), rows.weights.new_ones(rows.weights.shape[:2])
            self._rows.project_first(rows.weights, self._begun, kept)
            return Reading(self._begun, signed=True, kept=kept)
        solved, kept = self._rows.solve(rows.weights, rows.output, rows.keys.first)
        if keep:
            self._solved.append(solved)
        projected = self._rows.map(solved, rows.keys.first) if with_map else rows.weights.new_empty(0)
        return Reading(projected, signed=True, kept=kept)

    def facts(self) -> Reading:
        """Return rank, condition and leverage of all values."""
        return facts_of(self._V, self._rows.factor, self._layer.epsilon, self._layer.output)

    def factors(self) -> Factors:
        """Return the factors of the projected maps."""
        assert self._begun is not None  # noqa: S101 - rows have been read before
        span = Span(torch.cat(self._solved, 1), self._rows.basis, causal=True)
        return projection_factors(span, self._begun)


class NullRows:
    """What effective attention removes from the weights of some heads."""

    def __init__(self, layer: Layer, effective: EffectiveRows | CausalRows) -> None:
        self._effective, self._weights = effective, WeightRows(layer)
        self.first, self.multiple = effective.first, effective.multiple

    def read(self, rows: Layer, with_map: bool, keep: bool) -> Reading:
        """Return the weights minus the projected rows."""
        self._weights.read(rows, with_map, keep)
        found = self._effective.read(rows, with_map, keep)
        projected = rows.weights - found.map if with_map else found.map
        return Reading(projected, signed=True, kept=1 - required(found.kept))

    def facts(self) -> Reading:
        """Return rank and condition of the values, and what is left of the leverage."""
        found = self._effective.facts()
        return replace(found, identical=None, leverage=1 - required(found.leverage))

    def factors(self) -> Factors:
        """Return the factors of both maps."""
        return Remainder(self._weights.factors(), self._effective.factors())


def weight_rows(layer: Layer, params: Any) -> WeightRows | None:
    """Read the weights of heads by rows."""
    return WeightRows(layer)


def effective_rows(layer: Layer, params: Any) -> EffectiveRows | CausalRows | None:
    """Read effective attention by rows; None where each row has a space of its own, up to as many keys as the head is wide, and where most rows need all others.

    Raises Unsupported as the lens does.
    """
    require_precision(layer.values, layer.epsilon)
    if layer.keys.mask is not None or layer.values.shape[1] <= layer.values.shape[2]:
        return None
    if layer.keys.rule == "all":
        return EffectiveRows(layer)
    rows = CausalRows(layer)
    return rows if 2 * rows.first <= layer.values.shape[1] else None


def null_rows(layer: Layer, params: Any) -> NullRows | None:
    """Read the null part by rows, wherever effective attention can be."""
    effective = effective_rows(layer, params)
    return None if effective is None else NullRows(layer, effective)
