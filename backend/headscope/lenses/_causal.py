"""Projection of the attention rows of a causal model: row i on the column space of the values of keys 0..i.

In a causal model a token that is repeated before any position is added has the same values again, so a prefix with a repeated token has dependent values.
V = P V' then, where V' holds the distinct rows. If those are independent the columns of V span what those of P do, however often each row is repeated, and
projecting is averaging over equal rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.attention import Span, at_once
from ..core.lazy import Tensor, torch
from ._gram import (
    DIRECT_CONDITION,
    DIRECT_GAIN,
    ROWS,
    decomposed_rows,
    expansion,
    factorise,
    gram_matrix,
    repeat_heads,
    safe_condition,
    squared_norms,
)

# Eigenvalues of a Gram matrix in float64 are off by a small multiple of eps(float64) times the largest.
EIGENVALUE_ERROR = 1e-13
# Rows multiplied at once, on a processor, with the keys that any of them sees: more rows are multiplied with more zeros, fewer are slower to start.
PART = 2 * ROWS


@dataclass(frozen=True)
class _Causal:
    """Causal weights [H, N, N], values [G, N, D] in float64, and the results, filled row by row: the projected map [H, N, N] and its kept share [H, N]."""

    weights: Tensor
    V: Tensor
    projected: Tensor
    kept: Tensor

    def by_group(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return views of weights, projected map and kept share with heads as [G, P]: [H, ...] -> [G, P, ...]."""
        groups = self.V.shape[0]
        weights, projected = (part.view(groups, -1, *part.shape[1:]) for part in (self.weights, self.projected))
        return weights, projected, self.kept.view(groups, -1, self.kept.shape[1])


def project_prefix(
    weights: Tensor, V: Tensor, output: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor], Span | None]:
    """Project causal rows [H, N, N] on the values V [G, N, D] of the keys up to each row, in float64: map, kept share [H, N], the factor of all values, and span.

    The map is `weights` itself if no row has a null space.
    """
    n, width = V.shape[1:]
    kept = weights.new_ones(weights.shape[:2])
    if n > width:
        weights = weights.contiguous()
        task, rows = _Causal(weights, V, torch.empty_like(weights), kept), PrefixRows(V, weights.dtype, epsilon)
        return task.projected, kept, rows.factor, _long_rows(task, output, rows)
    whole = factorise(gram_matrix(V))
    unproven = (whole[1] > safe_condition(n, width, epsilon)).nonzero().flatten().tolist()
    if not unproven:
        return weights, kept, whole, None
    weights, projected = weights.contiguous(), weights.clone(memory_format=torch.contiguous_format)
    for group in unproven:
        _unproven_rows(_Causal(weights, V, projected, kept), group, n, epsilon)
    return projected, kept, whole, None


@dataclass(frozen=True)
class _Prefixes:
    """Factors of the Gram matrices of the values before each block of ROWS, and of all values after the last block: B = blocks + 1.

    inverse   [G, B, D, D]  L⁻¹
    condition [G, B]        upper bound of the condition number of those values
    safe      [G, B - 1]    whether all prefixes that end in the block have certainly full rank
    update    [G, B - 1, ROWS, D]  N of the block, see `_solve`
    gain      [G, B - 1]    upper bound of the norm of V L⁻ᵀ, where V has the values up to the block's end, and L is the factor before it
    """

    inverse: Tensor
    condition: Tensor
    safe: Tensor
    epsilon: float
    update: Tensor
    gain: Tensor


def _prefixes(V: Tensor, start: int, epsilon: float) -> _Prefixes:
    """Factorise the Gram matrix of the rows of V [G, N, D] before each block of ROWS from `start` on, and of all rows."""
    n, width = V.shape[1:]
    blocks = _in_blocks(V[:, start:])  # [G, blocks, ROWS, D]
    steps = torch.cat([(V[:, :start].mT @ V[:, :start])[:, None], blocks.mT @ blocks], dim=1)
    grams = steps.cumsum(1)  # [G, B, D, D]
    inverse, condition = factorise(grams)
    limits = [safe_condition(min(low + ROWS, n), width, epsilon) for low in range(start, n, ROWS)]
    safe = _certain(grams, condition, torch.tensor(limits, dtype=V.dtype, device=V.device))
    whitened = blocks @ inverse[:, :-1].mT
    identity = torch.eye(ROWS, dtype=V.dtype, device=V.device)
    inner = whitened @ whitened.mT
    factor, _ = torch.linalg.cholesky_ex(identity + inner)
    update = torch.linalg.solve_triangular(factor, whitened, upper=False)
    gain = (1 + inner.norm(dim=(-2, -1))).sqrt()
    return _Prefixes(inverse, condition, safe, epsilon, update, gain)


