"""What each method for effects computes, of an input whose heads are judged by a target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from ..capture import AttentionSites, CaptureSpec, PathPart, capture, direct_path, replaced_logits
from ..capture.attention_path import gradients_on_path
from ..capture.dual_path import dual_path
from ..capture.head_logits import extreme_logits
from ..capture.outputs import (
    AttentionGradients,
    gradients_of_attention,
    gradients_of_heads,
    mean_outputs,
    outputs_of_heads,
)
from ..capture.path_patching import path_logits
from ..capture.replaced import ReplacedLogits
from ..capture.score_path import ScorePath
from ..core.arrays import Array, to_lists
from ..core.attention import Kind, Layer, required
from ..core.lazy import Tensor, torch
from ..effects import EFFECTS
from ..effects.ablation import AblationParams, without_heads
from ..effects.alti_logit import traced
from ..effects.attribution_patching import AttributionPatchingParams, estimated_gains, own_replacement
from ..effects.base import EffectParams
from ..effects.contribution import ContributionParams, contribution, contributions_of_heads, contributions_of_sources
from ..effects.gradient_attention import GradientAttentionParams, attributions, with_sign
from ..effects.integrated_gradients import IntegratedGradientsParams, places_on_path
from ..effects.patching import PatchingParams, with_heads_of
from ..effects.path_patching import PathPatchingParams
from ..effects.score import ScoreParams, split_scores, weights_of
from ..errors import InvalidRequest, NonFinite, Unsupported
from ..lenses.alti import ALTI, AltiParams
from ..models.loading import Model
from ..models.tokens import Encoded
from .predictions import Predictions, top_predictions
from .target import target_value

# Called with the fraction that is done; may raise to stop.
Step = Callable[[float], None]
PREDICTIONS = 10  # that are shown before and after heads are replaced
TOLERANCE = 1e-4  # of what contributions sum to, relative to the target and to the contributions
NOT_FINITE = "The model computes NaN or infinity on this input, so heads have no effect on it."
NO_SHARES = (
    "Some tokens of this input have no ALTI shares, because nothing brings their output nearer. Choose contribution."
)
NOT_THE_SUM = (
    "The parts of this model that Headscope knows do not sum to its logits: something else is added to its residual stream, "
    "or the way from there to the logits is not linear. So contributions cannot be computed."
)

NOT_DUAL = (
    "Dual Path Attribution is defined for models that are made of linear maps, normalisations, activations, products of two of these, and attention. "
    "This model has other parts, such as experts or gates on the outputs of its heads."
)
NOT_THE_SCORE = (
    "What leads from the residual stream of this model to the queries and keys of this head is more than linear maps, normalisations and a rotation, "
    "so its scores cannot be split among the parts below."
)
NO_SUCH_HEAD = "This model has no such head. Name heads as layer.head, both counted from 0."


@dataclass(frozen=True)
class Score:
    """A score of a head: why the token `query` looks at the token `key`, both counted from 0.

    terms  name -> float32 [K], NaN where the query may not attend: "content", and "rotation", "cap" and "position" where the model has them, which sum to
           "score"; and "weight", what the softmax makes of it
    """

    query: int
    key: int
    terms: Mapping[str, Array] = field(repr=False)

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "query": self.query,
            "key": self.key,
            "terms": {name: to_lists(row) for name, row in self.terms.items()},
        }


@dataclass(frozen=True)
class Together:
    """What happens when several heads are replaced at once.

    heads    as layer.head
    effect   in logits, with the sign of an Effect's; those of the heads on their own do not sum to it
    before, after  the most likely tokens or classes in the text that is changed, as it is and with the heads replaced, in one row each
    """

    heads: tuple[str, ...]
    effect: float
    before: Predictions = field(repr=False)
    after: Predictions = field(repr=False)

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        rows = {"before": self.before.to_list(0), "after": self.after.to_list(0)}
        return {"heads": list(self.heads), "effect": self.effect, **rows}


@dataclass(frozen=True)
class JudgedInput:
    """An input, whose heads are judged by the logits `ids` (the largest, if there are none) at a position."""

    model: Model
    encoded: Encoded
    sites: AttentionSites
    kind: Kind
    ids: list[int]
    position: int | None
    other: Encoded | None = None  # the text that it is compared with
    reference: Sequence[Encoded] = ()  # texts whose mean outputs replace its own
    step: Step = lambda fraction: None

    @property
    def arguments(self) -> tuple[Model, Encoded, AttentionSites, Kind, list[int], int | None]:
        """The arguments of a pass with gradients."""
        return self.model, self.encoded, self.sites, self.kind, self.ids, self.position

    def begin(self, site: int) -> None:
        """Report that heads of a site are judged next."""
        self.step(site / len(self.sites.of(self.kind)))


@dataclass(frozen=True)
class MethodResult:
    """What a method found; see Target and Effect. `logits` are those at the position of the target, if it is a prediction."""

    ids: tuple[int, ...]
    value: float
    logits: Tensor | None
    effects: Array
    capped: bool = False
    maps: Array | None = None
    completeness_error: Array | None = None
    sources: Array | None = None
    writes: tuple[Array, Array] | None = None  # ids and logits, [L, H, N] each
    parts: Mapping[str, Array] = field(default_factory=dict)
    baseline: float | None = None
    together: Together | None = None
    score: Score | None = None


def _contribution(judged: JudgedInput, params: ContributionParams) -> MethodResult:
    """Return what heads and all other parts contribute. Raises Unsupported unless they sum to the target."""
    args = judged.model, judged.encoded, judged.sites, judged.ids, judged.position
    read = partial(extreme_logits, count=params.writes) if params.writes else None
    path = direct_path(*args, params.sources, read)
    exact = _contributions(path.parts)
    _check_sum(path.value, exact, NOT_THE_SUM)
    parts = {name: part.astype(np.float32) for name, part in exact.items()}
    own = [part for part in path.parts if part.site is not None and part.site.kind == judged.kind]
    sources = np.stack([_sources(part, judged.position) for part in own]) if params.sources else None
    writes = _writes(own) if params.writes else None
    found = path.ids, path.value, path.logits, parts[judged.kind], path.capped
    return MethodResult(*found, sources=sources, writes=writes, parts=parts)


def _contributions(path: Sequence[PathPart]) -> dict[str, Array]:
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


def _alti_logit(judged: JudgedInput, params: EffectParams) -> MethodResult:
    """Return contributions, with sources traced to the input. Raises Unsupported where a token has no shares."""
    found = _contribution(judged, ContributionParams(sources=True))
    first, *above = torch.from_numpy(required(found.sources))
    pairs = zip(above, _shares_below(judged), strict=True)
    sources = torch.stack([first.double(), *(traced(one, before) for one, before in pairs)])
    if not bool(sources.isfinite().all()):
        raise Unsupported(NO_SHARES, pointer="/method")
    return replace(found, sources=sources.float().numpy())


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


def _sources(part: PathPart, position: int | None) -> Array:
    rows, heads = slice(None) if position is None else slice(position, position + 1), required(part.heads)
    found = contributions_of_sources(heads.weights, heads.values, heads.output, part.values[rows], part.gradient[rows])
    return found.float().cpu().numpy()


def _writes(parts: Sequence[PathPart]) -> tuple[Array, Array]:
    ids, values = (torch.stack([getattr(part.logits, name) for part in parts]).cpu() for name in ("ids", "values"))
    return ids.numpy(), values.float().numpy()


def _check_sum(value: float, parts: Mapping[str, Array], reason: str) -> None:
    """Raise NonFinite, or Unsupported with a reason, unless the parts sum to the value."""
    if not np.isfinite(value):
        raise NonFinite(NOT_FINITE)
    every = np.concatenate([part.ravel() for part in parts.values()])
    if abs(value - every.sum()) > TOLERANCE * max(abs(value), float(np.linalg.norm(every))):
        raise Unsupported(reason, pointer="/model")


def _score(judged: JudgedInput, params: ScoreParams) -> MethodResult:
    """Return what heads and all other parts below a head bring to one of its scores, and the terms of all scores of the query."""
    ((number, (head,)),) = required(_chosen(judged, [params.head], "/method/head")).items()
    sites, axes = judged.sites.of(judged.kind), judged.encoded.axes(judged.kind)
    query = _place(params.query, len(axes.queries), "/method/query")
    path = ScorePath(judged.model, judged.encoded, judged.sites, sites[number], head, query)
    row = path.row
    terms = split_scores(row.query, row.keys, row.terms, row.turn, query)
    weights = weights_of(terms["score"].masked_fill(~row.allowed, -torch.inf), row.terms.sink)
    key = int(weights.argmax()) if params.key is None else _place(params.key, len(axes.keys), "/method/key")
    if not bool(row.allowed[key]):
        raise InvalidRequest("The query may not attend to this key. Choose another one.", pointer="/method/key")
    parts = _contributions(path.parts_to(key, params.side))
    parts |= {name: terms[name][[key]].cpu().numpy() for name in ("cap", "position") if name in terms}
    _check_sum(float(terms["score"][key]), parts, NOT_THE_SCORE)
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


def _ablation(judged: JudgedInput, params: AblationParams) -> MethodResult:
    """Return by how much the target falls without each head."""
    means = _reference_means(judged)

    def change(site: int, written: Tensor, heads: Sequence[Sequence[int]]) -> Tensor:
        judged.begin(site)
        if means:
            return with_heads_of(written, heads, means[site])
        return without_heads(written, heads, params.how == "mean")

    return _replaced(judged, change, judged.ids, params.heads, -1)


def _reference_means(judged: JudgedInput) -> list[Tensor]:
    """Return the mean outputs of the heads in the reference texts, [1, H, D] per layer; none without such texts."""

    def texts() -> Iterator[Encoded]:
        for encoded in judged.reference:
            judged.step(0.0)
            yield encoded

    position = None if judged.position is None else 0
    return mean_outputs(judged.model, texts(), judged.sites, judged.kind, position)


def _patching(judged: JudgedInput, params: PatchingParams) -> MethodResult:
    """Return how much of the target each head restores in the other text, or destroys in the text itself."""

    def compute(changed: JudgedInput, outputs: list[Tensor], sign: int) -> MethodResult:
        def exchange(site: int, written: Tensor, heads: Sequence[Sequence[int]]) -> Tensor:
            judged.begin(site)
            return with_heads_of(written, heads, outputs[site])

        return _replaced(changed, exchange, changed.ids, params.heads, sign)

    return _between_texts(judged, params.direction, compute)


def _path_patching(judged: JudgedInput, params: PathPatchingParams) -> MethodResult:
    """Return how much of the target the receiver restores in the other text, or destroys in the text itself, when it reads each earlier head of the other one."""
    ((receiver, (head,)),) = required(_chosen(judged, [params.receiver], "/method/receiver")).items()
    if receiver == 0:
        raise InvalidRequest("There are no earlier heads that this head could read.", pointer="/method/receiver")

    def compute(changed: JudgedInput, outputs: list[Tensor], sign: int) -> MethodResult:
        def exchange(site: int, written: Tensor, heads: Sequence[Sequence[int]]) -> Tensor:
            judged.begin(site)
            return with_heads_of(written, heads, outputs[site])

        args = (changed.model, changed.encoded, changed.sites, changed.kind, exchange, changed.ids, changed.position)
        found = path_logits(*args, (receiver, head), params.reads)
        return MethodResult(found.ids, target_value(found.logits, found.ids), found.logits, _gains(found, sign))

    return _between_texts(judged, params.direction, compute)


def _attribution_patching(judged: JudgedInput, params: AttributionPatchingParams) -> MethodResult:
    """Return an estimate of the effects of patching or ablation."""
    if params.of == "mean" or params.of == "zero":
        return _estimated(judged, lambda _, written: own_replacement(written, params.of == "mean"), -1)
    return _between_texts(judged, params.of, lambda one, outputs, sign: _estimated(one, lambda n, _: outputs[n], sign))


def _estimated(judged: JudgedInput, replacement: Callable[[int, Tensor], Tensor], sign: int) -> MethodResult:
    """Return `sign` times an estimate of what the target gains when the output of each head is replaced, given the number of its layer and the output."""
    found = gradients_of_heads(*judged.arguments)
    pairs = zip(found.written, found.gradients, strict=True)
    rows = [estimated_gains(one, slope, replacement(site, one)) for site, (one, slope) in enumerate(pairs)]
    effects = sign * torch.stack(rows).cpu().numpy()
    if not np.isfinite(effects).all():
        raise NonFinite(NOT_FINITE)
    return MethodResult(found.ids, target_value(found.logits, found.ids), found.logits, effects.astype(np.float32))


def _gradient_attention(judged: JudgedInput, params: GradientAttentionParams) -> MethodResult:
    """Return a map of every head, and its sum."""
    return _mapped(gradients_of_attention(*judged.arguments), lambda maps: with_sign(maps, params.sign))


def _integrated_gradients(judged: JudgedInput, params: IntegratedGradientsParams) -> MethodResult:
    """Return a map of every head, and its sum. The sums of a layer are compared with what the target loses without its attention."""
    at_once = EFFECTS["integrated-gradients"].tokens
    path = gradients_on_path(*judged.arguments, places_on_path(params.steps), at_once, judged.begin)
    found = _mapped(path, lambda maps: maps)
    error = found.effects.sum(1, dtype=float) - path.gains
    return replace(found, completeness_error=error.astype(np.float32))


def _dual_path(judged: JudgedInput, params: EffectParams) -> MethodResult:
    """Return a map of every head on the dual paths. Raises Unsupported for models with parts that lose some of the target there."""
    found = dual_path(*judged.arguments)
    _check_sum(found.value, {"terms": found.terms.cpu().numpy()}, NOT_DUAL)
    return replace(_mapped(found, lambda maps: maps), value=found.value, capped=found.capped)


def _mapped(found: AttentionGradients, change: Callable[[Tensor], Tensor]) -> MethodResult:
    """Return each head's weights times their gradients, changed by `change`, and their sums. Takes the weights out of `found`."""
    maps = np.empty((len(found.heads), *found.heads[0].weights.shape), np.float32)
    for number, gradient in enumerate(found.gradients):
        heads = found.heads.pop(0)  # whose weights would double the memory
        maps[number] = change(attributions(heads.weights, heads.values, gradient)).cpu().numpy()
    effects = maps.sum((2, 3), dtype=float)
    if not np.isfinite(effects).all():
        raise NonFinite(NOT_FINITE)
    value = target_value(found.logits, found.ids)
    return MethodResult(found.ids, value, found.logits, effects.astype(np.float32), maps=maps)


