"""Time and peak memory of statistics of a long input, on a model of the shape of GPT-2 small, beside its own forward pass; all maps of 8,192 tokens in float32 would take 39 GB.

Each in a process of its own; memory is what its peak is above what the loaded model uses after a short text.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from .common import Spread, added_peak, ratios

REPEATS = 3
TOKENS = 8192
LAYERS = 12
SMALLEST: dict[str, Any] = {"repeats": 1, "tokens": 128, "layers": 1}
MEASURES = (
    "entropy",
    "null_share",
    "patterns",
    "sink",
    "head_roles",
    "participation_ratio",
    "residual_ratio",
    "token_similarity",
)


def measure(repeats: int = REPEATS, tokens: int = TOKENS, layers: int = LAYERS) -> list[dict[str, Any]]:
    """Return one row: seconds, GiB that the peak adds, and the times of a forward pass that the statistics take."""
    seconds: dict[str, list[float]] = {"forward": [], "headscope": []}
    added: dict[str, list[float]] = {"forward": [], "headscope": []}
    for _ in range(repeats):
        for name in seconds:
            command = [sys.executable, "-m", "benchmarks.long", name, str(tokens), str(layers)]
            found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            seconds[name].append(found["seconds"])
            added[name].append(found["kib"] / 1024**2)
    return [
        {
            "tokens": tokens,
            **{f"{name}_seconds": Spread.of(values).text(1, 1) for name, values in seconds.items()},
            **{f"{name}_added_gib": Spread.of(values).text(1, 2) for name, values in added.items()},
            "times_forward": ratios(seconds["headscope"], seconds["forward"]).text(1, 2),
        }
    ]


def _run(name: str, tokens: int, layers: int) -> dict[str, float]:
    """Run the work on a short and on the long text; return the seconds of the long one, and the KiB by which its peak is above what this process used before."""
    import numpy as np
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    import headscope
    from headscope.analysis.pipeline import run
    from headscope.analysis.request import AnalysisRequest
    from headscope.analysis.result import MemorySink

    torch.manual_seed(0)
    module = GPT2LMHeadModel(GPT2Config(n_positions=tokens, n_layer=layers)).transformer.eval()
    ids = np.random.default_rng(0).integers(0, 50000, tokens).tolist()

    def forward(ids: list[int]) -> None:
        with torch.inference_mode():
            module(torch.tensor([ids]), use_cache=False)

    model = headscope.load(module) if name == "headscope" else None

    def statistics(ids: list[int]) -> None:
        asked = {"lenses": ["weights"], "measures": list(MEASURES), "maps": False}
        run(model, AnalysisRequest(model="random", token_ids=ids, **asked), MemorySink())

    work: Callable[[list[int]], None] = forward if model is None else statistics
    work(ids[:64])
    started = time.perf_counter()
    kib = added_peak(lambda: work(ids))
    return {"seconds": time.perf_counter() - started, "kib": kib}


if __name__ == "__main__":
    print(json.dumps(_run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
