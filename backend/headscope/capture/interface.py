"""Headscope's own attention function: the model's arithmetic, block of heads by block of heads, each handed on and dropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from ..core.attention import BLOCK_BYTES, Keys
from ..errors import Unsupported
from ..mechanisms.base import Scores
from ..models.modules import configured, evaluating

NAME = "headscope"


@dataclass(frozen=True)
class Mask:
    """An additive mask taken apart: which keys may be attended to, and what is added where they may."""

    keys: Keys
    blocked: Tensor | None = None  # [1, Q, K]
    bias: Tensor | None = None  # [1 or H, Q, K]


@dataclass(frozen=True)
class Call:
    """One call of the attention function, as the model made it for one input: query [H, Q, D'], key [G, K, D'], value [G, K, D]."""

    module: Any
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask
    scaling: float
    softcap: float | None
    sink: Tensor | None

    def scores(self, layer: int, low: int, high: int) -> Scores:
        """Of key/value heads low to high: those of the query heads that read them."""
        per_group = self.query.shape[0] // self.key.shape[0]
        heads = slice(low * per_group, high * per_group)
        bias = self.mask.bias
        return Scores(
            layer,
            tuple(range(heads.start, heads.stop)),
            self.query[heads],
            self.key[low:high].repeat_interleave(per_group, dim=0),
            self.scaling,
            self.softcap,
            bias if bias is None or bias.shape[0] == 1 else bias[heads],
            self.mask.blocked,
            None if self.sink is None else self.sink[heads],
        )

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Ranges of key/value heads whose weights together fit into a block."""
        groups, keys = self.key.shape[:2]
        per_group = self.query.shape[0] // groups
        size = max(1, BLOCK_BYTES // (per_group * self.query.shape[1] * keys * 4))
        for low in range(0, groups, size):
            yield low, min(low + size, groups)


@dataclass(frozen=True)
class Calls:
    """The same of several inputs at a time: query [B, H, Q, D'], key [B, G, K, D'], value [B, G, K, D], and a mask for each."""

    module: Any
    query: Tensor
    key: Tensor
    value: Tensor
    masks: Sequence[Mask]
    scaling: float
    softcap: float | None
    sink: Tensor | None

    def one(self, place: int) -> Call:
        """The call of one input."""
        tensors = (self.query[place], self.key[place], self.value[place])
        return Call(self.module, *tensors, self.masks[place], self.scaling, self.softcap, self.sink)

    def together(self, places: Sequence[int]) -> dict[str, Tensor]:
        """Query, key and value of some inputs, one input's heads after the other's."""
        first, last = places[0], places[-1] + 1
        chosen = slice(first, last) if last - first == len(places) else list(places)
        return {name: getattr(self, name)[chosen].flatten(0, 1) for name in ("query", "key", "value")}


class Recorder(Protocol):
    """Who computes attention during a forward pass of capture(); `size` inputs of equal length go through the model together, none of them padded."""

    masks: Masks
    size: int

    def attend(self, calls: Calls) -> Tensor:
        """The heads' outputs [B, H, Q, D]."""

    def replay(self, query: Tensor, key: Tensor, value: Tensor, rest: dict[str, Any], module: Any) -> Tensor | None:
        """The outputs [B, Q, H, D] when a layer is run again; None in an ordinary forward pass."""


class Attending(Protocol):
    """Who computes attention of a module at all other times, if it attends by a mechanism."""

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, rest: dict[str, Any]) -> Tensor:
        """The outputs [B, Q, H, D] of a batch."""


_recorder: ContextVar[Recorder | None] = ContextVar("headscope_recorder", default=None)
STANDING = "headscope_standing"  # attribute of a module that calls the attention function: its Attending


class Masks:
    """Masks taken apart. Layers mostly share one, so the last few answers are kept."""

    def __init__(self) -> None:
        self._known: list[tuple[Tensor | None, Tensor | None, list[Mask]]] = []

    def read(
        self, mask: Tensor | None, bias: Tensor | None, keys: int, device: torch.device, size: int = 1
    ) -> list[Mask]:
        """Of each of `size` inputs: mask [1 or B, 1 or H, Q, K] additive or bool, and a bias of the same shape that is added, too."""
        for known_mask, known_bias, found in self._known:
            if known_mask is mask and known_bias is bias:
                return found
        found = list[Mask]()
        first = (_row(mask, 0), _row(bias, 0))
        for place in range(size):
            row = (_row(mask, place), _row(bias, place))
            same = bool(found) and all(map(_equal, row, first))
            found.append(found[0] if same else _take_apart(*row, keys, device))
        self._known = [(mask, bias, found), *self._known[:3]]
        return found


def _row(batch: Tensor | None, place: int) -> Tensor | None:
    """What a mask or bias [1 or B, 1 or H, Q, K] says of one input."""
    return None if batch is None else batch[place if batch.shape[0] > 1 else 0]


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one, other))


