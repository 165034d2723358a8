"""Compare Headscope's capture of a tiny model with the model's own eager attention."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import headscope
from headscope.capture import AttentionSites, CaptureSpec, capture, examine
from headscope.core.attention import Kind, Layer
from headscope.errors import HeadscopeError

from .build import Built, ids
from .patches import patches_apart
from .structure import structure_apart
from .together import together_apart

# Shorter than Headscope's own probe, longer than it and than the window, and longer still.
LENGTHS = (5, 24, 40)
SEVERAL = 4
TOLERANCE = 1e-5
OUTPUT_TOLERANCE = 1e-4  # relative to the largest entry, if that is above 1
RETURNED = {
    "self": "attentions",
    "encoder": "encoder_attentions",
    "decoder": "decoder_attentions",
    "cross": "cross_attentions",
}


@dataclass(frozen=True)
class Verdict:
    """`equal`, `fallback` or `refused`, and why not equal; for every kind of attention the needs that can't be met, and why.

    `norm` says where models with a residual connection around attention normalise: before it (`pre`) or its sum (`post`). `wrong` says how what
    Headscope gave differs from the model's own: there must be no such verdict. `refused` has the kinds of attention that are refused although others are not, and why.
    """

    result: str
    reason: str | None = None
    lacks: dict[str, dict[str, str]] = field(default_factory=dict)
    norm: str | None = None
    wrong: str | None = None
    refused: dict[str, str] | None = None


def _lacking(sites: AttentionSites, kind: Kind) -> dict[str, str]:
    """What a kind of attention lacks, but for what depends on the head that a model is loaded with instead of its architecture."""
    return {need: reason for need, reason in sites.missing(kind).items() if need != "unembedding"}


def judge(built: Built) -> Verdict:
    """Load, examine and capture, and compare on inputs that are not Headscope's own probe."""
    try:
        model = headscope.load(built.module)
        sites = examine(model)
        kinds = list(dict.fromkeys(site.kind for site in sites.all))
        lacks = {kind: _lacking(sites, kind) for kind in kinds}
        refused = {str(kind): reason for kind, reason in sites.faults.items()} or None
        wrong = next(filter(None, (_difference(model, sites, built, length) for length in LENGTHS)), None)
        if wrong is None:
            wrong = together_apart(model, sites, [ids(LENGTHS[1], seed) for seed in range(SEVERAL)])
    except HeadscopeError as error:
        return Verdict("refused", error.detail)
    if not sites.captured:
        return Verdict("fallback", lacks[kinds[0]]["capture"], lacks, wrong=wrong, refused=refused)
    norm = None if "residual" in lacks[kinds[0]] else "post" if sites.all[0].norm_form else "pre"
    return Verdict("equal", None, lacks, norm, wrong, refused)


def _difference(model: Any, sites: Any, built: Built, length: int) -> str | None:
    """How the maps and the output on one input differ from eager ones; None if they do not."""
    encoded = _encode(model, length)
    expected = _eager(built, encoded)
    for kind in dict.fromkeys(site.kind for site in sites.all):
        blocks: dict[int, list[torch.Tensor]] = {}
        hidden: list[float] = []

        def keep(layer: Layer, blocks: dict[int, list[torch.Tensor]] = blocks, hidden: list[float] = hidden) -> None:
            blocks.setdefault(layer.index, []).append(layer.weights.clone())
            hidden.append(layer.weights[:, ~layer.keys.allowed(*layer.weights.shape[1:])].abs().sum().item())

        output = capture(model, encoded, sites, CaptureSpec(keep), kind)
        ours = [torch.cat(blocks[layer]) for layer in sorted(blocks)]
        theirs = [one[0].float() for one in getattr(expected, RETURNED[kind]) if one is not None]
        if "distribution" in sites.missing(kind) and all(
            bool(((one.sum(-1) - 1).abs() < TOLERANCE).all()) for one in theirs
        ):
            ours = [
                one / one.sum(-1, keepdim=True) for one in ours
            ]  # its sinks take their share off the outputs, not off what it returns
        wrong = apart(ours, theirs) or outputs_apart(output, expected)
        wrong = "weights on keys that may not be seen" if wrong is None and any(hidden) else wrong
        if wrong is None and sites.captured and length == LENGTHS[-1]:
            wrong = structure_apart(model, sites, encoded, kind)
            wrong = wrong or (None if encoded.pixels is None else patches_apart(model, sites, encoded.pixels))
        if wrong:
            return f"{kind}, {length} tokens: {wrong}"
    return None


def apart(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> str | None:
    """Maps [H, Q, K] of every layer that attends, in order."""
    shapes = [[tuple(one.shape) for one in side] for side in (ours, theirs)]
    if shapes[0] != shapes[1]:
        return f"shapes are {shapes[0]}, not {shapes[1]}"
    for layer, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        off = (one - other).abs().max().item()
        if not off <= TOLERANCE:
            return f"attention {layer} is off by {off:.1e}"
    return None


def outputs_apart(ours: Any, theirs: Any) -> str | None:
    one, other = (
        output.logits if getattr(output, "logits", None) is not None else output[0] for output in (ours, theirs)
    )
    off = (one - other).abs().max().item() / max(1.0, other.abs().max().item())
    return None if off <= OUTPUT_TOLERANCE else f"the output is off by {off:.1e}"


def _encode(model: Any, length: int) -> Any:
    """Encode an input that only this test uses."""
    if model.facts.kind == "vision":
        pixels = np.random.default_rng(length).integers(0, 256, (40, 40, 3), np.uint8)
        return model.encode(image=pixels)
    if model.facts.kind == "encoder-decoder":
        return model.encode(token_ids=ids(length, length), target_ids=ids(length // 2 + 1, length + 1), kind="decoder")
    return model.encode(token_ids=ids(length, length))


def _eager(built: Built, encoded: Any) -> Any:
    """The model's own eager forward pass, on inputs put together here."""
    if encoded.pixels is not None:
        given = {"pixel_values": encoded.pixels}
    else:
        given = {"input_ids": torch.tensor([[token.id for token in encoded.tokens]])}
        given["attention_mask"] = torch.ones_like(given["input_ids"])
    if encoded.target:
        given["decoder_input_ids"] = torch.tensor([[token.id for token in encoded.target]])
    module = built.module
    quiet = {"use_cache": False} if "use_cache" in inspect.signature(module.forward).parameters else {}
    module.set_attn_implementation("eager")
    with torch.no_grad():
        return module(**given, **quiet, output_attentions=True, return_dict=True)
