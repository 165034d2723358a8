"""What lies between the projections and the queries and keys: position encodings and normalisations.

A model computes both in its own way, so neither is recomputed here. The module that attends is run again, up to the attention function, with projections
whose outputs are known: what it makes of unit vectors is a linear map, and how the map differs from token to token is the position encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .gates import Arguments
from .interface import AttentionCall, Masks, Reached, recording
from .trace import expanded

NOT_BY_DISTANCE = "The product of its queries and keys does not depend on the distance between two tokens alone."
ROUNDED = "Half precision rounds the position encoding of its queries and keys too much. Set dtype to float32."

MOST_NUMBERS = 2**22  # made by one run
TOKENS = 16  # of the probe that are used
TOLERANCE = 1e-4  # of maps, relative to the largest entry
FAR_TOLERANCE = 1e-3  # of a vector at any token of a long text
FITTED, VERIFIED = 2, 8  # heads to which a rotation is fitted, and random vectors on which it is verified, in all heads
DEAD = 1e-10  # relative squared size of directions that nothing goes through

Vectors = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class HeadProjection:
    """The parts of a linear module's output that become the queries, or the keys, of the heads: [n, features] -> [H, n, D']."""

    module: str
    starts: tuple[int, ...]  # of each head's part
    width: int


@dataclass(frozen=True)
class Rerun:
    """What the module that attends was called with on the probe, and the numbers of its query and key tokens."""

    arguments: Arguments
    tokens: tuple[int, int]


@dataclass(frozen=True)
class VectorSource:
    """The linear module whose output becomes the queries, or the keys, its number of output features, and a tensor of their type, on their device."""

    module: Any
    part: HeadProjection
    features: int
    like: Tensor


Sources = tuple[VectorSource, VectorSource]


@dataclass(frozen=True)
class QueryKeyMap:
    """What a projected vector u of a head becomes: the query u Q Tⁿ at the n-th token and the key u K Tⁿ, each up to the factor of a normalisation.

    query [H, D', D'], key [G, D', D'], turn [D', D'] in float64. The turn T from one token to the next is orthogonal; None if positions change nothing.
    """

    query: Tensor
    key: Tensor
    turn: Tensor | None


class _VectorRecorder:
    """A recorder that keeps the queries and keys instead of attending."""

    def __init__(self) -> None:
        self.masks, self.size, self.home = Masks(), 0, torch.device("cpu")
        self.found: Vectors | None = None

    def attend(self, call: AttentionCall) -> Tensor:
        """Raise Reached."""
        raise Reached

    def replay(self, query: Tensor, key: Tensor, value: Tensor, rest: dict[str, Any], module: Any) -> Tensor | None:
        """Keep the queries and keys. Raises Reached."""
        self.found = query, key
        raise Reached


def run(module: Any, arguments: Arguments, outputs: Mapping[Any, Tensor]) -> Vectors:
    """Return the queries [B, H, Q, D'] and keys [B, G, K, D'] that the module attends with, if linear modules give these outputs [B, n, features].

    Raises ValueError, or anything that the module raises.
    """
    first, recorder = next(iter(outputs.values())), _VectorRecorder()
    size = len(first)
    args, kwargs = expanded(arguments, size)
    with ExitStack() as stack:
        for part, output in outputs.items():
            stack.enter_context(_giving(part, output))
        stack.enter_context(recording(recorder))
        stack.enter_context(suppress(Reached))
        module.forward(*args, **kwargs)
    if recorder.found is None or any(len(one) != size for one in recorder.found):
        raise ValueError("the module does not attend, or not for a batch")
    query, key = recorder.found
    return query.to(first.device), key.to(first.device)


@contextmanager
def _giving(part: Any, output: Tensor) -> Iterator[None]:
    """Make a linear module give a copy of this output [B, n, features], which the caller may change, whatever it is called with."""
    before = vars(part).get("forward")

    def forward(vectors: Tensor, *_: Any, **__: Any) -> Tensor:
        return output.reshape(*vectors.shape[:-1], output.shape[-1]).to(vectors.device, copy=True)

    part.forward = forward
    try:
        yield
    finally:
        if before is None:
            del part.forward
        else:
            part.forward = before


def odd_part(
    module: Any, rerun: Rerun, sources: Sources, contents: Sequence[Tensor], most: int | None = TOKENS
) -> Vectors:
    """Return half the difference between what becomes of projected vectors [B, 1 or n, heads, D'] and of their opposites, at the first `most` tokens.

    [B, H, n, D'] and [B, G, n, D'] in float64. What is added to queries or keys after the projection cancels.
    """
    outputs: dict[Any, Tensor] = {}
    for source, content, tokens in zip(sources, contents, rerun.tokens, strict=True):
        if source.module not in outputs:
            outputs[source.module] = content.new_zeros(2 * len(content), tokens, source.features)
        both = torch.cat([content, -content])
        for head, start in enumerate(source.part.starts):
            outputs[source.module][:, :, start : start + source.part.width] = both[:, :, head]
    query, key = (side[:, :, :most].double() for side in run(module, rerun.arguments, outputs))
    size = len(contents[0])
    return (query[:size] - query[size:]) / 2, (key[:size] - key[size:]) / 2


def maps_by_token(module: Any, rerun: Rerun, sources: Sources) -> Vectors:
    """Return what happens to a projected vector at each of the first tokens, [H, n, D', D'] and [G, n, D', D'] in float64.

    The unit vectors all have the same length, in a head and in all heads together, so a normalisation gives all of them the same factor.
    """
    width, like = sources[0].part.width, sources[0].like
    numbers = sum(source.features * tokens for source, tokens in zip(sources, rerun.tokens, strict=True))
    found: list[Vectors] = []
    units = torch.eye(width, dtype=like.dtype, device=like.device)
    size = max(1, MOST_NUMBERS // (2 * numbers))
    for low in range(0, width, size):
        rows = units[low : low + size]
        contents = [rows[:, None, None].expand(-1, 1, len(source.part.starts), -1) for source in sources]
        found.append(odd_part(module, rerun, sources, contents))
    query, key = (torch.cat(side) for side in zip(*found, strict=True))
    return query.permute(1, 2, 0, 3), key.permute(1, 2, 0, 3)  # [D', H, n, D'] -> [H, n, D', D']


def is_turned(module: Any, rerun: Rerun, sources: Sources, turn: Tensor | None) -> bool:
    """Return whether a vector at any token of this input becomes what it does at the first one, turned as often."""
    drawn = torch.randn(sources[0].part.width, generator=torch.Generator("cpu").manual_seed(0), device="cpu")
    contents = [drawn.to(source.like).expand(1, 1, len(source.part.starts), -1) for source in sources]
    for side in odd_part(module, rerun, sources, contents, most=None):
        expected, limit = side[0, :, 0], FAR_TOLERANCE * side.abs().max()
        for one in side[0].transpose(0, 1):  # [n, H, D']
            if bool(((one - expected).abs() > limit).any()):
                return False
            expected = expected if turn is None else expected @ turn
    return True


def read_map(maps: Vectors, dtype: torch.dtype) -> QueryKeyMap | str:
    """Return the map of `maps_by_token` computed in `dtype`, or why there is no rotation that leads from each token to the next."""
    query, key = maps
    epsilon = torch.finfo(dtype).eps
    limit = max(TOLERANCE, 4 * epsilon) * max(query.abs().max().item(), key.abs().max().item())
    if all(bool(((side - side[:, :1]).abs() <= limit).all()) for side in maps):
        return QueryKeyMap(query[:, 0], key[:, 0], None)
    if epsilon > TOLERANCE:
        return ROUNDED
    if query.shape[1] != key.shape[1]:
        return NOT_BY_DISTANCE
    every = torch.cat(maps)
    turn = _turn(every[:: max(1, len(every) // FITTED)])
    drawn = torch.randn((VERIFIED, len(turn)), generator=torch.Generator("cpu").manual_seed(0), device="cpu").to(every)
    found = torch.einsum("ki,hnij->nhkj", drawn, every)
    limit = max(TOLERANCE, 4 * epsilon) * found.abs().max().item()
    expected = found[0]
    for one in found:
        if bool(((one - expected).abs() > limit).any()):
            return NOT_BY_DISTANCE
        expected = expected @ turn
    return QueryKeyMap(query[:, 0], key[:, 0], turn)


def _turn(maps: Tensor) -> Tensor:
    """Return the orthogonal T with maps[:, n + 1] ≈ maps[:, n] T, from maps [heads, n, D', D'].

    It is fitted to single steps, which leave no doubt about whole turns, and corrected by a long one, whose rounding errors count less.
    """
    far = 2 ** max(0, (2 * maps.shape[1] // 3).bit_length() - 1)
    step, leap = _step(maps, 1), _step(maps, far)
    one = torch.eye(len(step), dtype=step.dtype, device=step.device)
    left, _, right = torch.linalg.svd(step @ (one + (torch.linalg.matrix_power(step.mT, far) @ leap - one) / far))
    turn: Tensor = left @ right
    return turn


def _step(maps: Tensor, count: int) -> Tensor:
    """Return the matrix that best turns the maps [heads, n, D', D'] of tokens into those `count` tokens later; directions that nothing goes through stay."""
    before, after = maps[:, :-count].flatten(0, 1), maps[:, count:].flatten(0, 1)
    gram, cross = (before.mT @ before).sum(0), (before.mT @ after).sum(0)
    inverse = torch.linalg.pinv(gram, rtol=DEAD, hermitian=True)
    one = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    stepped: Tensor = inverse @ cross + one - inverse @ gram
    return stepped
