"""The search for the linear modules that make queries and keys, on the probe: by changing what modules give, and seeing which queries and keys change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, Literal

import torch
from torch import Tensor

from .closeness import is_close
from .query_key import (
    MOST_NUMBERS,
    TOKENS,
    TOLERANCE,
    HeadProjection,
    Rerun,
    Sources,
    Vectors,
    VectorSource,
    maps_by_token,
    odd_part,
    read_map,
    run,
)
from .trace import AttentionEvent, Trace, TraceEvent, is_affine, is_linear

NO_LINEAR = "Its queries or keys do not come from a linear map in the module that attends."
SEVERAL = "Its queries or keys are put together from the outputs of several linear maps."
NOT_BY_HEAD = "The projection before its queries or keys has no separate part for each head."
NOT_LINEAR = "What happens to its queries or keys after their projection is neither linear nor a normalisation."
NO_RERUN = "Its attention cannot be run again on its own, so what happens to queries and keys after their projections is unknown."

# What queries and keys are divided by: nothing, one number per token for all heads, or one per token and head.
Normalised = Literal["no", "layer", "head"]
MOST_BLOCKS = 1024
MOVED = 1e-2  # least change of a unit vector that other numbers in its part make
SIZES = (0.1, 1.0, 30.0)  # of the vectors on which a map is verified


@dataclass(frozen=True)
class QueryKeyOrigin:
    """What makes the queries and the keys, how to run it again, and what their normalisation divides by."""

    query: HeadProjection
    key: HeadProjection
    rerun: Rerun
    normalised: Normalised


def find_origin(attention: AttentionEvent, events: Sequence[TraceEvent], trace: Trace) -> QueryKeyOrigin | str:
    """Find the linear modules, among calls of modules before attention, whose outputs become queries and keys; or say why there are none.

    Between them there may be a normalisation, which divides by a number per token, and a rotation by the position.
    """
    tokens = attention.call.query.shape[2], attention.call.key.shape[2]
    linear = {id(one.module): one for one in events if is_linear(one) and len(one.output) in tokens}
    if not linear:
        return NO_LINEAR
    try:
        return _find(attention, list(linear.values()), Rerun(attention.arguments, tokens), trace)
    except Exception:  # noqa: BLE001 - a module that is run again may raise anything
        return NO_RERUN


def _find(attention: AttentionEvent, linear: list[TraceEvent], rerun: Rerun, trace: Trace) -> QueryKeyOrigin | str:
    module, makers = attention.call.module, _makers(attention, linear)
    if isinstance(makers, str):
        return makers
    found: list[VectorSource] = []
    for side, maker in enumerate(makers):
        if not is_affine(maker):
            return NO_LINEAR
        starts = _starts(attention, linear, maker, side)
        if starts is None:
            return NOT_BY_HEAD
        part = HeadProjection(maker.name, starts, _vectors(attention)[side].shape[3])
        found.append(VectorSource(maker.module, part, maker.output.shape[1], maker.output))
    query, key = found
    # Most layers do the same as the one before them.
    known = _fitting(trace.maps, rerun, (query, key))
    if known is not None and _normalised(module, rerun, (query, key), known) == "no":
        return QueryKeyOrigin(query.part, key.part, rerun, "no")
    maps = maps_by_token(module, rerun, (query, key))
    normalised = _normalised(module, rerun, (query, key), maps)
    if normalised is None:
        return NOT_LINEAR
    read = read_map(maps, query.like.dtype)
    if isinstance(read, str):
        return read
    if normalised == "no":
        trace.maps = maps
    return QueryKeyOrigin(query.part, key.part, rerun, normalised)


def _fitting(maps: Vectors | None, rerun: Rerun, sources: Sources) -> Vectors | None:
    """Return the maps if they are for as many heads and tokens."""
    shapes = [
        (len(source.part.starts), min(TOKENS, tokens), source.part.width)
        for source, tokens in zip(sources, rerun.tokens, strict=True)
    ]
    return maps if maps is not None and [one.shape[:3] for one in maps] == shapes else None


def _vectors(attention: AttentionEvent) -> Vectors:
    return attention.call.query, attention.call.key


def _makers(attention: AttentionEvent, linear: list[TraceEvent]) -> list[TraceEvent] | str:
    """Return the module that makes the queries and the one that makes the keys: with its own output they stay, whatever all others give; without, they change."""
    generator = torch.Generator().manual_seed(0)
    outputs: dict[Any, Tensor] = {}
    for place, event in enumerate(linear):
        own = event.output.expand(len(linear) + 1, -1, -1)
        noise = torch.randn(own.shape, generator=generator).to(own) * (1 + event.output.abs().max())
        noise[place] = 0
        outputs[event.module] = own + noise
    found: list[TraceEvent] = []
    changed = run(attention.call.module, attention.arguments, outputs)
    for rows, own in zip(changed, _vectors(attention), strict=True):
        if is_close(rows[-1], own[0]):
            return NO_LINEAR
        same = [event for event, row in zip(linear, rows[:-1], strict=True) if is_close(row, own[0])]
        if len(same) != 1:
            return SEVERAL
        found += same
    return found


def _starts(
    attention: AttentionEvent, linear: list[TraceEvent], maker: TraceEvent, side: int
) -> tuple[int, ...] | None:
    """Return where each head's part of the module's output begins: other numbers there change the direction of its vectors, and none elsewhere do."""
    _, heads, _, width = _vectors(attention)[side].shape
    tokens, features = maker.output.shape
    block = gcd(width, features // heads if features % heads == 0 else features)
    if features // block > MOST_BLOCKS:
        return None
    generator = torch.Generator().manual_seed(1)
    base, other = torch.randn((2, tokens, features), generator=generator).to(maker.output)
    fixed = {event.module: event.output for event in linear if event.module is not maker.module}

    def directions(rows: Tensor) -> Tensor:
        given = {part: own.expand(len(rows), -1, -1) for part, own in fixed.items()} | {maker.module: rows}
        vectors = run(attention.call.module, attention.arguments, given)[side]
        return torch.nn.functional.normalize(vectors.float(), dim=-1)

    before, moved = directions(base[None]), list[Tensor]()
    count, size = features // block, max(1, MOST_NUMBERS // (tokens * features))
    for low in range(0, count, size):
        places = range(low, min(low + size, count))
        rows = base.expand(len(places), -1, -1).clone()
        for row, place in enumerate(places):
            rows[row, :, place * block : (place + 1) * block] = other[:, place * block : (place + 1) * block]
        moved.append((directions(rows) - before).abs().amax((2, 3)) > MOVED)  # [rows, heads]
    return _contiguous(torch.cat(moved), block, width)


def _contiguous(moved: Tensor, block: int, width: int) -> tuple[int, ...] | None:
    """Return where the blocks that move each head, [blocks, heads], begin; None if they are not `width` numbers in a row."""
    starts = []
    for one in moved.T:
        places = one.nonzero().flatten().tolist()
        if len(places) * block != width or places[-1] - places[0] + 1 != len(places):
            return None
        starts.append(places[0] * block)
    return tuple(starts)


def _normalised(module: Any, rerun: Rerun, sources: Sources, maps: Vectors) -> Normalised | None:
    """Return up to which factors random vectors become what the maps make of them; None if they become something else.

    They differ from token to token and from head to head, in size too.
    """
    generator = torch.Generator().manual_seed(2)
    like, contents = sources[0].like, list[Tensor]()
    for source, tokens in zip(sources, rerun.tokens, strict=True):
        heads = len(source.part.starts)
        sizes = torch.tensor(SIZES)[:, None, None, None] * torch.arange(1, heads + 1)[:, None].sqrt()
        drawn = torch.randn((len(SIZES), tokens, heads, source.part.width), generator=generator)
        contents.append((drawn * sizes).to(like))
    limit = max(TOLERANCE, 4 * torch.finfo(like.dtype).eps)
    factors = list[Tensor]()
    for side, content, found in zip(maps, contents, odd_part(module, rerun, sources, contents), strict=True):
        expected = torch.einsum("bnhi,hnij->bhnj", content[:, :TOKENS].double(), side)
        squares = expected.square().sum(-1, keepdim=True)  # [B, H, n, 1]
        alive = squares > 0
        factor = (found * expected).sum(-1, keepdim=True) / squares.where(alive, 1.0)
        off = (found - factor * expected).norm(dim=-1) > limit * found.norm(dim=-1)
        if bool(off.any()) or bool((factor[alive] <= 0).any()):
            return None
        factors.append(factor.where(alive, factor.amax(1, keepdim=True)))
    if all(bool(((factor - 1).abs() <= limit).all()) for factor in factors):
        return "no"
    shared = all(bool(((one - one[:, :1]).abs() <= 10 * limit * one[:, :1]).all()) for one in factors)
    return "layer" if shared else "head"
