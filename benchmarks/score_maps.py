"""What every lens and attribution map of the scoreboard shows of a model that is written out, by its definition, for benchmarks.score_check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from .score_slow import DIRECT, DUAL, PLAIN, Cut, Layer, Slow, numbers

EPSILON = float(np.finfo(np.float32).eps)  # of the arithmetic whose null space is judged
NOISE = (32 * EPSILON) ** 2 / 2  # of 1 - cos, up to which value zeroing sees nothing
PADDED = 128  # tokens, by effective-published
RHO = 5.0  # threshold of jump-map
PLACES = 16  # of integrated gradients
WAYS = {"gradient-attention": PLAIN, "dual-path": DUAL, "contribution": DIRECT, "alti-logit": DIRECT}


class SlowMaps:
    """The rows of all maps of one input."""

    def __init__(self, slow: Slow, ids: Sequence[int]) -> None:
        self.slow, self.ids, self.count = slow, list(ids), len(ids)
        self.layers = slow.layers(ids)
        of_layers = {
            "norm-residual": self._lengths,
            "norm-rollout": self._rolled_lengths,
            "rollout": self._rolled,
            "alti": self._alti,
        }
        self._of_layers = {name: cache(made) for name, made in of_layers.items()}
        self._pass = cache(lambda way: self.layers if way == PLAIN else slow.layers(ids, way))
        self._padded = cache(lambda: slow.layers([*ids, *[0] * (PADDED - len(ids))], real=len(ids)))

    def row(self, name: str, query: int, target: Sequence[int] = ()) -> np.ndarray:
        """Return the row of a query in all maps of a name, [L, H or 1, K]; an attribution map's is about a token, or two, after the query."""
        if name in WAYS or name == "integrated-gradients":
            return self._attribution(name, query, target)
        with torch.no_grad():
            if name in self._of_layers:
                return self._of_layers[name]()[:, None, query]
            if name == "value-zeroing":
                return np.stack([self._zeroed(number, query) for number in range(len(self.layers))])[:, None]
            rows = [
                [self._of_head(name, n, head, query) for head in range(len(one.weights))]
                for n, one in enumerate(self.layers)
            ]
            return np.array(rows)

    def logits(self, query: int) -> np.ndarray:
        """Return the logits after a query."""
        with torch.no_grad():
            return numbers(self.slow.logits(self.layers[-1].after[query]))

    def _of_head(self, name: str, number: int, head: int, query: int) -> np.ndarray:
        """Return a row of a lens of single heads. Keys that the query does not see are zeros."""
        layer, found = self.layers[number], np.zeros(self.count)
        seen = self.count if self.slow.normalises_after else query + 1
        weights, values = numbers(layer.weights[head, query, :seen]), numbers(layer.values[head])
        if name == "effective-published":
            found[:] = _projected(np.pad(weights, (0, PADDED - seen)), numbers(self._padded()[number].values[head]))[
                :seen
            ]
        elif name == "jump-map":
            found[:] = _ties(numbers(layer.query[head] @ layer.key[head].mT), numbers(layer.key[head]), query)
        else:
            found[:seen] = _read(
                name, weights, values[:seen], np.sqrt(np.square(values).mean()), numbers(layer.projection[head])
            )
        return found

    # Layers

    def _added(self, number: int) -> Tensor:
        """Return the vector that each token adds to each other one, [Q, K, d]."""
        layer = self.layers[number]
        vectors = torch.einsum("hqk,hke->qke", layer.weights, layer.values @ layer.projection)
        vectors.diagonal(dim1=0, dim2=1).add_(layer.before.T)
        return self.slow.straight(vectors, layer.total[:, None])

    def _lengths(self) -> np.ndarray:
        return np.stack([numbers(self._added(number).norm(dim=-1)) for number in range(len(self.layers))])

    def _rolled_lengths(self) -> np.ndarray:
        return _chained(_as_shares(self._of_layers["norm-residual"]()))

    def _rolled(self) -> np.ndarray:
        means = np.stack([numbers(layer.weights).mean(0) for layer in self.layers])
        return _chained(means / 2 + np.eye(self.count) / 2)

    def _alti(self) -> np.ndarray:
        return _chained(np.stack([self._nearer(number) for number in range(len(self.layers))]))

    def _nearer(self, number: int) -> np.ndarray:
        """Return by how much each token brings the output of the block nearer, as a share."""
        output = self.slow.block(self.layers[number].total)[:, None]
        nearer = output.abs().sum(-1) - (output - self._added(number)).abs().sum(-1)
        return _as_shares(numbers(nearer.clamp_min(0)))

    def _zeroed(self, number: int, query: int) -> np.ndarray:
        """Return by how much a token turns without the values of each one, as a share."""
        layer = self.layers[number]
        taken = torch.einsum("hk,hke->ke", layer.weights[:, query], layer.values @ layer.projection)
        after = self.slow.rest(number, layer.total[query] - taken)
        turned = 1 - numbers(torch.cosine_similarity(after, layer.after[query][None], dim=-1))
        turned[(turned < NOISE) | (numbers(layer.weights[:, query]) == 0).all(0)] = 0
        return _as_shares(turned)

    # Attribution

    def _attribution(self, name: str, query: int, target: Sequence[int]) -> np.ndarray:
        if name == "integrated-gradients":
            return np.stack([self._on_path(number, query, target) for number in range(len(self.layers))])
        layers = self._pass(WAYS[name])
        slopes = self._slopes(layers, WAYS[name], query, target, [layer.outputs for layer in layers])
        cells = np.stack([self._cells(number, query, slope) for number, slope in enumerate(slopes)])
        if name != "alti-logit":
            return cells
        with torch.no_grad():
            below = self._of_layers["alti"]()
        return np.concatenate([cells[:1], cells[1:] @ below[:-1]])

    def _on_path(self, number: int, query: int, target: Sequence[int]) -> np.ndarray:
        """Return weights times their mean gradient while all weights of a layer grow from 0."""
        places, factors = np.polynomial.legendre.leggauss(PLACES)
        mean = torch.zeros_like(self.layers[number].outputs)
        for place, factor in zip((places + 1) / 2, factors / 2, strict=True):
            layers = self.slow.layers(self.ids, cut=Cut(number, factor=float(place)))
            mean += factor * self._slopes(layers, PLAIN, query, target, [layers[number].outputs])[0]
        return self._cells(number, query, mean)

    def _slopes(
        self, layers: list[Layer], way: str, query: int, target: Sequence[int], at: list[Tensor]
    ) -> Sequence[Tensor]:
        """Return the gradient of a target at the outputs of heads."""
        logits = self.slow.logits(layers[-1].after[query], way)
        value = logits[target[0]] - sum(logits[other] for other in target[1:])
        return torch.autograd.grad(value, at, retain_graph=True)

    def _cells(self, number: int, query: int, slope: Tensor) -> np.ndarray:
        """Return weights times values times a gradient [H, Q, D]: [H, K]."""
        layer = self.layers[number]
        return numbers(layer.weights[:, query] * torch.einsum("hkd,hd->hk", layer.values, slope[:, query]))


