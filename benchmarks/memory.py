"""Peak memory of analysing a long input with measures and thumbnails only, next to the model's own eager forward pass without attentions.

12 layers x 12 heads x 2,048 tokens, each in a fresh process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from .common import Spread

REPEATS = 3
TOKENS = 2048
LAYERS = 12
SMALLEST: dict[str, Any] = {"repeats": 1, "tokens": 16, "layers": 1}


def measure(repeats: int = REPEATS, tokens: int = TOKENS, layers: int = LAYERS) -> list[dict[str, Any]]:
    """Return one row: peaks in MB and their ratio."""
    peaks: dict[str, list[float]] = {"eager": [], "headscope": []}
    for _ in range(repeats):
        for name, values in peaks.items():
            command = [sys.executable, "-m", "benchmarks.memory", name, str(tokens), str(layers)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            values.append(json.loads(done.stdout)["peak_mb"])
    ratio = [ours / theirs for ours, theirs in zip(peaks["headscope"], peaks["eager"], strict=True)]
    return [
        {
            "tokens": tokens,
            "eager_forward_mb": Spread.of(peaks["eager"]).text(),
            "headscope_mb": Spread.of(peaks["headscope"]).text(),
            "ratio": Spread.of(ratio).text(1, 2),
        }
    ]


def _run(name: str, tokens: int, layers: int) -> float:
    """Run the work, and return the peak resident memory of this process in MB."""
    import resource

    import numpy as np
    import torch
    from transformers import BertConfig, BertModel

    import headscope

    torch.manual_seed(0)
    config = BertConfig(max_position_embeddings=tokens, num_hidden_layers=layers)
    module = BertModel(config, add_pooling_layer=False).eval()
    ids = np.random.default_rng(0).integers(1000, 30000, tokens).tolist()
    if name == "headscope":
        measures = ("entropy", "null_share", "leverage")
        headscope.analyze(headscope.load(module), token_ids=ids, measures=measures, maps=False)
    else:
        module.set_attn_implementation("eager")
        with torch.inference_mode():
            module(torch.tensor([ids]))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    print(json.dumps({"peak_mb": _run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))}))
