"""What the parts below a head bring to one of its scores."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...capture.score_path import ScorePath, Side
from ...core.arrays import Array, largest_places
from ...core.attention import required
from ...core.lazy import Tensor, torch
from ...effects.score import ScoreParams, products_of_pairs, split_scores, weights_of
from ...errors import InvalidRequest
from .base import JudgedInput, MethodResult, Score, ScorePair, check_sum, chosen_heads
from .contribution import contributions

SIDES: tuple[Side, Side] = ("query", "key")
NOT_THE_SCORE = (
    "What leads from the residual stream of this model to the queries and keys of this head is more than linear maps, normalisations and a rotation, "
    "so its scores cannot be split among the parts below."
)


def score(judged: JudgedInput, params: ScoreParams) -> MethodResult:
    """Return what heads and all other parts below a head bring to one of its scores, and the terms of all scores of the query."""
    ((number, (head,)),) = required(chosen_heads(judged, [params.head], "/method/head")).items()
    sites, axes = judged.sites.of(judged.kind), judged.encoded.axes(judged.kind)
    query = _place(params.query, len(axes.queries), "/method/query")
    path = ScorePath(judged.model, judged.encoded, judged.sites, sites[number], head, query)
    row = path.row
    terms = split_scores(row.query, row.keys, row.terms, row.turn, query)
    weights = weights_of(terms["score"].masked_fill(~row.allowed, -torch.inf), row.terms.sink)
    key = int(weights.argmax()) if params.key is None else _place(params.key, len(axes.keys), "/method/key")
    if not bool(row.allowed[key]):
        raise InvalidRequest("The query may not attend to this key. Choose another one.", pointer="/method/key")
    parts = contributions(path.parts_to(key, params.side))
    parts |= {name: terms[name][[key]].cpu().numpy() for name in ("cap", "position") if name in terms}
    check_sum(float(terms["score"][key]), parts, NOT_THE_SCORE)
    parts |= _all_heads(judged, parts)
    shown = {name: one.masked_fill(~row.allowed, torch.nan) for name, one in (terms | {"weight": weights}).items()}
    pairs = _pairs(judged, path, key, params.pairs) if params.pairs else None
    score = Score(query, key, {name: one.float().cpu().numpy() for name, one in shown.items()}, pairs)
    parts = {name: part.astype(np.float32) for name, part in parts.items()}
    return MethodResult((), float(terms["score"][key]), None, parts[judged.kind], parts=parts, score=score)


def _pairs(judged: JudgedInput, path: ScorePath, key: int, count: int) -> list[ScorePair]:
    """Return the pairs of a part of the query and a part of the key that bring most to a score. Raises Unsupported unless all of them sum to the product."""
    vectors = dict[str, Tensor]()
    names: list[str] = []
    for side in SIDES:
        numbers = [contributions(parts) for parts in path.parts_of(key, side)]
        names = _names(judged, numbers[0])
        vectors[side] = torch.from_numpy(np.stack([_joined(one) for one in numbers], -1))  # [n, D']
    products = products_of_pairs(vectors["query"], vectors["key"], path.row.terms.scaling).numpy()
    whole = float((path.row.query.double() * path.row.keys[key].double()).sum()) * path.row.terms.scaling
    check_sum(whole, {"pairs": products}, NOT_THE_SCORE)
    places = largest_places(np.abs(products), count)
    return [ScorePair(names[i], names[j], float(products[i, j])) for i, j in places]


def _joined(parts: Mapping[str, Array]) -> Array:
    return np.concatenate([part.ravel() for part in parts.values()])


def _names(judged: JudgedInput, parts: Mapping[str, Array]) -> list[str]:
    """Return the names of the parts in the order of `_joined`."""
    found: list[str] = []
    for name, part in parts.items():
        if part.ndim == 2:
            layers = [site.layer for site in judged.sites.of(name)][: len(part)]  # type: ignore[arg-type]
            prefix = "cross " if name == "cross" else ""
            found += [f"{prefix}{layer}.{head}" for layer in layers for head in range(part.shape[1])]
        else:
            found += [f"mlp {number}" for number in range(len(part))] if name == "mlp" else [name]
    return found


def _place(place: int, count: int, pointer: str) -> int:
    """Return a place in 0..count - 1, which may be counted from the end. Raises InvalidRequest."""
    found = place + count if place < 0 else place
    if not 0 <= found < count:
        raise InvalidRequest(
            f"There are {count} tokens on this side. Count them from 0, or backwards from -1.", pointer=pointer
        )
    return found


def _all_heads(judged: JudgedInput, parts: Mapping[str, Array]) -> dict[str, Array]:
    """Return the parts of heads by kind, [L, H] each, with 0 for the layers from that of the head on, which `parts` [l, H] lack."""
    found = dict[str, Array]()
    for site in judged.sites.all:
        if (site.kind == "encoder") == (judged.kind == "encoder") and site.kind not in found:
            rows = found[site.kind] = np.zeros((len(judged.sites.of(site.kind)), site.heads))
            below = parts.get(site.kind, rows[:0])
            rows[: len(below)] = below
    return found
