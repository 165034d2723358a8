"""What heads do to a prediction, of one input and one model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ..capture import AttentionSites, PathPart, direct_path, examine, replaced_logits
from ..capture.outputs import gradients_of_heads, outputs_of_heads
from ..core.arrays import Array, to_lists
from ..core.attention import Kind, required
from ..core.lazy import Tensor, torch
from ..core.tokens import TOKENS, Token
from ..effects import EFFECTS
from ..effects.ablation import AblationParams, without_heads
from ..effects.attribution_patching import AttributionPatchingParams, estimated_gains, own_replacement
from ..effects.contribution import ContributionParams, contribution, contributions_of_heads, contributions_of_sources
from ..effects.patching import PatchingParams, with_heads_of
from ..errors import InvalidRequest, NonFinite, Unsupported
from ..models.loading import Model
from ..models.support import BEFORE_DECODER
from ..models.tokens import Encoded
from .effect_request import EffectRequest
from .predictions import Predictions, texts_of, top_predictions
from .target import Target, find_output, find_position, target_value

# Called with the fraction that is done; may raise to stop.
Step = Callable[[float], None]
PREDICTIONS = 10  # that are shown before and after heads are replaced
TOLERANCE = 1e-4  # of what contributions sum to, relative to the target and to the contributions
NOT_FINITE = "The model computes NaN or infinity on this input, so heads have no effect on it."
NOT_THE_SUM = (
    "The parts of this model that Headscope knows do not sum to its logits: something else is added to its residual stream, "
    "or the way from there to the logits is not linear. So contributions cannot be computed."
)


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


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What every head of a model does to a target. Positive: with the head, the logit or the difference is larger.

    method   name and parameters
    kind     of attention whose heads these are
    layers, heads  along axes L and H
    tokens, key_tokens  along the queries and the keys
    effects  float32 [L, H], in logits; NaN for heads that the method leaves out
    sources  float32 [L, H, K], with sources=True: the parts of `effects` that each token gives, through all queries; otherwise None
    parts    name -> float32; of contributions, everything that sums to the target: heads by kind [L, H], "mlp" [number of layers], "embedding" [1],
             and "bias" [1], those of all projections and normalisations
    baseline  of patching, the value of the target in the other text; otherwise None
    together  what the heads that the method names do at once; None if it names none
    predictions  the most likely tokens at the position of the target, or classes, in one row
    """

    model: str
    method: Mapping[str, Any]
    target: Target
    kind: Kind
    layers: list[int]
    heads: list[int]
    tokens: list[Token] = field(repr=False)
    key_tokens: list[Token] = field(repr=False)
    effects: Array = field(repr=False)
    sources: Array | None = field(default=None, repr=False)
    parts: Mapping[str, Array] = field(default_factory=dict, repr=False)
    baseline: float | None = field(default=None, repr=False)
    together: Together | None = None
    predictions: Predictions | None = field(default=None, repr=False)

    @property
    def shares(self) -> Array:
        """Effects as shares of the difference of the target between the two texts of a patching, float32 [L, H]; NaN for other methods, and if there is none."""
        difference = float("nan") if self.baseline is None else self.target.value - self.baseline
        return self.effects / np.float32(difference or np.nan)

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """Return the heads with the largest effects, whatever their sign, as layer.head, largest first."""
        order = np.argsort(-np.abs(self.effects), axis=None)[: min(count, np.isfinite(self.effects).sum())]
        places = (np.unravel_index(place, self.effects.shape) for place in order)
        return [(f"{self.layers[i]}.{self.heads[j]}", float(self.effects[i, j])) for i, j in places]

    @property
    def remainder(self) -> float:
        """The target minus the sum of all parts, in logits: rounding. NaN for methods without parts."""
        if not self.parts:
            return float("nan")
        return self.target.value - float(sum(part.sum(dtype=float) for part in self.parts.values()))

    def to_document(self) -> dict[str, Any]:
        """Return the effect as JSON."""
        target = {name: getattr(self.target, name) for name in ("position", "value", "capped")}
        return {
            **{name: getattr(self, name) for name in ("model", "method", "kind", "layers", "heads", "baseline")},
            "target": {"ids": list(self.target.ids), "texts": list(self.target.texts), **target},
            "predictions": [] if self.predictions is None else self.predictions.to_list(0),
            "tokens": TOKENS.dump_python(self.tokens),
            "key_tokens": TOKENS.dump_python(self.key_tokens),
            "effects": to_lists(self.effects),
            "together": None if self.together is None else self.together.to_document(),
            "sources": None if self.sources is None else to_lists(self.sources),
            "parts": {name: to_lists(part) for name, part in self.parts.items()},
        }

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {value:+.3g}" for name, value in self.top(3))
        return f"Effect({self.method['name']} on {self.target}, {self.target.value:.3f} logits; largest heads: {shown})"