def _read(name: str, weights: np.ndarray, values: np.ndarray, size: float, projection: np.ndarray) -> np.ndarray:
    """Return a row through a lens, from the weights and values [K, D] of the keys that the query sees; `size` is the mean size of a value's entries."""
    lenses: dict[str, Callable[[], np.ndarray]] = {
        "weights": lambda: weights,
        "effective": lambda: _projected(weights, values),
        "effective-simplex": lambda: _projected(weights, np.pad(values, ((0, 0), (0, 1)), constant_values=size)),
        "null": lambda: weights - _projected(weights, values),
        "norm": lambda: weights * np.linalg.norm(values @ projection, axis=1),
        "max-entropy": lambda: _most_even(weights, values),
    }
    return lenses[name]()


def _basis(values: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of the column space of values, [K, rank]."""
    left, sizes, _ = np.linalg.svd(values, full_matrices=False)
    return left[:, sizes > sizes[0] * max(values.shape) * EPSILON]


def _projected(row: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Project a row [K] on the column space of values [K, D]."""
    basis = _basis(values)
    return row if basis.shape[1] == len(row) else basis @ (basis.T @ row)


def _most_even(row: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the distribution of largest entropy with the same output: Newton steps, each halved until it helps."""
    basis = _basis(values - values.mean(0))
    if basis.shape[1] >= len(row) - 1:
        return row
    wanted, at = basis.T @ row, np.zeros(basis.shape[1])
    for _ in range(200):
        even, above = _even(basis, wanted, at)
        slope = basis.T @ even - wanted
        if np.abs(slope).max() < 1e-11:
            break
        curve = (basis.T * even) @ basis - np.outer(basis.T @ even, basis.T @ even)
        step = np.linalg.lstsq(curve, slope, rcond=None)[0]
        while _even(basis, wanted, at - step)[1] > above and np.abs(step).max() > 1e-12:
            step = step / 2
        if np.abs(step).max() <= 1e-12:  # nothing helps any longer
            break
        at = at - step
    return even


def _even(basis: np.ndarray, wanted: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the distribution with some multipliers, and what they are to minimise."""
    scores = basis @ at
    sizes = np.exp(scores - scores.max())
    return sizes / sizes.sum(), float(np.log(sizes.sum()) + scores.max() - at @ wanted)


def _ties(products: np.ndarray, key: np.ndarray, query: int) -> np.ndarray:
    """Return the normalised share of keys on which the query and each other token have large scores of the same sign."""
    needed = RHO * key.shape[1] * np.maximum(np.linalg.norm(key, axis=1), 1)
    tied = np.stack([(products * one >= needed).mean(1) for one in products])
    np.fill_diagonal(tied, 1)
    degree = tied.sum(1)
    return tied[query] / np.sqrt(degree[query] * degree)


def _as_shares(contributions: np.ndarray) -> np.ndarray:
    sums = contributions.sum(-1, keepdims=True)
    return np.divide(contributions, sums, out=np.full_like(contributions, np.nan), where=sums != 0)


def _chained(shares: np.ndarray) -> np.ndarray:
    """Multiply the shares of every layer with those of all layers before. What depends on a row without shares has none."""
    found = [shares[0]]
    for one in shares[1:]:
        undefined = np.isnan(found[-1]).any(-1)
        joined = one @ np.nan_to_num(found[-1])
        joined[one[:, undefined].sum(-1) > 0] = np.nan
        found.append(joined)
    return np.stack(found)
