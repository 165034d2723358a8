"""Whether inputs that share a forward pass come out as they do alone, where Headscope lets them share one: on inputs that are not its own probe."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from headscope.capture import CaptureSpec, ModelInput, batches_exactly, capture_many
from headscope.core.attention import Layer
from headscope.models.tokens import Encoded

TOLERANCE = 1e-5  # relative to the largest entry, if that is above 1


def together_apart(model: Any, sites: Any, texts: list[list[int]]) -> str | None:
    """The first difference; None if there is none, or every input goes alone."""
    if not batches_exactly(model):
        return None
    inputs = [model.encode(token_ids=ids) for ids in texts]
    together = _seen(model, sites, inputs)
    for place, one in enumerate(inputs):
        (alone,) = _seen(model, sites, [one])
        for ours, theirs in zip(together[place], alone, strict=True):
            off = (ours - theirs).abs().max().item() / max(1.0, theirs.abs().max().item())
            if not off <= TOLERANCE:
                return f"of {len(inputs)} inputs in one pass, input {place} is off by {off:.1e}"
    return None


def _seen(model: Any, sites: Any, inputs: list[Encoded]) -> list[list[Tensor]]:
    """Weights, and the hidden states after every layer, of each input."""
    needs = frozenset({"hidden"} - sites.missing("self").keys())
    seen = [list[Tensor]() for _ in inputs]
    wanted = [_keeping(found, needs) for found in seen]
    _, failed = capture_many(model, [ModelInput(*pair) for pair in zip(inputs, wanted, strict=True)], sites)
    assert failed == [None] * len(inputs)
    return seen


def _keeping(found: list[Tensor], needs: frozenset[str]) -> CaptureSpec:
    def heads(layer: Layer) -> None:
        found.append(layer.weights.clone())

    def whole(layer: Layer) -> None:
        if layer.stream.after is not None:
            found.append(layer.stream.after.clone())

    return CaptureSpec(heads, whole, needs)
