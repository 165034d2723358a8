"""`headscope.head_scores`: what every head of a model is for, as far as batteries tell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..analysis.head_scores import HeadScores, compute
from ..analysis.head_scores_request import HeadScoresRequest
from ..analysis.reader import Progress
from .analysis import load
from .arguments import items, number, validating


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
    with validating():
        request = HeadScoresRequest(batteries=items(batteries, "batteries"), prompts=number(prompts), seed=number(seed))
    return compute(load(model), request, progress)


__all__ = ["HeadScores", "head_scores"]
