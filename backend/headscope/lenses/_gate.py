"""Gates on the heads' outputs: what token j brings to query i through a head is A_ij (v_j * g_i) W_O, so it depends on the query."""

from __future__ import annotations

from dataclasses import replace

from ..core.attention import Layer
from ..errors import Unsupported


def fold(layer: Layer) -> Layer:
    """Return the layer without its gate where that is one number per head and query: A_ij g_i are then like weights. Other layers stay as they are."""
    gate = layer.gate
    if gate is None or bool((gate != gate[..., :1]).any()):
        return layer
    scale = gate[..., :1].to(layer.weights.dtype)  # [H, Q, 1]
    return replace(layer, weights=layer.weights * scale, output=layer.written, gate=None)


def require_open(layer: Layer) -> None:
    """Raise Unsupported for a gate that is exactly 0 somewhere.

    The row space of the values times a gate, V * g_i, is that of V if no entry of g_i is 0. If one is, what reaches the output differs from query to query.
    """
    if layer.gate is not None and bool((layer.gate == 0).any()):
        raise Unsupported(
            "A gate of this model is exactly 0 in some dimensions of a head on this input, so which part of a row of weights reaches the output "
            "depends on more than the values. Choose another lens, or a shorter text."
        )
