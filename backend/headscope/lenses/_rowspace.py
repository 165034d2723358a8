"""Projection of attention rows on the column space of the values: P = V V⁺, for each row on the keys that it may see.

The obvious way is one singular value decomposition per head (and, in a causal model, one per row). The same follows from the Gram matrix Vᵀ V, which is
only D × D, by a Cholesky factorisation in float64: Q = V L⁻ᵀ has orthonormal columns. That squares the condition number, so it is used only if a bound
on the condition number, computed from the factor itself, proves that no singular value is near the threshold below which it counts as zero. Heads
(and rows) without that proof are decomposed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..core.attention import Keys, Reading, Span
from ..core.lazy import Tensor, torch
from ..errors import Unsupported
from ._causal import project_prefix
from ._gram import (
    DIRECT_CONDITION,
    decompose,
    decomposed_rows,
    expansion,
    factorise,
    gram_matrix,
    kept_share,
    repeat_heads,
    safe_condition,
    squared_norms,
)
from ._interval import project_intervals
from .base import ILL_CONDITIONED, is_precise


def project(weights: Tensor, values: Tensor, output: Tensor, keys: Keys, epsilon: float) -> Reading:
    """Project weights [H, Q, K] with values [G, K, D] and output = weights @ values [H, Q, D]: map [H, Q, K], rank, condition, kept share, leverage, and span.

    There is no span under a mask, where every row has a space of its own.

    A singular value counts as zero below sigma_1 * max(K, D) * epsilon, where epsilon is that of the arithmetic the values were computed in.
    Raises Unsupported if that arithmetic is too coarse for the threshold to mean anything (half precision).
    """
    require_precision(values, epsilon)
    V = values.double()
    if keys.rule == "all":
        return _project_all(weights, V, output, factorise(gram_matrix(V)), epsilon)
    if keys.rule == "prefix":
        return _project_prefix(weights, V, output, epsilon)
    return _project_rows(weights, V, keys, epsilon)


def require_precision(values: Tensor, epsilon: float) -> None:
    """Raise Unsupported if the arithmetic of values [G, K, D] is too coarse to decide a rank."""
    if not is_precise(values, epsilon):
        raise Unsupported(
            "Effective attention needs values computed in float32 or wider: half precision is too coarse to decide a rank. "
            'Set dtype="float32".'
        )


def _project_all(weights: Tensor, V: Tensor, output: Tensor, factor: tuple[Tensor, Tensor], epsilon: float) -> Reading:
    """Project rows that see every key; `factor` is that of the Gram matrix of the values."""
    if V.shape[1] > V.shape[2]:
        rows = Basis.of(V, factor, epsilon, weights.dtype)
        coordinates = rows.coordinates(weights, output)
        return replace(
            rows.facts(len(weights)),
            map=rows.map(coordinates),
            kept=kept_share(coordinates, squared_norms(weights)),
            span=Span(coordinates, rows.basis),
        )
    return _project_few(weights, V, factor, epsilon)


def _project_few(weights: Tensor, V: Tensor, factor: tuple[Tensor, Tensor], epsilon: float) -> Reading:
    """Project rows that see every key, which are no more than the head is wide."""
    groups, n, width = V.shape
    per_group = weights.shape[0] // groups
    condition, conditions = factor[1].clone(), factor[1].tolist()
    limit = safe_condition(n, width, epsilon)
    unproven = [group for group, one in enumerate(conditions) if not one <= limit]
    _sharpen(condition, V, [group for group, one in enumerate(conditions) if ILL_CONDITIONED < one <= limit])
    rank = torch.full((groups,), n)
    projected = weights.clone() if unproven else weights
    kept = torch.ones(weights.shape[:2], dtype=weights.dtype, device=weights.device)
    leverage = torch.ones((groups, n), dtype=weights.dtype, device=V.device)
    for group in unproven:
        U, sigma = decompose(V[group], n, epsilon)
        rank[group] = sigma.numel()
        condition[group] = sigma[0] / sigma[-1] if sigma.numel() else 1.0
        leverage[group] = U.square().sum(-1).to(leverage.dtype)
        heads = slice(group * per_group, (group + 1) * per_group)
        if sigma.numel() < n:
            exact = weights[heads].double() @ U
            projected[heads] = (exact @ U.mT).to(weights.dtype)
            kept[heads] = kept_share(exact, squared_norms(weights[heads].double())).to(kept.dtype)
    return _reading(projected, rank, condition, rank == n, leverage, per_group, kept)


def _sharpen(condition: Tensor, V: Tensor, groups: list[int]) -> None:
    """Replace the bounds of some groups' values [G, N, D], which have full rank, by the condition number itself, in place [G].

    The bound can be sqrt(min(N, D)) times too large, which would warn of values that are not ill-conditioned.
    """
    for group in groups:
        sigma = torch.linalg.svdvals(V[group])
        condition[group] = sigma[0] / sigma[-1]


@dataclass(frozen=True)
class Basis:
    """What rows that see all N > D keys are projected with: orthonormal columns that span the values.

    basis     [G, N, D]  in the arithmetic of the weights; with zeros as the last columns where the values have a lower rank
    inverse   [G, D, D]  takes outputs of heads to the coordinates of their rows; None where the weights have to be multiplied by the basis
    exact     group -> its basis [N, r] in float64, for values without a proof of their rank
    rank, condition [G]; leverage [G, N]
    """

    basis: Tensor
    inverse: Tensor | None
    exact: Mapping[int, Tensor]
    rank: Tensor
    condition: Tensor
    leverage: Tensor

    @classmethod
    def of(cls, V: Tensor, factor: tuple[Tensor, Tensor], epsilon: float, dtype: torch.dtype) -> Basis:
        """Find the basis of values V [G, N, D] in float64, whose Gram matrix has the `factor`."""
        groups, n, width = V.shape
        inverse, condition = factor[0], factor[1].clone()
        conditions, limit = condition.tolist(), safe_condition(n, width, epsilon)
        unproven = [group for group, one in enumerate(conditions) if one > limit]
        rank, exact = torch.full((groups,), width), dict[int, Tensor]()
        direct = all(one <= DIRECT_CONDITION for one in conditions)
        basis = V.to(dtype) @ inverse.to(dtype).mT if direct else V @ inverse.mT
        leverage = basis.square().sum(-1).clamp(0, 1)
        basis = basis.to(dtype)
        for group in unproven:
            U, sigma = decompose(V[group], n, epsilon)
            exact[group], rank[group] = U, sigma.numel()
            condition[group] = sigma[0] / sigma[-1] if sigma.numel() else 1.0
            leverage[group] = U.square().sum(-1).to(leverage.dtype)
            basis[group] = torch.nn.functional.pad(U, (0, width - U.shape[1]))
        _sharpen(condition, V, [group for group, one in enumerate(conditions) if ILL_CONDITIONED < one <= limit])
        return cls(basis, inverse.to(dtype) if direct else None, exact, rank, condition, leverage.to(dtype))

    def coordinates(self, weights: Tensor, output: Tensor) -> Tensor:
        """Return the coordinates [H, R, D] of rows [H, R, N] whose output [H, R, D] is known."""
        groups, per_group = len(self.basis), len(weights) // len(self.basis)
        if self.inverse is not None:
            return output.to(weights.dtype) @ repeat_heads(self.inverse, per_group).mT
        found = _by_group(weights, groups) @ self.basis  # [G, P · R, D]
        found = found.view(*weights.shape[:2], -1)
        for group, U in self.exact.items():
            heads = slice(group * per_group, (group + 1) * per_group)
            exact = weights[heads].double() @ U
            found[heads] = torch.nn.functional.pad(exact, (0, found.shape[2] - U.shape[1])).to(found.dtype)
        return found

    def map(self, coordinates: Tensor, keys: slice = slice(None), out: Tensor | None = None) -> Tensor:
        """Return the projected rows [H, R, k] with these coordinates and some keys, in `out` or a new tensor."""
        return expansion(coordinates, self.basis[:, keys], out)

    def facts(self, heads: int) -> Reading:
        """Return a reading of `heads` heads with everything but what depends on their rows."""
        empty = self.basis.new_empty(0)
        identical = torch.zeros_like(self.rank, dtype=torch.bool)
        return _reading(empty, self.rank, self.condition, identical, self.leverage, heads // len(self.basis))


def _by_group(rows: Tensor, groups: int) -> Tensor:
    """[H, R, ...] -> [G, P · R, ...]: the heads of a group use the same values."""
    return rows.reshape(groups, -1, rows.shape[-1])


def _reading(
    projected: Tensor,
    rank: Tensor,
    condition: Tensor,
    identical: Tensor,
    leverage: Tensor,
    per_group: int,
    kept: Tensor | None = None,
) -> Reading:
    """Return a reading of heads of which `per_group` share the facts about their values, [G, ...]."""
    ranks, conditions, same, levers = (repeat_heads(fact, per_group) for fact in (rank, condition, identical, leverage))
    return Reading(projected, True, ranks, conditions, same, kept=kept, leverage=levers)


def _project_prefix(weights: Tensor, V: Tensor, output: Tensor, epsilon: float) -> Reading:
    """Project causal rows: row i on the values of keys 0..i. The last row sees every key, so rank, condition and leverage are those of all keys."""
    n, width = V.shape[1:]
    projected, kept, factor, span = project_prefix(weights, V, output, epsilon)
    identical = torch.full(weights.shape[:1], n <= width, device=weights.device)
    if n <= width and projected is not weights:
        identical &= (projected == weights).all(-1).all(-1)
    whole = facts_of(V, factor, epsilon, weights)
    return replace(whole, map=projected, identical=identical, kept=kept, span=span)


def facts_of(V: Tensor, factor: tuple[Tensor, Tensor], epsilon: float, weights: Tensor) -> Reading:
    """Return rank, condition and leverage of values V [G, N, D] for each head of the weights [H, ...]."""
    if V.shape[1] > V.shape[2]:
        return Basis.of(V, factor, epsilon, weights.dtype).facts(len(weights))
    return _project_few(weights[:, :0], V, factor, epsilon)


def _project_rows(weights: Tensor, V: Tensor, keys: Keys, epsilon: float) -> Reading:
    """Project rows each of which sees other keys."""
    if keys.interval is None:
        projected, kept = decomposed_rows(weights, V, keys.allowed(*weights.shape[1:]), epsilon)
    else:
        projected, kept = project_intervals(weights, V, keys.interval, epsilon)
    identical = torch.stack([(projected[h] == weights[h]).all() for h in range(weights.shape[0])])
    whole = facts_of(V, factorise(gram_matrix(V)), epsilon, weights)
    return replace(whole, map=projected, identical=identical, kept=kept, span=None)
