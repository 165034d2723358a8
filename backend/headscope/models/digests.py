"""Digests of models in memory: an exact one of everything that determines results, and a cheap fingerprint that tells when to compute it again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer

from .conversation import ChatTemplate
from .modules import adapters


def digest(module: Any, tokenizers: Sequence[Tokenizer | None], processor: Any, template: ChatTemplate | None) -> str:
    """Return the SHA-256 of a module's configuration, adapters and parameters, its tokenizers, its image processor, and its chat template."""
    sha = hashlib.sha256(module.config.to_json_string().encode())
    sha.update(adapters(module).encode())
    for name, tensor in module.state_dict().items():
        data = tensor.detach().cpu().contiguous()
        sha.update(f"{name}:{data.dtype}:{tuple(data.shape)};".encode())
        sha.update(data.flatten().view(torch.uint8).numpy().data)
    for tokenizer in tokenizers:
        sha.update(tokenizer.to_str().encode() if tokenizer else b"")
    if template is not None:
        sha.update(template.source.encode())
    if processor is not None:
        sha.update(json.dumps(processor.to_dict(), sort_keys=True, default=str).encode())
    return sha.hexdigest()


def fingerprint(module: Any) -> tuple[Any, ...]:
    """Return a value that changes when the module is trained or a part is replaced; much cheaper than the digest."""
    return module.config.to_json_string(), adapters(module), *map(_fingerprint_of, module.state_dict().values())


def _fingerprint_of(tensor: torch.Tensor) -> tuple[int, int, float]:
    """Return a tensor's address, version and sum. Writes through `.data` do not change the version, but the sum."""
    numbers = tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor
    version = 0 if tensor.is_inference() else tensor._version  # noqa: SLF001 - torch has no other name for it
    return tensor.data_ptr(), version, float(numbers.sum(dtype=torch.float64))
