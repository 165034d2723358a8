"""What the parts below a head bring to one of its scores."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...capture.score_path import ScorePath
from ...core.arrays import Array
from ...core.attention import required
from ...core.lazy import torch
from ...effects.score import ScoreParams, split_scores, weights_of
from ...errors import InvalidRequest
from .base import JudgedInput, MethodResult, Score, check_sum, chosen_heads
from .contribution import contributions

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
    score = Score(query, key, {name: one.float().cpu().numpy() for name, one in shown.items()})
    parts = {name: part.astype(np.float32) for name, part in parts.items()}
    return MethodResult((), float(terms["score"][key]), None, parts[judged.kind], parts=parts, score=score)


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
