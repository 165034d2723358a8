"""The attention step: some inputs of a pass attend, block of heads by block of heads, and what they computed is handed on."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..core.attention import BLOCK_BYTES, Layer, at_once, required
from ..core.rows import HEAD_BYTES, HEADS_AT_ONCE
from ..core.tokens import Axes
from ..mechanisms.base import Pass
from .deferred import DeferredWeights
from .gates import GateReader
from .interface import AttentionCall
from .parallel import each, threads
from .recording import Recording, all_finite, not_finite
from .sites import Site

T = TypeVar("T")
# Tensors of a Layer that each input has for itself; the others belong to the model.
BY_INPUT = ("weights", "output", "gate", "query", "key", "values", "projection_factors")


@dataclass(frozen=True, slots=True)
class Batch:
    """Heads of one layer of B inputs that have equally many tokens and see the same keys.

    layer   the heads of all inputs, one input after the other: weights [B H, Q, K], values [B G, K, D] and so on, `heads` B times over. Its tokens are those
            of the first input. With several inputs it has nothing of the model itself but projection_factors [B H, D, D].
    first   the heads of the first input on its own
    axes    the tokens of each input
    places  the indices of the inputs in their pass
    deferred  weights that are computed as they are read, of a single input; its layer has none until then
    """

    layer: Layer
    first: Layer
    axes: tuple[Axes, ...]
    places: tuple[int, ...]
    deferred: DeferredWeights | None = None

    def one(self, number: int) -> Layer:
        """Return the heads of one input on its own."""
        if len(self.axes) == 1:
            return self.first
        return replace(self.first, **self._parts([number]), axes=self.axes[number])

    def some(self, numbers: Sequence[int]) -> Layer:
        """Return the heads of some inputs, one input after the other, with the tokens of the first of them."""
        if len(numbers) == len(self.axes):
            return self.layer
        heads = self.first.heads * len(numbers)
        return replace(self.layer, **self._parts(numbers), heads=heads, axes=self.axes[numbers[0]])

    def select(self, heads: frozenset[int]) -> Batch | None:
        """Keep only these heads of each input; None if the batch has none of them."""
        layer, first = self.layer.select(heads), self.first.select(heads)
        return None if layer is None or first is None else replace(self, layer=layer, first=first)

    def each(self, work: Callable[[Layer], T], first: int = 0, multiple: int = 1) -> Generator[T]:
        """Yield what `work` makes of some queries before others, as DeferredWeights.each does."""
        heads = frozenset(self.layer.heads)
        return required(self.deferred).each(lambda rows: work(required(rows.select(heads))), first, multiple)

    def whole(self) -> Batch:
        """Return the batch with all weights."""
        if self.deferred is None:
            return self
        layer = required(self.deferred.whole().select(frozenset(self.layer.heads)))
        return Batch(layer, layer, self.axes, self.places)

    def _parts(self, numbers: Sequence[int]) -> dict[str, Any]:
        tensors = {name: getattr(self.layer, name) for name in BY_INPUT}
        return {name: part(tensor, len(self.axes), numbers) for name, tensor in tensors.items() if tensor is not None}


# Reads a batch and returns the error of each of its inputs, None where there was none.
OnBatch = Callable[[Batch], Sequence[Exception | None]]


def part(tensor: Tensor, size: int, numbers: Sequence[int]) -> Tensor:
    """Select some of `size` inputs, [B n, ...] -> [len(numbers) n, ...]; a view for one input and for all of them."""
    if len(numbers) == size:
        return tensor
    found = by_input(tensor, size)
    chosen: Tensor = found[numbers[0]] if len(numbers) == 1 else found[list(numbers)].flatten(0, 1)
    return chosen


def by_input(tensor: Tensor, size: int) -> Tensor:
    """[B n, ...] of `size` inputs -> [B, n, ...], a view."""
    return tensor.view(size, tensor.shape[0] // size, *tensor.shape[1:])


def most_inputs(call: AttentionCall) -> int:
    """Return how many inputs of the call may be computed at once: as many as fit into a block, or 1 if their masks differ."""
    if any(mask is not call.masks[0] for mask in call.masks):
        return 1
    most = at_once(BLOCK_BYTES, call.query.device)
    return max(1, most // (call.heads * call.query.shape[2] * call.key.shape[2] * 4))


def attend(recordings: Sequence[Recording], call: AttentionCall, on_batch: OnBatch, gates: GateReader) -> Tensor:
    """Compute the attention of some inputs -> the outputs [B, H, Q, D] that the model continues with, zero for inputs that have failed."""
    sites = [recording.next_site(call.module) for recording in recordings]
    site = next(filter(None, sites), None)
    if site is None:
        return _zeros(call)
    alive = [number for number, own in enumerate(sites) if own is not None]
    step = _Step(site, [recordings[number] for number in alive], call.select(alive), on_batch, gates)
    if len(alive) == len(recordings):
        return step.run()
    sent = _zeros(call)
    sent[alive] = step.run()
    return sent


def _zeros(call: AttentionCall) -> Tensor:
    return call.value.new_zeros(*call.query.shape[:3], call.value.shape[-1])


class _Step:
    """One layer's attention for B inputs with one mask. A single input goes in blocks of heads; several inputs are one block."""

    def __init__(
        self,
        site: Site,
        recordings: Sequence[Recording],
        call: AttentionCall,
        on_batch: OnBatch,
        gates: GateReader,
    ) -> None:
        self._site, self._recordings, self._call, self._on_batch = site, recordings, call.contiguous(), on_batch
        self._gates = gates
        self._output = call.query.new_empty(*call.query.shape[:3], call.value.shape[-1])  # [B, H, Q, D]
        changes = any(recording.changes_output(site) for recording in recordings)
        self._sent = torch.empty_like(self._output) if changes else self._output
        # The first input's Layer without weights; None at sites of another kind, which are not recorded.
        self._layer: Any = (
            recordings[0].layer(site, self._call, self._output[0]) if recordings[0].records(site) else None
        )
        self._gate = (
            torch.empty_like(self._output) if site.follows and self._layer is not None else None
        )  # [B, H, Q, D]
        self._whole: Tensor | None = None  # weights [B, H, Q, K], if a whole layer is wanted with them

    def run(self) -> Tensor:
        """Return the outputs [B, H, Q, D] that the model continues with."""
        if self._may_defer():
            self._defer()
        else:
            # A factor that follows all heads needs all of their outputs.
            whole = [(0, self._call.key.shape[1])] if self._site.follows == "heads" else None
            for low, high in whole or self._call.blocks():
                self._attend(low, high)
                if all(recording.failed for recording in self._recordings):
                    break
        for number, recording in enumerate(self._recordings):
            if recording.failed is None and recording.spec.on_layer is not None and self._layer is not None:
                weights = self._output.new_empty(0) if self._whole is None else self._whole[number]
                recording.finish(self._site, replace(self._layer_of(number), weights=weights))
            if recording.failed is not None:
                self._sent[number] = 0
        return self._sent

    def _attend(self, low: int, high: int) -> None:
        """Compute and hand on the heads that read key/value heads `low` to `high`."""
        size, heads = len(self._recordings), slice(low * self._call.per_group, high * self._call.per_group)
        output = self._output[:, heads].flatten(0, 1)  # [B h, Q, D], a view
        weights = self._weights(low, high)  # [B h, Q, K]
        torch.matmul(weights, self._call.shared(self._call.value, low, high), out=output)
        for recording, finite in zip(self._recordings, all_finite(by_input(output, size)), strict=True):
            if not finite:
                recording.fail(not_finite(self._site))
        if self._layer is not None:
            if self._gate is not None:
                places = [recording.row for recording in self._recordings]
                self._gate[:, heads] = self._gates.read(self._site, by_input(output, size), places, heads)
            weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
            self._hand_on(weights, low, high)
            self._keep(weights, heads)
        if self._sent is not self._output:
            for number, recording in enumerate(self._recordings):
                self._sent[number, heads] = recording.leave(self._site, heads, self._output[number, heads])

    @property
    def _head_bytes(self) -> int:
        """Bytes of the weights of one head."""
        query = self._call.query
        return query.shape[2] * self._call.key.shape[2] * query.element_size()

    def _may_defer(self) -> bool:
        """Return whether weights can be computed as they are read: those of one input that attends plainly, in heads larger than a block."""
        recording, query = self._recordings[0], self._call.query
        large = self._head_bytes > at_once(BLOCK_BYTES, query.device)
        plain = len(self._recordings) == 1 and recording.attends_plainly(self._site) and not recording.spec.whole
        return (
            plain
            and large
            and recording.spec.on_deferred is not None
            and self._layer is not None
            and query.element_size() >= 4
            and not self._site.follows
            and self._layer.keys.rule != "mask"
        )

    def _defer(self) -> None:
        """Hand on all heads without their weights, which are computed as they are read: some heads at a time, each in a thread, or a large one in several."""
        (recording,), blocks = self._recordings, list(self._call.blocks())
        several = self._reads_several(len(blocks))
        read = each(self._read_deferred, blocks) if several else (self._read_deferred(block) for block in blocks)
        with closing(read) as found:
            for (low, high), (deferred, finish) in zip(blocks, found, strict=True):
                recording.attempt(finish)
                recording.attempt(deferred.finish)
                if recording.failed is not None:
                    return
                heads = slice(low * self._call.per_group, high * self._call.per_group)
                if self._sent is not self._output:
                    self._sent[0, heads] = recording.leave(self._site, heads, self._output[0, heads])

    def _reads_several(self, blocks: int) -> bool:
        """Return whether each thread reads blocks of heads of its own. Otherwise all read rows of one block."""
        on_cpu = self._call.query.device.type == "cpu"
        return on_cpu and self._head_bytes <= HEAD_BYTES and threads() <= min(HEADS_AT_ONCE, blocks)

    def _read_deferred(self, block: tuple[int, int]) -> tuple[DeferredWeights, Callable[[], None]]:
        """Read the heads of key/value heads `low` to `high`; return their weights, and what is left to do in order."""
        (recording,), (low, high) = self._recordings, block
        heads = slice(low * self._call.per_group, high * self._call.per_group)
        layer = _cut(self._layer_of(0), heads, self._output.new_empty(0), low, high)
        layer = replace(layer, output=self._output[0, heads])  # a view, to be filled
        scores = self._call.scores(self._site.layer, low, high, masked=False)
        values = self._call.shared(self._call.value, low, high)
        deferred = DeferredWeights(self._site, layer, scores, values, self._call.masks[0])
        batch = Batch(layer, layer, (recording.axes,), (recording.row,), deferred)
        return deferred, required(recording.spec.on_deferred)(batch)

    def _weights(self, low: int, high: int) -> Tensor:
        """Return weights [B h, Q, K] under each input's mechanism; zero for an input whose mechanism failed."""
        if all(recording.attends_plainly(self._site) for recording in self._recordings):
            return Pass().attend(self._call.scores(self._site.layer, low, high))
        found = [
            recording.weights(self._site, self._call.select([number]).scores(self._site.layer, low, high))
            for number, recording in enumerate(self._recordings)
        ]
        return found[0] if len(found) == 1 else torch.cat(found)

    def _hand_on(self, weights: Tensor, low: int, high: int) -> None:
        """Give the block of the inputs that have not failed to `on_batch`."""
        size, alive = len(self._recordings), [n for n, one in enumerate(self._recordings) if one.failed is None]
        if not alive:
            return
        heads = slice(low * self._call.per_group, high * self._call.per_group)
        first = _cut(self._layer_of(alive[0]), heads, part(weights, size, alive[:1]), low, high)
        layer = first
        if len(alive) > 1:
            call, factors = self._call.select(alive), first.projection_factors
            layer = replace(
                first,
                heads=first.heads * len(alive),
                weights=part(weights, size, alive),
                output=part(self._output.flatten(0, 1), size, alive),
                gate=None if self._gate is None else part(self._gate.flatten(0, 1), size, alive),
                query=call.query.flatten(0, 1),  # [B, H, Q, D'] -> [B H, Q, D']
                key=call.key.flatten(0, 1),
                values=call.value.flatten(0, 1),
                projection=None,
                projection_factors=None if factors is None else factors.repeat(len(alive), 1, 1),
                query_weights=None,
                key_weights=None,
                terms=None,
            )
        chosen = [self._recordings[number] for number in alive]
        batch = Batch(layer, first, tuple(one.axes for one in chosen), tuple(one.row for one in chosen))
        for recording, error in zip(chosen, self._on_batch(batch), strict=True):
            if error is not None:
                recording.fail(error)

    def _layer_of(self, number: int) -> Layer:
        """Return the whole layer of an input, without its weights."""
        gate = None if self._gate is None else self._gate[number]
        layer: Layer = replace(self._layer, gate=gate)
        if number == 0:
            return layer
        recording, call = self._recordings[number], self._call
        return replace(
            layer,
            values=call.value[number],
            output=self._output[number],
            query=call.query[number],
            key=call.key[number],
            axes=recording.axes,
            terms=recording.terms(self._site, call, number),
        )

    def _keep(self, weights: Tensor, heads: slice) -> None:
        """Keep the weights [B h, Q, K] of a block, if whole layers are wanted with them."""
        if not any(recording.spec.whole for recording in self._recordings):
            return
        block, count = by_input(weights, len(self._recordings)), self._call.heads
        if block.shape[1] == count:
            self._whole = block
            return
        if self._whole is None:
            self._whole = weights.new_empty(block.shape[0], count, *block.shape[2:])
        self._whole[:, heads] = block


def _cut(layer: Layer, heads: slice, weights: Tensor, low: int, high: int) -> Layer:
    """Return the heads of a whole layer that read key/value heads `low` to `high`, with their weights [h, Q, K]."""
    if heads == slice(0, len(layer.heads)):
        return replace(layer, weights=weights)
    return layer.cut(heads, slice(low, high), layer.heads[heads], weights)
