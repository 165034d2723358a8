"""The direct path from the parts of a model to one score of one head: the product of a query and a key, before the softmax.

One pass ends at the attention function. Everything is cut and held fixed as on the path to the logits, but for the module that makes the queries and keys, whose
linear maps, normalisations and rotations are left whole. With one of the two fixed, the product is linear in the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..core.attention import ScoreTerms, required
from ..errors import Unsupported
from ..models.loading import Model
from ..models.tokens import Encoded
from . import affine
from .direct import LinearPass, PathPart, PlainRecorder
from .forward import options_at
from .gates import Arguments
from .interface import NAME, AttentionCall, Reached, attending_with, recording
from .query_key import Rerun
from .sites import AttentionSites, Site, rotation

Side = Literal["query", "key"]

NO_SIDE = "Not every part of the model below this head reaches its {} through the residual stream of its layer, so its scores cannot be split on this side."
FROM_ENCODER = 'In cross-attention the keys come from the encoder. Choose the side "query", and no pairs.'


@dataclass(frozen=True)
class QueryRow:
    """One query of a head, and everything that makes its scores.

    query [D'], keys [K, D'], allowed [K]; the bias of `terms` is [1, 1, K] and its sink [1, 1, 1]. `turn` [D', D'] rotates from one token to the next, None if nothing does.
    """

    query: Tensor
    keys: Tensor
    terms: ScoreTerms
    allowed: Tensor
    turn: Tensor | None


class ScorePath:
    """A pass up to the scores of a head: its row of one query, and what the parts of the model below bring to one score of it.

    The caller holds the model's lock. Raises Unsupported for models whose layers are not separate modules.
    """

    def __init__(
        self, model: Model, encoded: Encoded, sites: AttentionSites, site: Site, head: int, query: int
    ) -> None:
        chosen = [one for one in sites.all if (one.kind == "encoder") == (site.kind == "encoder")]
        self._walk = _ScorePass(model, chosen, next(i for i, one in enumerate(chosen) if one is site))
        recorder = _ScoreRecorder(model, sites, site)
        with torch.no_grad(), attending_with(NAME, model.module):
            with recording(recorder), self._walk.hooks(), suppress(Reached):
                model.module(**model.inputs(encoded), **options_at(model, 0)[0])
            call = required(recorder.call)
            with torch.no_grad():  # the hooks have switched gradients on
                text = Rerun(self._walk.arguments, (call.query.shape[2], call.key.shape[2]))
                turn = rotation(dict(model.module.named_modules()), site, text, call.query)
        self._sides = {"query": call.query[0, head, query], "key": call.key[0, head // call.per_group]}
        self._crosses = site.kind == "cross"
        self.row = _row(call, head, query, turn)

    def parts_to(self, key: int, side: Side) -> list[PathPart]:
        """Return all parts with the gradient of the scaled product of the query and a key, of which one side is held fixed."""
        self._check(side, "side")
        query, keys = (one if name == side else one.detach() for name, one in self._sides.items())
        with torch.enable_grad():
            product = (query * keys[key]).sum() * self.row.terms.scaling
        return self._parts(product, side)

    def parts_of(self, key: int, side: Side) -> Iterator[list[PathPart]]:
        """Yield all parts with the gradient of each number of the query, or of a key."""
        self._check(side, "pairs")
        with torch.enable_grad():
            vector = self._sides["query"] if side == "query" else self._sides["key"][key]
            numbers = vector.unbind()
        for number in numbers:
            yield self._parts(number, side)

    def _check(self, side: Side, parameter: str) -> None:
        if self._crosses and side == "key":
            raise Unsupported(FROM_ENCODER, pointer=f"/method/{parameter}")

    def _parts(self, value: Tensor, side: Side) -> list[PathPart]:
        try:
            return self._walk.parts_to(value, keep=True)
        except Unsupported:
            names = {"query": "queries", "key": "keys"}
            raise Unsupported(NO_SIDE.format(names[side]), pointer="/method/side") from None


def _row(call: AttentionCall, head: int, query: int, turn: Tensor | None) -> QueryRow:
    """Return the row of one query, without gradients."""
    mask, group = call.masks[0], head // call.per_group
    bias, sink = (None if one is None else one.detach() for one in (mask.bias, call.sink))
    every = ScoreTerms(call.scaling, call.softcap, bias, sink).cut([head])
    allowed = mask.keys.sees(torch.tensor(query), torch.arange(mask.sides[1])).to(call.query.device)
    query_vector, keys = (one.detach() for one in (call.query[0, head, query], call.key[0, group]))
    return QueryRow(query_vector, keys, every.rows(slice(query, query + 1), len(keys)), allowed, turn)


class _ScoreRecorder(PlainRecorder):
    """Attends as the model does, up to one site, whose call it keeps."""

    def __init__(self, model: Model, sites: AttentionSites, site: Site) -> None:
        super().__init__(model, sites)
        self.call: AttentionCall | None = None
        self._places, self._site = iter(sites.all), site

    def attend(self, call: AttentionCall) -> Tensor:
        """Return the heads' outputs [1, H, Q, D]. Raises Reached at the site."""
        if next(self._places, None) is self._site:
            self.call = call
            raise Reached
        return super().attend(call)


class _ScorePass(LinearPass):
    """The hooks of a pass that is not cut from the stream where the chosen site makes its queries and keys."""

    def __init__(self, model: Model, sites: Sequence[Site], number: int) -> None:
        super().__init__(model, sites)
        self._before, self._reached = number, False
        self.arguments: Arguments = ((), {})  # that the module of the chosen site was called with

    def _begin_attention(self, part: Any, args: Any, kwargs: Any) -> None:
        self._reached = self._before == 0
        self._before -= 1
        if self._reached:
            self.arguments = args, kwargs
        else:
            super()._begin_attention(part, args, kwargs)

    def _begin_cut(self, part: Any, args: Any, kwargs: Any) -> None:
        """Within the site, only note the outermost linear map."""
        if not self._reached:
            super()._begin_cut(part, args, kwargs)
        elif self._cutting is None and affine.width(part) is not None:
            self._cutting = part

    def _cut(self, part: Any, args: Any, output: Any) -> Any:
        if not self._reached:
            return super()._cut(part, args, output)
        if self._cutting is not part:
            return None
        self._cutting = None
        return self._add_offset(part, args, output)
