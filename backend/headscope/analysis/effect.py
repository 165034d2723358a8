"""What heads do to a prediction, of one input and one model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from ..capture import INPUT_ERRORS, AttentionSites, examine
from ..core.arrays import Array, largest_places, to_lists
from ..core.attention import Kind
from ..core.lazy import Tensor
from ..core.tokens import TOKENS, Token
from ..effects import EFFECTS
from ..errors import HeadscopeError, InvalidRequest, OutOfMemory, Unsupported
from ..models.loading import Model
from ..models.modules import is_out_of_memory
from ..models.support import BEFORE_DECODER, check_softmax
from .effect_methods import COMPUTE, JudgedInput, Means, MethodResult, Score, Step, Together
from .effect_request import EffectRequest, Text
from .predictions import Predictions, WrittenLogit, texts_of, top_predictions, written_logits
from .request import explain_missing
from .target import Target, find_output, find_position

REFERENCE_TOKENS = 512  # that are read of a reference text
# Arguments of Model.encode that are about the input itself.
OF_INPUT = ("text", "messages", "token_ids", "image", "generate", "pos", "labels")
NO_ROOM = "There is not enough memory for this effect. Analyse fewer tokens."


@dataclass(frozen=True, kw_only=True, eq=False)
class Effect:
    """What every head of a model does to a target. Positive: with the head, the logit or the difference is larger.

    method   name and parameters
    kind     of attention whose heads these are
    layers, heads  along axes L and H
    tokens, key_tokens  along the queries and the keys
    effects  float32 [L, H], in logits; NaN for heads that the method leaves out
    maps     float32 [L, H, Q, K], of methods with a map per head: what each attention weight does, in logits, or of ALTI-Logit each token of the input; `effects`
             are its sums; otherwise None
    completeness_error  float32 [L], of integrated gradients: the sum of a layer's effects, minus what the target loses without its attention; otherwise None
    sources  float32 [L, H, K], with sources=True: the parts of `effects` that each token gives, through all queries; of ALTI-Logit, each token of the input;
             otherwise None
    writes   [L][H][N], with writes=k: the k tokens or classes whose logits each head raises most and the k that it lowers most, by what it adds to them on the
             direct path, largest first; all of them if there are at most 2k; otherwise None
    parts    name -> float32; of contributions and scores, everything that sums to the target: heads by kind [L, H], "mlp" [number of layers], "embedding" [1],
             and "bias" [1], those of all projections and normalisations; of scores also "cap" [1] and "position" [1], if there are such terms
    baseline  of patching, the value of the target in the other text; otherwise None
    score    of a score, the cell and what its row is made of; otherwise None
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
    maps: Array | None = field(default=None, repr=False)
    completeness_error: Array | None = field(default=None, repr=False)
    sources: Array | None = field(default=None, repr=False)
    writes: list[list[list[WrittenLogit]]] | None = field(default=None, repr=False)
    parts: Mapping[str, Array] = field(default_factory=dict, repr=False)
    baseline: float | None = field(default=None, repr=False)
    together: Together | None = None
    score: Score | None = None
    predictions: Predictions | None = field(default=None, repr=False)

    @property
    def shares(self) -> Array:
        """Effects as shares of the difference of the target between the two texts of a patching, float32 [L, H]; NaN for other methods, and if there is none."""
        difference = float("nan") if self.baseline is None else self.target.value - self.baseline
        return self.effects / np.float32(difference or np.nan)

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """Return the heads with the largest effects, whatever their sign, as layer.head, largest first. Raises InvalidRequest for a negative count."""
        places = largest_places(np.abs(self.effects), count)
        return [(f"{self.layers[i]}.{self.heads[j]}", float(self.effects[i, j])) for i, j in places]

    @property
    def remainder(self) -> float:
        """The target minus the sum of all parts, in logits: rounding. NaN for methods without parts."""
        if not self.parts:
            return float("nan")
        return self.target.value - float(sum(part.sum(dtype=float) for part in self.parts.values()))

    def to_document(self) -> dict[str, Any]:
        """Return the effect as JSON, without its maps."""
        target = {name: getattr(self.target, name) for name in ("position", "value", "capped")}
        return {
            **{name: getattr(self, name) for name in ("model", "method", "kind", "layers", "heads", "baseline")},
            "target": {"ids": list(self.target.ids), "texts": list(self.target.texts), **target},
            "predictions": [] if self.predictions is None else self.predictions.to_list(0),
            "tokens": TOKENS.dump_python(self.tokens),
            "key_tokens": TOKENS.dump_python(self.key_tokens),
            "effects": to_lists(self.effects),
            "shares": None if self.baseline is None else to_lists(self.shares),
            "shape": None if self.maps is None else list(self.maps.shape),
            "completeness_error": None if self.completeness_error is None else to_lists(self.completeness_error),
            "score": None if self.score is None else self.score.to_document(),
            "together": None if self.together is None else self.together.to_document(),
            "sources": None if self.sources is None else to_lists(self.sources),
            "writes": self.writes and [[[asdict(one) for one in head] for head in layer] for layer in self.writes],
            "parts": {name: to_lists(part) for name, part in self.parts.items()},
        }

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {value:+.3g}" for name, value in self.top(3))
        return f"Effect({self.method['name']} on {self.target}, {self.target.value:.3f} logits; largest heads: {shown})"


