"""Proof that captured attention is the model's own: a short probe, once per loaded model."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import ModelNotExact
from ..models.loading import Model
from ..models.tokens import Encoded, from_ids
from ..types import Layer
from .attention import capture, implementation

PROBE_TOKENS = 12
TOLERANCE = 1e-5


def ensure_exact(model: Model) -> None:
    """Raise ModelNotExact unless weights and outputs on a probe equal those of the model's eager attention within 1e-5 (float32)."""
    if model.exact:
        return
    encoded = _probe(model)
    captured: dict[int, list[torch.Tensor]] = {}

    def keep(layer: Layer) -> None:
        captured.setdefault(layer.index, []).append(layer.weights)

    ours = capture(model, encoded, keep)
    with model.lock, torch.inference_mode(), implementation(model.module, "eager"):
        theirs = model.module(**model.inputs(encoded), use_cache=False, return_dict=True, output_attentions=True)
    expected = getattr(theirs, "attentions", None) or ()
    if len(expected) != len(captured) or len(captured) != model.facts.layers:
        raise ModelNotExact(
            "Not every layer of this model attends in a way that can be captured. It can't be analysed in this version."
        )
    tolerance = TOLERANCE * max(
        1.0, torch.finfo(next(model.module.parameters()).dtype).eps / torch.finfo(torch.float32).eps
    )
    for index, weights in enumerate(expected):
        if not torch.allclose(torch.cat(captured[index]), weights[0].float(), rtol=0, atol=tolerance):
            raise ModelNotExact(
                f"The attention captured in layer {index} is not what the model itself computes. It can't be analysed in this version."
            )
    if not _close(_main(ours), _main(theirs), tolerance):
        raise ModelNotExact("Capturing changes what this model computes. It can't be analysed in this version.")
    model.exact = True


def _probe(model: Model) -> Encoded:
    generator = torch.Generator().manual_seed(0)
    window = int(getattr(model.module.config, "sliding_window", 0) or 0)
    count = PROBE_TOKENS + (window if window <= 64 else 0)  # long enough for a small window to cut something off
    count = min(count, model.facts.max_tokens or count)
    return from_ids(
        None, torch.randint(model.vocabulary, (count,), generator=generator).tolist(), frozenset(), model.vocabulary
    )


def _main(output: Any) -> torch.Tensor:
    logits = getattr(output, "logits", None)
    result: torch.Tensor = output[0] if logits is None else logits
    return result


def _close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float) -> bool:
    scale = max(1.0, theirs.abs().max().item())
    return bool((ours - theirs).abs().max().item() <= 10 * tolerance * scale)