def _between_texts(
    judged: JudgedInput,
    direction: Literal["denoise", "noise"],
    compute: Callable[[JudgedInput, list[Tensor], int], MethodResult],
) -> MethodResult:
    """Return what `compute` finds in the text that is changed, given what the heads write in the one that is not, and the sign of an effect."""
    other = required(judged.other)
    _check_aligned(judged.encoded, other)
    denoise = direction == "denoise"
    source, changed = (judged, replace(judged, encoded=other)) if denoise else (replace(judged, encoded=other), judged)
    outputs = outputs_of_heads(source.model, source.encoded, source.sites, source.kind, source.position)
    ids = judged.ids or ([int(outputs.logits.argmax())] if denoise else [])
    found = compute(replace(changed, ids=ids), outputs.written, 1 if denoise else -1)
    far = target_value(outputs.logits, found.ids)
    own, base = (far, found.value) if denoise else (found.value, far)
    return replace(found, value=own, logits=outputs.logits if denoise else found.logits, baseline=base)


def _check_aligned(encoded: Encoded, other: Encoded) -> None:
    """Raise InvalidRequest unless two inputs have equally many tokens on each side."""
    counts = [[len(one.tokens), len(one.target or [])] for one in (encoded, other)]
    if counts[0] != counts[1]:
        raise InvalidRequest(
            "Patching exchanges outputs token by token, so both texts must have the same number of tokens. "
            f"They have {sum(counts[0])} and {sum(counts[1])}.",
            pointer="/against",
        )