def compute(
    model: Model,
    given: Mapping[str, Any],
    request: EffectRequest,
    *,
    kind: Kind = "self",
    dtype: Literal["float32", "float64"] = "float32",
    image: bool = False,
    step: Step = lambda fraction: None,
    matrices: Mapping[int, Tensor] | None = None,
    means: Means | None = None,
) -> Effect:
    """Return what every head of a kind does to a prediction for an input, or to the score of a cell. `given` are arguments of Model.encode.

    `matrices` are those of a Jacobian lens, by layer. `means` keeps what was read of reference texts for the next input.
    `image` says whether an image is read beside a text. `step(fraction)` is called at every layer and every reference text, and may raise to stop.
    Raises the errors of `headscope.effect`.
    """
    encoded = model.encode(**given)
    if request.against is not None and not isinstance(request.against, str) and _is_pictured(given):
        raise InvalidRequest("The other text goes beside the same image. Give it as text.", pointer="/against")
    if request.against is not None and model.facts.kind == "vision":
        raise Unsupported("This model reads images, and the other input of patching is a text.", pointer="/against")
    for pointer, texts in (("/against", [request.against]), ("/reference", request.reference or ())):
        if _is_paired(model, given) and any(text is not None and not isinstance(text, str) for text in texts):
            raise InvalidRequest("Other texts go with the same second text. Give them as texts.", pointer=pointer)
    with _pointing_at("/against"):
        other = None if request.against is None else model.encode(**input_against(given, request.against))
    longest = model.facts.max_tokens
    with _pointing_at("/reference"):
        reference = [model.encode(**input_for_reference(given, text, longest)) for text in request.reference or ()]
    sites = examine(model, dtype, image)
    declared = EFFECTS[request.method.name]
    check_softmax(model.facts)
    predicts = declared.of == "prediction"
    of = _kind(sites, kind) if predicts else sites.of(kind)[0].kind
    reason = explain_missing(declared, sites.missing(of))
    if reason is not None:
        raise Unsupported(reason, pointer="/model")
    ids = [find_output(model, one) for one in request.outputs]
    position = find_position(model, encoded, request.position) if predicts else None
    judged = JudgedInput(
        model, encoded, sites, of, ids, position, other, reference, step, matrices or {}, {} if means is None else means
    )
    try:
        with model.lock, model.using(dtype):
            found = COMPUTE[declared.name](judged, request.params)
    except INPUT_ERRORS as error:
        if is_out_of_memory(error):
            raise OutOfMemory(NO_ROOM) from None
        raise
    return _with_axes(judged, request, found)


@contextmanager
def _pointing_at(pointer: str) -> Iterator[None]:
    """Have errors of another input point at its field instead of that of the input itself."""
    try:
        yield
    except HeadscopeError as error:
        error.pointer = pointer
        raise


def _with_axes(judged: JudgedInput, request: EffectRequest, found: MethodResult) -> Effect:
    """Return the result of a method with what its axes and numbers are."""
    model, kind = judged.model, judged.kind
    axes, chosen = judged.encoded.axes(kind), judged.sites.of(kind)
    position = judged.position if found.score is None else found.score.query
    logits = None if found.logits is None else found.logits.float().cpu().numpy()
    return Effect(
        model=model.name,
        method=request.params.model_dump(),
        target=Target(found.ids, tuple(texts_of(model, found.ids)), position, found.value, found.capped),
        kind=kind,
        layers=[site.layer for site in chosen],
        heads=list(range(max(site.heads for site in chosen))),
        tokens=list(axes.queries),
        key_tokens=list(axes.keys),
        effects=found.effects,
        maps=found.maps,
        completeness_error=found.completeness_error,
        sources=found.sources,
        writes=None if found.writes is None else written_logits(model, *found.writes),
        parts=found.parts,
        baseline=found.baseline,
        together=found.together,
        score=found.score,
        predictions=None if logits is None else top_predictions(model, logits, request.predictions),
    )


def input_against(given: Mapping[str, Any], against: Text) -> dict[str, Any]:
    """Return the arguments of Model.encode for the other text: those of the input, with this text or these token ids. An image stays beside a text.

    Labels of the input do not apply to it.
    """
    written = isinstance(against, str)
    kept = {"image": given.get("image")} if written and _is_pictured(given) else {}
    other = {"text": against} if written else {"token_ids": against}
    return {**given, **dict.fromkeys(OF_INPUT), **kept, **other}


def _is_paired(model: Model, given: Mapping[str, Any]) -> bool:
    """Return whether an input is two texts that a single stack reads."""
    return given.get("text_pair") is not None and model.facts.kind != "encoder-decoder"


def _is_pictured(given: Mapping[str, Any]) -> bool:
    """Return whether an input is an image beside a text."""
    return given.get("image") is not None and (given.get("text") is not None or given.get("messages") is not None)


def input_for_reference(given: Mapping[str, Any], text: Text, longest: int | None) -> dict[str, Any]:
    """Return the arguments of Model.encode for a reference text. Masks of the input do not apply to it.

    The text is cut to what the input is cut to, to what the model takes (`longest`), and to REFERENCE_TOKENS.
    """
    most = min(filter(None, (given.get("max_tokens"), longest, REFERENCE_TOKENS)))
    return {**input_against(given, text), "image": None, "mask": None, "max_tokens": most}


def _kind(sites: AttentionSites, kind: Kind) -> Kind:
    """Return the kind of attention that is meant: only a decoder's heads have a direct path to the logits of an encoder-decoder."""
    kinds = {site.kind for site in sites.all}
    if "decoder" in kinds and kind == "encoder":
        raise Unsupported(BEFORE_DECODER, pointer="/kind")
    if "decoder" in kinds and kind == "self":
        return "decoder"
    return sites.of(kind)[0].kind
