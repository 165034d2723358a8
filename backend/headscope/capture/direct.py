"""The direct path from the parts of a model to one of its outputs: what each part adds to the residual stream, and the gradient of the output there.

In one pass, every attention and every feed-forward part is cut from what it reads, and every normalisation keeps the statistics of this input. What is left
between the parts and the output is linear: the residual stream, whichever multipliers, gains and normalisations are on it, and the output head. The gradient
is therefore exact, and the products of parts and gradients sum to the output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from ..errors import Unsupported
from ..mechanisms.base import Pass
from ..models.loading import Model
from ..models.tokens import Encoded
from . import affine
from .batch import by_input, most_inputs
from .closeness import is_close
from .forward import options_at, returned_logits
from .head_logits import LogitReader, Written, WrittenHeads
from .interface import NAME, AttentionCall, Masks, attending_with, recording
from .residual import frozen_norm
from .sites import AttentionSites, Site
from .trace import TraceEvent, first_tensor

# Functions f with f(0) = 0, by the factor f(x) / x.
ACTIVATIONS = frozenset({torch.tanh, torch.Tensor.tanh, torch.relu, functional.gelu, functional.relu, functional.silu})

NO_PATH = "The residual stream of this model goes through a module that does more than add to it, so its heads have no direct path through it."


@dataclass(frozen=True)
class HeadOutputs:
    """What the heads of one site attend to, at the queries Q that can reach the output.

    weights [H, Q, K], values [G, K, D], output [H, Q, D] = weights @ values
    """

    weights: Tensor
    values: Tensor
    output: Tensor


@dataclass(frozen=True)
class PathPart:
    """Something that is added to the residual stream, or on the way to the output.

    values, gradient  of heads [Q, H, D], what the output projection reads; of others [..., d]. The gradient is zero where nothing reaches the output.
    site, heads       of heads
    logits            of heads, what was read of the logits that each of them adds
    layer             of a feed-forward part, counted from 0
    """

    name: Literal["heads", "mlp", "embedding", "bias"]
    values: Tensor
    gradient: Tensor
    layer: int = -1
    site: Site | None = None
    heads: HeadOutputs | None = None
    logits: Any = None


@dataclass(frozen=True)
class DirectPath:
    """The parts of a model, and what they sum to.

    logits  [vocabulary] or [classes], as the model returns them; `value` is one of them, or a difference, before the cap if they are `capped`
    """

    value: float
    ids: tuple[int, ...]
    logits: Tensor
    capped: bool
    parts: list[PathPart]


def direct_path(
    model: Model,
    encoded: Encoded,
    sites: AttentionSites,
    ids: Sequence[int],
    position: int | None,
    sources: bool,
    read: LogitReader | None = None,
) -> DirectPath:
    """Return the direct path to logit ids[0], minus logit ids[1] if there are two, at a token; without ids to the largest logit.

    `position` is None for a model that classifies whole inputs. With `sources`, heads come with what they attend to, and with what
    `read` finds in the logits that they add. The caller holds the model's lock. Raises Unsupported for models without an output head.
    """
    kinds = {site.kind for site in sites.all}
    chosen = tuple(site for site in sites.all if site.kind in kinds - ({"encoder"} if "decoder" in kinds else set()))
    walk = LinearPass(model, chosen)
    recorder = PlainRecorder(model, sites, chosen if sources else (), position)
    with torch.no_grad(), attending_with(NAME, model.module), recording(recorder), walk.hooks():
        row, returned, capped, count = walk.run(model, encoded, position)
        ids = tuple(ids) or (int(returned.argmax()),)
        with torch.enable_grad():
            value = row[ids[0]] - row[ids[1]] if len(ids) > 1 else row[ids[0]]
            parts = walk.parts_to(value, keep=read is not None)
            found = iter(read(row, walk.written, count) if read else [])
    parts = [replace(part, logits=next(found, None)) if part.name == "heads" else part for part in parts]
    outputs = iter(recorder.outputs)
    parts = [replace(part, heads=next(outputs, None)) if part.name == "heads" else part for part in parts]
    return DirectPath(float(value.detach()), ids, returned.detach(), capped, parts)


class PlainRecorder:
    """A recorder that attends as the model does, and keeps what the heads of the chosen sites attend to: at one query, or at all of them."""

    def __init__(
        self,
        model: Model,
        sites: AttentionSites,
        chosen: Sequence[Site] = (),
        position: int | None = None,
        size: int = 1,
    ) -> None:
        self.masks, self.size, self.home = Masks(), size, model.device
        self.outputs: list[HeadOutputs] = []
        self._upcoming, self._chosen = iter(sites.all), set(map(id, chosen))
        self._rows = slice(None) if position is None else slice(position, position + 1)

    def attend(self, call: AttentionCall) -> Tensor:
        """Return the heads' outputs [B, H, Q, D], of as many inputs at once as fit into a block."""
        most = most_inputs(call)
        parts = [call.select(range(low, min(low + most, self.size))) for low in range(0, self.size, most)]
        return torch.cat([self._attend(part) for part in parts]) if len(parts) > 1 else self._attend(call)

    def _attend(self, call: AttentionCall) -> Tensor:
        found = [self._block(call, low, high) for low, high in call.blocks()]
        weights, outputs = (torch.cat(parts, 1) if len(found) > 1 else parts[0] for parts in zip(*found, strict=True))
        if id(next(self._upcoming, None)) in self._chosen:
            self.outputs.append(HeadOutputs(weights[0], call.value[0], outputs[0, :, self._rows]))
        return outputs

    def _block(self, call: AttentionCall, low: int, high: int) -> tuple[Tensor, Tensor]:
        """Return weights [B, h, R, K] of the rows that are kept, and outputs [B, h, Q, D]."""
        if torch.is_grad_enabled():  # on the way back weights are computed again, instead of being kept for all layers
            weights, outputs = checkpoint(_attended, call, low, high, use_reentrant=False, preserve_rng_state=False)
        else:
            weights, outputs = _attended(call, low, high)
        kept = (weights[:, self._rows] if self._chosen else weights[:, :0]).contiguous()
        return by_input(kept, len(call.masks)), by_input(outputs, len(call.masks))

    def replay(self, query: Tensor, key: Tensor, value: Tensor, rest: dict[str, Any], module: Any) -> Tensor | None:
        """Return None: no layer is run again."""
        return None


