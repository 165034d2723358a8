"""One input during a forward pass: its mechanism, what is recorded of it, and the modules around attention that are watched for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from traceback import clear_frames
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..core.attention import Keys, Kind, Layer, ScoreTerms, Stream
from ..errors import HeadscopeError, NonFinite, Unsupported
from ..mechanisms.base import Pass, Scores
from ..models.tokens import Encoded
from .affine import offset
from .interface import AttentionCall, batch_scores, blocked_and_bias, for_each_head, on_device, whole_mask
from .projection_factors import projection_factors
from .sites import AttentionSites, Site, Unembedding, norm_at, query_key_weights, scaled_branch, split_projection
from .token_map import token_map, value_weights
from .trace import expanded, first_tensor

OnLayer = Callable[[Layer], None]
PLAIN = Pass()
# Errors of an input's own computation. Anything else comes from outside, such as the time limit of the process, and ends the whole pass.
INPUT_ERRORS = (
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
    """What to record of an input: blocks of heads go to `on_heads`, whole layers with the `needs` to `on_layer` (with all their weights if `whole`).

    With `on_deferred`, batches of large heads go there without weights, which are computed as they are read. It may be called in any thread, for several batches
    at a time; what it returns is called once for each batch, in order.
    """

    on_heads: OnLayer
    on_layer: OnLayer | None = None
    needs: frozenset[str] = frozenset()
    whole: bool = False
    on_deferred: Callable[[Any], Callable[[], None]] | None = None
    pad_to: int | None = None  # for methods that need the values of the padded input


@dataclass(frozen=True)
class ModelInput:
    """One input of a pass: its tokens, what to record, its mechanism, and layer -> values [H, P, D] of the padded input, if needed."""

    encoded: Encoded
    spec: CaptureSpec
    begin: Callable[[], Pass] = Pass
    padded: Mapping[int, Tensor] = field(default_factory=dict)


@dataclass
class _OpenLayer:
    """A layer whose block is still running; its hooks fill in the rest."""

    site: Site
    layer: Layer
    projected: Tensor | None = None
    summed: Tensor | None = None


class Recording:
    """Input number `row` of the `size` in a forward pass.

    A HeadscopeError in an input's own part (its mechanism, its lenses, its sink) ends this input only and is kept as `failed`. Any other error, such as a
    lack of memory, ends the whole pass.
    """

    def __init__(
        self, modules: Mapping[str, Any], sites: AttentionSites, kind: Kind, given: ModelInput, row: int, size: int
    ) -> None:
        self.failed: Exception | None = None
        self.row, self._size = row, size
        self.spec, self._padded = given.spec, given.padded
        self._modules, self._sites = modules, sites.of(kind)
        self._unembedding = sites.unembedding
        self.axes = given.encoded.axes(self._sites[0].kind)
        self._pass = self.attempt(given.begin) or PLAIN
        self._upcoming, self._blocks = iter(sites.all), iter(self._sites)
        self._recorded = frozenset(id(site) for site in self._sites)
        self._open: _OpenLayer | None = None
        self._arguments: tuple[Any, Any] = ((), {})
        self._replaying: tuple[Any, Tensor] | None = None
        self._at_exit = bool(given.spec.needs & {"residual", "hidden", "replay"})

    def fail(self, error: Exception) -> None:
        """End this input; the first error counts."""
        self.failed = self.failed or error

    def attempt(self, work: Callable[[], T]) -> T | None:
        """Return the result of a part of this input's own work, None once the input has failed."""
        if self.failed is None:
            try:
                return work()
            except HeadscopeError as error:
                clear_frames(error.__traceback__)  # which would keep the layer's tensors
                self.failed = error
        return None

    # -- steps of the attention function, see batch.py ------------------------------------------------------------------------------------

    def next_site(self, module: Any) -> Site | None:
        """Return the site of a call by `module`, None once the input has failed."""
        return self.attempt(lambda: self._next_site(module))

    def _next_site(self, module: Any) -> Site:
        site = next(self._upcoming, None)
        if site is None or self._modules[str(site.module)] is not module:
            raise Unsupported(
                "On this input the model attends in another order than on the probe, so it cannot be captured."
            )
        return site

    def records(self, site: Site) -> bool:
        """Return whether the site is of the kind that is recorded; others attend as the model was built."""
        return id(site) in self._recorded

    def attends_plainly(self, site: Site) -> bool:
        """Return whether the mechanism leaves the weights of the site as they are."""
        return type(self._pass).attend is Pass.attend or not self.records(site)

    def weights(self, site: Site, scores: Scores) -> Tensor:
        """Return weights [h, Q, K] under the input's mechanism, zero once the input has failed."""
        weights = self.attempt(lambda: (self._pass if self.records(site) else PLAIN).attend(scores))
        return scores.query.new_zeros(*scores.query.shape[:2], scores.key.shape[1]) if weights is None else weights

    def changes_output(self, site: Site) -> bool:
        """Return whether the mechanism may change the heads' outputs."""
        return type(self._pass).leave is not Pass.leave and self.records(site)

    def leave(self, site: Site, heads: slice, output: Tensor) -> Tensor:
        """Return the outputs [h, Q, D] that the model continues with."""
        if not self.changes_output(site):
            return output
        left = self.attempt(lambda: self._pass.leave(site.layer, tuple(range(heads.start, heads.stop)), output))
        return output if left is None else left

    def layer(self, site: Site, call: AttentionCall, output: Tensor) -> Layer:
        """Return the whole layer of the call's first input, without the weights; output [H, Q, D]."""
        needs = self.spec.needs
        layer = Layer(
            index=site.layer,
            heads=tuple(range(site.heads)),
            weights=call.query.new_empty(0),
            values=call.value[0],
            output=output,
            keys=_keys(site, call),
            epsilon=torch.finfo(call.value.dtype).eps,
            axes=self.axes,
            query=call.query[0],
            key=call.key[0],
            padded_values=self._padded.get(site.layer),
            rounding=site.rounding,
            terms=self.terms(site, call, 0),
        )
        if "projection" in needs:
            module, like = self._modules[str(site.projection)], call.value
            factors = projection_factors(module, site.heads, like)
            layer = replace(layer, projection=split_projection(module, site.heads, like), projection_factors=factors)
        if "bilinear" in needs and site.query is not None:
            query, key, turn = query_key_weights(self._modules, site, call.query)
            layer = replace(layer, query_weights=query, key_weights=key, turn=turn, normalised=site.normalised)
        if "unembedding" in needs and isinstance(self._unembedding, Unembedding):
            tokens = token_map(self._modules, self._unembedding, site, call.value)
            layer = replace(layer, value_weights=value_weights(self._modules, site, call.value), token_map=tokens)
        return layer

    def terms(self, site: Site, call: AttentionCall, place: int) -> ScoreTerms | None:
        """Return what makes weights of the scores of an input of the call, None if the mechanism computes them in another way."""
        if not self.attends_plainly(site):
            return None
        return ScoreTerms(call.scaling, call.softcap, call.masks[place].bias, call.sink)

    def finish(self, site: Site, layer: Layer) -> None:
        """Give the whole layer to `on_layer`: now, or once its block returns if more than attention is needed."""
        if self.spec.on_layer is not None and self._at_exit:
            self._close(None)  # an earlier one of the same block
            self._open = _OpenLayer(site, layer)
        elif (on_layer := self.spec.on_layer) is not None:
            self.attempt(lambda: on_layer(layer))

    # -- modules around attention ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Watch the modules around attention, as far as they are needed."""
        watched: list[Any] = []

        def watch(names: set[str], register: str, hook: Callable[..., Any], **options: Any) -> None:
            watched.extend(getattr(self._modules[name], register)(hook, **options) for name in names)

        try:
            if self._at_exit or type(self._pass).enter is not Pass.enter:
                blocks = {site.block for site in self._sites if site.block}
                watch(blocks, "register_forward_pre_hook", self._enter, with_kwargs=True)
                watch(blocks, "register_forward_hook", self._leave)
            if "residual" in self.spec.needs:
                projections = {site.projection for site in self._sites if site.projection}
                watch(projections, "register_forward_hook", self._keep_projected)
                norms = {site.norm for site in self._sites if site.norm}
                watch(norms, "register_forward_pre_hook", self._keep_summed)
            yield
        finally:
            for handle in watched:
                handle.remove()

    def _enter(self, module: Any, args: Any, kwargs: Any) -> Any:
        self._arguments = (args, kwargs)
        site = next(self._blocks, None)
        if site is None or type(self._pass).enter is Pass.enter:
            return None
        hidden = args[0] if args else kwargs["hidden_states"]  # [B, Q, d]
        before = hidden[self.row]
        changed = self.attempt(lambda: self._pass.enter(site.layer, before))
        if changed is None or changed is before:
            return None
        entered = hidden.clone()
        entered[self.row] = changed
        self._arguments = ((entered, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": entered})
        return self._arguments

    def _keep_projected(self, module: Any, args: Any, output: Any) -> None:
        if self._open and not self._replaying and self._modules[str(self._open.site.projection)] is module:
            self._open.projected = output

    def _keep_summed(self, module: Any, args: Any) -> None:
        layer = self._open
        if layer is None or self._replaying or layer.projected is None or layer.summed is not None:
            return
        if layer.site.norm is not None and self._modules[layer.site.norm] is module:
            layer.summed = args[0]

    def _leave(self, module: Any, args: Any, output: Any) -> None:
        if self._open is None or self._replaying:
            return
        opened, arguments = self._open, self._arguments

        def replay(outputs: Tensor) -> Tensor:
            return self._rerun(opened.site, module, arguments, outputs)

        home = opened.layer.output.device
        after = _hidden_states(output)[self.row].to(home) if self.spec.needs & {"hidden", "replay"} else None
        self._close(Stream(after=after, replay=replay if self._size == 1 else None))

    def _close(self, stream: Stream | None) -> None:
        """Hand on the open layer, if there is one, with what is known of the stream at the end of its block."""
        opened, on_layer = self._open, self.spec.on_layer
        if opened is None or on_layer is None:
            return
        with on_device(opened.layer.output.device):
            whole = replace(opened.layer, stream=self._with_residual(opened, stream or Stream()))
            self.attempt(lambda: on_layer(whole))
        self._open = None

    def _with_residual(self, opened: _OpenLayer, stream: Stream) -> Stream:
        """Add the residual connection around attention to the stream, if its modules were watched."""
        site, joined = opened.site, opened.summed
        if site.norm is None:
            args, kwargs = self._arguments
            joined = first_tensor((*args, *kwargs.values()))
        if joined is None or opened.projected is None:
            return stream
        shape = (self._size, opened.layer.output.shape[1], -1)  # [B, Q, d]; some models join B and Q
        home = opened.layer.output.device
        joined, projected = (batch.to(home).reshape(shape)[self.row] for batch in (joined, opened.projected))
        added, branch_norm, norm = projected, None, None
        if site.branch_norm_form is not None:
            branch_norm = norm_at(self._modules[str(site.branch_norm)], site.branch_norm_form, projected)
        if site.gain is not None:
            branch_norm = scaled_branch(self._modules, site.gain, branch_norm, projected)
        if branch_norm is not None:
            added = branch_norm.linear(projected, branch_norm.scale[:, None]) + branch_norm.shift
        if site.norm_form is not None:
            norm = norm_at(self._modules[str(site.norm)], site.norm_form, joined)
        bias = offset(self._modules[str(site.projection)], projected)
        return replace(
            stream,
            before=joined if site.norm is None else joined - added,
            bias=projected.new_zeros(projected.shape[-1]) if bias is None else bias,
            branch_norm=branch_norm,
            norm=norm,
            projected=projected,
        )

    def _rerun(self, site: Site, block: Any, arguments: tuple[Any, Any], outputs: Tensor) -> Tensor:
        """Run a layer again with these outputs of its heads [B, H, Q, D] -> hidden states [B, Q, d]."""
        heads = tuple(range(site.heads))
        if type(self._pass).leave is not Pass.leave:
            outputs = torch.stack([self._pass.leave(site.layer, heads, one) for one in outputs])
        self._replaying = (self._modules[str(site.module)], outputs)
        try:
            args, kwargs = expanded(arguments, outputs.shape[0])
            return _hidden_states(block.forward(*args, **kwargs)).to(outputs.device)
        finally:
            self._replaying = None

    def replay(self, query: Tensor, key: Tensor, value: Tensor, rest: dict[str, Any], module: Any) -> Tensor | None:
        """Return the outputs [B, Q, H, D] while a layer is run again, None in an ordinary forward pass."""
        if self._replaying is None:
            return None
        target, outputs = self._replaying
        if module is target:
            return outputs.transpose(1, 2)  # [B, H, Q, D] -> [B, Q, H, D]
        mask, omitted, sides = rest["mask"], rest["omitted"], (query.shape[2], key.shape[2])
        mask = mask if omitted is None else whole_mask(omitted, sides, query.device)
        blocked, bias = blocked_and_bias(mask, rest["bias"], key.shape[2])
        weights = PLAIN.attend(batch_scores(0, query, key, rest, blocked, bias))
        return (weights @ for_each_head(value, query.shape[1])).transpose(1, 2)  # [B, H, Q, D] -> [B, Q, H, D]


def _keys(site: Site, call: AttentionCall) -> Keys:
    """Return which keys the queries of the call's first input see. The mask of one token does not tell whether the site is causal; the probe did."""
    mask = call.masks[0]
    return Keys("prefix") if site.causal and mask.sides == (1, 1) else mask.keys


def all_finite(numbers: Tensor) -> list[bool]:
    """Return for each of N whether all of its numbers [N, ...] are finite. Sums are checked first, which is much faster; they may overflow themselves."""
    sums = numbers.flatten(1).sum(-1, dtype=torch.promote_types(numbers.dtype, torch.float32))
    finite: list[bool] = sums.isfinite().tolist()
    if not all(finite):
        finite = numbers.flatten(1).isfinite().all(-1).tolist()
    return finite


def not_finite(site: Site) -> NonFinite:
    """Return the error for an input whose numbers overflow."""
    return NonFinite(
        f"Layer {site.layer} of the model computes NaN or infinity on this input, so its maps would be meaningless."
    )


def _hidden_states(output: Any) -> Tensor:
    """Return the hidden states [B, Q, d] from a layer's output."""
    result: Tensor = output[0] if isinstance(output, tuple) else output
    return result