def _certain(grams: Tensor, condition: Tensor, limits: Tensor) -> Tensor:
    """Return whether the largest singular value up to a block's end over the smallest before it is below the block's limit [B - 1], for sure: [G, B - 1].

    The largest grows until the block's last row, and the threshold for zero with it. Norms bound both; where they prove nothing, the smallest eigenvalue does.
    """
    before, norms = grams[:, :-1], grams.norm(dim=(-2, -1))
    safe: Tensor = condition[:, :-1] * (norms[:, 1:] / norms[:, :-1]).sqrt() <= limits
    rest = ~safe & condition[:, :-1].isfinite()
    if bool(rest.any()):
        safe[rest] = norms[:, 1:][rest] <= _smallest_eigenvalue(before[rest]) * limits.expand_as(rest)[rest].square()
    return safe


def _smallest_eigenvalue(grams: Tensor) -> Tensor:
    """Return a lower bound of the smallest eigenvalue of Gram matrices [..., D, D]: below zero where there is no certainty."""
    smallest: Tensor = torch.linalg.eigvalsh(grams)[..., 0] - EIGENVALUE_ERROR * grams.norm(dim=(-2, -1))
    return smallest


class PrefixRows:
    """Projects the rows of heads with more keys than their width, whose values are V [G, N, D] in float64: the first `start` rows at once, the others in any parts.

    Rows that see at most as many keys as the head is wide keep their weights; later ones are solved in blocks. Blocks use products in the arithmetic of the
    weights, `dtype`, from the first row from which every group allows it, if necessary with columns that were made orthonormal, and float64 before. Groups
    whose values may be linearly dependent are processed one by one.
    """

    def __init__(self, V: Tensor, dtype: torch.dtype, epsilon: float) -> None:
        n, width = V.shape[1:]
        self._V, self._epsilon = V, epsilon
        self._prefixes = prefixes = _prefixes(V, width, epsilon)
        mild = prefixes.safe & (prefixes.gain <= DIRECT_GAIN)
        late = _Late(V, prefixes.inverse[:, :-1], prefixes.condition[:, :-1], True)
        self._exact = late.exact(mild)
        if self._exact > 1:
            late = _orthonormal(V, prefixes)
            self._exact = late.exact(mild)
        self.start = min(width + self._exact * ROWS, n)
        self._proven: list[bool] = prefixes.safe[:, : self._exact].all(1).tolist()
        self._direct = late.direct
        self.basis = late.V.to(dtype)
        self._inverse, self._update = late.inverse.to(dtype), prefixes.update.to(dtype)

    @property
    def factor(self) -> tuple[Tensor, Tensor]:
        """The inverse factor of the Gram matrix of all values, and the bound of their condition."""
        return self._prefixes.inverse[:, -1], self._prefixes.condition[:, -1]

    def project_first(self, weights: Tensor, projected: Tensor, kept: Tensor) -> list[Tensor | None]:
        """Project the first F = `start` rows, weights [H, F, F], into `projected`, and their share into `kept` [H, F].

        Return the labels of equal values of each group whose rows were averaged over these only.
        """
        prefixes, task = self._prefixes, _Causal(weights, self._V, projected, kept)
        projected.copy_(weights)
        proven, unproven = ([group for group, one in enumerate(self._proven) if one is kind] for kind in (True, False))
        groups: slice | Tensor = torch.tensor(proven, device=weights.device) if unproven else slice(None)
        if self._exact and proven:
            parts = prefixes.inverse[groups, : self._exact], prefixes.update[groups, : self._exact]
            _exact_rows(task, groups, self._V.shape[2], self.start, *parts)
        return [_unproven_rows(task, group, self.start, self._epsilon) for group in unproven]

    def solve(self, weights: Tensor, output: Tensor, norms: Tensor, first: int) -> tuple[Tensor, Tensor]:
        """Return coefficients [H, R, D] and kept share [H, R] of later rows [H, R, K], with their squared norms, from row `first` on, which is `start` plus a multiple of ROWS."""
        groups, width = len(self.basis), self.basis.shape[2]
        output = output.to(weights.dtype) if self._direct else self._multiply(weights, first)
        blocks = slice((first - width) // ROWS, -(-(first + weights.shape[1] - width) // ROWS))
        by_group = output.reshape(groups, -1, *output.shape[1:])  # [G, P, R, D]
        solved = _solve(by_group, self._inverse[:, blocks], self._update[:, blocks]).flatten(0, 1)
        return solved, ((solved * output).sum(-1) / norms).clamp(0, 1)

    def _multiply(self, weights: Tensor, first: int) -> Tensor:
        """Return the products [H, R, D] of rows [H, R, K] from row `first` on with the basis: some rows at a time, without the keys that none of these sees."""
        found: list[Tensor] = []
        step = at_once(PART, weights.device)
        for low in range(0, weights.shape[1], step):
            part = weights[:, low : low + step]
            seen = first + low + part.shape[1]
            rows = part[..., :seen].reshape(len(self.basis), -1, seen)  # [G, P · R, K]
            found.append((rows @ self.basis[:, :seen]).view(*part.shape[:2], -1))
        return torch.cat(found, 1)

    def map(self, coefficients: Tensor, first: int, keys: slice, out: Tensor | None = None) -> Tensor:
        """Return the rows [H, R, k] from row `first` on with these coefficients and some keys, in `out` or a new tensor."""
        return expansion(coefficients, self.basis[:, keys], out).tril_(first - (keys.start or 0))


def _long_rows(task: _Causal, output: Tensor, rows: PrefixRows) -> Span | None:
    """Project all rows of heads with more keys than their width."""
    n, start = task.V.shape[1], rows.start
    first = slice(start)
    task.projected[:, first, start:] = 0
    labels = rows.project_first(task.weights[:, first, first], task.projected[:, first, first], task.kept[:, first])
    if start < n:
        late = task.weights[:, start:]
        coefficients, task.kept[:, start:] = rows.solve(late, output[:, start:], squared_norms(late), start)
        step = at_once(PART, task.weights.device)
        for low in range(start, n, step):
            high = min(low + step, n)
            task.projected[:, low:high, :high] = rows.map(coefficients[:, low - start : high - start], low, slice(high))
            task.projected[:, low:high, high:] = 0
        return Span(coefficients, rows.basis, causal=True)
    averaged = [one for one in labels if one is not None]
    return _averages(task, torch.stack(averaged)) if len(averaged) == len(task.V) else None


@dataclass(frozen=True)
class _Late:
    """What rows are solved with in float32.

    V         [G, N, D]          the values, or what spans the same space, in float64
    inverse   [G, blocks, D, D]  L⁻¹ of the Gram matrix of V before each block
    condition [G, blocks]        upper bound of the condition number of V before each block
    direct                       whether the heads' outputs are the weights times V, which otherwise have to be multiplied
    """

    V: Tensor
    inverse: Tensor
    condition: Tensor
    direct: bool

    def exact(self, allowed: Tensor) -> int:
        """Return the number of blocks up to the last one that needs float64: all but those that are `allowed` [G, blocks] and well-conditioned."""
        direct = (allowed & (self.condition <= DIRECT_CONDITION)).all(0).tolist()
        return max((block for block, one in enumerate(direct) if not one), default=-1) + 1


def _orthonormal(V: Tensor, prefixes: _Prefixes) -> _Late:
    """Replace the values V [G, N, D] by orthonormal columns that span the same space: V L⁻ᵀ, with the factor L of all rows.

    They project alike, on every prefix, and their prefixes are far better conditioned than those of the values. No singular value of a prefix exceeds 1, so
    the norm of its inverse factor bounds its condition number.
    """
    whole = prefixes.inverse[:, -1]
    factor = torch.linalg.solve_triangular(whole, torch.eye(V.shape[-1], dtype=V.dtype, device=V.device), upper=False)
    inverse = prefixes.inverse[:, :-1] @ factor[:, None]
    return _Late(V @ whole.mT, inverse, inverse.norm(dim=(-2, -1)), False)


def _exact_rows(task: _Causal, chosen: slice | Tensor, start: int, stop: int, inverse: Tensor, update: Tensor) -> None:
    """Project rows start to stop of the `chosen` groups in float64, since their values may be ill-conditioned; the factors are those of the rows' blocks."""
    weights, projected, kept = task.by_group()
    values, rows = task.V[chosen, :stop], weights[chosen, :, start:stop, :stop].double()
    output = rows @ values[:, None]
    solved = _solve(output, inverse, update)  # [G, P, R, D]
    projected[chosen, :, start:stop, :stop] = (solved @ values[:, None].mT).tril_(start).to(projected.dtype)
    share = (solved * output).sum(-1) / squared_norms(rows)
    kept[chosen, :, start:stop] = share.clamp(0, 1).to(kept.dtype)


def _solve(output: Tensor, inverse: Tensor, update: Tensor) -> Tensor:
    """Return G_i⁻¹ z_i of some rows, [G, P, R, D], where z_i is the row's output [G, P, R, D] and G_i the Gram matrix of the values up to it.

    G_i = G + B_iᵀ B_i: G of the rows before the block, whose L⁻¹ [G, B, D, D] is `inverse`, and B_i the block's rows up to i. By Woodbury's identity
    G_i⁻¹ = L⁻ᵀ (I - N_iᵀ N_i) L⁻¹, where N_i has the first rows of N = C⁻¹ B L⁻ᵀ, the `update` [G, B, ROWS, D], and C Cᵀ = I + B G⁻¹ Bᵀ.
    """
    groups, per_group, count, width = output.shape
    inverse, update = inverse.to(output.dtype), update.to(output.dtype)
    # The heads of a group share their matrices: [G, P, B, ROWS, D] -> [G, B, P · ROWS, D].
    rows = _in_blocks(output).transpose(1, 2).flatten(2, 3)
    whitened = rows @ inverse.mT
    # Row i sees the block's rows only up to itself: the lower triangle.
    seen = (whitened @ update.mT).view(groups, -1, per_group, ROWS, ROWS).tril_().flatten(2, 3)
    solved: Tensor = (whitened - seen @ update) @ inverse
    solved = solved.view(groups, -1, per_group, ROWS, width).transpose(1, 2)  # [G, P, B, ROWS, D]
    return solved.flatten(2, 3)[:, :, :count]


def _in_blocks(rows: Tensor) -> Tensor:
    """Split rows into blocks, [..., N, D] -> [..., B, ROWS, D], padded with zeros at the end."""
    padded = torch.nn.functional.pad(rows, (0, 0, 0, -rows.shape[-2] % ROWS))
    return padded.reshape(*rows.shape[:-2], -1, ROWS, rows.shape[-1])


def _unproven_rows(task: _Causal, group: int, stop: int, epsilon: float) -> Tensor | None:
    """Project the rows up to `stop` of one group: averages over equal rows as far as those prove enough, then decompositions until full rank is certain.

    Return the labels of the rows if all of them are such averages.
    """
    V, per_group = task.V[group, :stop], task.weights.shape[0] // task.V.shape[0]
    labels = _labels(V)
    start = _independent(V, labels, epsilon)
    _averaged_rows(task, group, labels[:start])
    middle = _first_safe_row(V, max(start, V.shape[1]), epsilon)
    if start < middle:
        heads = slice(group * per_group, (group + 1) * per_group)
        rows, seen = slice(start, middle), slice(middle)
        weights = task.weights[heads, rows, seen]  # later keys are hidden from all of them
        mask = torch.ones(middle, middle, dtype=torch.bool, device=V.device).tril()[rows]
        projected, kept = decomposed_rows(weights, V[None, seen], mask, epsilon)
        task.projected[heads, rows, seen], task.kept[heads, rows] = projected, kept
    if middle < stop:
        prefixes = _prefixes(V[None], middle, epsilon)
        chosen = torch.tensor([group], device=V.device)
        _exact_rows(task, chosen, middle, stop, prefixes.inverse[:, :-1], prefixes.update)
    return labels if start == stop else None


def _labels(V: Tensor) -> Tensor:
    """Return the number of each row of V [N, D] among its distinct rows, in the order in which they first appear, [N]."""
    numbers: dict[bytes, int] = {}
    return torch.tensor([numbers.setdefault(row.tobytes(), len(numbers)) for row in V.cpu().numpy()], device=V.device)


def _independent(V: Tensor, labels: Tensor, epsilon: float) -> int:
    """Return the number of leading rows i for which the distinct rows of V[: i + 1] are certain to be independent.

    Repeating rows only raises singular values, so the smallest one of V[: i + 1] that is not zero is at least that of its distinct rows V'. For every i
    that is bounded from the factor L of V' V'ᵀ: 1 / sigma² <= trace((V' V'ᵀ)⁻¹), the squares of the leading part of L⁻¹.
    """
    width = V.shape[1]
    latest = labels.cummax(0).values  # [N]: row i sees the distinct rows up to this one
    first = torch.searchsorted(latest, torch.arange(min(int(latest[-1]) + 1, width), device=V.device))
    distinct = V[first]
    factor, failed = torch.linalg.cholesky_ex(distinct @ distinct.mT)
    order = int(failed) - 1 if failed else len(first)
    identity = torch.eye(order, dtype=V.dtype, device=V.device)
    inverse = torch.linalg.solve_triangular(factor[:order, :order], identity, upper=False)
    reciprocal = inverse.square().sum(-1).cumsum(0)
    rows = int((latest < order).sum())
    condition = (V[:rows].square().sum(-1).cumsum(0) * reciprocal[latest[:rows]]).sqrt()
    limits = [safe_condition(row + 1, width, epsilon) for row in range(rows)]
    return int((condition <= torch.tensor(limits, dtype=V.dtype, device=V.device)).sum())


def _averaged_rows(task: _Causal, group: int, labels: Tensor) -> None:
    """Replace the weights of a group's first rows by their averages over equal tokens, by `labels` [R]; each row averages over the tokens up to itself."""
    stop = len(labels)
    weights, projected, kept = task.by_group()
    repeated = labels.cummax(0).values < torch.arange(stop, device=labels.device)  # rows that see a token twice
    if not bool(repeated.any()):
        return
    start = stop - int(repeated.sum())
    rows = weights[group, :, start:stop, :stop].double()
    member = torch.nn.functional.one_hot(labels).to(rows.dtype)  # [R, distinct]
    counts = member.cumsum(0)[start:]
    means = (rows @ member) / counts.clamp_min(1)
    projected[group, :, start:stop, :stop] = means[..., labels].tril_(start).to(projected.dtype)
    share = (means.square() * counts).sum(-1) / squared_norms(rows)
    kept[group, :, start:stop] = share.clamp(0, 1).to(kept.dtype)


def _averages(task: _Causal, labels: Tensor) -> Span:
    """Return the span of a map all of whose rows are averages over equal tokens, by the labels [G, N] of those: what a row gives to a token of each label.

    Rows that see no token twice have no null space: they are kept as they are, since coefficients would change them by their rounding.
    """
    n, width = task.V.shape[1:]
    start = int((labels.cummax(1).values >= torch.arange(n, device=labels.device)).sum(1).max())
    basis = torch.nn.functional.one_hot(labels, width).to(task.projected.dtype)  # [G, N, D]
    first = basis.argmax(1)  # [G, D]: the first token of each label, 0 for labels that no token has
    late = task.projected[:, start:]
    first = repeat_heads(first, len(late) // len(first))[:, None].expand(-1, late.shape[1], -1)
    return Span(late.gather(2, first), basis, causal=True)


def _first_safe_row(V: Tensor, row: int, epsilon: float) -> int:
    """Return the first row i from `row` on for which the values before it, V[:i], prove full column rank, found in growing steps; n if there is none.

    Gram matrices of prefixes only grow, so once one is well conditioned all later ones are.
    """
    n, width = V.shape
    limit = safe_condition(n, width, epsilon)
    largest = gram_matrix(V).norm()  # bounds the largest eigenvalue of every prefix
    step = 1
    while row < n:
        if bool(largest <= _smallest_eigenvalue(V[:row].mT @ V[:row]) * limit**2):
            return row
        row, step = row + step, min(2 * step, 16)
    return n
