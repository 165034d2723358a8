"""A forward pass that hands on every layer's attention, for one input or several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..core.attention import Keys, Kind, Layer
from ..errors import InvalidRequest, Unsupported
from ..mechanisms.base import Pass
from ..models.loading import Model
from ..models.modules import attends_in_blocks
from ..models.tokens import Encoded
from .batch import Batch, OnBatch, attend, most_inputs
from .gates import GateReader
from .interface import NAME, AttentionCall, Masks, attending_with, recording
from .recording import CaptureSpec, ModelInput, Recording, not_finite
from .sites import AttentionSites

NO_HEAD = "This model has no head that returns logits. Load it with one."
OTHER_HEAD = "This model predicts neither tokens nor classes of whole inputs, so its heads have no effect on a prediction that Headscope knows."

IN_BLOCKS = (
    "This model attends to some blocks of a text of this length only, and the weights that it returns then are not those that it computes with. "
    'Shorten the text, or set attention_type to "original_full" in its configuration.'
)


class PassRecorder:
    """The recorder of one forward pass and its inputs. Without `on_batch` each input's heads go to its own `on_heads`."""

    def __init__(
        self,
        model: Model,
        sites: AttentionSites,
        kind: Kind,
        inputs: Sequence[ModelInput],
        on_batch: OnBatch | None = None,
    ) -> None:
        modules, omits = _Modules(model.module), bool(getattr(model.module, "_supports_sdpa", False))
        causal = {id(modules[str(site.module)]): site.causal for site in sites.all} if omits else None
        several = len(set(getattr(model.module, "hf_device_map", {}).values())) > 1
        self.masks, self.size, self.home = Masks(causal, several), len(inputs), model.device
        self._on_batch = on_batch
        self._gates = GateReader(modules, sites.of(kind), self.size)
        self._recordings = [Recording(modules, sites, kind, one, row, self.size) for row, one in enumerate(inputs)]

    @property
    def failures(self) -> list[Exception | None]:
        """The error of each input, None where there was none."""
        return [recording.failed for recording in self._recordings]

    def attend(self, call: AttentionCall) -> Tensor:
        """Return the heads' outputs [B, H, Q, D]. As many inputs as fit into a block are computed at once; without `on_batch` one at a time."""
        size = most_inputs(call) if self._on_batch else 1
        outputs = list[Tensor]()
        for low in range(0, self.size, size):
            places = range(low, min(low + size, self.size))
            chosen = [self._recordings[place] for place in places]
            outputs.append(attend(chosen, call.select(places), self._on_batch or self._on_heads, self._gates))
        if all(self.failures):
            raise _AllFailed
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _on_heads(self, batch: Batch) -> list[Exception | None]:
        chosen = [self._recordings[place] for place in batch.places]
        for number, one in enumerate(chosen):
            one.attempt(partial(_hand_on, one, batch, number))
        return [one.failed for one in chosen]

    def replay(self, query: Tensor, key: Tensor, value: Tensor, rest: dict[str, Any], module: Any) -> Tensor | None:
        """Return the outputs [B, Q, H, D] while a layer is run again, which happens only for an input on its own."""
        return self._recordings[0].replay(query, key, value, rest, module)

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Watch the modules around attention for every input."""
        with ExitStack() as stack:
            stack.enter_context(self._gates.hooks())
            for recording in self._recordings:
                stack.enter_context(recording.hooks())
            yield


def _hand_on(recording: Recording, batch: Batch, number: int) -> None:
    recording.spec.on_heads(batch.whole().one(number))


class _Modules(dict[str, Any]):
    """The modules of a model by name, looked up on demand: a model has hundreds, and a pass needs a few."""

    def __init__(self, root: Any) -> None:
        super().__init__()
        self._root = root

    def __missing__(self, name: str) -> Any:
        found = self[name] = self._root.get_submodule(name)
        return found


class _AllFailed(Exception):
    """Every input of a pass has failed, so the pass stops."""


def capture(
    model: Model,
    encoded: Encoded,
    sites: AttentionSites,
    spec: CaptureSpec,
    kind: Kind = "self",
    begin: Callable[[], Pass] = Pass,
) -> Any:
    """Run one forward pass under the mechanism that `begin` starts, handing on layers as soon as they are computed, and return the model's own output.

    Raises NonFinite, Unsupported, and what the callbacks of `spec` raise.
    """
    output, (failed,) = capture_many(model, [ModelInput(encoded, spec, begin)], sites, kind)
    if failed is not None:
        raise failed
    return output


def capture_many(
    model: Model,
    inputs: Sequence[ModelInput],
    sites: AttentionSites,
    kind: Kind = "self",
    on_batch: OnBatch | None = None,
    *,
    logits: bool = True,
) -> tuple[Any, list[Exception | None]]:
    """Run one forward pass for several inputs of equal length, without padding. Give more than one only if `batches_exactly` allows it.

    `on_batch` gets the heads of several inputs at once, instead of each input's `on_heads`. Without `logits`, the output may have those of one token only.

    Returns the model's own output (None if every input failed) and the error of each input. Raises what ends the whole pass, such as a lack of memory.
    """
    if not sites.captured:
        (one,) = inputs
        return _run_eager(model, one, sites, kind), [None]
    inputs = [replace(one, padded=_padded_values(model, one, sites, kind)) for one in inputs]
    recorder = PassRecorder(model, sites, kind, inputs, on_batch)
    output = None
    with suppress(_AllFailed):
        options, _ = options_at(model, None if logits else 0)
        output = _forward(model, _stacked([model.inputs(one.encoded) for one in inputs]), recorder, options)
    return output, recorder.failures


def _stacked(inputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the arguments of the forward pass for all inputs: tensors [1, ...] -> [B, ...]."""
    if len(inputs) == 1:
        return inputs[0]
    return {name: torch.cat([one[name] for one in inputs]) for name in inputs[0]}