def _replaced(judged: JudgedInput, change: Any, ids: list[int], heads: Sequence[str], sign: int) -> MethodResult:
    """Return `sign` times what the target gains when each head is replaced, and what it gains when the named heads are replaced together."""
    args, chosen = (judged.model, judged.encoded, judged.sites, judged.kind), _chosen(judged, heads)
    found = replaced_logits(*args, change, ids, judged.position, chosen)
    effects, value = _gains(found, sign), target_value(found.logits, found.ids)
    if np.isfinite(effects).sum() != (effects.size if chosen is None else sum(map(len, chosen.values()))):
        raise NonFinite(NOT_FINITE)
    together = None
    if found.together is not None:
        joint = sign * (target_value(found.together, found.ids) - value)
        before, after = (_predictions(judged.model, one, PREDICTIONS) for one in (found.logits, found.together))
        together = Together(tuple(heads), joint, before, after)
    return MethodResult(found.ids, value, found.logits, effects, together=together)


def _gains(found: ReplacedLogits, sign: int) -> Array:
    """Return `sign` times what the target gains with each head replaced, [L, H]."""
    rows = torch.stack(found.replaced).double().cpu()  # [L, H, ids]
    gained = (rows[..., 0] - rows[..., 1:].sum(-1)).numpy() - target_value(found.logits, found.ids)
    return (sign * gained).astype(np.float32)


