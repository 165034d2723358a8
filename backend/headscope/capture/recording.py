"""One input on its way through a model: computes its attention under a mechanism, and hands on what was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from traceback import clear_frames
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..core.attention import Kind, Layer, Stream
from ..errors import HeadscopeError, NonFinite, Unsupported
from ..mechanisms.base import Pass
from ..models.tokens import Encoded
from .affine import offset
from .interface import Call, plain
from .projection_factors import projection_factors
from .sites import AttentionSites, Site, head_weights, norm_at, split_projection

OnLayer = Callable[[Layer], None]
PLAIN = Pass()
# What can go wrong in computing an input. Anything else comes from outside, such as the time limit of the process, and ends everything.
FAULTS = (
    HeadscopeError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
T = TypeVar("T")


@dataclass
class CaptureSpec:
    """What a pass shall hand on: blocks of heads to `on_heads`; whole layers, with what `needs` names, to `on_layer` (with all their weights if `whole`)."""

    on_heads: OnLayer
    on_layer: OnLayer | None = None
    needs: frozenset[str] = frozenset()
    whole: bool = False
    pad_to: int | None = None  # for methods that need the values of the padded input


@dataclass(frozen=True)
class ModelInput:
    """One input of a pass: what goes in, what is wanted of it, the mechanism, and layer -> values [H, P, D] of the padded input, if wanted."""

    encoded: Encoded
    wanted: CaptureSpec
    begin: Callable[[], Pass] = Pass
    padded: Mapping[int, Tensor] = field(default_factory=dict)


@dataclass
class _Open:
    """A layer whose block is still running: filled in as its modules are called."""

    site: Site
    layer: Layer
    projected: Tensor | None = None
    summed: Tensor | None = None


class Recording:
    """Computes the attention of one input during a forward pass and hands on what was asked for. It is input number `row` of the `size` in the pass.

    An error of ours in what is an input's own (its mechanism, its lenses, where its maps go) ends this input and no other: it is kept as `failed`.
    Anything else, such as a lack of memory, ends the whole pass.
    """

    def __init__(
        self, modules: Mapping[str, Any], sites: AttentionSites, kind: Kind, one: ModelInput, row: int, size: int
    ) -> None:
        self.failed: Exception | None = None
        self._row, self._size = row, size
        self._modules = modules
        self._sites, self.axes = sites, one.encoded.axes(sites.of(kind)[0].kind)
        self._wanted, self._padded, self._pass = one.wanted, one.padded, self._try(one.begin) or PLAIN
        self._upcoming = iter(sites.all)
        self._mine = frozenset(id(site) for site in sites.of(kind))
        self._entered = iter(sites.of(kind))
        self._open: _Open | None = None
        self._arguments: tuple[Any, Any] = ((), {})
        self._replaying: tuple[Any, Tensor] | None = None
        self._at_exit = bool(one.wanted.needs & {"residual", "hidden", "replay"})

    def _try(self, work: Callable[[], T]) -> T | None:
        """What the input's own part of the pass gives; None once that has failed."""
        if self.failed is None:
            try:
                return work()
            except HeadscopeError as error:
                clear_frames(error.__traceback__)  # which would keep the layer's tensors
                self.failed = error
        return None

    # -- the attention function -----------------------------------------------------------------------------------------------------------

    def attend(self, call: Call) -> Tensor:
        """Outputs of all heads [H, Q, D], as the model goes on with them; zeros once the input has failed."""
        with making_on(call.query.device):
            output = self._try(lambda: self._attend(call))
        return call.value.new_zeros(*call.query.shape[:2], call.value.shape[-1]) if output is None else output

    def _attend(self, call: Call) -> Tensor:
        site = self._next_site(call)
        mine = id(site) in self._mine
        pass_ = self._pass if mine else PLAIN
        output = call.query.new_empty(*call.query.shape[:2], call.value.shape[-1])
        sent = output
        base = self.base(site, call, output) if mine else None
        whole = None
        if mine and self._wanted.whole:
            dtype = torch.promote_types(call.query.dtype, torch.float32)
            whole = call.query.new_empty(*call.query.shape[:2], call.key.shape[1], dtype=dtype)
        per_group = call.query.shape[0] // call.key.shape[0]
        for low, high in call.blocks():
            scores = call.scores(site.layer, low, high)
            weights = pass_.attend(scores)
            block = slice(low * per_group, high * per_group)
            torch.matmul(weights, call.value[low:high].repeat_interleave(per_group, dim=0), out=output[block])
            if not bool(all_finite(output[block][None])):
                raise not_finite(site)
            left = pass_.leave(site.layer, scores.heads, output[block])
            if sent is output and left.data_ptr() != output[block].data_ptr():
                sent = output.clone()
            if sent is not output:
                sent[block] = left
            if base is not None:
                weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
                self._wanted.on_heads(_cut(base, scores.heads, weights, low, high))
                if whole is not None:
                    whole[block] = weights
        if base is not None:
            self._layer_done(site, base if whole is None else replace(base, weights=whole))
        return sent

    def _next_site(self, call: Call) -> Site:
        """The place in the model that this call comes from."""
        site = next(self._upcoming, None)
        if site is None or self._modules[str(site.module)] is not call.module:
            raise Unsupported(
                "On this input the model attends in another order than on the probe, so it can't be captured."
            )
        return site

    # -- the same in steps, for inputs that are computed together; see together.py --------------------------------------------------------

    def next_site(self, call: Call) -> Site | None:
        """The place in the model that this call comes from; None once the input has failed."""
        return self._try(lambda: self._next_site(call))

    @property
    def attends_plainly(self) -> bool:
        """Whether the mechanism leaves the weights as they are, so that nothing has to be known of the input."""
        return type(self._pass).attend is Pass.attend

    def weights(self, site: Site, call: Call) -> Tensor | None:
        """Weights [H, Q, K] of all heads under the input's mechanism; None once the input has failed."""
        return self._try(lambda: self._pass.attend(call.scores(site.layer, 0, call.key.shape[0])))

    def done(self, site: Site, output: Tensor, layer: Callable[[], Layer]) -> Tensor:
        """Hand on the whole layer, if that is wanted -> outputs [H, Q, D] as the model goes on with them; zeros once the input has failed."""
        sent = self._try(lambda: self._pass.leave(site.layer, tuple(range(site.heads)), output))
        if self._wanted.on_layer is not None and self.failed is None:
            done = layer() if self._wanted.whole else replace(layer(), weights=output.new_empty(0))
            self._try(lambda: self._layer_done(site, done))
        return output.new_zeros(output.shape) if sent is None or self.failed else sent

    # -------------------------------------------------------------------------------------------------------------------------------------

    def base(self, site: Site, call: Call, output: Tensor) -> Layer:
        """The whole layer, but for the weights."""
        needs, groups = self._wanted.needs, call.key.shape[0]
        base = Layer(
            index=site.layer,
            heads=tuple(range(site.heads)),
            weights=call.query.new_empty(0),
            values=call.value,
            output=output,
            keys=call.mask.keys,
            epsilon=torch.finfo(call.value.dtype).eps,
            axes=self.axes,
            query=call.query,
            key=call.key,
            padded_values=self._padded.get(site.layer),
        )
        if "projection" in needs:
            module = self._modules[str(site.projection)]
            factors = projection_factors(module, site.heads)
            base = replace(base, projection=split_projection(module, site.heads), projection_factors=factors)
        if "bilinear" in needs and site.query is not None and site.key is not None:
            query = head_weights(self._modules[site.query.module], site.query, site.heads)
            key = head_weights(self._modules[site.key.module], site.key, groups)
            base = replace(base, query_weights=query, key_weights=key.repeat_interleave(site.heads // groups, dim=0))
        return base

    def _layer_done(self, site: Site, layer: Layer) -> None:
        if self._wanted.on_layer is None:
            return
        if self._at_exit:
            self._open = _Open(site, layer)
        else:
            self._wanted.on_layer(layer)

    # -- what stands around attention -----------------------------------------------------------------------------------------------------

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Within this context the modules around attention are watched, as far as anything is wanted of them."""
        mine = [site for site in self._sites.all if id(site) in self._mine]
        with ExitStack() as stack:
            if self._at_exit or type(self._pass).enter is not Pass.enter:
                for name in {site.block for site in mine if site.block}:
                    stack.enter_context(
                        _hooked(self._modules[name].register_forward_pre_hook(self._entering, with_kwargs=True))
                    )
                    stack.enter_context(_hooked(self._modules[name].register_forward_hook(self._leaving)))
            if "residual" in self._wanted.needs:
                for name in {site.projection for site in mine if site.projection}:
                    stack.enter_context(_hooked(self._modules[name].register_forward_hook(self._projecting)))
                for name in {site.norm for site in mine if site.norm}:
                    stack.enter_context(_hooked(self._modules[name].register_forward_pre_hook(self._normalising)))
            yield

    def _entering(self, module: Any, args: Any, kwargs: Any) -> Any:
        self._arguments = (args, kwargs)
        site = next(self._entered, None)
        if site is None or type(self._pass).enter is Pass.enter:
            return None
        hidden = args[0] if args else kwargs["hidden_states"]  # [B, Q, d]
        before = hidden[self._row]
        changed = self._try(lambda: self._pass.enter(site.layer, before))
        if changed is None or changed is before:
            return None
        entered = hidden.clone()
        entered[self._row] = changed
        self._arguments = ((entered, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": entered})
        return self._arguments

    def _projecting(self, module: Any, args: Any, output: Any) -> None:
        if self._open and not self._replaying and self._modules[str(self._open.site.projection)] is module:
            self._open.projected = output

    def _normalising(self, module: Any, args: Any) -> None:
        held = self._open
        if held is None or self._replaying or held.projected is None or held.summed is not None:
            return
        if self._modules[str(held.site.norm)] is module:
            held.summed = args[0]

    def _leaving(self, module: Any, args: Any, output: Any) -> None:
        if self._open is None or self._wanted.on_layer is None:
            return
        held, after = self._open, first(output)[self._row]
        arguments, on_layer = self._arguments, self._wanted.on_layer

        def replay(outputs: Tensor) -> Tensor:
            return self._again(held.site, module, arguments, outputs)

        stream = Stream(after=after, replay=replay if self._size == 1 else None)
        with making_on(after.device):
            self._try(lambda: on_layer(replace(held.layer, stream=self._around(held, stream))))
        self._open = None

    def _around(self, held: _Open, stream: Stream) -> Stream:
        """The stream with the sum around attention, if its modules were watched."""
        if held.summed is None or held.projected is None:
            return stream
        shape = (self._size, held.layer.output.shape[1], -1)
        summed, projected = (batch.reshape(shape)[self._row] for batch in (held.summed, held.projected))
        bias, norm, form = offset(self._modules[str(held.site.projection)]), None, held.site.norm_form
        if form is not None:
            norm = norm_at(self._modules[str(held.site.norm)], form, summed)
        return replace(
            stream,
            before=summed - projected,
            bias=summed.new_zeros(summed.shape[-1]) if bias is None else bias,
            norm=norm,
            projected=projected,
        )

    def _again(self, site: Site, block: Any, arguments: tuple[Any, Any], outputs: Tensor) -> Tensor:
        """The layer's hidden states [B, Q, d] with these outputs of its heads [B, H, Q, D]."""
        heads = tuple(range(site.heads))
        if type(self._pass).leave is not Pass.leave:
            outputs = torch.stack([self._pass.leave(site.layer, heads, one) for one in outputs])
        self._replaying = (self._modules[str(site.module)], outputs)
        try:
            args, kwargs = _batched(arguments, outputs.shape[0])
            return first(block.forward(*args, **kwargs))
        finally:
            self._replaying = None

    def replay(self, query: Tensor, key: Tensor, value: Tensor, rest: dict[str, Any], module: Any) -> Tensor | None:
        """Outputs [B, Q, H, D] while a layer is run again."""
        if self._replaying is None:
            return None
        target, outputs = self._replaying
        return outputs.transpose(1, 2) if module is target else plain(query, key, value, rest)


def all_finite(numbers: Tensor) -> Tensor:
    """Whether all of [N, ...] is finite, of each of N. A sum shows that much faster than a look at every number, unless it overflows itself."""
    finite = numbers.flatten(1).sum(-1, dtype=torch.promote_types(numbers.dtype, torch.float32)).isfinite()
    return finite if bool(finite.all()) else numbers.flatten(1).isfinite().all(-1)


def not_finite(site: Site) -> NonFinite:
    """The error of an input whose numbers overflow."""
    return NonFinite(
        f"Layer {site.layer} of the model computes NaN or infinity on this input; its maps would mean nothing."
    )


def first(output: Any) -> Tensor:
    """The hidden states of what a layer returned."""
    result: Tensor = output[0] if isinstance(output, tuple) else output
    return result


def making_on(device: torch.device) -> AbstractContextManager[Any]:
    """Within this context new tensors of mechanisms, lenses and measures are made where the model is."""
    return nullcontext() if device.type == "cpu" else device


def _cut(base: Layer, heads: tuple[int, ...], weights: Tensor, low: int, high: int) -> Layer:
    """Some heads of a layer: those that read key/value heads low to high."""
    block = slice(heads[0], heads[-1] + 1)
    return replace(
        base,
        heads=heads,
        weights=weights,
        values=base.values[low:high],
        output=base.output[block],
        query=base.query[block],
        key=base.key[low:high],
        projection=None if base.projection is None else base.projection[block],
        projection_factors=None if base.projection_factors is None else base.projection_factors[block],
        query_weights=None if base.query_weights is None else base.query_weights[block],
        key_weights=None if base.key_weights is None else base.key_weights[block],
    )


def _batched(value: Any, size: int) -> Any:
    """The same arguments for a batch: tensors [1, a, b, ...] become [size, a, b, ...]."""
    if isinstance(value, Tensor):
        return value.expand(size, *value.shape[1:]) if value.dim() >= 3 and value.shape[0] == 1 else value
    if isinstance(value, (tuple, list)):
        return type(value)(_batched(item, size) for item in value)
    if isinstance(value, dict):
        return {name: _batched(item, size) for name, item in value.items()}
    return value


@contextmanager
def _hooked(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()