def _forward(model: Model, inputs: dict[str, Any], recorder: PassRecorder, options: dict[str, Any]) -> Any:
    with model.lock, torch.inference_mode(), attending_with(NAME, model.module), recording(recorder), recorder.hooks():
        return model.module(**inputs, **options)


def _padded_values(model: Model, one: ModelInput, sites: AttentionSites, kind: Kind) -> dict[int, Tensor]:
    """Return layer -> values [H, P, D] of the input padded to P tokens; empty if they are not needed or the input is longer."""
    pad_to = one.spec.pad_to
    if pad_to is None:
        return {}
    most = model.facts.tower(kind).max_tokens
    if most is not None and pad_to > most:
        raise InvalidRequest(
            f"This model takes {most} tokens, so its input cannot be padded to {pad_to}. Set pad_to to {most} or less.",
            pointer="/lenses",
            limit=most,
            actual=pad_to,
        )
    inputs, count = model.inputs(one.encoded), len(one.encoded.axes(sites.of(kind)[0].kind).keys)
    missing = pad_to - count
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
        # [G, P, D] -> [H, P, D]
        values.setdefault(layer.index, []).append(layer.values.repeat_interleave(per_group, dim=0))

    recorder = PassRecorder(model, sites, kind, [replace(one, spec=CaptureSpec(keep))])
    with suppress(_AllFailed):
        _forward(model, longer, recorder, options_at(model, 0)[0])
    if recorder.failures[0] is not None:
        raise recorder.failures[0]
    return {layer: torch.cat(blocks) for layer, blocks in values.items()}


def forward_options(model: Model) -> dict[str, Any]:
    """Return the options of every forward pass: a dictionary as output, and no cache."""
    return {"return_dict": True} | ({"use_cache": False} if "use_cache" in model.forward_arguments else {})


def options_at(model: Model, position: int | None) -> tuple[dict[str, Any], int | None]:
    """Return the options of a pass of which only the logits at a token matter, and the row [B, row, vocabulary] where they are; None stands for all of them."""
    options = forward_options(model)
    if position is None or "logits_to_keep" not in model.forward_arguments:
        return options, position
    return {**options, "logits_to_keep": torch.tensor([position], device=model.device)}, 0


def returned_logits(output: Any, row: int | None) -> Tensor:
    """Return the logits of a row of tokens [B, row, vocabulary], or without a row of classes [B, classes]. Raises Unsupported for a model that returns others, or none."""
    logits: Tensor | None = getattr(output, "logits", None)
    if logits is None:
        raise Unsupported(NO_HEAD, pointer="/model")
    if logits.dim() != (2 if row is None else 3):
        raise Unsupported(OTHER_HEAD, pointer="/model")
    return logits if row is None else logits[:, row]


def _run_eager(model: Model, one: ModelInput, sites: AttentionSites, kind: Kind) -> Any:
    """Hand on the weights that eager attention returns, and nothing else."""
    inputs, spec, chosen = model.inputs(one.encoded), one.spec, sites.of(kind)
    axes = one.encoded.axes(chosen[0].kind)
    with model.lock, torch.inference_mode(), attending_with("eager", model.module):
        output = model.module(**inputs, **forward_options(model), output_attentions=True)
        if chosen[0].kind in ("self", "encoder") and attends_in_blocks(model.module):
            raise Unsupported(IN_BLOCKS, pointer="/text")
    for site, weights in zip(chosen, returned_weights(output)[chosen[0].kind], strict=True):
        if not bool(weights.isfinite().all()):
            raise not_finite(site)
        empty = weights.new_empty(0)
        keys = Keys("prefix") if site.causal else Keys("all")
        layer = Layer(
            site.layer, tuple(range(site.heads)), weights[0].float(), empty, empty, keys, torch.finfo(weights.dtype).eps, axes, empty, empty,
        )  # fmt: skip
        spec.on_heads(layer)
        if spec.on_layer is not None:
            spec.on_layer(layer)
    return output


def returned_weights(output: Any) -> dict[Kind, list[Tensor]]:
    """Return the weights [1, H, Q, K] in a model's output, by kind; layers that do not attend are left out."""
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