def compute(
    model: Model,
    encoded: Encoded,
    request: EffectRequest,
    *,
    kind: Kind = "self",
    dtype: Literal["float32", "float64"] = "float32",
    image: bool = False,
    other: Encoded | None = None,
    step: Step = lambda fraction: None,
) -> Effect:
    """Return what every head of a kind does to a prediction for this input.

    `image` says whether an image is read beside a text; `other` is the text of `against`. `step(fraction)` is called at every layer and may raise to stop.
    Raises the errors of `headscope.effect`.
    """
    sites = examine(model, dtype, image)
    of, declared = _kind(sites, kind), EFFECTS[request.method.name]
    missing = sites.missing(of)
    for need in declared.needs:
        if need in missing:
            raise Unsupported(missing[need], pointer="/model")
    ids, position = (
        [find_output(model, one) for one in request.outputs],
        find_position(model, encoded, request.position),
    )
    judged = _Judged(model, encoded, sites, of, ids, position, other, step)
    with model.lock, model.using(dtype):
        found = COMPUTE[declared.name](judged, request.params)
    axes, chosen = encoded.axes(of), sites.of(of)
    return Effect(
        model=model.name,
        method=request.params.model_dump(),
        target=Target(found.ids, tuple(texts_of(model, found.ids)), position, found.value, found.capped),
        kind=of,
        layers=[site.layer for site in chosen],
        heads=list(range(chosen[0].heads)),
        tokens=list(axes.queries),
        key_tokens=list(axes.keys),
        effects=found.effects,
        sources=found.sources,
        parts=found.parts,
        baseline=found.baseline,
        together=found.together,
        predictions=_predictions(model, found.logits, request.predictions),
    )


def input_against(given: Mapping[str, Any], against: str | list[int]) -> dict[str, Any]:
    """Return the arguments of Model.encode for the other text: those of the input, with this text or these token ids."""
    other = {"text": against} if isinstance(against, str) else {"token_ids": against}
    return {**given, **dict.fromkeys(("text", "messages", "token_ids", "image", "generate")), **other}


@dataclass(frozen=True)
class _Judged:
    """An input, whose heads are judged by the logits `ids` (the largest, if there are none) at a position."""

    model: Model
    encoded: Encoded
    sites: AttentionSites
    kind: Kind
    ids: list[int]
    position: int | None
    other: Encoded | None = None  # the text that it is compared with
    step: Step = lambda fraction: None

    def begin(self, site: int) -> None:
        """Report that heads of a site are judged next."""
        self.step(site / len(self.sites.of(self.kind)))


@dataclass(frozen=True)
class _Found:
    """What a method found; see Target and Effect."""

    ids: tuple[int, ...]
    value: float
    logits: Tensor
    effects: Array
    capped: bool = False
    sources: Array | None = None
    parts: Mapping[str, Array] = field(default_factory=dict)
    baseline: float | None = None
    together: Together | None = None


def _kind(sites: AttentionSites, kind: Kind) -> Kind:
    """Return the kind of attention that is meant: only a decoder's heads have a direct path to the logits of an encoder-decoder."""
    kinds = {site.kind for site in sites.all}
    if "decoder" in kinds and kind == "encoder":
        raise Unsupported(BEFORE_DECODER, pointer="/kind")
    if "decoder" in kinds and kind == "self":
        return "decoder"
    return sites.of(kind)[0].kind


def _contribution(judged: _Judged, params: ContributionParams) -> _Found:
    """Return what heads and all other parts contribute. Raises Unsupported unless they sum to the target."""
    path = direct_path(judged.model, judged.encoded, judged.sites, judged.ids, judged.position, params.sources)
    by_site: dict[str, list[Array]] = {}
    mlps: dict[int, float] = {}
    others = {"embedding": 0.0, "bias": 0.0}
    for part in path.parts:
        if part.site is not None:
            found = contributions_of_heads(part.values, part.gradient)
            by_site.setdefault(part.site.kind, []).append(found.cpu().numpy())
        elif part.name == "mlp":
            mlps[part.layer] = mlps.get(part.layer, 0.0) + contribution(part.values, part.gradient)
        else:
            others[part.name] += contribution(part.values, part.gradient)
    exact = {name: np.stack(rows) for name, rows in by_site.items()}
    exact |= {"mlp": np.array(list(mlps.values())), **{name: np.array([one]) for name, one in others.items()}}
    _check_sum(path.value, np.concatenate([part.ravel() for part in exact.values()]))
    parts = {name: part.astype(np.float32) for name, part in exact.items()}
    own = [part for part in path.parts if part.site is not None and part.site.kind == judged.kind]
    sources = np.stack([_sources(part, judged.position) for part in own]) if params.sources else None
    return _Found(path.ids, path.value, path.logits, parts[judged.kind], path.capped, sources, parts)


def _sources(part: PathPart, position: int | None) -> Array:
    rows, heads = slice(None) if position is None else slice(position, position + 1), required(part.heads)
    found = contributions_of_sources(heads.weights, heads.values, heads.output, part.values[rows], part.gradient[rows])
    return found.float().cpu().numpy()


