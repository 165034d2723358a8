"""Attention from the cache of TransformerLens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.lazy import Tensor
from ..errors import InvalidRequest
from ..library.analysis import Analysis
from ..library.arguments import Method
from ..library.from_attentions import from_attentions, to_tensor

PATTERN = re.compile(r"blocks\.(\d+)\.attn\.hook_pattern")
VALUES = "blocks.{}.attn.hook_v"


def from_cache(
    cache: Mapping[str, Any],
    tokens: Sequence[str],
    *,
    values: bool = False,
    lenses: Sequence[Method] | None = None,
    measures: Sequence[Method] = ("entropy",),
) -> Analysis:
    """Analyse the attention patterns in the cache of `run_with_cache`, of one text. `tokens` are those of `to_str_tokens`.

    Layers keep their numbers if a filter left some out. With `values`, the cached value vectors enable lenses such as `effective`: load the model without
    folding their biases (`from_pretrained_no_processing`), as that changes what reaches the output. Raises InvalidRequest for a cache without patterns, and
    what from_attentions raises.
    """
    if not hasattr(cache, "keys"):
        raise InvalidRequest("cache must be the cache that run_with_cache returns.")
    named = {name: found for name in cache.keys() if (found := PATTERN.fullmatch(name))}  # noqa: SIM118 - ActivationCache iterates by number
    if not named:
        raise InvalidRequest(
            "The cache has no attention patterns. Let names_filter keep the names ending in hook_pattern."
        )
    layers = sorted(int(found[1]) for found in named.values())
    missing = values and not {VALUES.format(layer) for layer in layers} <= set(cache.keys())
    if missing:
        raise InvalidRequest("The cache lacks value vectors. Let names_filter keep the names ending in hook_v.")
    return from_attentions(
        [cache[f"blocks.{layer}.attn.hook_pattern"] for layer in layers],
        tokens,
        [_values(cache, layer) for layer in layers] if values else None,
        layers=layers,
        lenses=lenses,
        measures=measures,
    )


def _values(cache: Mapping[str, Any], layer: int) -> Tensor:
    """Return the cached value vectors of a layer, [1, N, G, D] or [N, G, D], as [1, G, N, D] or [G, N, D]."""
    values = to_tensor(cache[VALUES.format(layer)], f"Layer {layer} of the values")
    if values.dim() < 3:
        raise InvalidRequest(f"Layer {layer} of the values needs three axes: tokens, heads, width.")
    return values.transpose(-3, -2)
