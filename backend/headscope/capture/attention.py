"""Headscope's own attention function: the model's arithmetic, block of heads by block of heads, each handed on and dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from ..errors import NonFinite, Unsupported
from ..mechanisms import MECHANISMS
from ..models.loading import Model
from ..models.tokens import Encoded
from ..types import BLOCK_BYTES, Keys, Layer

NAME = "headscope"


@dataclass
class _Recorder:
    """What one forward pass hands its layers to. Layers are counted in the order they run: shared layers count each time."""

    on_layer: Callable[[Layer], None]
    attend: Callable[[Tensor], Tensor]
    calls: int = 0
    mask: Tensor | None = None
    keys: Keys | None = None

    def keys_of(self, mask: Tensor | None, device: torch.device) -> Keys:
        """Which keys the mask allows; layers mostly share one mask, so the last answer is kept."""
        if self.keys is None or mask is not self.mask:
            self.mask, self.keys = mask, _read_mask(mask, device)
        return self.keys


_recorder: ContextVar[_Recorder | None] = ContextVar("headscope_recorder", default=None)


def _read_mask(mask: Tensor | None, device: torch.device) -> Keys:
    if mask is None:
        return Keys("all")
    allowed = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    if bool((allowed != allowed[:1, :1]).any()):
        raise Unsupported("Every head of this model has a mask of its own, which can't be analysed in this version.")
    allowed = allowed[0, 0].to(device)
    if bool(allowed.all()):
        return Keys("all")
    square = allowed.shape[0] == allowed.shape[1]
    if square and torch.equal(allowed, torch.ones_like(allowed).tril()):
        return Keys("prefix")
    if not bool(allowed.any(-1).all()):
        raise Unsupported("Some tokens of this input may attend to nothing at all.")
    return Keys("mask", allowed)


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Query [1, H, Q, D], key and value [1, G, K, D] -> output [1, Q, H, D]. The signature is that of transformers' AttentionInterface."""
    recorder = _recorder.get()
    if recorder is None:
        raise RuntimeError("Headscope's attention runs only inside capture()")
    heads, queries = query.shape[1:3]
    groups, keys = key.shape[1:3]
    per_group = heads // groups
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    allowed = recorder.keys_of(attention_mask, query.device)
    output = query.new_empty(heads, queries, value.shape[-1])
    for low, high in _blocks(groups, per_group * queries * keys * 4):
        block = slice(low * per_group, high * per_group)
        keys_here = key[0, low:high].repeat_interleave(per_group, dim=0)  # [H, K, D]
        scores = torch.matmul(query[0, block], keys_here.mT).mul_(scaling)  # [H, Q, K]
        if softcap is not None:
            scores = scores.div_(softcap).tanh_().mul_(softcap)
        if attention_mask is not None:
            scores += attention_mask[0, :, :, :keys]
        weights = recorder.attend(scores)
        del scores
        torch.matmul(weights, value[0, low:high].repeat_interleave(per_group, dim=0), out=output[block])
        if not bool(output[block].isfinite().all()):
            raise NonFinite(
                f"Layer {recorder.calls} of the model computes NaN or infinity on this input; its maps would mean nothing."
            )
        names = tuple(range(block.start, block.stop))
        recorder.on_layer(
            Layer(
                recorder.calls,
                names,
                weights.float(),
                value[0, low:high],
                output[block],
                allowed,
                torch.finfo(value.dtype).eps,
            )
        )
        del weights
    recorder.calls += 1
    return output.transpose(0, 1).unsqueeze(0).contiguous(), None


def _blocks(groups: int, bytes_per_group: int) -> Iterator[tuple[int, int]]:
    size = max(1, BLOCK_BYTES // bytes_per_group)
    for low in range(0, groups, size):
        yield low, min(low + size, groups)


# Both under the same name: an attention function without a mask function would silently get no mask at all.
AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, eager_mask)


def _current(module: Any) -> str:
    # transformers has no public name for it
    return str(getattr(module.config, "_attn_implementation", ""))


@contextmanager
def implementation(module: Any, name: str) -> Iterator[None]:
    """The module in eval mode with attention implementation `name`; put back as it was afterwards."""
    before, training = _current(module), module.training
    module.set_attn_implementation(name)
    if _current(module) != name:
        raise Unsupported(
            "This model's attention does not go through transformers' AttentionInterface, so it can't be captured."
        )
    module.eval()
    try:
        yield
    finally:
        module.set_attn_implementation(before)
        module.train(training)


def capture(model: Model, encoded: Encoded, on_layer: Callable[[Layer], None], mechanism: str = "softmax") -> Any:
    """One forward pass; `on_layer` gets each block of heads as soon as it is computed. Returns the model's own output.

    Raises NonFinite, Unsupported, and whatever `on_layer` raises.
    """
    recorder = _Recorder(on_layer, MECHANISMS[mechanism].attend)
    with model.lock, torch.inference_mode(), implementation(model.module, NAME):
        token = _recorder.set(recorder)
        try:
            return model.module(**model.inputs(encoded), use_cache=False, return_dict=True)
        finally:
            _recorder.reset(token)