def _attended(call: AttentionCall, low: int, high: int) -> tuple[Tensor, Tensor]:
    weights = Pass().attend(call.scores(0, low, high))  # [B h, Q, K]
    return weights, weights @ call.shared(call.value, low, high)


@dataclass(frozen=True)
class _Leaf:
    """A part whose gradient is not known yet: that of `tensor`. A constant has a tensor of zeros, which is added where the constant is."""

    part: PathPart
    tensor: Tensor


class PassLogits(NamedTuple):
    """What a pass gives at a position or for the whole input: logits before the cap if they are `capped`, and as the model returns them, [V] each; and how many were `computed`."""

    row: Tensor
    returned: Tensor
    capped: bool
    computed: int


class LinearPass:
    """The hooks of one pass. Outside of the modules that are cut, gradients are on from the first layer that can reach the output."""

    def __init__(self, model: Model, sites: Sequence[Site], functions: FrozenFunctions | None = None) -> None:
        if any(site.block is None for site in sites):
            raise Unsupported("Its layers are not separate modules.", pointer="/model")
        self._module, self._functions = model.module, functions or FrozenFunctions()
        self._sites, self._upcoming = sites, iter(sites)
        self._names = dict(model.module.named_modules())
        self._leaves: list[_Leaf] = []
        self._after: list[Tensor] = []  # for each site, what its layer returned
        self._layer = -1
        self._head: Tensor | None = None
        self._cutting: Any = None

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Watch and cut the modules."""
        handles: list[Any] = []

        def watch(part: Any, before: Any = None, after: Any = None) -> None:
            if before is not None:
                handles.append(part.register_forward_pre_hook(before, with_kwargs=True))
            if after is not None:
                handles.append(part.register_forward_hook(after))

        stacks = {str(site.block).rpartition(".")[0] for site in self._sites}
        try:
            for name in stacks:
                for child in self._names[name].children():
                    watch(child, self._enter_layer, self._leave_layer)
            for name, part in self._names.items():
                if not any(name == stack or name.startswith(f"{stack}.") for stack in stacks):
                    watch(part, after=self._outside(part))
            for part, before, after in self._inside(stacks):
                watch(part, before, after)
            if (head := self._module.get_output_embeddings()) is not None:
                watch(head, after=self._keep_head)
            with self._functions:
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _inside(self, stacks: set[str]) -> Iterator[tuple[Any, Any, Any]]:
        """Yield the modules of the layers, with a hook before and after each."""
        attending = {site.module for site in self._sites}
        projections = {site.projection for site in self._sites}
        special = {*attending, *projections}

        def walk(name: str, part: Any) -> Iterator[tuple[Any, Any, Any]]:
            within = [one for one in special if str(one).startswith(f"{name}.")]
            if name in projections:
                yield part, self._read_heads, self._add_offset
            elif name in attending:
                yield part, self._begin_attention, self._end_attention
                for child, inner in part.named_children():  # what follows the projection
                    yield from walk(f"{name}.{child}", inner)
            elif is_norm(part):
                yield part, None, self._freeze
            elif within or any(map(is_norm, part.modules())):
                for child, inner in part.named_children():
                    yield from walk(f"{name}.{child}", inner)
            elif any(one.dim() > 1 for one in part.parameters()):
                yield part, self._begin_cut, self._cut
                for child, inner in part.named_children():
                    yield from walk(f"{name}.{child}", inner)

        for stack in stacks:
            for child, layer in self._names[stack].named_children():
                yield from walk(f"{stack}.{child}", layer)

    def _outside(self, part: Any) -> Any:
        """Return the hook after a module that is in no layer, None if there is none."""
        if is_norm(part):
            return self._freeze
        if affine.width(part) is not None:
            return self._add_offset
        leaf = not any(True for _ in part.children()) and not any(True for _ in part.parameters())
        return self._freeze_activation if leaf else None

    def run(self, model: Model, encoded: Encoded, position: int | None) -> PassLogits:
        """Run the model under the hooks. Raises Unsupported for models without an output head."""
        options, place = options_at(model, position)
        output = model.module(**model.inputs(encoded), **options)
        returned = returned_logits(output, place)[0]
        logits, capped = self.before_cap(output.logits)
        return PassLogits(logits[0] if place is None else logits[0, place], returned, capped, logits.numel())

    def before_cap(self, logits: Tensor) -> tuple[Tensor, bool]:
        """Return the logits that the model returns, and whether they are capped: then those before the cap, if a linear module gives them.

        A bias that is added to what that module gives is a constant.
        """
        given = self._head
        if given is None or given.shape != logits.shape:
            return logits, False
        ours, theirs = given.detach().double(), logits.detach().double()
        scale = (ours * theirs).sum() / ours.square().sum()
        if is_close((scale * ours).to(logits.dtype), logits.detach()):
            return logits, False
        for bias in (one for one in self._module.parameters() if one.shape == given.shape[-1:]):
            if is_close((ours + bias).to(logits.dtype), logits.detach()):
                with torch.enable_grad():
                    return self._constant(given, bias), False
        return given, True

    def parts_to(self, value: Tensor, keep: bool) -> list[PathPart]:
        """Return all parts with the gradient of `value`, and `keep` the graph or free it. Raises Unsupported if some heads have no direct path to it."""
        tensors = [leaf.tensor for leaf in self._leaves]
        found = torch.autograd.grad(value, tensors, allow_unused=True, retain_graph=keep)
        lost = {leaf.part.name for leaf, grad in zip(self._leaves, found, strict=True) if grad is None}
        if lost & {"heads", "embedding"}:
            raise Unsupported(NO_PATH, pointer="/model")
        pairs = zip(self._leaves, found, strict=True)
        return [
            replace(one.part, gradient=one.part.gradient if grad is None else _own(grad, one)) for one, grad in pairs
        ]

    @property
    def written(self) -> Written:
        """What the heads of each site wrote, with the tensors on which the output depends."""
        heads = [leaf for leaf in self._leaves if leaf.part.name == "heads"]
        return [WrittenHeads(one.tensor, one.part.values, after) for one, after in zip(heads, self._after, strict=True)]

    # -- hooks ----------------------------------------------------------------------------------------------------------------------------

    def _enter_layer(self, part: Any, args: Any, kwargs: Any) -> Any:
        self._layer += 1
        if self._layer:
            return None
        torch.set_grad_enabled(True)
        if args:
            return (self._leaf("embedding", args[0]), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": self._leaf("embedding", kwargs["hidden_states"])}

    def _leave_layer(self, part: Any, args: Any, output: Any) -> None:
        found = first_tensor(output if isinstance(output, tuple) else (output,))
        sites = sum(leaf.part.name == "heads" for leaf in self._leaves)
        if found is not None:
            self._after += [found] * (sites - len(self._after))

    def _begin_attention(self, part: Any, args: Any, kwargs: Any) -> None:
        torch.set_grad_enabled(False)

    def _end_attention(self, part: Any, args: Any, output: Any) -> None:
        torch.set_grad_enabled(True)

    def _read_heads(self, part: Any, args: Any, kwargs: Any) -> Any:
        torch.set_grad_enabled(True)
        site = next(self._upcoming)
        given = args[0].detach().requires_grad_()
        by_head = given.detach().reshape(-1, site.heads, given.shape[-1] // site.heads)
        self._leaves.append(_Leaf(PathPart("heads", by_head, torch.zeros_like(by_head), site.layer, site), given))
        return (given, *args[1:]), kwargs

    def _begin_cut(self, part: Any, args: Any, kwargs: Any) -> None:
        """Cut the module from what it reads, unless it is a part of one that is cut, or reads two things, of which one is the stream that it adds to."""
        given = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor) and one.requires_grad]
        if torch.is_grad_enabled() and len(given) == 1:
            torch.set_grad_enabled(False)
            self._cutting = part

    def _cut(self, part: Any, args: Any, output: Any) -> Any:
        if self._cutting is not part:
            return None
        self._cutting = None
        torch.set_grad_enabled(True)
        found = first_tensor(output if isinstance(output, tuple) else (output,))
        if found is None:
            return None
        leaf = self._leaf("mlp", found)
        return tuple(leaf if one is found else one for one in output) if isinstance(output, tuple) else leaf

    def _freeze(self, part: Any, args: Any, output: Tensor) -> Any:
        given = args[0] if args else None
        if given is None or not (torch.is_grad_enabled() and given.requires_grad):
            return None
        norm = frozen_norm(TraceEvent("", part, given.detach(), output.detach()))
        if norm is None:
            return None
        linear = norm.linear(given, norm.scale[..., None])
        return self._constant(linear, norm.shift)

    def _freeze_activation(self, part: Any, args: Any, output: Any) -> Any:
        """Hold fixed by how much an activation of the output head, which follows the layers, scales each number."""
        given = args[0] if args else None
        if not (isinstance(given, Tensor) and given.requires_grad and isinstance(output, Tensor)):
            return None
        return None if output.shape != given.shape or torch.equal(given, output) else _frozen(given, output)

    def _add_offset(self, part: Any, args: Any, output: Tensor) -> Any:
        if not (torch.is_grad_enabled() and output.requires_grad):
            return None
        with torch.no_grad():
            offset = affine.offset(part, output)
        return None if offset is None else self._constant(output - offset, offset)

    def _keep_head(self, part: Any, args: Any, output: Tensor) -> None:
        self._head = output

    def _leaf(self, name: Literal["mlp", "embedding"], values: Tensor) -> Tensor:
        leaf = values.detach().requires_grad_()
        part = PathPart(name, values.detach(), torch.zeros_like(values).detach(), self._layer)
        self._leaves.append(_Leaf(part, leaf))
        return leaf

    def _constant(self, tensor: Tensor, offset: Tensor) -> Tensor:
        zeros = torch.zeros_like(tensor).detach().requires_grad_()
        self._leaves.append(_Leaf(PathPart("bias", offset.detach(), zeros.detach(), self._layer), zeros))
        return tensor + offset.detach() + zeros


def added_parts(modules: Mapping[str, Any], sites: Sequence[Site]) -> Iterator[tuple[str, Any]]:
    """Yield the modules of the layers that add to the stream and neither attend nor normalise, and the modules within them that have a matrix, with their names."""
    special = {str(name) for site in sites for name in (site.module, site.projection)}

    def walk(name: str, part: Any, added: bool) -> Iterator[tuple[str, Any]]:
        if name in special or is_norm(part):
            return
        mixed = any(one.startswith(f"{name}.") for one in special) or any(map(is_norm, part.modules()))
        added = added or not mixed
        if added and any(one.dim() > 1 for one in part.parameters()):
            yield name, part
        for child, inner in part.named_children():
            yield from walk(f"{name}.{child}", inner, added)

    for stack in {str(site.block).rpartition(".")[0] for site in sites}:
        for child, layer in modules[stack].named_children():
            yield from walk(f"{stack}.{child}", layer, False)


def _own(gradient: Tensor, leaf: _Leaf) -> Tensor:
    """Return the gradient in the shape of the heads, if it is theirs."""
    return gradient.reshape(leaf.part.values.shape) if leaf.part.name == "heads" else gradient


class FrozenFunctions(TorchFunctionMode):
    """Likewise holds fixed what activations do that are functions, not modules, in this thread."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if func is torch.erf:  # of GELU written out, x (1 + erf(x / √2)) / 2, where it is a part of the factor itself
            return output.detach()
        return _frozen(args[0], output) if func in ACTIVATIONS and output.requires_grad else output


def _frozen(given: Tensor, output: Tensor) -> Tensor:
    """Return the output as the product of what was given and a constant."""
    return given * torch.where(given == 0, 0, output / given).detach()


def is_norm(part: Any) -> bool:
    """Return whether a module normalises."""
    return "norm" in type(part).__name__.lower() and not any(True for _ in part.children())
