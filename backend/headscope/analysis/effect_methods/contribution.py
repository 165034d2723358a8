"""What heads contribute on the direct path, by token of the layer below or of the input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ...capture import CaptureSpec, PathPart, capture, direct_path
from ...capture.head_logits import extreme_logits
from ...core.arrays import Array
from ...core.attention import Layer, required
from ...core.lazy import Tensor, torch
from ...effects.alti_logit import traced
from ...effects.base import EffectParams
from ...effects.contribution import ContributionParams, contribution, contributions_of_cells, contributions_of_heads
from ...errors import InvalidRequest, Unsupported
from ...lenses.alti import ALTI, AltiParams
from .base import JudgedInput, MethodResult, check_sum

NO_SHARES = (
    "Some tokens of this input have no ALTI shares, because nothing brings their output nearer. Choose contribution."
)


NOT_THE_SUM = (
    "The parts of this model that Headscope knows do not sum to its logits: something else is added to its residual stream, "
    "or the way from there to the logits is not linear. So contributions cannot be computed."
)


NOT_EVERY_LAYER = "This Jacobian lens lacks matrices for layers of this model, or the model has other attention than that of one stack of layers."


def direct_contribution(judged: JudgedInput, params: ContributionParams) -> MethodResult:
    """Return what heads and all other parts contribute. Raises Unsupported unless they sum to the target."""
    found, sources = _by_token(judged, params, lambda cells: cells.sum(1))
    return replace(found, sources=torch.stack(sources).float().numpy()) if sources else found


def _by_token(
    judged: JudgedInput, params: ContributionParams, read: Callable[[Tensor], Tensor]
) -> tuple[MethodResult, list[Tensor]]:
    """Return contributions and, with `sources`, what `read` makes of those of each layer's cells: of queries that lead to the target, through each key, [H, Q', K]."""
    args = judged.model, judged.encoded, judged.sites, judged.ids, judged.position
    lens = partial(extreme_logits, count=params.writes, matrices=_matrices(judged)) if params.writes else None
    path = direct_path(*args, params.sources, lens)
    exact = contributions(path.parts)
    check_sum(path.value, exact, NOT_THE_SUM)
    parts = {name: part.astype(np.float32) for name, part in exact.items()}
    own = [part for part in path.parts if part.site is not None and part.site.kind == judged.kind]
    cells = [read(_cells(part, judged.position)) for part in own] if params.sources else []
    writes = _writes(own) if params.writes else None
    found = path.ids, path.value, path.logits, parts[judged.kind], path.capped
    return MethodResult(*found, writes=writes, parts=parts), cells


def _matrices(judged: JudgedInput) -> list[Tensor]:
    """Return the matrix of the Jacobian lens for every site, none without one. The output of the last layer stays as it is."""
    if not judged.matrices:
        return []
    sites, some = judged.sites.of(judged.kind), next(iter(judged.matrices.values()))
    same = {sites[-1].layer: torch.eye(len(some))}
    lens = {**same, **judged.matrices}
    if len(sites) != len(judged.sites.all) or any(site.layer not in lens for site in sites):
        raise InvalidRequest(NOT_EVERY_LAYER, pointer="/jacobian_lens")
    module = judged.model.module
    return [lens[site.layer].to(module.device, module.dtype) for site in sites]


def contributions(path: Sequence[PathPart]) -> dict[str, Array]:
    """Return what the parts of a path contribute, in float64: heads by kind [L, H], "mlp" by layer, "embedding" [1] and "bias" [1]."""
    by_site: dict[str, list[Array]] = {}
    mlps: dict[int, float] = {}
    others = {"embedding": 0.0, "bias": 0.0}
    for part in path:
        if part.site is not None:
            found = contributions_of_heads(part.values, part.gradient)
            by_site.setdefault(part.site.kind, []).append(found.cpu().numpy())
        elif part.name == "mlp":
            mlps[part.layer] = mlps.get(part.layer, 0.0) + contribution(part.values, part.gradient)
        else:
            others[part.name] += contribution(part.values, part.gradient)
    exact = {name: np.stack(rows) for name, rows in by_site.items()}
    return {**exact, "mlp": np.array(list(mlps.values())), **{name: np.array([one]) for name, one in others.items()}}


def alti_logit(judged: JudgedInput, params: EffectParams) -> MethodResult:
    """Return contributions, traced to the input: as maps, and as sources, their sums. Raises Unsupported where a token has no shares."""
    found, cells = _by_token(judged, ContributionParams(sources=True), torch.Tensor.float)
    heads, _, keys = cells[0].shape
    maps = np.zeros((len(cells), heads, len(judged.encoded.axes(judged.kind).queries), keys), np.float32)
    for rows, before in zip(maps[:, :, _rows(judged.position)], [None, *_shares_below(judged)], strict=True):
        one = cells.pop(0)  # which would double the memory
        rows[:] = one if before is None else traced(one, before)
    if not np.isfinite(maps).all():
        raise Unsupported(NO_SHARES, pointer="/method")
    return replace(found, sources=maps.sum(2, dtype=float).astype(np.float32), maps=maps)


def _shares_below(judged: JudgedInput) -> list[Tensor]:
    """Return the shares of the input tokens in the tokens below every layer but the first, [K, K] each."""
    joined: list[Tensor] = []
    params = AltiParams()

    def read(layer: Layer) -> None:
        shares, join = ALTI.read(layer, params).map, required(ALTI.joining(params))
        joined.append(join(shares, joined[-1]) if joined else shares)

    spec = CaptureSpec(lambda heads: None, read, frozenset(ALTI.needs), whole=True)
    capture(judged.model, judged.encoded, judged.sites, spec, judged.kind)
    return [one[0].cpu() for one in joined[:-1]]


def _rows(position: int | None) -> slice:
    """Return the queries that lead to a target: all of them to a class of the whole input."""
    return slice(None) if position is None else slice(position, position + 1)


def _cells(part: PathPart, position: int | None) -> Tensor:
    rows, heads = _rows(position), required(part.heads)
    written, gradient = part.values[rows], part.gradient[rows]
    return contributions_of_cells(heads.weights, heads.values, heads.output, written, gradient).cpu()


def _writes(parts: Sequence[PathPart]) -> tuple[Array, Array]:
    ids, values = (torch.stack([getattr(part.logits, name) for part in parts]).cpu() for name in ("ids", "values"))
    return ids.numpy(), values.float().numpy()