def _predictions(model: Model, logits: Tensor, count: int) -> Predictions:
    return top_predictions(model, logits.float().cpu().numpy(), count)


def _chosen(judged: JudgedInput, heads: Sequence[str], pointer: str = "/method/heads") -> dict[int, list[int]] | None:
    """Return named heads by the number of their layer along axis L; None if none are named. Raises InvalidRequest for heads that the model does not have."""
    sites, chosen = judged.sites.of(judged.kind), dict[int, list[int]]()
    numbers = {site.layer: number for number, site in enumerate(sites)}
    for name in dict.fromkeys(heads):
        layer, head = map(int, name.split("."))
        if layer not in numbers or head >= sites[numbers[layer]].heads:
            raise InvalidRequest(NO_SUCH_HEAD, pointer=pointer)
        chosen.setdefault(numbers[layer], []).append(head)
    return chosen or None


# Name of a method -> what computes it.
COMPUTE: dict[str, Callable[[JudgedInput, Any], MethodResult]] = {
    "contribution": _contribution,
    "ablation": _ablation,
    "patching": _patching,
    "path-patching": _path_patching,
    "attribution-patching": _attribution_patching,
    "gradient-attention": _gradient_attention,
    "integrated-gradients": _integrated_gradients,
    "dual-path": _dual_path,
    "alti-logit": _alti_logit,
    "score": _score,
}
