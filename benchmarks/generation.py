"""Statistics of attention beside the generation of a text: SmolLM2 (or a random model of its shape, if it is not installed), greedy, with a cache of keys and values.

`generate` is the model's own. `statistics` generates the same tokens, and then reads entropy, sinks and thumbnails of every head at every step in one pass over the whole
text. The ratio is the time of `generate` over that of `statistics`, of the same repeat.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import headscope
from headscope.analysis.pipeline import run
from headscope.analysis.request import AnalysisRequest
from headscope.analysis.result import MemorySink
from headscope.models.catalog import Catalog
from headscope.settings import Settings

from .common import DEVICE, Spread, interleaved, ratios

REPEATS, NEW, PROMPT = 5, 256, 16
MEASURES = ["entropy", "sink"]
SMALLEST: dict[str, Any] = {"repeats": 1, "new": 4, "layers": 1}


def measure(repeats: int = REPEATS, new: int = NEW, layers: int | None = None) -> list[dict[str, Any]]:
    """Return one row: seconds of both, and their ratio. With `layers`, the model is a random one of so many layers."""
    folder = Catalog(Settings()).installed("smollm2")
    known = folder.is_dir() and layers is None
    model = headscope.load(folder, device=DEVICE) if known else headscope.load(_random(layers or 30))
    ids = list(range(100, 100 + PROMPT))
    request = AnalysisRequest(
        model="random",
        token_ids=ids,
        lenses=["weights"],
        measures=MEASURES,
        maps=False,
        generate={"max_new_tokens": new},
    )

    def generate() -> None:
        model.encode(token_ids=ids, generate=request.generate)

    seconds = interleaved({"generate": generate, "statistics": lambda: run(model, request, MemorySink())}, repeats, 1)
    return [
        {
            "model": "smollm2" if known else "random",
            "new tokens": new,
            "generate, s": Spread.of(seconds["generate"]).text(1, 2),
            "statistics, s": Spread.of(seconds["statistics"]).text(1, 2),
            "ratio": ratios(seconds["generate"], seconds["statistics"]).text(1, 2),
        }
    ]


def _random(layers: int) -> LlamaForCausalLM:
    """Return a random model of the shape of SmolLM2-135M."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1_536,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
    )
    return LlamaForCausalLM(config).eval()
