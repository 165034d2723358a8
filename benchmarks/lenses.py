"""Cost of the effective lens on top of a plain forward pass, next to a full SVD per head as in the paper's code.

A random model of the shape of BERT-base on the CPU, and SmolLM2 where it is installed, on a text and on one that repeats a sentence: without positions in
its values, equal tokens have equal values in the first layer, and every prefix with a repeated token is singular.
`plain` is the model's eager forward pass with output_attentions=True; `effective` is a forward pass through Headscope's capture that computes the effective
attention of every head; `cpu` is the same by the time of the processor, which other load changes less; `analysis` is the whole default analysis, with both
maps of every head.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertModel, LlamaForCausalLM

import headscope
from headscope import LENSES
from headscope.analysis.pipeline import run
from headscope.analysis.request import AnalysisRequest
from headscope.analysis.result import MemorySink
from headscope.capture import CaptureSpec, capture, examine
from headscope.core.attention import Layer
from headscope.models.catalog import Catalog
from headscope.settings import Settings

from .common import DEVICE, Spread, interleaved, ratios

REPEATS = 9
SMALLEST: dict[str, Any] = {
    "lengths": (8,),
    "repeats": 1,
    "config": BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4),
    "decoder_lengths": (),
}
REPEATED = "The cat sat on the mat because it was warm, and the dog, who had been out in the rain all morning, lay down next to it. "


def measure(
    lengths: tuple[int, ...] = (128, 512),
    repeats: int = REPEATS,
    config: BertConfig | None = None,
    decoder_lengths: tuple[int, ...] = (51, 351),
) -> list[dict[str, Any]]:
    """Return one row per length, and for SmolLM2 per length and text: milliseconds of the plain pass, and ratios to it."""
    torch.manual_seed(0)
    module = BertModel(config or BertConfig(), add_pooling_layer=False).eval().to(DEVICE)
    model = headscope.load(module)
    draw = np.random.default_rng(0).integers
    rows = [_row("random", model, module, draw(1000, 30000, length).tolist(), repeats) for length in lengths]
    folder = Catalog(Settings()).installed("smollm2")
    if decoder_lengths and folder.is_dir():
        rows += _decoder_rows(headscope.load(folder, device=DEVICE), decoder_lengths, repeats)
    return rows


def _decoder_rows(model: headscope.Model, lengths: tuple[int, ...], repeats: int) -> list[dict[str, Any]]:
    texts = {
        "natural": Path(__file__).parents[1].joinpath("CONTRIBUTING.md").read_text("utf-8"),
        "repeating": REPEATED * 30,
    }
    ids = {
        name: [token.id for token in model.encode(text, max_tokens=max(lengths)).tokens] for name, text in texts.items()
    }
    cases = [(name, tokens[:length]) for length in lengths for name, tokens in ids.items()]
    return [_row(f"smollm2, {name}", model, model.module, tokens, repeats) for name, tokens in cases]


def _row(text: str, model: headscope.Model, module: Any, ids: list[int], repeats: int) -> dict[str, Any]:
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
    cpu = interleaved({name: candidates[name] for name in ("plain", "effective")}, repeats, clock=time.process_time)
    row = {
        "input": text,
        "tokens": len(ids),
        "plain_ms": Spread.of(seconds["plain"]).text(1e3),
        "capture_ratio": ratios(seconds["weights"], seconds["plain"]).text(1, 2),
        "effective_adds_percent": _added(seconds["effective"], seconds["plain"]).text(100, 1),
        "cpu_adds_percent": _added(cpu["effective"], cpu["plain"]).text(100, 1),
        "analysis_ratio": ratios(seconds["analysis"], seconds["plain"]).text(1, 2),
        "analysis_without_maps_ratio": ratios(seconds["no_maps"], seconds["plain"]).text(1, 2),
    }
    if isinstance(module, LlamaForCausalLM):  # whose rows would need a decomposition each
        return row
    svd = interleaved({"plain": plain, "svd": captured(full_svd)}, min(3, repeats), 1)
    return {**row, "full_svd_adds_percent": _added(svd["svd"], svd["plain"]).text(100, 0)}


def _added(seconds: list[float], plain: list[float]) -> Spread:
    return Spread.of([one / base - 1 for one, base in zip(seconds, plain, strict=True)])
