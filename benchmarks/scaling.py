"""How the time and the memory of an analysis grow: exponents of tokens, heads and inputs, fitted to the logarithms of at least three sizes, in each repeat.

An exponent of 1 is proportional growth. `tokens`: a model of the shape of GPT-2 small with two layers, the page's lenses and measures, maps not kept. `heads`: random
BERTs with heads of width 16, 128 tokens. `inputs`: sentences of eight words through a random model of two layers in a study. `tokens, plain pass`: the model's own
forward pass at the same lengths. Memory is what the peak of a process of its own is above what it used before, after the smallest size has run; its exponents are
those of the largest three sizes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

import headscope
from headscope.analysis.pipeline import run
from headscope.analysis.request import AnalysisRequest
from headscope.analysis.result import MemorySink

from .common import Spread, added_peak, interleaved
from .costs import DEFAULT_MEASURES
from .study_memory import WORDS

REPEATS = 5
TOKENS = (32, 128, 512, 2_048, 8_192)
HEADS = ((6, 12), (12, 12), (24, 16), (48, 48))  # layers, heads of each
INPUTS = (10, 100, 1_000, 10_000, 100_000)
# Processes in which the memory of each size is measured.
PROCESSES = 3
SMALLEST: dict[str, Any] = {
    "repeats": 1,
    "tokens": (8, 16),
    "heads": ((1, 2), (1, 4)),
    "inputs": (1, 2),
    "processes": 1,
}
Work = dict[int, Callable[[], object]]


def measure(
    repeats: int = REPEATS,
    tokens: tuple[int, ...] = TOKENS,
    heads: tuple[tuple[int, int], ...] = HEADS,
    inputs: tuple[int, ...] = INPUTS,
    processes: int = PROCESSES,
) -> list[dict[str, Any]]:
    """Return one row per quantity: its smallest and largest size, the seconds and the memory of these, and the exponents. Without `processes`, no memory."""
    sizes: dict[str, tuple[Any, ...]] = {
        "tokens, plain pass": tokens,
        "tokens": tokens,
        "heads": heads,
        "inputs of a study": inputs,
    }
    return [
        _time(what, WORK[what](each), min(3, repeats) if what.startswith("inputs") else repeats)
        | (_memory(what, each, processes) if processes else {})
        for what, each in sizes.items()
    ]


def _time(what: str, work: Work, repeats: int) -> dict[str, Any]:
    """Time the work of each size in turn, and fit a line to the logarithms of each repeat."""
    seconds = list(interleaved({str(size): one for size, one in work.items()}, repeats, 1, time.perf_counter).values())
    return {
        "against": what,
        "sizes": f"{min(work):,} to {max(work):,}",
        "ms of the smallest": Spread.of(seconds[0]).text(1e3, 1),
        "ms of the largest": Spread.of(seconds[-1]).text(1e3),
        "exponent": _exponent(list(work), seconds),
    }


def _memory(what: str, sizes: tuple[Any, ...], repeats: int) -> dict[str, Any]:
    """Run each size in processes of its own, and fit a line to the logarithms of the memory of the largest three: small ones use what is there already."""
    commands = [[sys.executable, "-m", "benchmarks.scaling", what, json.dumps([sizes[0], size])] for size in sizes]
    found = [[json.loads(_output(command)) for _ in range(repeats)] for command in commands]
    mib = [[max(one["kib"], 1) / 1024 for one in several] for several in found]
    return {
        "MiB of the smallest": Spread.of(mib[0]).text(1, 1),
        "MiB of the largest": Spread.of(mib[-1]).text(),
        "memory, exponent": _exponent([several[0]["size"] for several in found[-3:]], mib[-3:]),
    }


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _exponent(sizes: list[int], values: list[list[float]]) -> str:
    """Return the slope of a line through the logarithms of values [sizes, repeats], for each repeat."""
    turns = np.log(np.array(values).T)  # [repeats, sizes]
    return Spread.of([float(np.polyfit(np.log(sizes), turn, 1)[0]) for turn in turns]).text(1, 2)


def _analysis(model: headscope.Model, ids: list[int]) -> Callable[[], object]:
    request = AnalysisRequest(model="random", token_ids=ids, measures=list(DEFAULT_MEASURES), maps=False)
    return lambda: run(model, request, MemorySink())


def _by_tokens(tokens: tuple[int, ...], *, plain: bool) -> Work:
    """Return the plain pass, or the analysis, of each length."""
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_positions=max(tokens), vocab_size=1_000, bos_token_id=0, eos_token_id=0)
    module = GPT2LMHeadModel(config).eval()
    model = headscope.load(module)
    draw = np.random.default_rng(0).integers

    def forward(ids: list[int]) -> Callable[[], object]:
        def work() -> None:
            module.set_attn_implementation("sdpa")
            with torch.inference_mode():
                module(torch.tensor([ids]))

        return work

    inputs = {count: draw(5, 1_000, count).tolist() for count in tokens}
    return {count: forward(ids) if plain else _analysis(model, ids) for count, ids in inputs.items()}


def _by_heads(shapes: tuple[tuple[int, int], ...], width: int = 16, count: int = 128) -> Work:
    """Return the analysis of 128 tokens with models of more and more heads."""
    torch.manual_seed(0)
    found: Work = {}
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


def _by_inputs(counts: tuple[int, ...]) -> Work:
    """Return studies of more and more inputs."""
    config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    draw = np.random.default_rng(0)
    tokenizer = headscope.load("minilm").tokenizer
    config.vocab_size = tokenizer.get_vocab_size()
    model = headscope.load(BertModel(config, add_pooling_layer=False).eval(), tokenizer)

    def study(texts: list[str]) -> Callable[[], object]:
        return lambda: headscope.study(model, texts, lenses=("weights",), measures=("entropy",))

    return {count: study([" ".join(draw.choice(WORDS, 8)) for _ in range(count)]) for count in counts}


WORK: dict[str, Callable[[tuple[Any, ...]], Work]] = {
    "tokens, plain pass": partial(_by_tokens, plain=True),
    "tokens": partial(_by_tokens, plain=False),
    "heads": _by_heads,
    "inputs of a study": _by_inputs,
}


def _added(what: str, smallest: Any, size: Any) -> dict[str, int]:
    """Return a size and the KiB by which its work peaks."""
    (warm,), ((number, work),) = WORK[what]((smallest,)).values(), WORK[what]((size,)).items()
    warm()
    return {"size": number, "kib": added_peak(work)}


if __name__ == "__main__":
    print(json.dumps(_added(sys.argv[1], *json.loads(sys.argv[2]))))
