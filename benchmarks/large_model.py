"""Peak memory of the analysis of 512 tokens with a random Llama of 1.5 billion weights in bfloat16, in a fresh process each, above the weights.

Everything is computed in float32, as by default. `loaded` is the whole process before the analysis, in which the weights are not yet read from their file; `above` is its
peak minus the weights in bfloat16.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .common import Spread

REPEATS = 3
LAYERS, WIDTH, TOKENS = 24, 2048, 512
SMALLEST: dict[str, Any] = {"repeats": 1, "layers": 1, "width": 64, "tokens": 16}
# What is analysed -> arguments of headscope.analyze.
WAYS: dict[str, dict[str, Any]] = {
    "weights and effective attention, with all maps": {},
    "the same, without the maps": {"maps": False},
    "norms of contributions, and ALTI, without the maps": {"lenses": ["norm", "alti"], "maps": False},
}


def measure(
    repeats: int = REPEATS, layers: int = LAYERS, width: int = WIDTH, tokens: int = TOKENS
) -> list[dict[str, Any]]:
    """Return one row for each way: GiB, and seconds with the examination of the model, which comes with the first analysis."""
    with tempfile.TemporaryDirectory() as folder:
        _ask("make", folder, layers, width)
        return [_row(way, [_ask("analyse", folder, way, tokens) for _ in range(repeats)]) for way in WAYS]


def _ask(*arguments: Any) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.large_model", *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _row(way: str, found: list[dict[str, float]]) -> dict[str, Any]:
    columns = {
        name: Spread.of([each[name] for each in found]) for name in ("weights", "loaded", "peak", "above", "seconds")
    }
    return {"analysis": way, **{name: spread.text(digits=2) for name, spread in columns.items()}}


def _make(folder: str, layers: int, width: int) -> dict[str, float]:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_default_dtype(torch.bfloat16)
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 128 or 1,
        num_key_value_heads=width // 256 or 1,
        intermediate_size=width * 7 // 2,
    )
    module = LlamaForCausalLM(config)
    module.save_pretrained(folder)
    return {"parameters": sum(one.numel() for one in module.parameters())}


def _analyse(folder: str, way: str, tokens: int) -> dict[str, float]:
    import resource

    import numpy as np

    import headscope

    def peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # KiB -> GiB

    model = headscope.load(folder)
    loaded = peak()
    ids = np.random.default_rng(0).integers(5, model.vocabulary, tokens).tolist()
    started = time.perf_counter()
    headscope.analyze(model, token_ids=ids, **WAYS[way])
    seconds = time.perf_counter() - started
    weights = sum(path.stat().st_size for path in Path(folder).glob("*.safetensors")) / 2**30
    return {
        "weights": weights,
        "loaded": loaded,
        "peak": peak(),
        "above": peak() - weights,
        "seconds": seconds,
    }


if __name__ == "__main__":
    _, job, place, first, second = sys.argv
    print(json.dumps(_make(place, int(first), int(second)) if job == "make" else _analyse(place, first, int(second))))
