"""The gradient of an output on the paths of Dual Path Attribution: of everything that is a product, every factor counts for an equal share.

One pass forward and one back, in which normalisations and activations are held at what they multiply by, as on the direct path. What is left of a gated
feed-forward part is a product of two linear maps, and each takes half of the gradient. So does attention: half goes on through the values at the weights as they
are, and a quarter each through the queries and the keys, by the derivative of the softmax.

Nothing but attention loses any of the output on the way down, which is checked: embedding, biases and what attention loses sum to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..core.attention import Kind
from ..errors import Unsupported
from ..models.loading import Model
from ..models.tokens import Encoded
from . import affine
from .direct import FrozenFunctions, HeadOutputs, LinearPass, PlainRecorder, is_norm
from .interface import NAME, AttentionCall, attending_with, recording
from .outputs import NO_GRADIENT, AttentionGradients, values_of
from .sites import AttentionSites

CONTENT, QUERY, KEY = 0.5, 0.25, 0.25  # of the gradient of attention's output
FACTOR = 0.5  # of the gradient of a product


@dataclass(frozen=True)
class DualPath(AttentionGradients):
    """As AttentionGradients, on the dual paths.

    value   of the target, before the cap if logits are `capped`
    terms   [n] in float64: what the embedding and the biases give, what attention takes, and less what it hands on; they sum to the value if no other part loses anything
    """

    value: float
    capped: bool
    terms: Tensor


def dual_path(
    model: Model, encoded: Encoded, sites: AttentionSites, kind: Kind, ids: Sequence[int], position: int | None
) -> DualPath:
    """Return what the heads of a kind attend to, and the gradient of a target at their outputs on the dual paths. Otherwise as gradients_of_attention."""
    functions = _Products()
    walk, recorder = _DualPass(model, sites.of(kind), functions), _SharingRecorder(model, sites, kind, functions)
    with torch.no_grad(), attending_with(NAME, model.module), recording(recorder):
        with _fixed(model.module), walk.hooks():
            row, returned, capped, _ = walk.run(model, encoded, position)
        ids = tuple(ids) or (int(returned.argmax()),)
        with torch.enable_grad():
            value = values_of(row, ids)
            gradients, terms = walk.propagate(value, recorder)
    heads = [HeadOutputs(*(one.detach() for one in (h.weights, h.values, h.output))) for h in recorder.outputs]
    return DualPath(returned.detach(), ids, heads, gradients, float(value.detach()), capped, terms)


@contextmanager
def _fixed(module: torch.nn.Module) -> Iterator[None]:
    """Take gradients off the parameters, so that a product with one of them has one factor that depends on the input."""
    free = [one for one in module.parameters() if one.requires_grad]
    for one in free:
        one.requires_grad_(False)
    try:
        yield
    finally:
        for one in free:
            one.requires_grad_()


class _Share(torch.autograd.Function):
    """The same tensor, which takes a share of its gradient."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, share: float) -> Tensor:
        ctx.share = share
        return given.view_as(given)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0] * ctx.share, None


def _shared(given: Tensor, share: float) -> Tensor:
    found: Tensor = _Share.apply(given, share)  # type: ignore[no-untyped-call]
    return found


class _Products(FrozenFunctions):
    """Also gives each factor of a product its share of the gradient. Attention has shares of its own."""

    attending = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.attending:
            return func(*args, **(kwargs or {}))
        if func in (torch.mul, torch.Tensor.mul) and all(isinstance(one, Tensor) and one.requires_grad for one in args):
            args = [_shared(one, FACTOR) for one in args]
        return super().__torch_function__(func, types, args, kwargs)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Change no function."""
        self.attending = True
        try:
            yield
        finally:
            self.attending = False


class _SharingRecorder(PlainRecorder):
    """Keeps what goes into the attention of the sites, and what comes out, of which each side takes its share of the gradient."""

    def __init__(self, model: Model, sites: AttentionSites, kind: Kind, functions: _Products) -> None:
        super().__init__(model, sites, sites.of(kind))
        self.given: list[Tensor] = []  # queries, keys and values
        self.attended: list[Tensor] = []
        self._functions = functions

    def attend(self, call: AttentionCall) -> Tensor:
        """Return the heads' outputs [1, H, Q, D]."""
        sides = {"query": QUERY, "key": KEY, "value": CONTENT}
        shared: dict[str, Any] = {name: _shared(getattr(call, name), share) for name, share in sides.items()}
        with self._functions.paused():
            found = super().attend(replace(call, **shared))
        if len(self.outputs) > len(self.attended):
            self.given += [call.query, call.key, call.value]
            self.attended.append(found)
        return found


class _DualPass(LinearPass):
    """The hooks of a pass that is cut nowhere."""

    def _inside(self, stacks: set[str]) -> Iterator[tuple[Any, Any, Any]]:
        """Yield the modules of the layers that are held, or have an offset."""

        def walk(part: Any) -> Iterator[tuple[Any, Any, Any]]:
            children = list(part.children())
            if is_norm(part):
                yield part, None, self._freeze
            elif affine.width(part) is not None:
                yield part, None, self._add_offset
            elif not children and not any(True for _ in part.parameters()):
                yield part, None, self._freeze_activation
            for inner in children if affine.width(part) is None else ():
                yield from walk(inner)

        for stack in stacks:
            for layer in self._names[stack].children():
                yield from walk(layer)

    def _add_offset(self, part: Any, args: Any, output: Any) -> Any:
        return super()._add_offset(part, args, output) if isinstance(output, Tensor) else None  # a router gives several

    def propagate(self, value: Tensor, recorder: _SharingRecorder) -> tuple[list[Tensor], Tensor]:
        """Return the gradients at the outputs of attention, [H, Q, D] each, and the terms of a DualPath. Raises Unsupported where gradients do not flow."""
        leaves = [leaf.tensor for leaf in self._leaves]
        tensors = [*recorder.attended, *recorder.given, *leaves]
        if not value.requires_grad or not all(one.requires_grad for one in tensors):
            raise Unsupported(NO_GRADIENT, pointer="/model")
        found = torch.autograd.grad(value, tensors, allow_unused=True)
        gradients = [torch.zeros_like(one) if grad is None else grad for one, grad in zip(tensors, found, strict=True)]
        values = [*recorder.attended, *(-one for one in recorder.given), *(leaf.part.values for leaf in self._leaves)]
        terms = [(one.detach().double() * grad.double()).sum() for one, grad in zip(values, gradients, strict=True)]
        return [one[0] for one in gradients[: len(recorder.attended)]], torch.stack(terms)
