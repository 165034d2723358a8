"""One forward pass that shows every layer's attention on the way, of one input or of several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..core.attention import Keys, Kind, Layer
from ..errors import InvalidRequest, NonFinite
from ..mechanisms.base import Pass
from ..models.loading import Model
from ..models.tokens import Encoded
from . import batch
from .batch import Member, Take
from .interface import NAME, Calls, Masks, implementation, recording
from .recording import CaptureSpec, ModelInput, Recording
from .sites import AttentionSites


class Group:
    """The inputs that go through the model together, in one forward pass."""

    def __init__(
        self, model: Model, sites: AttentionSites, kind: Kind, inputs: Sequence[ModelInput], take: Take | None = None
    ) -> None:
        self.masks, self.size = Masks(), len(inputs)
        self._take = take if len(sites.all) == len(sites.of(kind)) else None
        modules = _Modules(model.module)
        self._recordings = [Recording(modules, sites, kind, one, row, self.size) for row, one in enumerate(inputs)]

    @property
    def failures(self) -> list[Exception | None]:
        """What went wrong with each input."""
        return [recording.failed for recording in self._recordings]

    def attend(self, calls: Calls) -> Tensor:
        """Outputs of all heads [B, H, Q, D]. Of inputs that are computed together as many as fit into a block are in memory at a time, of others one."""
        members = [Member(place, one, calls.one(place)) for place, one in enumerate(self._recordings)]
        size = batch.fitting(calls) if self._take else 1
        outputs = list[Tensor]()
        for low in range(0, len(members), size):
            some = members[low : low + size]
            if self._take and len(some) > 1:
                outputs += batch.attend(some, calls, self._take)
            else:
                outputs += [member.recording.attend(member.call) for member in some]
        if all(self.failures):
            raise _Over
        return torch.stack(outputs)

    def replay(self, query: Tensor, key: Tensor, value: Tensor, rest: dict[str, Any], module: Any) -> Tensor | None:
        """Outputs [B, Q, H, D] while a layer is run again, which is done for an input that goes alone only."""
        return self._recordings[0].replay(query, key, value, rest, module)

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Within this context the modules around attention are watched for every input."""
        with ExitStack() as stack:
            for recording in self._recordings:
                stack.enter_context(recording.hooks())
            yield


class _Modules(dict[str, Any]):
    """The modules of a model by name, looked up when they are asked for: there are hundreds, and a pass needs a few."""

    def __init__(self, root: Any) -> None:
        super().__init__()
        self._root = root

    def __missing__(self, name: str) -> Any:
        found = self[name] = self._root.get_submodule(name)
        return found


class _Over(Exception):
    """Every input of a pass has failed: there is no reason to go on."""


def capture(
    model: Model,
    encoded: Encoded,
    sites: AttentionSites,
    wanted: CaptureSpec,
    kind: Kind = "self",
    begin: Callable[[], Pass] = Pass,
) -> Any:
    """One forward pass under the mechanism that `begin` starts; what is wanted of it is handed on as soon as it is computed. Returns the model's own output.

    Raises NonFinite, Unsupported, and whatever those who are handed layers raise.
    """
    output, (failed,) = capture_many(model, [ModelInput(encoded, wanted, begin)], sites, kind)
    if failed is not None:
        raise failed
    return output


def capture_many(
    model: Model, inputs: Sequence[ModelInput], sites: AttentionSites, kind: Kind = "self", take: Take | None = None
) -> tuple[Any, list[Exception | None]]:
    """The same for several inputs of equal length in one forward pass, nothing padded. More than one only where `separate` says so.

    `take` gets heads of several inputs at once, where that can be done, and then `on_heads` of these inputs does not.

    Returns the model's own output (None if no input came through), and what went wrong with each input. Raises what ends the whole pass, such as a lack
    of memory.
    """
    if not sites.captured:
        (one,) = inputs
        return _eager(model, one, sites, kind), [None]
    inputs = [replace(one, padded=_padded(model, one, sites, kind)) for one in inputs]
    group = Group(model, sites, kind, inputs, take)
    output = None
    with suppress(_Over):
        output = _forward(model, _stacked([model.inputs(one.encoded) for one in inputs]), group)
    return output, group.failures


