"""Headscope's attention function, registered with transformers, and its mask function of the same name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask, sdpa_mask

from ..core.attention import BLOCK_BYTES, Keys, at_once, interval_of
from ..errors import Unsupported
from ..mechanisms.base import Scores
from ..models.modules import configured, evaluating

NAME = "headscope"
# Queries from which on masks are omitted whose queries see the prefix, or intervals.
LONG = 1024
# Entries of a mask computed at once to find these intervals.
ENTRIES = 1024 * 1024
PREFIX = Keys("prefix")
# In the names of configurations of the parts of a model that read images.
IMAGE_PARTS = ("vision", "vq", "vit", "perceiver")


@dataclass(frozen=True)
class Mask:
    """An additive mask of Q queries and K keys, split into the keys that may be attended to and the bias that is added there, [1 or H, Q, K]."""

    keys: Keys
    sides: tuple[int, int]
    bias: Tensor | None = None

    @cached_property
    def blocked(self) -> Tensor | None:
        """Where a query may not attend, [1, Q, K] (bool); None if it may attend everywhere."""
        return None if self.keys.rule == "all" else ~self.keys.allowed(*self.sides)[None]


@dataclass(frozen=True)
class AttentionCall:
    """One call of the attention function with B inputs: query [B, H, Q, D'], key [B, G, K, D'], value [B, G, K, D], and a mask per input."""

    module: Any
    query: Tensor
    key: Tensor
    value: Tensor
    masks: Sequence[Mask]
    scaling: float
    softcap: float | None
    sink: Tensor | None  # [H, 1, 1]

    @property
    def per_group(self) -> int:
        """Query heads that share one key/value head."""
        return self.query.shape[1] // self.key.shape[1]

    @property
    def heads(self) -> int:
        """Number of query heads H."""
        return self.query.shape[1]

    def select(self, inputs: Sequence[int]) -> AttentionCall:
        """Return the call with only these inputs; consecutive inputs are views."""
        first, last = inputs[0], inputs[-1] + 1
        if last - first == len(inputs) == len(self.masks):
            return self
        rows = slice(first, last) if last - first == len(inputs) else list(inputs)
        query, key, value = self.query[rows], self.key[rows], self.value[rows]
        return replace(self, query=query, key=key, value=value, masks=[self.masks[place] for place in inputs])

    def contiguous(self) -> AttentionCall:
        """Return the call such that input and head of its tensors can become one axis without a copy."""
        if len(self.masks) == 1:
            return self
        return replace(self, query=self.query.contiguous(), key=self.key.contiguous(), value=self.value.contiguous())

    def scores(self, layer: int, low: int, high: int, *, masked: bool = True) -> Scores:
        """Return the scores of all inputs for the query heads that read key/value heads `low` to `high`; the inputs must share one mask.

        Without `masked`, they do not know what is blocked.

        Input and head become one axis, one input after the other: [B, h, Q, K] -> [B h, Q, K].
        """
        size, heads, bias = len(self.masks), slice(low * self.per_group, high * self.per_group), self.masks[0].bias
        bias = bias if bias is None or bias.shape[0] == 1 else _repeated(bias[heads], size)
        return Scores(
            layer=layer,
            heads=tuple(range(heads.start, heads.stop)) * size,
            query=self.query[:, heads].flatten(0, 1),  # [B h, Q, D']
            key=self.shared(self.key, low, high),  # [B h, K, D']
            scaling=self.scaling,
            softcap=self.softcap,
            bias=bias,
            blocked=self.masks[0].blocked if masked else None,
            sink=None if self.sink is None else _repeated(self.sink[heads], size),
        )

    def shared(self, tensor: Tensor, low: int, high: int) -> Tensor:
        """Keys or values [B, G, K, D] of key/value heads `low` to `high` -> one for each query head that reads them, [B h, K, D]."""
        chosen = tensor[:, low:high].flatten(0, 1)
        return chosen if self.per_group == 1 else chosen.repeat_interleave(self.per_group, dim=0)

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of key/value heads whose weights fit into a block: a single range for several inputs, which fit by choice."""
        groups, keys = self.key.shape[1:3]
        most = at_once(BLOCK_BYTES, self.query.device)
        size = max(1, most // (self.per_group * self.query.shape[2] * keys * 4))
        if len(self.masks) > 1:
            size = groups
        for low in range(0, groups, size):
            yield low, min(low + size, groups)


def _repeated(tensor: Tensor, size: int) -> Tensor:
    """[h, ...] -> [B h, ...], the same for each of `size` inputs."""
    return tensor if size == 1 else tensor.repeat(size, 1, 1)


class Recorder(Protocol):
    """Computes attention during a forward pass of capture(), for `size` inputs of equal length without padding."""

    masks: Masks
    size: int
    home: torch.device  # where everything is computed, whichever device a part of the model is on

    def attend(self, call: AttentionCall) -> Tensor:
        """Return the heads' outputs [B, H, Q, D]."""

    def replay(self, query: Tensor, key: Tensor, value: Tensor, rest: dict[str, Any], module: Any) -> Tensor | None:
        """Return the outputs [B, Q, H, D] while a layer is run again, None in an ordinary forward pass."""


class ModuleAttention(Protocol):
    """Computes the attention of a module that attends by a mechanism, outside of capture()."""

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, rest: dict[str, Any]) -> Tensor:
        """Return the outputs [B, Q, H, D] of a batch."""


