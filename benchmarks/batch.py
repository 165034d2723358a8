"""Inputs per second when several inputs share a forward pass, next to plain transformers.

MiniLM on the CPU, inputs of equal length. `loop` is the model's own eager forward pass with output_attentions=True, one input after another; `padded` is the same for
a batch of 16 inputs, of half to full length, padded to the longest. `alone`, `4 together` and `16 together` are whole analyses with the weights and thumbnails of every
head, and with the default measures of the page, without padding. Ratios are relative to `loop` of the same repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import headscope
from headscope.analysis.pipeline import AnalysisTask, run_many
from headscope.analysis.request import AnalysisRequest
from headscope.analysis.result import MemorySink, Result

from .common import Spread, interleaved, ratios

COUNT = 16
LENGTHS = (16, 64)
GROUPS = {"alone": 1, "4 together": 4, "16 together": COUNT}
MEASURES: dict[str, list[str]] = {"none": [], "the page's": ["entropy", "null_share", "null_share_rows", "leverage"]}
REPEATS = 9
SMALLEST: dict[str, Any] = {"lengths": (4,), "repeats": 1}


def measure(lengths: tuple[int, ...] = LENGTHS, repeats: int = REPEATS) -> list[dict[str, Any]]:
    """Return one row per length and set of measures: inputs per second, and the ratio to the loop."""
    model = headscope.load("minilm")
    return [_row(model, length, name, repeats) for length in lengths for name in MEASURES]


def _row(model: headscope.Model, length: int, measures: str, repeats: int) -> dict[str, Any]:
    draw = np.random.default_rng(length)
    ids = draw.integers(1000, 20_000, (COUNT, length))
    candidates = _plain(model, ids)
    for name, size in GROUPS.items():
        candidates[name] = _analyses(model, ids, MEASURES[measures], size)
    seconds = interleaved(candidates, repeats)
    row: dict[str, Any] = {"tokens": length, "measures": measures}
    for name, taken in seconds.items():
        row[f"{name}, inputs/s"] = Spread.of([COUNT / one for one in taken]).text()
        if name in GROUPS:
            row[f"{name}, times the loop"] = ratios(seconds["loop"], taken).text(1, 2)
    return row


def _plain(model: headscope.Model, ids: Any) -> dict[str, Callable[[], None]]:
    """Return plain transformers: one input after another, and a padded batch."""
    module, length = model.module, ids.shape[1]
    whole = torch.tensor(ids)
    lengths = torch.linspace(length // 2, length, COUNT).round().long()
    mask = (torch.arange(length) < lengths[:, None]).long()

    def forward(inputs: torch.Tensor, attention_mask: torch.Tensor) -> None:
        with torch.inference_mode():
            module(input_ids=inputs, attention_mask=attention_mask, output_attentions=True)

    def loop() -> None:
        module.set_attn_implementation("eager")
        for one in whole:
            forward(one[None], torch.ones(1, length, dtype=torch.long))

    def padded() -> None:
        module.set_attn_implementation("eager")
        forward(whole, mask)

    return {"loop": loop, "padded": padded}


def _analyses(model: headscope.Model, ids: Any, measures: list[str], size: int) -> Callable[[], None]:
    """Return analyses of the same inputs, `size` at a time."""
    requests = [
        AnalysisRequest(model="minilm", token_ids=row, lenses=["weights"], measures=measures) for row in ids.tolist()
    ]

    def work() -> None:
        for low in range(0, COUNT, size):
            outcomes = run_many(model, [AnalysisTask(request, MemorySink()) for request in requests[low : low + size]])
            if not all(isinstance(outcome, Result) for outcome in outcomes):
                raise RuntimeError("an analysis failed")

    return work
