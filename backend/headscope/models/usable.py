"""Which modules in memory can be analysed, and what is analysed of one that wraps another."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import Unsupported
from .facts import QUANTISED

ELSEWHERE = (
    'Some of this model\'s weights are not in memory: they are offloaded, or were never loaded (device "meta"). '
    "Load the whole model onto one device."
)
SPREAD = "This model is spread over several devices. Load the whole model onto one device."
COMPILED = "Parts of this model are compiled. Load it without torch.compile, or compile the whole model."
PROMPT = "This adapter puts learned vectors before the input, which can't be analysed. Load the model without it."
# Packages whose modules compute with quantised weights: torch's own, torchao, bitsandbytes, GPTQ and AWQ.
QUANTISING = ("torch.ao.nn.", "torch.nn.quantized", "torchao.", "bitsandbytes.", "auto_gptq.", "gptqmodel.", "awq.")


def usable(module: Any) -> Any:
    """Return the transformers model inside a compiled one or a PeftModel, or the module itself.

    Raises Unsupported for what cannot be computed with: quantised weights, weights that are not in memory or on several devices, compiled parts.
    """
    module = _inside(module)
    if any(type(part).__name__ == "OptimizedModule" for part in module.modules()):
        raise Unsupported(COMPILED)
    if getattr(module, "is_quantized", False) or any(
        type(part).__module__.startswith(QUANTISING) for part in module.modules()
    ):
        raise Unsupported(QUANTISED)
    tensors = [*module.parameters(), *module.buffers()]
    if any(tensor.is_meta for tensor in tensors):
        raise Unsupported(ELSEWHERE)
    if len({tensor.device for tensor in tensors}) > 1:
        raise Unsupported(SPREAD)
    if any(_is_quantised(parameter) for parameter in module.parameters()):
        raise Unsupported(QUANTISED)
    return module


def _inside(module: Any) -> Any:
    """Return what torch.compile and peft have wrapped. A PeftModel's adapters are parts of the model inside."""
    module = getattr(module, "_orig_mod", module)
    if not hasattr(module, "get_base_model"):
        return module
    if getattr(module.active_peft_config, "is_prompt_learning", False):
        raise Unsupported(PROMPT)
    return module.get_base_model()


def _is_quantised(parameter: torch.Tensor) -> bool:
    """Whether the numbers of a parameter are no plain floats of 16 bits or more."""
    return not parameter.is_floating_point() or torch.finfo(parameter.dtype).bits < 16