_recorder: ContextVar[Recorder | None] = ContextVar("headscope_recorder", default=None)
PATCH = "headscope_patch"  # attribute of a module that calls the attention function: its ModuleAttention


class Masks:
    """The masks of a pass, the last few of which are cached: most layers share one. `causal` has, by id, whether each attention module was causal on the probe.

    Without it no mask is omitted. Placeholders would be copied where a model is on `several` devices.
    """

    def __init__(self, causal: Mapping[int, bool] | None = None, several: bool = False) -> None:
        self._known: list[tuple[Tensor | None, Tensor | None, Keys | None, tuple[int, int], list[Mask]]] = []
        self._causal, self._omitted = causal or {}, set[tuple[int, int]]()
        self._several = several
        self._replaced: list[tuple[Tensor, Keys]] = []  # placeholders of masks, and what these let queries see

    def make(self, **options: Any) -> Tensor | None:
        """Return the additive mask that a model asks for.

        Of a long input it would be larger than anything else of the pass: None stands for a causal one, and a single number for one of windows or chunks.
        """
        sides, local = (options["q_length"], options["kv_length"]), options.get("local_size")
        if self._causal and sides[0] == sides[1] >= LONG and not options.get("use_vmap", False):
            windows = local is not None and local <= sides[1]
            if windows and not self._several:
                return self._replace(options)
            skips = options.get("allow_is_causal_skip", False) and not windows
            if skips and sdpa_mask(**{**options, "allow_is_bidirectional_skip": False}) is None:
                self._omitted.add(sides)
                return None
        made: Tensor | None = eager_mask(**options)
        return made

    def _replace(self, options: dict[str, Any]) -> Tensor | None:
        """Return a placeholder if all inputs have one mask whose queries see intervals, else the mask itself."""
        keys = _intervals(options)
        if keys is None:
            made: Tensor | None = eager_mask(**options)
            return made
        # It is only passed on. Where a model computes with it after all, what follows is no number either.
        number = torch.full(
            (1, 1, 1, 1), torch.nan, dtype=options.get("dtype", torch.float32), device=options["device"]
        )
        placeholder = number.expand(options["batch_size"], 1, options["q_length"], options["kv_length"])
        self._replaced.append((placeholder, keys))
        return placeholder

    def omitted(self, module: Any, mask: Tensor | None, sides: tuple[int, int]) -> Keys | None:
        """Return what a mask that was omitted lets the queries of a call see, None if the call has its mask.

        A call without one is causal if a mask of its size was omitted, and the module's was causal on the probe.
        """
        if mask is None:
            return PREFIX if sides in self._omitted and self._causal.get(id(module), False) else None
        if not self._replaced:
            return None
        place = mask.untyped_storage().data_ptr()
        found = (keys for one, keys in self._replaced if one.untyped_storage().data_ptr() == place)
        return next(found, None)

    def read(
        self,
        mask: Tensor | None,
        bias: Tensor | None,
        sides: tuple[int, int],
        device: torch.device,
        size: int = 1,
        omitted: Keys | None = None,
    ) -> list[Mask]:
        """Return the mask of each of `size` inputs with Q queries and K keys.

        `mask` [1 or B, 1 or H, Q, K] is additive or bool, None if it was `omitted`, or if all keys are seen; `bias`, of the same shape, is added.
        """
        for known_mask, known_bias, *which, found in self._known:
            if known_mask is mask and known_bias is bias and which[0] is omitted and which[1] == sides:
                return found
        found = list[Mask]()
        first = (_row(mask, 0), _row(bias, 0))
        for place in range(size):
            row = (_row(mask, place), _row(bias, place))
            same = bool(found) and all(map(_equal, row, first))
            found.append(found[0] if same else _parse(*row, sides, device, omitted))
        self._known = [(mask, bias, omitted, sides, found), *self._known[:3]]
        return found