def _check_sum(value: float, parts: Array) -> None:
    if not np.isfinite(value):
        raise NonFinite(NOT_FINITE)
    if abs(value - parts.sum()) > TOLERANCE * max(abs(value), float(np.linalg.norm(parts))):
        raise Unsupported(NOT_THE_SUM, pointer="/model")


def _ablation(judged: _Judged, params: AblationParams) -> _Found:
    """Return by how much the target falls without each head."""

    def change(site: int, written: Tensor, heads: Sequence[Sequence[int]]) -> Tensor:
        judged.begin(site)
        return without_heads(written, heads, params.how)

    return _replaced(judged, change, judged.ids, params.heads, -1)


def _patching(judged: _Judged, params: PatchingParams) -> _Found:
    """Return how much of the target each head restores in the other text, or destroys in the text itself."""

    def compute(changed: _Judged, outputs: list[Tensor], sign: int) -> _Found:
        def exchange(site: int, written: Tensor, heads: Sequence[Sequence[int]]) -> Tensor:
            judged.begin(site)
            return with_heads_of(written, heads, outputs[site])

        return _replaced(changed, exchange, changed.ids, params.heads, sign)

    return _between_texts(judged, params.direction, compute)


def _attribution_patching(judged: _Judged, params: AttributionPatchingParams) -> _Found:
    """Return an estimate of the effects of patching or ablation."""
    if params.of == "mean" or params.of == "zero":
        return _estimated(judged, lambda _, written: own_replacement(written, params.of == "mean"), -1)
    return _between_texts(judged, params.of, lambda one, outputs, sign: _estimated(one, lambda n, _: outputs[n], sign))


def _estimated(judged: _Judged, replacement: Callable[[int, Tensor], Tensor], sign: int) -> _Found:
    """Return `sign` times an estimate of what the target gains when the output of each head is replaced, given the number of its layer and the output."""
    args = (judged.model, judged.encoded, judged.sites, judged.kind, judged.ids, judged.position)
    found = gradients_of_heads(*args)
    pairs = zip(found.written, found.gradients, strict=True)
    rows = [estimated_gains(one, slope, replacement(site, one)) for site, (one, slope) in enumerate(pairs)]
    effects = sign * torch.stack(rows).cpu().numpy()
    if not np.isfinite(effects).all():
        raise NonFinite(NOT_FINITE)
    return _Found(found.ids, target_value(found.logits, found.ids), found.logits, effects.astype(np.float32))


def _between_texts(
    judged: _Judged, direction: Literal["denoise", "noise"], compute: Callable[[_Judged, list[Tensor], int], _Found]
) -> _Found:
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


def _replaced(judged: _Judged, change: Any, ids: list[int], heads: Sequence[str], sign: int) -> _Found:
    """Return `sign` times what the target gains when each head is replaced, and what it gains when the named heads are replaced together."""
    args, chosen = (judged.model, judged.encoded, judged.sites, judged.kind), _chosen(judged, heads)
    found = replaced_logits(*args, change, ids, judged.position, chosen)
    rows, value = torch.stack(found.replaced).double().cpu(), target_value(found.logits, found.ids)  # [L, H, ids]
    effects = sign * ((rows[..., 0] - rows[..., 1:].sum(-1)).numpy() - value)
    if np.isfinite(effects).sum() != (effects.size if chosen is None else sum(map(len, chosen.values()))):
        raise NonFinite(NOT_FINITE)
    together = None
    if found.together is not None:
        joint = sign * (target_value(found.together, found.ids) - value)
        before, after = (_predictions(judged.model, one, PREDICTIONS) for one in (found.logits, found.together))
        together = Together(tuple(heads), joint, before, after)
    return _Found(found.ids, value, found.logits, effects.astype(np.float32), together=together)


def _predictions(model: Model, logits: Tensor, count: int) -> Predictions:
    return top_predictions(model, logits.float().cpu().numpy(), count)


def _chosen(judged: _Judged, heads: Sequence[str]) -> dict[int, list[int]] | None:
    """Return named heads by the number of their layer along axis L; None if none are named. Raises InvalidRequest for heads that the model does not have."""
    sites, chosen = judged.sites.of(judged.kind), dict[int, list[int]]()
    numbers = {site.layer: number for number, site in enumerate(sites)}
    for name in dict.fromkeys(heads):
        layer, head = map(int, name.split("."))
        if layer not in numbers or head >= sites[numbers[layer]].heads:
            raise InvalidRequest(
                "This model has no such head. Name heads as layer.head, both counted from 0.", pointer="/method/heads"
            )
        chosen.setdefault(numbers[layer], []).append(head)
    return chosen or None


# Name of a method -> what computes it.
COMPUTE: dict[str, Callable[[_Judged, Any], _Found]] = {
    "contribution": _contribution,
    "ablation": _ablation,
    "patching": _patching,
    "attribution-patching": _attribution_patching,
}
