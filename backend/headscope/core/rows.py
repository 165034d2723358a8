"""What several lenses and measures need of the rows of a layer (use Layer.once, so that it is computed once), and how many are read at once."""

from __future__ import annotations

from math import prod
from threading import local

from .attention import Layer, required
from .lazy import Tensor, torch

GROUP = 64  # keys
# Heads that are read at the same time at most, and the weights of each at most: with more threads, or larger heads, rows of one head are, so that memory does
# not grow with either.
HEADS_AT_ONCE = 4
HEAD_BYTES = 64 * 1024 * 1024
# Weights of the rows that all threads of a processor compute at the same time: its cache holds them while they are read. A GPU computes twice as many.
ROWS_BYTES = 8 * 1024 * 1024
# Fewest rows of each head that are read at once, whatever their bytes: keys and values are read again for every block of rows, so fewer are slow.
FEWEST_ROWS = 128


class Scratch(local):
    """Memory that a thread uses again for each block of rows. New memory is not in the processor's cache, where computing takes several times as long."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def tensor(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Return a tensor that the next call with this name, in this thread, overwrites; type and device are those of `like`."""
        size = prod(shape)
        kept = self._kept.get(name)
        if kept is None or kept.numel() < size:
            kept = self._kept[name] = like.new_empty(size)
        return kept[:size].view(shape)


def largest_weights(layer: Layer) -> tuple[Tensor, Tensor]:
    """Return the largest weight of every row and its key, [H, Q] each."""
    return largest(layer.weights)


def largest(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same of weights [H, Q, K]: first by groups of keys, since finding a maximum's place is slow. Of equal ones the first is taken."""
    whole = weights.shape[-1] // GROUP * GROUP
    rest, place = weights[..., whole:].max(-1) if whole < weights.shape[-1] else (None, None)
    if not whole:
        return required(rest), required(place)
    groups = weights[..., :whole].unflatten(-1, (-1, GROUP))  # type: ignore[no-untyped-call]
    most, best = groups.amax(-1).max(-1)
    inside = groups.gather(-2, best[..., None, None].expand(*best.shape, 1, GROUP))[..., 0, :]
    found = best * GROUP + inside.argmax(-1)
    if rest is None or place is None:
        return most, found
    return torch.maximum(most, rest), torch.where(rest > most, place + whole, found)


def squared_norms(layer: Layer) -> Tensor:
    """Return the squared norms of the rows of weights, 0 for rows of zeros, [H, Q]."""
    norms: Tensor = torch.linalg.vector_norm(layer.weights, dim=-1).square()
    return norms