def _row(batch: Tensor | None, place: int) -> Tensor | None:
    """[1 or B, 1 or H, Q, K] -> [1 or H, Q, K] of one input."""
    return None if batch is None else batch[place if batch.shape[0] > 1 else 0]


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one, other))


def _intervals(options: dict[str, Any]) -> Keys | None:
    """Return the intervals of keys that queries see under a mask that a model asks for, computed some queries after others; None if it has others, or not one for all inputs."""
    found = list[tuple[Tensor, Tensor]]()
    queries, keys = options["q_length"], options["kv_length"]
    step = max(1, ENTRIES // keys)
    whole = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    for low in range(0, queries, step):
        place = {"q_length": min(step, queries - low), "q_offset": options.get("q_offset", 0) + low}
        mask = sdpa_mask(**{**options, **place, **whole})[:, 0]
        begin, end = interval_of(mask[0])
        if bool((mask != mask[:1]).any()) or not torch.equal(mask[0].sum(-1), end - begin):
            return None
        found.append((begin, end))
    begin, end = (torch.cat(part) for part in zip(*found, strict=True))
    return Keys.within(begin, end, keys)


def _parse(
    mask: Tensor | None, bias: Tensor | None, sides: tuple[int, int], device: torch.device, omitted: Keys | None
) -> Mask:
    """Split the mask and bias [1 or H, Q, K] of one input."""
    keys = sides[1]
    added = None if bias is None or not bool(bias.any()) else bias[..., :keys].to(device)
    if mask is None:
        return Mask(omitted or Keys("all"), sides, added)
    allowed, rest = split_mask(mask[..., :keys].to(device))
    if bool((allowed != allowed[:1]).any()):
        raise Unsupported("Every head of this model has a mask of its own, which Headscope does not support.")
    allowed = allowed[:1]  # [1, Q, K]
    if rest is not None:
        added = rest if added is None else added + rest
    if not bool(allowed.any(-1).all()):
        raise Unsupported("Some tokens of this input may not attend to any token.")
    return Mask(Keys.of(allowed[0]), sides, added)


def split_mask(mask: Tensor) -> tuple[Tensor, Tensor | None]:
    """Split an additive or bool mask into where attention is allowed (bool) and what is added there (None if that is zero)."""
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
    """Query [B, H, Q, D'], key and value [B, G, K, D] -> output [B, Q, H, D], with the signature of transformers' AttentionInterface."""
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    s_aux = sinks if s_aux is None else s_aux
    recorder, sides = _recorder.get(), (query.shape[2], key.shape[2])
    omitted = None if recorder is None else recorder.masks.omitted(module, attention_mask, sides)
    attention_mask = attention_mask if omitted is None else None
    if indices is not None:
        attention_mask = attention_mask if omitted is None else whole_mask(omitted, sides, query.device)
        attention_mask, omitted = _without_unselected(indices, attention_mask, key.shape[2]), None
    arguments = {"mask": attention_mask, "bias": position_bias, "scaling": scaling, "softcap": softcap, "sink": s_aux}
    arguments["omitted"] = omitted
    if recorder is None:
        patch: ModuleAttention | None = getattr(module, PATCH, None)
        if patch is None:
            raise RuntimeError(
                "Headscope's attention runs only inside capture() and in modules that attend by a mechanism"
            )
        return patch.attend(module, query, key, value, {**arguments, "dropout": dropout}), None
    again = recorder.replay(query, key, value, arguments, module)
    if again is not None:
        return again.contiguous().to(query.device), None
    if query.shape[0] != recorder.size:
        raise Unsupported(
            "This model splits its input into pieces that attend separately, which Headscope does not support."
        )
    device, home = query.device, recorder.home
    query, key, value = query.to(home), key.to(home), value.to(home)
    sink = None if s_aux is None else s_aux.to(home).reshape(query.shape[1], -1, 1)  # [H] -> [H, 1, 1]
    with on_device(home):
        masks = recorder.masks.read(attention_mask, position_bias, sides, home, recorder.size, omitted)
        outputs = recorder.attend(AttentionCall(module, query, key, value, masks, float(scaling), softcap, sink))
    return outputs.transpose(1, 2).contiguous().to(device), None  # [B, H, Q, D] -> [B, Q, H, D]


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """Create new tensors of masks, mechanisms, lenses and measures on the model's device."""
    return nullcontext() if device.type == "cpu" else device


def whole_mask(keys: Keys, sides: tuple[int, int], device: torch.device) -> Tensor:
    """Return a mask that was omitted, [1, 1, Q, K] (bool)."""
    with on_device(device):
        return keys.allowed(*sides)[None, None]


def _without_unselected(indices: Tensor, mask: Tensor | None, keys: int) -> Tensor:
    """Block the keys that a sparse layer did not select, in a mask [1, 1, Q, K]; `indices` [1, Q, k] are the selected ones."""
    unselected = torch.ones(*indices.shape[:-1], keys, dtype=torch.bool, device=indices.device)
    unselected = unselected.scatter(-1, indices, False).unsqueeze(1)  # [1, Q, K] -> [1, 1, Q, K]
    if mask is None:
        return ~unselected
    return mask[..., :keys].masked_fill(unselected, False if mask.dtype == torch.bool else torch.finfo(mask.dtype).min)


def blocked_and_bias(mask: Tensor | None, bias: Tensor | None, keys: int) -> tuple[Tensor | None, Tensor | None]:
    """Return where attention of a batch is blocked [B, 1 or H, Q, K], and what is added to its scores; `mask` is additive or bool."""
    added = None if bias is None else bias[..., :keys]
    if mask is None:
        return None, added
    allowed, rest = split_mask(mask[..., :keys])
    blocked = None if bool(allowed.all()) else ~allowed
    return blocked, added if rest is None else rest if added is None else added + rest


def batch_scores(
    layer: int, query: Tensor, key: Tensor, arguments: dict[str, Any], blocked: Tensor | None, bias: Tensor | None
) -> Scores:
    """Return the scores of a whole batch: query [B, H, Q, D'], key [B, G, K, D']."""
    heads = query.shape[1]
    key = for_each_head(key, heads)
    sink = None if arguments["sink"] is None else arguments["sink"].reshape(heads, -1, 1)  # [H] -> [H, 1, 1]
    scaling, softcap = float(arguments["scaling"]), arguments["softcap"]
    return Scores(layer, tuple(range(heads)), query, key, scaling, softcap, bias, blocked, sink)


def for_each_head(tensor: Tensor, heads: int) -> Tensor:
    """Repeat keys or values of a batch for every query head that reads them: [B, G, K, D] -> [B, H, K, D]."""
    group = heads // tensor.shape[1]
    return tensor if group == 1 else tensor.repeat_interleave(group, dim=1)


def attention_mask(**options: Any) -> Tensor | None:
    """Return the mask that a model asks for, with the signature of transformers' AttentionMaskInterface."""
    recorder = _recorder.get()
    return eager_mask(**options) if recorder is None else recorder.masks.make(**options)


# Both need the same name: without a mask function, transformers silently passes no mask.
AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, attention_mask)


