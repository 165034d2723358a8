"""What every head of a model is for, as far as batteries tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..batteries import BATTERIES
from ..batteries.base import AttentionPrompt, ChoicePrompt
from ..capture import direct_path, examine
from ..capture.head_logits import chosen_logits
from ..core.arrays import Array, largest_places, to_lists
from ..effects import EFFECTS
from ..errors import InvalidRequest, Unsupported
from ..models.loading import Model
from ..models.support import NO_TOKENS, check_softmax
from ..models.vocabulary import ModelVocabulary
from . import pipeline
from .effect_methods.base import check_sum
from .effect_methods.contribution import NOT_THE_SUM, contributions
from .head_scores_request import HeadScoresRequest, check_causal
from .predictions import writes_tokens
from .reader import Progress
from .request import AnalysisRequest, explain_missing
from .result import MemorySink


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadScores:
    """The score of every head in every battery, and its control: what it would get by chance on the same prompts.

    prompts  number of prompts of each battery
    layers, heads  along axes L and H
    scores, controls  battery -> float32 [L, H], 0..1
    missing  battery that the model does not allow -> reason
    """

    model: str
    prompts: int
    seed: int
    layers: list[int]
    heads: list[int]
    scores: Mapping[str, Array] = field(repr=False)
    controls: Mapping[str, Array] = field(repr=False)
    missing: Mapping[str, str]

    def top(self, battery: str, count: int = 5) -> list[tuple[str, float, float]]:
        """Return the heads with the largest scores in a battery as (layer.head, score, control), largest first.

        Raises InvalidRequest for a battery that was not run, and for a negative count.
        """
        if battery not in self.scores:
            raise InvalidRequest(f"battery is one of {', '.join(self.scores)}.", pointer="/battery")
        scores, controls = self.scores[battery], self.controls[battery]
        return [
            (f"{self.layers[i]}.{self.heads[j]}", float(scores[i, j]), float(controls[i, j]))
            for i, j in largest_places(scores, count)
        ]

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        numbers = {
            name: {key: to_lists(one) for key, one in getattr(self, name).items()} for name in ("scores", "controls")
        }
        names = ("model", "prompts", "seed", "layers", "heads")
        return {**{name: getattr(self, name) for name in names}, **numbers, "missing": dict(self.missing)}


def compute(model: Model, request: HeadScoresRequest, progress: Progress) -> HeadScores:
    """Test every head. `progress` is called before every prompt, and may raise to stop. Raises the errors of `headscope.head_scores`."""
    check_causal(model.facts, "/model")
    names = list(BATTERIES if request.batteries is None else request.batteries)
    vocabulary, missing, found = ModelVocabulary(model), dict[str, str](), dict[str, tuple[Array, Array]]()
    for number, name in enumerate(names):
        step = partial(_step, progress, name, number, len(names))
        try:
            found[name] = _scores(model, name, vocabulary, request, step)
        except Unsupported as error:
            if request.batteries is not None:
                raise
            missing[name] = error.detail
    sites = examine(model).of("self")
    return HeadScores(
        model=model.name,
        prompts=request.prompts,
        seed=request.seed,
        layers=[site.layer for site in sites],
        heads=list(range(max(site.heads for site in sites))),
        scores={name: scores for name, (scores, _) in found.items()},
        controls={name: controls for name, (_, controls) in found.items()},
        missing=missing,
    )


def _step(progress: Progress, name: str, number: int, count: int, fraction: float) -> None:
    progress((number + fraction) / count, "forward", name)


def _scores(
    model: Model, name: str, vocabulary: ModelVocabulary, request: HeadScoresRequest, progress: Callable[[float], None]
) -> tuple[Array, Array]:
    """Return the means of a battery's scores and controls over all prompts, [L, H] each."""
    random, found = np.random.default_rng(request.seed), list[tuple[Array, Array]]()
    for number in range(request.prompts):
        progress(number / request.prompts)
        prompt = BATTERIES[name].make(random, vocabulary)
        read = _weights(model, prompt.ids) if isinstance(prompt, AttentionPrompt) else written(model, prompt)
        found.append(prompt.score(read))
    scores, controls = (np.mean(one, axis=0).astype(np.float32) for one in zip(*found, strict=True))
    return scores, controls


def _weights(model: Model, ids: Sequence[int]) -> Array:
    """Return the attention weights of all heads, [L, H, Q, K]."""
    sink = MemorySink()
    request = AnalysisRequest(model=model.name[:200], token_ids=list(ids), lenses=["weights"], measures=[])
    pipeline.run(model, request, sink)
    return sink.maps["weights"]


def written(model: Model, prompt: ChoicePrompt) -> Array:
    """Return what all heads contribute to the logits of the answers on the direct path, [L, H, answers]. Raises Unsupported for models without contributions."""
    check_softmax(model.facts)
    if not writes_tokens(model):
        raise Unsupported(NO_TOKENS)
    read, encoded = partial(chosen_logits, ids=prompt.answers), model.encode(token_ids=prompt.ids)
    sites = examine(model)
    reason = explain_missing(EFFECTS["contribution"], sites.missing("self"))
    if reason is not None:
        raise Unsupported(reason)
    with model.lock, model.using("float32"):
        path = direct_path(model, encoded, sites, prompt.answers[:1], len(prompt.ids) - 1, False, read)
    check_sum(path.value, contributions(path.parts), NOT_THE_SUM)
    return np.stack([part.logits.cpu().numpy() for part in path.parts if part.name == "heads"])
