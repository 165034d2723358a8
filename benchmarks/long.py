"""Peak memory of statistics at 4,096 tokens on a model of the shape of GPT-2-small, above that of the loaded model; all maps in float32 would take 9.7 GiB."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from .common import Spread

REPEATS = 3
TOKENS = 4096
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

PROGRAM = """
import resource, sys
import numpy as np, torch, headscope
from transformers import GPT2Config, GPT2LMHeadModel
from headscope.analysis.pipeline import run
from headscope.analysis.request import AnalysisRequest
from headscope.analysis.result import MemorySink
torch.manual_seed(0)
model = headscope.load(GPT2LMHeadModel(GPT2Config(n_positions={tokens}, n_layer={layers})).transformer)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ids = np.random.default_rng(0).integers(0, 50000, {tokens}).tolist()
run(model, AnalysisRequest(model="random", token_ids=ids[:64], lenses=["weights"], measures={measures}, maps=False), MemorySink())
before = peak()
run(model, AnalysisRequest(model="random", token_ids=ids, lenses=["weights"], measures={measures}, maps=False), MemorySink())
print(before, peak())
"""


def measure(repeats: int = REPEATS, tokens: int = TOKENS, layers: int = LAYERS) -> list[dict[str, Any]]:
    """Return one row: MiB before, and added at the peak."""
    before, added = [], []
    for _ in range(repeats):
        program = PROGRAM.format(tokens=tokens, layers=layers, measures=list(MEASURES))
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        low, high = (int(kilobytes) for kilobytes in done.stdout.split()[-2:])
        before.append(low / 1024)
        added.append((high - low) / 1024)
    return [{"tokens": tokens, "before_mib": Spread.of(before).text(), "added_mib": Spread.of(added).text()}]
