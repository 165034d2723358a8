"""How the time of an analysis grows: exponents of tokens, heads and inputs, fitted to the logarithms of at least three sizes, in each repeat.

An exponent of 1 is proportional growth. `tokens`: a model of the shape of GPT-2 small with two layers, the page's lenses and measures, maps not kept. `heads`: random
BERTs with heads of width 16, 128 tokens. `inputs`: sentences of eight words through a random model of two layers in a study. `tokens, plain pass`: the model's own
forward pass at the same lengths.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

import headscope
from headscope.analysis.pipeline import run
from headscope.analysis.request import AnalysisRequest
from headscope.analysis.result import MemorySink

from .common import Spread, interleaved
from .costs import DEFAULT_MEASURES
from .study_memory import WORDS

REPEATS = 5
TOKENS = (32, 128, 512, 2_048, 8_192)
HEADS = ((6, 12), (12, 12), (24, 16), (48, 48))  # layers, heads of each
INPUTS = (10, 100, 1_000, 10_000, 100_000)
SMALLEST: dict[str, Any] = {"repeats": 1, "tokens": (8, 16), "heads": ((1, 2), (1, 4)), "inputs": (1, 2)}


def measure(
    repeats: int = REPEATS,
    tokens: tuple[int, ...] = TOKENS,
    heads: tuple[tuple[int, int], ...] = HEADS,
    inputs: tuple[int, ...] = INPUTS,
) -> list[dict[str, Any]]:
    """Return one row per quantity: its smallest and largest size, the seconds of these, and the exponent."""
    torch.manual_seed(0)
    plain, analyses = _by_tokens(tokens)
    return [
        _row("tokens, plain pass", plain, repeats),
        _row("tokens", analyses, repeats),
        _row("heads", _by_heads(heads), repeats),
        _row("inputs of a study", _by_inputs(inputs), min(3, repeats)),
    ]


def _row(what: str, work: Mapping[int, Callable[[], object]], repeats: int) -> dict[str, Any]:
    """Time the work of each size in turn, and fit a line to the logarithms of each repeat."""
    seconds = interleaved({str(size): one for size, one in work.items()}, repeats, 1, time.perf_counter)
    sizes = np.log(list(work))
    turns = np.log(np.array(list(seconds.values()))).T  # [repeats, sizes]
    first, last = (Spread.of(seconds[str(size)]) for size in (min(work), max(work)))
    return {
        "against": what,
        "sizes": f"{min(work):,} to {max(work):,}",
        "ms of the smallest": first.text(1e3, 1),
        "ms of the largest": last.text(1e3),
        "exponent": Spread.of([float(np.polyfit(sizes, turn, 1)[0]) for turn in turns]).text(1, 2),
    }


def _analysis(model: headscope.Model, ids: list[int]) -> Callable[[], object]:
    request = AnalysisRequest(model="random", token_ids=ids, measures=list(DEFAULT_MEASURES), maps=False)
    return lambda: run(model, request, MemorySink())


def _by_tokens(tokens: tuple[int, ...]) -> tuple[dict[int, Callable[[], object]], dict[int, Callable[[], object]]]:
    """Return the plain pass and the analysis of each length."""
    config = GPT2Config(n_layer=2, n_positions=max(tokens), vocab_size=1_000, bos_token_id=0, eos_token_id=0)
    module = GPT2LMHeadModel(config).eval()
    model = headscope.load(module)
    draw = np.random.default_rng(0).integers

    def plain(ids: list[int]) -> Callable[[], object]:
        def work() -> None:
            module.set_attn_implementation("sdpa")
            with torch.inference_mode():
                module(torch.tensor([ids]))

        return work

    inputs = {count: draw(5, 1_000, count).tolist() for count in tokens}
    return {n: plain(ids) for n, ids in inputs.items()}, {n: _analysis(model, ids) for n, ids in inputs.items()}


def _by_heads(
    shapes: tuple[tuple[int, int], ...], width: int = 16, count: int = 128
) -> dict[int, Callable[[], object]]:
    """Return the analysis of 128 tokens with models of more and more heads."""
    found: dict[int, Callable[[], object]] = {}
    for layers, heads in shapes:
        size = heads * width
        config = BertConfig(
            vocab_size=1_000,
            hidden_size=size,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=size,
        )
        model = headscope.load(BertModel(config, add_pooling_layer=False).eval())
        found[layers * heads] = _analysis(model, np.random.default_rng(0).integers(5, 1_000, count).tolist())
    return found


def _by_inputs(counts: tuple[int, ...]) -> dict[int, Callable[[], object]]:
    """Return studies of more and more inputs."""
    config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    draw = np.random.default_rng(0)
    tokenizer = headscope.load("minilm").tokenizer
    config.vocab_size = tokenizer.get_vocab_size()
    model = headscope.load(BertModel(config, add_pooling_layer=False).eval(), tokenizer)

    def study(texts: list[str]) -> Callable[[], object]:
        return lambda: headscope.study(model, texts, lenses=("weights",), measures=("entropy",))

    return {count: study([" ".join(draw.choice(WORDS, 8)) for _ in range(count)]) for count in counts}
