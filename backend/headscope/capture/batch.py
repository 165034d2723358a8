"""Several inputs of equal length as if they were one with more heads: arithmetic that is the same for all of them is done at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..core.attention import BLOCK_BYTES, Layer
from ..core.tokens import Axes
from ..mechanisms.base import Pass, Scores
from .interface import Call, Calls
from .recording import Recording, all_finite, making_on, not_finite
from .sites import Site

# What has one entry per head, and what has one per key/value head.
BY_HEAD = ("weights", "output", "query", "projection_factors")
BY_GROUP = ("values", "key")


@dataclass(frozen=True, slots=True)
class Batch:
    """Heads of one layer of B inputs that are equally long and see the same keys.

    layer   those of all inputs, one input's after the other's: weights [B H, Q, K], values [B G, K, D] and so on, `heads` B times over. Its tokens are those of the
            first input. What belongs to the model alone is missing, but for projection_factors [B H, D, D].
    first   the heads of the first input, as they would be alone
    axes    the tokens of each input
    places  the numbers of the inputs in their pass
    """

    layer: Layer
    first: Layer
    axes: tuple[Axes, ...]
    places: tuple[int, ...]

    def one(self, number: int) -> Layer:
        """The heads of one input, as they would be alone."""
        return replace(self.first, **self._parts([number]), axes=self.axes[number])

    def some(self, numbers: Sequence[int]) -> Layer:
        """Those of some inputs, one input's after the other's, with the tokens of the first of them."""
        if len(numbers) == len(self.axes):
            return self.layer
        heads = self.first.heads * len(numbers)
        return replace(self.layer, **self._parts(numbers), heads=heads, axes=self.axes[numbers[0]])

    def select(self, heads: frozenset[int]) -> Batch | None:
        """Only these heads of each input; None if none of them is here."""
        layer, first = self.layer.select(heads), self.first.select(heads)
        return None if layer is None or first is None else replace(self, layer=layer, first=first)

    def _parts(self, numbers: Sequence[int]) -> dict[str, Any]:
        known = {name: getattr(self.layer, name) for name in (*BY_HEAD, *BY_GROUP)}
        return {name: part(tensor, len(self.axes), numbers) for name, tensor in known.items() if tensor is not None}


# Takes what was computed together, and says what went wrong with each input.
Take = Callable[[Batch], Sequence[Exception | None]]


@dataclass(frozen=True, slots=True)
class Member:
    """One of the inputs: its number in the pass, who records it, and the call of the attention function."""

    place: int
    recording: Recording
    call: Call


def part(tensor: Tensor, size: int, numbers: Sequence[int]) -> Tensor:
    """What a tensor [B n, ...] of `size` inputs holds of some of them, [len(numbers) n, ...]; a view if it is one."""
    found = by_input(tensor, size)
    chosen: Tensor = found[numbers[0]] if len(numbers) == 1 else found[list(numbers)].flatten(0, 1)
    return chosen


def by_input(tensor: Tensor, size: int) -> Tensor:
    """[B n, ...] of `size` inputs -> [B, n, ...], a view."""
    return tensor.view(size, tensor.shape[0] // size, *tensor.shape[1:])


def fitting(calls: Calls) -> int:
    """How many of these inputs may be computed together: as many as fit into a block, or 1 if their masks differ."""
    if any(mask is not calls.masks[0] for mask in calls.masks):
        return 1
    _, heads, queries, _ = calls.query.shape
    return max(1, BLOCK_BYTES // (heads * queries * calls.key.shape[2] * 4))


def attend(members: Sequence[Member], calls: Calls, take: Take) -> list[Tensor]:
    """Outputs [H, Q, D] of each input, as the model goes on with them, zeros of those that have failed. The others are handed on together."""
    with making_on(members[0].call.query.device):
        sites = [member.recording.next_site(member.call) for member in members]
        alive = [member for member, site in zip(members, sites, strict=True) if site is not None]
        site = next((site for site in sites if site is not None), None)
        sent = {} if site is None else _attended(site, alive, calls, take)
    return [sent[member.place] if member.place in sent else _zeros(member.call) for member in members]


def _attended(site: Site, members: Sequence[Member], calls: Calls, take: Take) -> dict[int, Tensor]:
    """Place -> outputs [H, Q, D] of those that did not fail before they were handed on."""
    weights = None
    if not all(member.recording.attends_plainly for member in members):
        found = [member.recording.weights(site, member.call) for member in members]
        members = [member for member, one in zip(members, found, strict=True) if one is not None]
        if not members:
            return {}
        weights = torch.cat([one for one in found if one is not None])
    tensors, first = calls.together([member.place for member in members]), members[0].call
    tensors["weights"] = Pass().attend(_scores(site, first, len(members), tensors)) if weights is None else weights
    tensors["output"] = tensors["weights"] @ _by_head(tensors["value"], first)
    finite = all_finite(by_input(tensors["output"], len(members))).tolist()
    if not all(finite):
        numbers = [number for number, good in enumerate(finite) if good]
        for member, good in zip(members, finite, strict=True):
            member.recording.failed = None if good else not_finite(site)
        tensors = {name: part(tensor, len(members), numbers) for name, tensor in tensors.items()} if numbers else {}
        members = [members[number] for number in numbers]
    return _handed_on(site, members, tensors, take) if members else {}


def _scores(site: Site, call: Call, size: int, tensors: dict[str, Tensor]) -> Scores:
    """The scores of all inputs, as if they were heads of one; they have one mask, and so one bias. `call` is that of the first."""
    first = call.scores(site.layer, 0, call.key.shape[0])
    return replace(
        first,
        heads=first.heads * size,
        query=tensors["query"],
        key=_by_head(tensors["key"], call),
        bias=first.bias if first.bias is None or first.bias.shape[0] == 1 else first.bias.repeat(size, 1, 1),
        sink=None if first.sink is None else first.sink.repeat(size, 1, 1),
    )


def _by_head(shared: Tensor, call: Call) -> Tensor:
    """Keys or values [B G, K, D] of key/value heads -> one for each query head that reads them, [B H, K, D]."""
    per_group = call.query.shape[0] // call.key.shape[0]
    return shared if per_group == 1 else shared.repeat_interleave(per_group, dim=0)


def _handed_on(site: Site, members: Sequence[Member], tensors: dict[str, Tensor], take: Take) -> dict[int, Tensor]:
    """Place -> outputs [H, Q, D]; by now nothing has failed."""
    size, outputs = len(members), by_input(tensors["output"], len(members))
    dtype = torch.promote_types(tensors["weights"].dtype, torch.float32)
    first = members[0].recording.base(site, members[0].call, outputs[0])
    factors = first.projection_factors
    layer = replace(
        first,
        heads=first.heads * size,
        weights=tensors["weights"].to(dtype),
        values=tensors["value"],
        output=tensors["output"],
        query=tensors["query"],
        key=tensors["key"],
        projection=None,
        projection_factors=None if factors is None else factors.repeat(size, 1, 1),
        query_weights=None,
        key_weights=None,
    )
    first = replace(first, weights=part(layer.weights, size, [0]))
    axes, places = (tuple(member.recording.axes for member in members), tuple(member.place for member in members))
    together = Batch(layer, first, axes, places)
    for member, failed in zip(members, take(together), strict=True):
        member.recording.failed = failed
    return {
        member.place: member.recording.done(site, outputs[number], partial(together.one, number))
        for number, member in enumerate(members)
    }


def _zeros(call: Call) -> Tensor:
    return call.value.new_zeros(*call.query.shape[:2], call.value.shape[-1])