def _take_apart(mask: Tensor | None, bias: Tensor | None, keys: int, device: torch.device) -> Mask:
    """Mask and bias [1 or H, Q, K] of one input."""
    added = None if bias is None or not bool(bias.any()) else bias[..., :keys].to(device)
    if mask is None:
        return Mask(Keys("all"), None, added)
    allowed, rest = split(mask[..., :keys].to(device))
    if bool((allowed != allowed[:1]).any()):
        raise Unsupported("Every head of this model has a mask of its own, which can't be analysed in this version.")
    allowed = allowed[:1]
    if rest is not None:
        added = rest if added is None else added + rest
    if bool(allowed.all()):
        return Mask(Keys("all"), None, added)
    if not bool(allowed.any(-1).all()):
        raise Unsupported("Some tokens of this input may attend to nothing at all.")
    square = allowed.shape[1] == allowed.shape[2]
    causal = square and torch.equal(allowed[0], torch.ones_like(allowed[0]).tril())
    return Mask(Keys("prefix") if causal else Keys("mask", allowed[0]), ~allowed, added)


def split(mask: Tensor) -> tuple[Tensor, Tensor | None]:
    """A mask, additive or bool: where one may look, and what is added there; None for nothing."""
    if mask.dtype == torch.bool:
        return mask, None
    allowed = mask > torch.finfo(mask.dtype).min / 2
    rest = mask.masked_fill(~allowed, 0.0)
    return allowed, rest if bool(rest.any()) else None


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    s_aux: Tensor | None = None,
    sinks: Tensor | None = None,
    indices: Tensor | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """Query [B, H, Q, D'], key and value [B, G, K, D] -> output [B, Q, H, D]. The signature is that of transformers' AttentionInterface."""
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    s_aux = sinks if s_aux is None else s_aux
    if indices is not None:
        attention_mask = _only(indices, attention_mask, key.shape[2])
    arguments = {"mask": attention_mask, "bias": position_bias, "scaling": scaling, "softcap": softcap, "sink": s_aux}
    recorder = _recorder.get()
    if recorder is None:
        standing: Attending | None = getattr(module, STANDING, None)
        if standing is None:
            raise RuntimeError(
                "Headscope's attention runs only inside capture() and in modules that attend by a mechanism"
            )
        return standing.attend(module, query, key, value, {**arguments, "dropout": dropout}), None
    again = recorder.replay(query, key, value, arguments, module)
    if again is not None:
        return again, None
    if query.shape[0] != recorder.size:
        raise Unsupported(
            "This model cuts the input into several pieces that attend apart, which can't be analysed in this version."
        )
    sink = None if s_aux is None else s_aux.reshape(query.shape[1], -1, 1)
    masks = recorder.masks.read(attention_mask, position_bias, key.shape[2], query.device, recorder.size)
    calls = Calls(module, query, key, value, masks, float(scaling), softcap, sink)
    return recorder.attend(calls).transpose(1, 2).contiguous(), None


def _only(indices: Tensor, mask: Tensor | None, keys: int) -> Tensor:
    """The mask [1, 1, Q, K] without the keys that a sparse layer did not choose; indices [1, Q, k] are those it did."""
    left_out = torch.ones(*indices.shape[:-1], keys, dtype=torch.bool, device=indices.device).scatter(
        -1, indices, False
    )
    if mask is None:
        return ~left_out.unsqueeze(1)
    return mask[..., :keys].masked_fill(
        left_out.unsqueeze(1), False if mask.dtype == torch.bool else torch.finfo(mask.dtype).min
    )


def plain(query: Tensor, key: Tensor, value: Tensor, arguments: dict[str, Any]) -> Tensor:
    """Attention of a whole batch, query [B, H, Q, D'] -> output [B, Q, H, D]; nothing of it is recorded."""
    per_group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(per_group, dim=1), value.repeat_interleave(per_group, dim=1)
    logits = query @ key.mT * arguments["scaling"]
    if arguments["softcap"] is not None:
        logits = (logits / arguments["softcap"]).tanh() * arguments["softcap"]
    if arguments["bias"] is not None:
        logits = logits + arguments["bias"][..., : key.shape[2]]
    mask = arguments["mask"]
    if mask is not None:
        mask = mask[..., : key.shape[2]]
        logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min) if mask.dtype == torch.bool else logits + mask
    if arguments["sink"] is None:
        weights = logits.softmax(-1)
    else:
        sink = arguments["sink"].reshape(1, logits.shape[1], -1, 1).expand(logits.shape[0], -1, logits.shape[2], 1)
        weights = torch.cat([logits, sink], dim=-1).softmax(-1)[..., :-1]
    output: Tensor = (weights @ value).transpose(1, 2)
    return output


# Both under the same name: an attention function without a mask function would silently get no mask at all.
AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, eager_mask)


def current(module: Any) -> str:
    """The attention implementation a module uses now."""
    # transformers has no public name for it
    return str(getattr(module.config, "_attn_implementation", ""))


@contextmanager
def implementation(module: Any, name: str) -> Iterator[None]:
    """Run the module in eval mode with attention implementation `name`; everything is restored afterwards. Hold the module's lock."""
    with evaluating(module), configured(module):
        module.set_attn_implementation(name)
        if current(module) != name:
            raise Unsupported(
                "This model's attention does not go through transformers' AttentionInterface, so it can't be captured."
            )
        yield


def recorded() -> bool:
    """Whether a forward pass of capture() is going on."""
    return _recorder.get() is not None


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Within this context the attention function hands its calls to the recorder."""
    token = _recorder.set(recorder)
    try:
        yield
    finally:
        _recorder.reset(token)
