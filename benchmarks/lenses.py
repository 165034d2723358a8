"""Cost of the effective lens on top of a plain forward pass, next to a full SVD per head as in the paper's code.

A random model of the shape of BERT-base on the CPU. `plain` is the model's eager forward pass with output_attentions=True; `effective` is a forward pass through
Headscope's capture that computes the effective attention of every head; `analysis` is the whole default analysis, with both maps of every head.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertModel

import headscope
from headscope import LENSES
from headscope.analysis.pipeline import run
from headscope.analysis.request import AnalysisRequest
from headscope.analysis.result import MemorySink
from headscope.capture import CaptureSpec, capture, examine
from headscope.core.attention import Layer

from .common import Spread, interleaved, ratios

REPEATS = 9
SMALLEST: dict[str, Any] = {
    "lengths": (8,),
    "repeats": 1,
    "config": BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4),
}


def measure(
    lengths: tuple[int, ...] = (128, 512), repeats: int = REPEATS, config: BertConfig | None = None
) -> list[dict[str, Any]]:
    """Return one row per length: milliseconds of the plain pass, and ratios to it."""
    torch.manual_seed(0)
    module = BertModel(config or BertConfig(), add_pooling_layer=False).eval()
    model = headscope.load(module)
    return [_row(model, module, length, repeats) for length in lengths]


def _row(model: headscope.Model, module: Any, length: int, repeats: int) -> dict[str, Any]:
    ids = np.random.default_rng(length).integers(1000, 30000, length).tolist()
    encoded = model.encode(token_ids=ids)
    inputs = model.inputs(encoded)
    request = AnalysisRequest(model="random", token_ids=ids)

    def plain() -> None:
        module.set_attn_implementation("eager")
        with torch.inference_mode():
            module(**inputs, output_attentions=True)

    def lens(name: str, layer: Layer) -> None:
        LENSES[name].read(layer, LENSES[name].params())

    def full_svd(layer: Layer) -> None:
        U, _, _ = torch.linalg.svd(layer.values, full_matrices=True)
        null = U[:, :, layer.values.shape[-1] :]
        _ = layer.weights - layer.weights @ null @ null.mT

    def captured(read: Callable[[Layer], None]) -> Callable[[], object]:
        return lambda: capture(model, encoded, examine(model), CaptureSpec(read))

    candidates: dict[str, Callable[[], object]] = {
        "plain": plain,
        "weights": captured(partial(lens, "weights")),
        "effective": captured(partial(lens, "effective")),
        "analysis": lambda: run(model, request, MemorySink()),
        "no_maps": lambda: run(model, request.model_copy(update={"maps": False}), MemorySink()),
    }
    seconds = interleaved(candidates, repeats)
    svd = interleaved({"plain": plain, "svd": captured(full_svd)}, min(3, repeats), 1)
    added = [effective / plain - 1 for effective, plain in zip(seconds["effective"], seconds["plain"], strict=True)]
    added_svd = [(s - p) / p for s, p in zip(svd["svd"], svd["plain"], strict=True)]
    return {
        "tokens": length,
        "plain_ms": Spread.of(seconds["plain"]).text(1e3),
        "capture_ratio": ratios(seconds["weights"], seconds["plain"]).text(1, 2),
        "effective_adds_percent": Spread.of(added).text(100, 1),
        "full_svd_adds_percent": Spread.of(added_svd).text(100, 0),
        "analysis_ratio": ratios(seconds["analysis"], seconds["plain"]).text(1, 2),
        "analysis_without_maps_ratio": ratios(seconds["no_maps"], seconds["plain"]).text(1, 2),
    }
