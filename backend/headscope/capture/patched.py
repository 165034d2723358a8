"""A module that attends by a mechanism permanently: whole batches, padded or not, with gradients, without recording."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from ..core.attention import Kind
from ..core.tokens import Axes
from ..errors import Unsupported
from ..mechanisms.base import Pass, PassContext
from ..models.model import CURRENT_MECHANISM
from .interface import NAME, PATCH, batch_scores, blocked_and_bias, for_each_head, implementation_of, is_recording
from .sites import AttentionSites, Site

Begin = Callable[[PassContext], Pass]
PLAIN = Pass()
NO_MASK: tuple[Any, Any, Tensor | None, Tensor | None] = (None, None, None, None)


@dataclass
class _Call:
    """A call of `part`, with its arguments by name, and the pass and the next place to attend in it. `continued` if it is given a cache with earlier tokens."""

    part: Any
    given: dict[str, Any]
    continued: bool
    place: int = 0
    begun: Pass | None = None


class PatchedModule:
    """The attention of one module under a mechanism. A pass is a call of the module, or of a part of it that contains all that attends in this way.

    `mechanism` returns the name and the current parameters, by which analyses of the module attend, too.
    `special_ids` are the tokens whose positions the mechanism may need. A pass carries state from layer to layer, so do not call the module from two threads
    at a time, and do not run a layer again on its own (gradient checkpointing).
    """

    def __init__(
        self,
        module: Any,
        sites: AttentionSites,
        width: int,
        begin: Begin,
        mechanism: Callable[[], Mapping[str, Any]],
        special_ids: frozenset[int],
        kind: Kind = "self",
    ) -> None:
        self._module, self._begin, self._mechanism = module, begin, mechanism
        self._special_ids = torch.tensor(sorted(special_ids), dtype=torch.long)
        self._modules = dict(module.named_modules())
        self._chosen = [(site, self._modules[str(site.module)]) for site in sites.of(kind)]
        chosen = {part for _, part in self._chosen}
        attending = {self._modules[str(site.module)]: site for site in sites.all}
        self._others = {part: site for part, site in attending.items() if part not in chosen}
        self._setting = PassContext({site.layer: site.heads for site, _ in self._chosen}, width, Axes((), ()))
        self._call: _Call | None = None
        self._mask = NO_MASK

    def install(self) -> None:
        """Make the module attend this way, replacing any earlier patch. Raises what `begin` raises for a model that it does not fit."""
        if not len(self._special_ids):
            self._begin(self._setting)
        attending = [*self._others, *(part for _, part in self._chosen)]
        patches = (getattr(part, PATCH, None) for part in attending)
        for patch in {id(patch): patch for patch in patches if patch}.values():
            patch.remove()
        around, blocks = self._around(), {self._modules[site.block] for site, _ in self._chosen if site.block}
        self._handles = [
            *(part.register_forward_pre_hook(self._start, with_kwargs=True) for part in around),
            *(part.register_forward_hook(self._finish, always_call=True) for part in around),
            *(block.register_forward_pre_hook(self._enter, with_kwargs=True) for block in blocks),
        ]
        for part in attending:
            setattr(part, PATCH, self)
        setattr(self._module, CURRENT_MECHANISM, self._current)
        self._module.set_attn_implementation(NAME)

    def _around(self) -> list[Any]:
        """Return the module, and its parts that contain everything that attends by the mechanism."""
        levels = zip(*(str(site.module).split(".") for site, _ in self._chosen), strict=False)
        shared = [level[0] for level in takewhile(lambda level: len(set(level)) == 1, levels)]
        return [self._modules[".".join(shared[:depth])] for depth in range(max(len(shared), 1))]

    def remove(self) -> None:
        """Remove the module's hooks."""
        for handle in self._handles:
            handle.remove()

    def _current(self) -> Mapping[str, Any] | None:
        """Return the mechanism; None if the module has been given another implementation."""
        return self._mechanism() if implementation_of(self._module) == NAME else None

    @property
    def _inactive(self) -> bool:
        """Whether something else computes the module's attention right now."""
        return is_recording() or implementation_of(self._module) != NAME

    def _start(self, part: Any, args: Any, kwargs: Any) -> None:
        """Note the outermost call, or the next one within it."""
        running = self._call is not None and self._call.place < len(self._chosen)
        if self._inactive or (running and part is not self._module):
            return
        given = {**dict(zip(inspect.signature(part.forward).parameters, args, strict=False)), **kwargs}
        cache = given.get("past_key_values")
        self._call = _Call(part, given, cache is not None and cache.get_seq_length() > 0)

    def _finish(self, part: Any, *_: Any) -> None:
        """Forget the call, and the tensors that its pass carries."""
        if self._call is not None and part is self._call.part:
            self._call, self._mask = None, NO_MASK

    def _pass(self, call: _Call) -> Pass:
        """Return the pass of a call. It begins with the first layer: decoders are also called with what their encoder has returned before."""
        if call.begun is None:
            call.begun = self._begin(self._located(call) if len(self._special_ids) else self._setting)
        return call.begun

    def _located(self, call: _Call) -> PassContext:
        """Return the setting with the positions of special tokens. A token that was generated after those in a cache does not count as one."""
        ids = call.given.get("input_ids")
        if ids is None:
            raise Unsupported("The mechanism needs to know which tokens are special. Pass the model input_ids.")
        if call.continued and ids.shape[1] == 1:
            special = ids.new_empty(len(ids), 0)
        else:
            special = _special(ids, call.given.get("attention_mask"), self._special_ids)
        return replace(self._setting, special=special, continued=call.continued)

    def _enter(self, module: Any, args: Any, kwargs: Any) -> Any:
        call = self._call
        if self._inactive or call is None or call.place == len(self._chosen):
            return None
        if type(self._pass(call)).enter is Pass.enter:
            return None
        hidden = args[0] if args else kwargs["hidden_states"]  # [B, Q, d]
        changed = self._pass(call).enter(self._chosen[call.place][0].layer, hidden)
        return ((changed, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": changed})

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, rest: dict[str, Any]) -> Tensor:
        """Compute the attention of a batch: query [B, H, Q, D'], key and value [B, G, K, D] -> output [B, Q, H, D]."""
        site, pass_ = self._next(module)
        blocked, bias = self._masked(rest["mask"], rest["bias"], key.shape[2])
        scores = batch_scores(site.layer, query, key, rest, blocked, bias)
        weights = torch.nn.functional.dropout(pass_.attend(scores), rest["dropout"], module.training)
        output = weights @ for_each_head(value, query.shape[1])  # [B, H, Q, D]
        return pass_.leave(site.layer, scores.heads, output).transpose(1, 2).contiguous()  # [B, Q, H, D]

    def _next(self, module: Any) -> tuple[Site, Pass]:
        """Return where the module attends, and the pass."""
        if module in self._others:
            return self._others[module], PLAIN
        call = self._call
        if call is None or call.place == len(self._chosen) or self._chosen[call.place][1] is not module:
            raise Unsupported(
                "The model attends in another order than on the probe. A mechanism carries state from layer to layer, so call the whole model "
                "and switch gradient checkpointing off."
            )
        call.place += 1
        return self._chosen[call.place - 1][0], self._pass(call)

    def _masked(self, mask: Tensor | None, bias: Tensor | None, keys: int) -> tuple[Tensor | None, Tensor | None]:
        """Return `blocked_and_bias`. The last answer is cached: most layers share one mask."""
        if (mask is not self._mask[0] or bias is not self._mask[1]) or mask is None:
            self._mask = (mask, bias, *blocked_and_bias(mask, bias, keys))
        return self._mask[2:]


def _special(ids: Tensor, mask: Tensor | None, special_ids: Tensor) -> Tensor:
    """Return the positions [B, S] of the special tokens in ids [B, N], without padding. Raises Unsupported if rows have different numbers of them."""
    special = torch.isin(ids, special_ids.to(ids.device))
    if mask is not None and mask.dim() == 2:
        special &= mask[:, -ids.shape[1] :].bool()
    counts = special.sum(-1)
    if bool((counts != counts[0]).any()):
        raise Unsupported(
            "The rows of this batch have different numbers of special tokens. Do not mix single texts and pairs in a batch."
        )
    return special.nonzero()[:, 1].reshape(len(ids), -1)