def implementation_of(module: Any) -> str:
    """Return the module's current attention implementation."""
    # transformers has no public name for it
    return str(getattr(module.config, "_attn_implementation", ""))


@contextmanager
def attending_with(name: str, module: Any) -> Iterator[None]:
    """Run the module in eval mode with attention implementation `name` and restore both afterwards. The caller holds the module's lock."""
    with evaluating(module), configured(module):
        takes_images = (
            getattr(module, "main_input_name", None) == "pixel_values"
        )  # alone: its image tower is what attends
        module.set_attn_implementation(name if takes_images else _of_each_part(module.config, name))
        if implementation_of(module) != name:
            raise Unsupported(
                "This model's attention does not go through transformers' AttentionInterface, so it cannot be captured."
            )
        yield


def _of_each_part(config: Any, name: str) -> str | dict[str, Any]:
    """Return the implementation for each part of a model, as transformers takes it: the image tower of a vision-language model attends as it was built."""
    parts = {key: getattr(config, key, None) for key in getattr(config, "sub_configs", ())}
    if not parts:
        return name
    return {"": name} | {
        key: "eager" if part is None or any(word in key for word in IMAGE_PARTS) else _of_each_part(part, name)
        for key, part in parts.items()
    }


def is_recording() -> bool:
    """Return whether a forward pass of capture() is running."""
    return _recorder.get() is not None


class Reached(Exception):
    """What a pass was begun for is there, so the rest is not needed."""


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Send all calls of the attention function to the recorder."""
    token = _recorder.set(recorder)
    try:
        yield
    finally:
        _recorder.reset(token)