def _stacked(inputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Arguments of the forward pass for all inputs at once."""
    if len(inputs) == 1:
        return inputs[0]
    return {name: torch.cat([one[name] for one in inputs]) for name in inputs[0]}


def _forward(model: Model, inputs: dict[str, Any], group: Group) -> Any:
    with model.lock, torch.inference_mode(), implementation(model.module, NAME), recording(group), group.hooks():
        return model.module(**inputs, **quiet(model))


def _padded(model: Model, one: ModelInput, sites: AttentionSites, kind: Kind) -> dict[int, Tensor]:
    """Layer -> values [H, P, D] of the same input padded to P tokens, where they are wanted; nothing if it is longer than that."""
    if one.wanted.pad_to is None:
        return {}
    most = model.facts.tower(kind).max_tokens
    if most is not None and one.wanted.pad_to > most:
        raise InvalidRequest(
            f"This model takes {most} tokens, so its input can't be padded to {one.wanted.pad_to}. Ask for a pad_to of {most} or less.",
            pointer="/lenses",
            limit=most,
            actual=one.wanted.pad_to,
        )
    inputs, count = model.inputs(one.encoded), len(one.encoded.axes(sites.of(kind)[0].kind).keys)
    missing = one.wanted.pad_to - count
    if missing < 0:
        return {}
    filler = {"input_ids": int(getattr(model.module.config, "pad_token_id", None) or 0)}
    longer = {
        name: tensor
        if name.startswith("decoder_")
        else torch.nn.functional.pad(tensor, (0, missing), value=filler.get(name, 0))
        for name, tensor in inputs.items()
    }
    values: dict[int, list[Tensor]] = {}

    def keep(layer: Layer) -> None:
        per_group = len(layer.heads) // layer.values.shape[0]
        values.setdefault(layer.index, []).append(layer.values.repeat_interleave(per_group, dim=0))

    group = Group(model, sites, kind, [replace(one, wanted=CaptureSpec(keep))])
    with suppress(_Over):
        _forward(model, longer, group)
    if group.failures[0] is not None:
        raise group.failures[0]
    return {layer: torch.cat(blocks) for layer, blocks in values.items()}


def quiet(model: Model) -> dict[str, Any]:
    """Arguments that keep a forward pass to itself: no cache where there is one."""
    import inspect

    accepted = inspect.signature(model.module.forward).parameters
    return {"return_dict": True} | ({"use_cache": False} if "use_cache" in accepted else {})


def _eager(model: Model, one: ModelInput, sites: AttentionSites, kind: Kind) -> Any:
    """What eager attention returns of itself: weights, and nothing else."""
    inputs, wanted, axes = model.inputs(one.encoded), one.wanted, one.encoded.axes(sites.of(kind)[0].kind)
    with model.lock, torch.inference_mode(), implementation(model.module, "eager"):
        output = model.module(**inputs, **quiet(model), output_attentions=True)
    for site, weights in zip(sites.of(kind), returned(output)[sites.of(kind)[0].kind], strict=True):
        if not bool(weights.isfinite().all()):
            raise NonFinite(
                f"Layer {site.layer} of the model computes NaN or infinity on this input; its maps would mean nothing."
            )
        empty = weights.new_empty(0)
        keys = Keys("prefix") if site.causal else Keys("all")
        layer = Layer(
            site.layer, tuple(range(site.heads)), weights[0].float(), empty, empty, keys, torch.finfo(weights.dtype).eps, axes, empty, empty,
        )  # fmt: skip
        wanted.on_heads(layer)
        if wanted.on_layer is not None:
            wanted.on_layer(layer)
    return output


def returned(output: Any) -> dict[Kind, list[Tensor]]:
    """The weights [1, H, Q, K] that a model returned, by kind; layers that do not attend are left out."""
    names: dict[Kind, str] = {
        "self": "attentions",
        "encoder": "encoder_attentions",
        "decoder": "decoder_attentions",
        "cross": "cross_attentions",
    }
    found = {
        kind: [one for one in getattr(output, name, None) or () if one is not None] for kind, name in names.items()
    }
    return {kind: maps for kind, maps in found.items() if maps and all(isinstance(one, Tensor) for one in maps)}
