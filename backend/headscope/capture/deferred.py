"""Weights that are computed while they are read: some queries after others, so that nothing has the size of a map."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..core.attention import Layer
from ..core.rows import FEWEST_ROWS, ROWS_BYTES, Scratch
from ..mechanisms.base import Pass, Scores
from .interface import Mask
from .parallel import each, threads
from .recording import all_finite, not_finite
from .sites import Site

# Most rows of all heads of a block together that a thread of a processor computes at once: more gain nothing.
MOST_ROWS = 256
T = TypeVar("T")


class DeferredWeights:
    """The weights of some heads of one input, whose mechanism leaves them alone.

    `layer` has no weights, and its `output` [H, Q, D] is filled as these are computed. Its queries see all keys, those up to themselves, or intervals.
    values [H, K, D] are those that each head reads, and `scores` do not know what the mask blocks.
    """

    def __init__(self, site: Site, layer: Layer, scores: Scores, values: Tensor, mask: Mask) -> None:
        # All queries read keys and values again: a head's own are next to each other only in a copy.
        scores, values = replace(scores, key=scores.key.contiguous()), values.contiguous()
        self._site, self._layer, self._scores, self._values, self._mask = site, layer, scores, values, mask
        self._started, self._scratch = False, Scratch()

    def each(self, work: Callable[[Layer], T], first: int = 0, multiple: int = 1) -> Generator[T]:
        """Yield what `work` makes of the heads with some queries before others: the last ones first, in multiples of queries; at the end, at once, the `first` ones.

        Causal rows become shorter in this order, so that what one block has freed has room for the next, and memory does not become fragmented.
        On a processor several are computed at a time, each in a thread. Raises NonFinite.
        """
        self._started = True
        blocks = [slice(0, first)] if first else []
        heads, queries, _ = self._layer.output.shape
        size = max(1, self._size(heads) // multiple) * multiple
        blocks += [slice(low, min(low + size, queries)) for low in range(first, queries, size)]
        blocks.reverse()
        if self._layer.output.device.type != "cpu":
            yield from (work(self._read(block)) for block in blocks)
        else:
            yield from each(lambda block: work(self._read(block)), blocks)

    def _size(self, heads: int) -> int:
        """Return how many queries are computed at once."""
        of_query = heads * self._values.shape[1] * 4  # bytes
        if self._layer.output.device.type == "cpu":
            return max(FEWEST_ROWS, min(MOST_ROWS // heads, ROWS_BYTES // threads() // of_query))
        return max(FEWEST_ROWS, 2 * ROWS_BYTES // of_query)

    def whole(self) -> Layer:
        """Return the heads with all of their weights [H, Q, K]. Raises NonFinite."""
        self._started = True
        layer = self._layer
        weights = Pass().attend(replace(self._scores, blocked=self._mask.blocked))
        torch.matmul(weights, self._values, out=layer.output)
        self._check(layer.output)
        return replace(layer, weights=weights)

    def finish(self) -> None:
        """Compute the output if nothing has been read. Raises NonFinite."""
        if not self._started:
            deque(self.each(lambda rows: None), maxlen=0)

    def _read(self, queries: slice) -> Layer:
        keys, places = self._layer.keys, torch.arange(queries.start, queries.stop)
        seen = slice(keys.start(queries), keys.extent(queries, self._values.shape[1]))
        blocked, free = None, 0
        if keys.rule == "prefix":  # all keys before the first of the queries are free
            blocked, free = torch.ones(1, len(places), len(places), dtype=torch.bool).triu(1), queries.start
        elif keys.rule == "interval":
            blocked = ~keys.sees(places[:, None], torch.arange(seen.start, seen.stop))[None]
        scores = self._scores.rows(queries, seen, blocked, free)
        shape = (len(scores.query), len(places), seen.stop - seen.start)
        logits, weights = (self._scratch.tensor(name, shape, scores.query) for name in ("logits", "weights"))
        logits = scores.logits(scores.products(logits))
        weights = scores.softmax(logits, weights)  # masks the logits in place
        output = self._layer.output[:, queries]
        torch.matmul(weights, self._values[:, seen], out=output)
        self._check(output)
        # Logarithms of weights are their scores up to a constant of the row, which is several times faster than taking them.
        logs = logits.sub_(logits.amax(-1, keepdim=True)).mul_(weights)
        if seen.start:  # no query sees the keys before
            logs, weights = (pad(one, (seen.start, 0)) for one in (logs, weights))
        return self._layer.rows(queries, weights, output, logs)

    def _check(self, output: Tensor) -> None:
        if not all(all_finite(output[None])):
            raise not_finite(self._site)
