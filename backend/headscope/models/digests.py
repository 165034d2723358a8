"""Digests of models in memory: an exact one of everything that determines results, and a cheap fingerprint that tells when to compute it again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer

from .conversation import ChatTemplate
from .dispatch import state
from .modules import adapters, evaluating
from .quantisation import is_quantised, own_type, quantised_parts, stored_tensors

# Vectors that quantised layers are run on.
VECTORS = 4
# Numbers that are added up at once: as many as fit into a processor's cache in float64, and more on other devices, where every call takes its time.
PIECE, LARGE_PIECE = 2**18, 2**22


def digest(module: Any, tokenizers: Sequence[Tokenizer | None], processor: Any, template: ChatTemplate | None) -> str:
    """Return the SHA-256 of a module's configuration, adapters and parameters, its tokenizers, its image processor, and its chat template."""
    sha = hashlib.sha256(module.config.to_json_string().encode())
    sha.update(adapters(module).encode())
    for name, value in state(module):
        for tensor in stored_tensors(value):
            data = tensor.detach().cpu().contiguous()
            sha.update(f"{name}:{data.dtype}:{tuple(data.shape)};".encode())
            sha.update(data.flatten().view(torch.uint8).numpy().data)
    with evaluating(module):  # an adapter in it may have dropout
        for name, part in module.named_modules():
            if is_quantised(part):
                sha.update(f"{name}:".encode() + _outputs(part, own_type(module)))
    for tokenizer in tokenizers:
        sha.update(tokenizer.to_str().encode() if tokenizer else b"")
    if template is not None:
        sha.update(template.source.encode())
    if processor is not None:
        sha.update(json.dumps(processor.to_dict(), sort_keys=True, default=str).encode())
    return sha.hexdigest()


def _outputs(part: Any, dtype: torch.dtype) -> bytes:
    """Return what a quantised layer makes of fixed vectors: it may keep scales where no package but its own finds them."""
    vectors = torch.randn(VECTORS, part.in_features, generator=torch.Generator().manual_seed(0))
    device = next((tensor.device for tensor in (*part.parameters(), *part.buffers())), None)
    with torch.inference_mode():
        found = part.forward(vectors.to(device, dtype))
    return bytes(found.float().cpu().contiguous().numpy().data)


def fingerprint(module: Any) -> tuple[Any, ...]:
    """Return a value that changes when the module is trained or a part in memory is replaced; much cheaper than the digest."""
    # Not its state dictionary, for which bitsandbytes rearranges its weights.
    tensors, parts = [*module.parameters(), *module.buffers()], map(id, quantised_parts(module))
    return module.config.to_json_string(), adapters(module), *parts, *map(_fingerprint_of, stored_tensors(tensors))


def _fingerprint_of(tensor: torch.Tensor) -> tuple[int, int, tuple[float, ...]]:
    """Return a tensor's address, version, and sums of its numbers, weighted by their place. Offloaded weights are not trained.

    Writes through `.data`, which may move numbers, do not change the version, but the sums.
    """
    if tensor.is_meta:
        return 0, 0, ()
    tensor = tensor.detach()
    numbers = tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor
    version = 0 if tensor.is_inference() else tensor._version  # noqa: SLF001 - torch has no other name for it
    weights = _weights(tensor.device)
    flat, size = numbers.flatten(), len(weights)
    pieces = [flat[low : low + size] for low in range(0, len(flat), size)]
    sums = [piece.to(torch.float64, copy=True).mul_(weights[: len(piece)]).sum() for piece in pieces]
    return tensor.data_ptr(), version, tuple(torch.stack(sums).tolist()) if sums else ()


@cache
def _weights(device: torch.device) -> torch.Tensor:
    """Return a weight for every number of a piece, from 1 to 2."""
    return torch.linspace(1, 2, PIECE if device.type == "cpu" else LARGE_PIECE, dtype=torch.float64).to(device)
