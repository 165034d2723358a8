"""The outputs of a model when the outputs of heads are replaced: exact, with what the change cannot reach computed once.

Layers below the head return what they returned before, and the heads of a layer are the inputs of one batch.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers.utils import ModelOutput

from ..core.attention import Kind
from ..errors import Unsupported
from ..models.loading import Model
from ..models.tokens import Encoded
from .closeness import is_close, tolerance
from .direct import PlainRecorder
from .forward import options_at, returned_logits
from .interface import NAME, attending_with, recording
from .sites import AttentionSites
from .trace import expanded

T = TypeVar("T")
# Tokens of the inputs that are computed at once.
TOKENS = 4096
NOT_AGAIN = "The layers of this model give other results when the layers before them are not run again, so heads cannot be replaced one by one."
# Number of a site, what its output projection is given [B, Q, H, D], and the heads to replace in each input -> what it is given instead.
Replace = Callable[[int, Tensor, Sequence[Sequence[int]]], Tensor]


@dataclass(frozen=True)
class ReplacedLogits:
    """The logits of a position, [vocabulary] or [classes], as they are and with heads replaced.

    replaced  those of the outputs `ids` with each head replaced on its own: one tensor [H, ids] per layer, NaN where that is not computed
    together  all logits with the chosen heads replaced at once; None if there are none
    """

    logits: Tensor
    ids: tuple[int, ...]
    replaced: list[Tensor]
    together: Tensor | None = None


def replaced_logits(
    model: Model,
    encoded: Encoded,
    sites: AttentionSites,
    kind: Kind,
    replace: Replace,
    ids: Sequence[int],
    position: int | None,
    chosen: Mapping[int, Sequence[int]] | None = None,
) -> ReplacedLogits:
    """Return the logits `ids`, by default the largest, with each head of a kind replaced on its own. The caller holds the model's lock.

    `chosen` are heads by the number of their site: with it, only these are replaced, each on its own and all together. `position` is None for a model that
    classifies whole inputs. Raises Unsupported for models without an output head, and for layers that cannot be run on their own.
    """
    runner = Runner(model, encoded, sites, kind, position)
    with torch.inference_mode(), attending_with(NAME, model.module), runner.hooks():
        logits = runner.first()
        ids = list(ids) or [int(logits.argmax())]
        runner.check(logits[ids], ids)
        replaced = []
        for number, site in enumerate(runner.sites):
            rows = logits.new_full((site.heads, len(ids)), torch.nan)
            for part in runner.batches(range(site.heads) if chosen is None else chosen.get(number, ())):
                rows[list(part)] = runner.again({number: [(head,) for head in part]}, replace)[:, ids]
            replaced.append(rows)
        together = runner.again({number: [heads] for number, heads in chosen.items()}, replace)[0] if chosen else None
    return ReplacedLogits(logits, tuple(ids), replaced, together)


class Runner:
    """A model that is run first as it is, and then again from the layer of a site on."""

    def __init__(self, model: Model, encoded: Encoded, sites: AttentionSites, kind: Kind, position: int | None) -> None:
        self.sites = sites.of(kind)
        self.model, self.all = model, sites
        self._inputs = model.inputs(encoded)
        self._options, self._row = options_at(model, position)
        self._tokens = max(map(len, (axis for axis in (encoded.tokens, encoded.target or [])))) or 1
        self._encoded: Any = None  # what the encoder of an encoder-decoder returned
        self._stored: list[Any] = []  # what the layers returned
        self._places: list[int] = []  # of the sites: the number of calls of layers before
        self._calls, self._skip, self.upcoming = 0, 0, 0
        self._pictured = encoded.pictured is not None
        # By part beside the layers, such as the tower of images: what it returned before them, and the number of its calls in this run.
        self._once, self._repeats = defaultdict[Any, list[Any]](list), Counter[Any]()
        self.changes: dict[int, Callable[[Tensor], Tensor]] = {}  # by the number of the site

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Watch the projections of the sites, and let layers return what they returned before."""
        modules = dict(self.model.module.named_modules())
        stacks = {str(site.block).rpartition(".")[0] for site in self.sites}
        layers = [layer for stack in stacks for layer in modules[stack].children()]
        projections = {str(site.projection) for site in self.sites}
        handles = [modules[name].register_forward_pre_hook(partial(self._read, name)) for name in projections]
        if "decoder_input_ids" in self._inputs:
            handles.append(self.model.module.get_encoder().register_forward_hook(self._keep_encoded))
        try:
            with ExitStack() as stack:
                for layer in layers:
                    stack.enter_context(replaced_forward(layer, partial(self._layer, layer.forward)))
                for part in _beside(modules, stacks) if self._pictured else ():
                    stack.enter_context(replaced_forward(part, partial(self._beside_layers, part, part.forward)))
                yield
        finally:
            for handle in handles:
                handle.remove()

    def first(self) -> Tensor:
        """Run the model as it is and return the logits of the position."""
        logits = self._run(self._inputs, 1)[0]
        if self._encoded is not None:
            self._inputs = {name: one for name, one in self._inputs.items() if name != "input_ids"}
            self._inputs["encoder_outputs"] = self._encoded
        if len(self._places) != len(self.sites):
            raise Unsupported(NOT_AGAIN, pointer="/model")
        return logits

    def check(self, expected: Tensor, ids: Sequence[int]) -> None:
        """Raise Unsupported unless the logits `ids` are the expected ones when only the last layer is run again."""
        unchanged = self.again({len(self.sites) - 1: [()]}, lambda number, written, heads: written)[0, list(ids)]
        if not is_close(unchanged, expected, 10 * tolerance(expected.dtype)):
            raise Unsupported(NOT_AGAIN, pointer="/model")

    def again(self, heads: Mapping[int, Sequence[Sequence[int]]], replace: Replace) -> Tensor:
        """Run the model with some heads of some sites replaced in each copy of the input, and return the logits [B, vocabulary]."""
        self._skip = self._places[min(heads)]
        self.upcoming = next(i for i, place in enumerate(self._places) if place == self._skip)
        self.changes = {number: partial(self._changed, replace, number, some) for number, some in heads.items()}
        size = len(heads[min(heads)])
        return self._run(_copies(self._inputs, size) if size > 1 else self._inputs, size)

    def _changed(self, replace: Replace, number: int, heads: Sequence[Sequence[int]], given: Tensor) -> Tensor:
        count = self.sites[number].heads
        written = given.reshape(len(heads), -1, count, given.shape[-1] // count)  # from [B, Q, H D] or [B Q, H D]
        return replace(number, written, heads).reshape(given.shape)

    def batches(self, copies: Sequence[T], tokens: int = TOKENS) -> Iterator[Sequence[T]]:
        """Yield some copies of the input after others, each by what makes it different: as many as have about so many tokens.

        An image beside a text has tensors that are no batch in many models, so its copies are computed one by one.
        """
        size = 1 if self._pictured else max(1, tokens // self._tokens)
        for low in range(0, len(copies), size):
            yield copies[low : low + size]

    def _run(self, inputs: dict[str, Any], size: int) -> Tensor:
        self._calls = 0
        self._repeats.clear()
        with recording(self.recorder(size)):
            output = self.model.module(**inputs, **self._options)
        return returned_logits(output, self._row)

    def recorder(self, size: int) -> PlainRecorder:
        """Return what computes the attention of one run of `size` copies."""
        return PlainRecorder(self.model, self.all, size=size)

    def _layer(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a layer, or return what it returned before."""
        self._calls += 1
        if not self.changes:
            self._stored.append(forward(*args, **kwargs))
            return self._stored[-1]
        if self._calls <= self._skip:
            given = args[0] if args else kwargs["hidden_states"]
            return expanded(self._stored[self._calls - 1], given.shape[0])
        return forward(*args, **kwargs)

    def _beside_layers(self, part: Any, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a part that is in no layer, or return what it returned before: nothing that is replaced reaches it before the layers."""
        if self._calls:
            return forward(*args, **kwargs)
        place = self._repeats[part]
        self._repeats[part] += 1
        if not self.changes:
            self._once[part].append(forward(*args, **kwargs))
        found = self._once[part][place]
        return copy.copy(found) if isinstance(found, ModelOutput) else found  # models write into theirs

    def _keep_encoded(self, part: Any, args: Any, output: Any) -> None:
        self._encoded = output

    def _read(self, name: str, part: Any, args: Any) -> Any:
        """Note where the site is in the first run; replace what its projection is given in the others."""
        if not self.changes:
            self._places.append(self._calls - 1)
            return None
        change = self.changes.get(self.upcoming)
        self.upcoming += 1
        return None if change is None else (change(args[0]), *args[1:])


def _beside(modules: Mapping[str, Any], stacks: Iterable[str]) -> Iterator[Any]:
    """Yield the largest parts of a model that are not around these stacks of layers."""
    above = {name for stack in stacks for name in _above(stack)}
    for name in above:
        for child, part in modules[name].named_children():
            if f"{name}.{child}".lstrip(".") not in above | set(stacks):
                yield part


def _above(name: str) -> list[str]:
    """Return the names of the modules around a module, the model's own, "", too."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(len(parts))]


@contextmanager
def replaced_forward(part: Any, forward: Callable[..., Any]) -> Iterator[None]:
    """Let a module compute something else within this context."""
    attributes, own = vars(part), vars(part).get("forward")
    attributes["forward"] = forward
    try:
        yield
    finally:
        attributes.pop("forward")
        attributes |= {} if own is None else {"forward": own}


def _copies(value: Any, size: int) -> Any:
    """Return an argument for `size` copies of the input."""
    if isinstance(value, ModelOutput):
        return type(value)(**expanded(dict(value), size))
    if isinstance(value, dict):
        return {name: _copies(one, size) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple(_copies(one, size) for one in value)
    return value.expand(size, *value.shape[1:]) if isinstance(value, Tensor) else value
