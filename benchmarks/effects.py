"""Effects of the heads of SmolLM2 (or of a random model of its shape, if it is not installed), next to what they replace.

`ablation` is the grid of all heads, relative to one pass per head with a hook that replaces its output, timed for the heads of every sixth layer, as each pass takes
equally long; `contribution` is relative to one plain pass, with and without the split by token, and so is attribution patching, of one text (an estimate of ablation)
and of two. Each is a median (lowest-highest).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import headscope
from headscope.models.catalog import Catalog
from headscope.settings import Settings

from .common import Spread, interleaved, ratios

SHAPE = {
    "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
}  # fmt: skip
TINY = {**SHAPE, "hidden_size": 36, "intermediate_size": 72, "num_hidden_layers": 2, "vocab_size": 100}
REPEATS = 5
# A pass per head is timed in every so many layers.
EVERY = 6
SMALLEST: dict[str, Any] = {"lengths": (8,), "repeats": 1, "shape": TINY}


def measure(
    lengths: tuple[int, ...] = (32, 128), repeats: int = REPEATS, shape: dict[str, int] | None = None
) -> list[dict[str, Any]]:
    """Return one row per number of tokens: milliseconds of a plain pass and of the grid, and ratios."""
    folder = Catalog(Settings()).installed("smollm2")
    torch.manual_seed(0)
    known = shape is None and folder.is_dir()
    model = headscope.load(folder if known else LlamaForCausalLM(LlamaConfig(**(shape or SHAPE))).eval())
    name = "smollm2" if known else "random"
    return [{"model": name, "tokens": length, **_row(model, length, repeats)} for length in lengths]


def _row(model: headscope.Model, length: int, repeats: int) -> dict[str, Any]:
    ids = np.random.default_rng(0).integers(1, model.vocabulary, length).tolist()
    sources = {"name": "contribution", "sources": True}
    estimates = {of: {"name": "attribution-patching", "of": of} for of in ("mean", "denoise")}
    run = partial(headscope.effect, model, token_ids=ids, target=7)
    some = model.module.model.layers[::EVERY]
    seconds = interleaved(
        {
            "plain": partial(_plain, model, ids),
            "separate": partial(_separate, model, ids, some),
            "ablation": partial(run, method="ablation"),
            "contribution": run,
            "sources": partial(run, method=sources),
            "one text": partial(run, method=estimates["mean"]),
            "two texts": partial(run, method=estimates["denoise"], against=ids[::-1]),
        },
        repeats,
        1,
    )
    separate = [one * len(model.module.model.layers) / len(some) for one in seconds["separate"]]
    return {
        "plain_ms": Spread.of(seconds["plain"]).text(1e3, 1),
        "ablation_ms": Spread.of(seconds["ablation"]).text(1e3),
        "ablation_of_separate": ratios(seconds["ablation"], separate).text(1, 3),
        "contribution_of_plain": ratios(seconds["contribution"], seconds["plain"]).text(1, 2),
        "with_sources_of_plain": ratios(seconds["sources"], seconds["plain"]).text(1, 2),
        "attribution_of_plain": ratios(seconds["one text"], seconds["plain"]).text(1, 2),
        "two_texts_of_plain": ratios(seconds["two texts"], seconds["plain"]).text(1, 2),
    }


def _plain(model: headscope.Model, ids: list[int]) -> float:
    """Run the model as it is and return one logit of the last token."""
    model.module.set_attn_implementation("eager")
    with torch.inference_mode():
        return float(model.module(torch.tensor([ids]), use_cache=False).logits[0, -1, 7])


def _separate(model: headscope.Model, ids: list[int], layers: Iterable[Any]) -> list[float]:
    """Return the effect of every head of these layers from a pass of its own."""
    whole, effects = _plain(model, ids), list[float]()
    heads = model.module.config.num_attention_heads
    for layer in layers:
        for head in range(heads):
            handle = layer.self_attn.o_proj.register_forward_pre_hook(_without(head, heads))
            effects.append(whole - _plain(model, ids))
            handle.remove()
    return effects


def _without(head: int, heads: int) -> Callable[[Any, Any], Any]:
    def replace(part: Any, args: Any) -> Any:
        written = args[0].clone().view(*args[0].shape[:-1], heads, -1)
        written[:, :, head] = written[:, :, head].mean(1, keepdim=True)
        return (written.flatten(2),)

    return replace
