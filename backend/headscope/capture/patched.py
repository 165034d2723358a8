"""A module that attends by a mechanism permanently: whole batches, padded or not, with gradients, without recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
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


class PatchedModule:
    """The attention of one module under a mechanism. A pass begins whenever the module's body is called.

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
        self._module, self._sites, self._begin, self._mechanism = module, sites, begin, mechanism
        self._special_ids = torch.tensor(sorted(special_ids), dtype=torch.long)
        self._chosen = sites.of(kind)
        self._modules = dict(module.named_modules())
        self._setting = PassContext({site.layer: site.heads for site in self._chosen}, width, Axes((), ()))
        self._pass, self._upcoming, self._blocks = PLAIN, iter(sites.all), iter(self._chosen)
        self._mask: tuple[Any, Any, Tensor | None, Tensor | None] = (None, None, None, None)

    def install(self) -> None:
        """Make the module attend this way, replacing any earlier patch. Raises what `begin` raises for a model that it does not fit."""
        if not len(self._special_ids):
            self._begin(self._setting)
        patches = (getattr(module, PATCH, None) for module in self._attention_modules())
        for patch in {id(patch): patch for patch in patches if patch}.values():
            patch.remove()
        body = getattr(self._module, "base_model", self._module)
        hooked = {body: self._begin_pass}
        hooked |= {self._modules[site.block]: self._enter for site in self._chosen if site.block}
        self._handles = [part.register_forward_pre_hook(hook, with_kwargs=True) for part, hook in hooked.items()]
        for module in self._attention_modules():
            setattr(module, PATCH, self)
        setattr(self._module, CURRENT_MECHANISM, self._current)
        self._module.set_attn_implementation(NAME)

    def _attention_modules(self) -> list[Any]:
        """Return the modules that call the attention function."""
        return [self._modules[str(site.module)] for site in self._sites.all]

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

    def _begin_pass(self, module: Any, args: Any, kwargs: Any) -> None:
        if self._inactive:
            return
        setting = self._setting
        if len(self._special_ids):
            ids = args[0] if args else kwargs["input_ids"]
            setting = replace(setting, special=_special(ids, kwargs.get("attention_mask"), self._special_ids))
        self._pass, self._upcoming, self._blocks = self._begin(setting), iter(self._sites.all), iter(self._chosen)

    def _enter(self, module: Any, args: Any, kwargs: Any) -> Any:
        if self._inactive or type(self._pass).enter is Pass.enter:
            return None
        hidden = args[0] if args else kwargs["hidden_states"]  # [B, Q, d]
        changed = self._pass.enter(next(self._blocks).layer, hidden)
        return ((changed, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": changed})

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, rest: dict[str, Any]) -> Tensor:
        """Compute the attention of a batch: query [B, H, Q, D'], key and value [B, G, K, D] -> output [B, Q, H, D]."""
        site = self._next_site(module)
        blocked, bias = self._masked(rest["mask"], rest["bias"], key.shape[2])
        scores = batch_scores(site.layer, query, key, rest, blocked, bias)
        pass_ = self._pass if any(site is one for one in self._chosen) else PLAIN
        weights = torch.nn.functional.dropout(pass_.attend(scores), rest["dropout"], module.training)
        output = weights @ for_each_head(value, query.shape[1])  # [B, H, Q, D]
        return pass_.leave(site.layer, scores.heads, output).transpose(1, 2).contiguous()  # [B, Q, H, D]

    def _next_site(self, module: Any) -> Site:
        site = next(self._upcoming, None)
        if site is None or self._modules[str(site.module)] is not module:
            raise Unsupported(
                "The model attends in another order than on the probe. A mechanism carries state from layer to layer, so call the whole model "
                "and switch gradient checkpointing off."
            )
        return site

    def _masked(self, mask: Tensor | None, bias: Tensor | None, keys: int) -> tuple[Tensor | None, Tensor | None]:
        """Return `blocked_and_bias`. The last answer is cached: most layers share one mask."""
        if (mask is not self._mask[0] or bias is not self._mask[1]) or mask is None:
            self._mask = (mask, bias, *blocked_and_bias(mask, bias, keys))
        return self._mask[2:]


def _special(ids: Tensor, mask: Tensor | None, special_ids: Tensor) -> Tensor:
    """Return the positions [B, S] of the special tokens in ids [B, N], without padding. Raises Unsupported if rows have different numbers of them."""
    special = torch.isin(ids, special_ids.to(ids.device))
    if mask is not None:
        special &= mask.bool()
    counts = special.sum(-1)
    if bool((counts != counts[0]).any()):
        raise Unsupported(
            "The rows of this batch have different numbers of special tokens. Do not mix single texts and pairs in a batch."
        )
    return special.nonzero()[:, 1].reshape(len(ids), -1)
