"""Cost of every mechanism, lens and measure: time of an analysis with only this method, relative to a plain forward pass with output_attentions=True.

Random models of the shape of BERT-base and GPT-2-small on the CPU, at 32, 128 and 512 tokens, without maps and thumbnails. `capture` is Headscope's own forward pass
without any method, and part of every row. A lens that adds 10 % to a plain pass has the value 1.10.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

import headscope
from headscope import LENSES, MEASURES, MECHANISMS
from headscope.analysis.memory import plan
from headscope.analysis.reader import AnalysisTask, Reader
from headscope.analysis.request import AnalysisRequest
from headscope.analysis.result import MemorySink
from headscope.capture import capture, examine
from headscope.mechanisms.base import PassContext

from .common import DEVICE, Spread, interleaved, ratios

REPEATS = 3
LENGTHS = (32, 128, 512)
# The page's default measures, and those that classify heads.
DEFAULT_MEASURES = ("entropy", "null_share", "null_share_rows", "leverage")
HEAD_MEASURES = ("patterns", "special_tokens", "sink", "head_roles")
# Longest inputs of methods that would take minutes beyond: value zeroing runs a layer once per token, maximum entropy solves a problem per row,
# and the published code pads to 128 tokens.
SLOW = {"value-zeroing": 128, "max-entropy": 128, "effective-published": 128}

PLAIN, PLAIN_ROW = "plain", "plain pass, ms"
ONE = {"mechanisms": "mechanism", "lenses": "lens", "measures": "measure"}

MODELS: dict[str, Callable[[], Any]] = {
    "bert-base": lambda: BertForMaskedLM(BertConfig()),
    "gpt2-small": lambda: GPT2LMHeadModel(GPT2Config()),
}
TINY: dict[str, Callable[[], Any]] = {
    "bert": lambda: BertForMaskedLM(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4)),
}
SMALLEST: dict[str, Any] = {"lengths": (8,), "repeats": 1, "models": TINY}


def measure(
    lengths: tuple[int, ...] = LENGTHS,
    repeats: int = REPEATS,
    chosen: Collection[str] = (),
    models: Mapping[str, Callable[[], Any]] = MODELS,
) -> list[dict[str, Any]]:
    """Return one row per method (or `chosen` one) with a column per model and length: time relative to the plain pass. The first row is that pass in ms."""
    rows: dict[str, dict[str, Any]] = {}
    for name, build in models.items():
        torch.manual_seed(0)
        module = build().eval().to(DEVICE)
        model = headscope.load(module)
        for length in lengths:
            candidates = _candidates(model, module, length)
            if chosen:
                candidates = {name: run for name, run in candidates.items() if name in chosen or name == PLAIN}
            for method, text in _column(candidates, repeats).items():
                rows.setdefault(method, {"method": method})[f"{name} {length}"] = text
    return list(rows.values())


def _column(candidates: dict[str, Callable[[], None]], repeats: int) -> dict[str, str]:
    """Return method -> its time relative to the plain pass, as median (lowest-highest)."""
    seconds = interleaved(candidates, repeats, 1)
    plain_seconds = seconds.pop(PLAIN)
    over_plain = {method: ratios(taken, plain_seconds).text(1, 2) for method, taken in seconds.items()}
    return {PLAIN_ROW: Spread.of(plain_seconds).text(1e3), **over_plain}


def _candidates(model: headscope.Model, module: Any, length: int) -> dict[str, Callable[[], None]]:
    """Return the plain pass, and every method that the model supports at this length."""
    ids = np.random.default_rng(length).integers(1000, 30000, length).tolist()
    sites = examine(model)
    missing = sites.missing("self")
    inputs = model.inputs(model.encode(token_ids=ids))

    def plain() -> None:
        module.set_attn_implementation("eager")
        with torch.inference_mode():
            module(**inputs, output_attentions=True)

    def analysis(
        mechanism: str = "softmax", lenses: tuple[str, ...] = (), measures: tuple[str, ...] = ()
    ) -> Callable[[], None]:
        return _analysis(model, ids, mechanism, lenses, measures)

    candidates: dict[str, Callable[[], None]] = {PLAIN: plain, "capture": analysis()}
    for kind, known in (("mechanisms", MECHANISMS), ("lenses", LENSES), ("measures", MEASURES)):
        for method in known.values():
            if not set(method.needs) & set(missing) and length <= SLOW.get(method.name, length):
                arguments: Any = method.name if kind == "mechanisms" else (method.name,)
                candidates[f"{ONE[kind]} {method.name}"] = analysis(
                    **{ONE[kind] if kind == "mechanisms" else kind: arguments}
                )
    candidates["default measures"] = analysis(measures=DEFAULT_MEASURES)
    candidates["default measures and those of heads"] = analysis(measures=DEFAULT_MEASURES + HEAD_MEASURES)
    return candidates


def _analysis(
    model: headscope.Model, ids: list[int], mechanism: str, lenses: tuple[str, ...], measures: tuple[str, ...]
) -> Callable[[], None]:
    """Return the pipeline without thumbnails, maps or tokenization: capture, lenses and measures only."""
    request = AnalysisRequest(
        model="random",
        token_ids=ids,
        mechanism=mechanism,
        lenses=list(lenses) or ["weights"],
        measures=list(measures),
        maps=False,
    )
    if not lenses:
        request = request.model_copy(update={"lenses": []})
    sites, encoded = examine(model), model.encode(token_ids=ids)
    chosen, axes = sites.of("self"), encoded.axes("self")
    heads = {site.layer: site.heads for site in chosen}
    planned = plan(request, heads, len(ids), len(ids))
    setting = PassContext(heads, model.width, axes)

    def run() -> None:
        # Thumbnails are counted elsewhere.
        reader = Reader(planned, [AnalysisTask(request, MemorySink(), tiles=False)])
        begin = MECHANISMS[mechanism].begin
        capture(model, encoded, sites, reader.spec(), "self", lambda: begin(request.mechanism, setting))

    return run
