"""Projection of rows that see an interval of keys each, a sliding window or a chunk: each row on the column space of the values in it.

Rows next to each other have most keys in common. The Gram matrix of a row is that of the common keys plus those of the others it sees, so nothing is
subtracted, and the common keys prove full rank for all of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.lazy import Tensor, torch
from ._gram import decomposed_rows, factorise, safe_condition, squared_norms

# Rows projected at once: more of them have fewer keys in common.
ROWS = 24


def project_intervals(
    weights: Tensor, V: Tensor, interval: tuple[Tensor, Tensor], epsilon: float
) -> tuple[Tensor, Tensor]:
    """Project weights [H, Q, K] on values [G, K, D] in float64 of the keys from `begin` to before `end`, [Q] each: map, and kept share [H, Q]."""
    projected, kept = torch.zeros_like(weights), weights.new_ones(weights.shape[:2])
    begin, end = (one.tolist() for one in interval)
    per_group = len(weights) // len(V)
    for group, values in enumerate(V):
        heads = slice(group * per_group, (group + 1) * per_group)
        task = _Group(weights[heads], values, begin, end, epsilon, projected[heads], kept[heads])
        for low in range(0, len(begin), ROWS):
            task.project(low, min(low + ROWS, len(begin)))
    return projected, kept


@dataclass(frozen=True)
class _Group:
    """The heads of a group: weights [P, Q, K], values [K, D], the interval of each row, and what is filled: map [P, Q, K], and kept share [P, Q], which is 1."""

    weights: Tensor
    V: Tensor
    begin: list[int]
    end: list[int]
    epsilon: float
    projected: Tensor
    kept: Tensor

    def project(self, low: int, high: int) -> None:
        """Project rows from `low` to before `high`: at once if their rank is certain, otherwise one half after the other, and a single row by decomposition."""
        if self._keep(low, high) or self._solve(low, high):
            return
        if high - low > 1:
            middle = (low + high) // 2
            self.project(low, middle)
            self.project(middle, high)
            return
        rows, seen = slice(low, high), slice(self.begin[low], self.end[low])
        mask = torch.ones(1, seen.stop - seen.start, dtype=torch.bool, device=self.V.device)
        found = decomposed_rows(self.weights[:, rows, seen], self.V[None, seen], mask, self.epsilon)
        self.projected[:, rows, seen], self.kept[:, rows] = found

    def _seen(self, low: int, high: int) -> slice:
        """Return the keys that any of these rows sees."""
        return slice(min(self.begin[low:high]), max(self.end[low:high]))

    def _keep(self, low: int, high: int) -> bool:
        """Keep rows as they are if the values of all keys that they see are certain to be independent; return whether they are."""
        seen = self._seen(low, high)
        V = self.V[seen]
        n, width = V.shape
        if n > width or factorise(V @ V.mT)[1] > safe_condition(n, width, self.epsilon):
            return False
        self.projected[:, low:high, seen] = self.weights[:, low:high, seen]
        return True

    def _solve(self, low: int, high: int) -> bool:
        """Project rows if the values of the keys that all of them see are certain to have full rank; return whether they have."""
        seen, common = self._seen(low, high), slice(max(self.begin[low:high]), min(self.end[low:high]))
        if common.stop - common.start < self.V.shape[1]:
            return False
        V, least = self.V[seen], self.V[common].mT @ self.V[common]
        # More keys lower no singular value, and all keys that any row sees bound the largest one.
        condition = factorise(least)[1] * ((V.mT @ V).norm() / least.norm()).sqrt()
        if not condition <= safe_condition(len(V), V.shape[1], self.epsilon):
            return False
        rows = self.weights[:, low:high, seen].double()
        output = rows @ V  # [P, R, D]
        places = torch.arange(seen.start, seen.stop, device=V.device)
        begin, end = (torch.tensor(one[low:high], device=V.device)[:, None] for one in (self.begin, self.end))
        sees = (places >= begin) & (places < end)  # [R, K]
        others = (places < common.start) | (places >= common.stop)
        factor = torch.linalg.cholesky(least + _gram_matrices(sees[:, others], V[others]))  # [R, D, D]
        solved = torch.cholesky_solve(output.permute(1, 2, 0), factor).permute(2, 0, 1)
        found = (solved @ V.mT).masked_fill_(~sees, 0)
        self.projected[:, low:high, seen] = found.to(self.projected.dtype)
        self.kept[:, low:high] = ((solved * output).sum(-1) / squared_norms(rows)).clamp(0, 1).to(self.kept.dtype)
        return True


def _gram_matrices(chosen: Tensor, V: Tensor) -> Tensor:
    """Return the Gram matrices of the rows of V [N, D] that are `chosen` [R, N]: [R, D, D]."""
    products = V[:, :, None] * V[:, None, :]
    return (chosen.to(V.dtype) @ products.flatten(1)).view(len(chosen), *products.shape[1:])
