"""`headscope.head_scores`: what every head of a model is for, as far as batteries tell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..analysis.reader import Progress
from ..batteries import BATTERIES
from ..batteries.base import AttentionPrompt, ChoicePrompt
from ..capture import direct_path, examine
from ..capture.head_logits import chosen_logits
from ..core.arrays import Array, to_lists
from ..errors import InvalidRequest, Unsupported
from ..models.loading import Model
from ..models.vocabulary import ModelVocabulary
from .analysis import analyze, load

NOT_CAUSAL = "Batteries test language models that predict the next token. This model does not."
MOST_PROMPTS = 10_000


@dataclass(frozen=True, kw_only=True)
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
        """Return the heads with the largest scores in a battery as (layer.head, score, control), largest first."""
        scores, controls = self.scores[battery], self.controls[battery]
        places = (np.unravel_index(place, scores.shape) for place in np.argsort(-scores, axis=None)[:count])
        return [(f"{self.layers[i]}.{self.heads[j]}", float(scores[i, j]), float(controls[i, j])) for i, j in places]

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        numbers = {
            name: {key: to_lists(one) for key, one in getattr(self, name).items()} for name in ("scores", "controls")
        }
        names = ("model", "prompts", "seed", "layers", "heads")
        return {**{name: getattr(self, name) for name in names}, **numbers, "missing": dict(self.missing)}


def head_scores(
    model: Any,
    batteries: Iterable[str] | None = None,
    *,
    prompts: int = 20,
    seed: int = 0,
    progress: Progress = lambda fraction, stage, detail: None,
) -> HeadScores:
    """Test every head of a causal language model: return its score in each battery, and a control.

    `batteries` are names in BATTERIES; by default all of them, and those that the model does not allow are in `missing`. Each has `prompts` prompts, made at
    random of the model's own tokens; the same `seed` makes the same ones. `progress` is called with the fraction that is done, and may raise to stop.

    Raises a HeadscopeError; Unsupported for other models, and if a battery that is named is not possible.

    >>> import headscope
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> small = headscope.load(GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=64, vocab_size=100)))
    >>> found = headscope.head_scores(small, ["induction"], prompts=2)
    >>> found.scores["induction"].shape
    (2, 4)
    """
    model = load(model)
    names = list(BATTERIES if batteries is None else batteries)
    _check(model, names, prompts)
    vocabulary, missing, found = ModelVocabulary(model), dict[str, str](), dict[str, tuple[Array, Array]]()
    for number, name in enumerate(names):
        step = partial(_step, progress, name, number, len(names))
        try:
            found[name] = _scores(model, name, vocabulary, prompts, seed, step)
        except Unsupported as error:
            if batteries is not None:
                raise
            missing[name] = error.detail
    sites = examine(model).of("self")
    return HeadScores(
        model=model.name,
        prompts=prompts,
        seed=seed,
        layers=[site.layer for site in sites],
        heads=list(range(sites[0].heads)),
        scores={name: scores for name, (scores, _) in found.items()},
        controls={name: controls for name, (_, controls) in found.items()},
        missing=missing,
    )


def _check(model: Model, names: Collection[str], prompts: int) -> None:
    """Raise InvalidRequest for batteries and numbers of prompts that do not exist, and Unsupported for models that are no causal language models."""
    if not BATTERIES.keys() >= set(names):
        raise InvalidRequest(f"There is no such battery. Choose one of {', '.join(BATTERIES)}.", pointer="/batteries")
    if not 1 <= prompts <= MOST_PROMPTS:
        raise InvalidRequest(f"prompts must be 1 to {MOST_PROMPTS}.", pointer="/prompts")
    if model.facts.kind != "decoder":
        raise Unsupported(NOT_CAUSAL, pointer="/model")


def _step(progress: Progress, name: str, number: int, count: int, fraction: float) -> None:
    progress((number + fraction) / count, "batteries", name)


def _scores(
    model: Model, name: str, vocabulary: ModelVocabulary, count: int, seed: int, progress: Callable[[float], None]
) -> tuple[Array, Array]:
    """Return the means of a battery's scores and controls over `count` prompts, [L, H] each."""
    random, found = np.random.default_rng(seed), list[tuple[Array, Array]]()
    for number in range(count):
        progress(number / count)
        prompt = BATTERIES[name].make(random, vocabulary)
        if isinstance(prompt, AttentionPrompt):
            weights = analyze(model, token_ids=prompt.ids, lenses=["weights"], measures=[]).maps["weights"]
            found.append(prompt.score(weights))
        else:
            found.append(prompt.score(_written(model, prompt)))
    scores, controls = (np.mean(one, axis=0).astype(np.float32) for one in zip(*found, strict=True))
    return scores, controls


def _written(model: Model, prompt: ChoicePrompt) -> Array:
    """Return what all heads contribute to the logits of the answers on the direct path, [L, H, answers]."""
    read, encoded = partial(chosen_logits, ids=prompt.answers), model.encode(token_ids=prompt.ids)
    sites = examine(model)
    with model.lock, model.using("float32"):
        path = direct_path(model, encoded, sites, prompt.answers[:1], len(prompt.ids) - 1, False, read)
    return np.stack([part.logits.cpu().numpy() for part in path.parts if part.name == "heads"])
