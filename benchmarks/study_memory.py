"""Memory of one process while it runs a study of 10,000 inputs: growth per 1,000 inputs.

MiniLM on the CPU, weights and entropy only, to be quick. All sentences have ten words: chunks are made by length, so longer sentences at the end would increase memory
for another reason. The slope is that of a linear fit to the resident memory after each chunk, from 1,000 inputs on.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import psutil

import headscope

INPUTS, FROM, LENGTH = 10_000, 1_000, 10
WORDS = "the a river garden letter engine sleeps writes carries crosses under behind slowly often because never old green".split()
SMALLEST: dict[str, Any] = {"inputs": 200, "start": 50}


def measure(inputs: int = INPUTS, start: int = FROM) -> list[dict[str, Any]]:
    """Return one row: memory after `start` inputs and at the end, and the slope."""
    draw, own = random.Random(0), psutil.Process()
    texts = [" ".join(draw.choices(WORDS, k=LENGTH)) for _ in range(inputs)]
    seen: dict[int, int] = {}

    def told(fraction: float, stage: str, detail: str) -> None:
        seen[round(fraction * inputs)] = own.memory_info().rss

    headscope.study("minilm", texts, lenses=("weights",), measures=("entropy",), progress=told)
    done = np.array([count for count in sorted(seen) if count >= start])
    megabytes = np.array([seen[count] for count in done]) / 1e6
    slope = float(np.polyfit(done / 1_000, megabytes, 1)[0])
    return [
        {
            "inputs": inputs,
            f"MB at {start}": round(float(megabytes[0])),
            "MB at the end": round(float(megabytes[-1])),
            "MB per 1,000 inputs": round(slope, 2),
        }
    ]
