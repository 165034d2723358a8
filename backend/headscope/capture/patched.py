"""A module that attends by a mechanism until further notice: whole batches, padded or not, with gradients. Nothing is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..core.attention import Kind
from ..core.tokens import Axes
from ..errors import Unsupported
from ..mechanisms.base import Pass, PassContext, Scores
from .interface import NAME, STANDING, current, recorded, split
from .sites import AttentionSites, Site

Begin = Callable[[PassContext], Pass]
PLAIN = Pass()


class PatchedModule:
    """Computes the attention of one module. A pass begins whenever the module's body is called.

    `special_ids` are the tokens whose places a mechanism may ask for. Unlike the module's own parts this keeps what a pass carries from layer to layer, so a
    module must not be called from two threads at a time, and no layer can be run again on its own (gradient checkpointing).
    """

    def __init__(
        self,
        module: Any,
        sites: AttentionSites,
        width: int,
        begin: Begin,
        special_ids: frozenset[int],
        kind: Kind = "self",
    ) -> None:
        self._module, self._sites, self._begin = module, sites, begin
        self._special_ids = torch.tensor(sorted(special_ids), dtype=torch.long)
        self._mine = sites.of(kind)
        self._modules = dict(module.named_modules())
        self._setting = PassContext(
            heads=tuple(site.heads for site in self._mine),
            width=width,
            kind=self._mine[0].kind,
            causal=self._mine[0].causal,
            axes=Axes((), ()),
            layers=tuple(site.layer for site in self._mine),
        )
        self._pass, self._upcoming, self._entered = PLAIN, iter(sites.all), iter(self._mine)
        self._mask: tuple[Any, Any, Tensor | None, Tensor | None] = (None, None, None, None)

    def install(self) -> None:
        """From now on the module attends this way, and in no other that was installed before. Raises what `begin` raises of a model that it does not fit."""
        if not len(self._special_ids):
            self._begin(self._setting)
        for before in {id(one): one for place in self._attending() if (one := getattr(place, STANDING, None))}.values():
            before.remove()
        body = getattr(self._module, "base_model", self._module)
        hooked = {body: self._beginning}
        hooked |= {self._modules[site.block]: self._entering for site in self._mine if site.block}
        self._handles = [part.register_forward_pre_hook(hook, with_kwargs=True) for part, hook in hooked.items()]
        for place in self._attending():
            setattr(place, STANDING, self)
        self._module.set_attn_implementation(NAME)

    def _attending(self) -> list[Any]:
        """The modules that call the attention function."""
        return [self._modules[str(site.module)] for site in self._sites.all]

    def remove(self) -> None:
        """Let go of the module's hooks."""
        for handle in self._handles:
            handle.remove()

    @property
    def _resting(self) -> bool:
        """Whether something else computes the module's attention at the moment."""
        return recorded() or current(self._module) != NAME

    def _beginning(self, module: Any, args: Any, kwargs: Any) -> None:
        if self._resting:
            return
        setting = self._setting
        if len(self._special_ids):
            ids = args[0] if args else kwargs["input_ids"]
            setting = replace(setting, special=_special(ids, kwargs.get("attention_mask"), self._special_ids))
        self._pass, self._upcoming, self._entered = self._begin(setting), iter(self._sites.all), iter(self._mine)

    def _entering(self, module: Any, args: Any, kwargs: Any) -> Any:
        if self._resting or type(self._pass).enter is Pass.enter:
            return None
        hidden = args[0] if args else kwargs["hidden_states"]  # [B, Q, d]
        changed = self._pass.enter(next(self._entered).layer, hidden)
        return ((changed, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": changed})

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, rest: dict[str, Any]) -> Tensor:
        """Query [B, H, Q, D'], key and value [B, G, K, D] -> output [B, Q, H, D]."""
        site = self._next_site(module)
        per_group = query.shape[1] // key.shape[1]
        if per_group > 1:
            key, value = key.repeat_interleave(per_group, dim=1), value.repeat_interleave(per_group, dim=1)
        blocked, bias = self._masked(rest["mask"], rest["bias"], key.shape[2])
        sink = None if rest["sink"] is None else rest["sink"].reshape(query.shape[1], -1, 1)
        heads = tuple(range(query.shape[1]))
        scores = Scores(site.layer, heads, query, key, float(rest["scaling"]), rest["softcap"], bias, blocked, sink)
        pass_ = self._pass if any(site is one for one in self._mine) else PLAIN
        weights = pass_.attend(scores)
        weights = torch.nn.functional.dropout(weights, rest["dropout"], module.training)
        return pass_.leave(site.layer, heads, weights @ value).transpose(1, 2).contiguous()

    def _next_site(self, module: Any) -> Site:
        site = next(self._upcoming, None)
        if site is None or self._modules[str(site.module)] is not module:
            raise Unsupported(
                "The model attends in another order than on the probe. A mechanism carries things from layer to layer, so call the whole model, "
                "and switch gradient checkpointing off."
            )
        return site

    def _masked(self, mask: Tensor | None, bias: Tensor | None, keys: int) -> tuple[Tensor | None, Tensor | None]:
        """Where nobody may look [B, 1 or H, Q, K], and what is added. Layers mostly share one mask, so the last answer is kept."""
        if (mask is not self._mask[0] or bias is not self._mask[1]) or mask is None:
            blocked, added = None, None if bias is None else bias[..., :keys]
            if mask is not None:
                allowed, rest = split(mask[..., :keys])
                blocked = None if bool(allowed.all()) else ~allowed
                added = added if rest is None else rest if added is None else added + rest
            self._mask = (mask, bias, blocked, added)
        return self._mask[2:]


def _special(ids: Tensor, mask: Tensor | None, special_ids: Tensor) -> Tensor:
    """Places [B, S] of the special tokens of ids [B, N]; padding is none. Unsupported if the rows have different numbers of them."""
    special = torch.isin(ids, special_ids.to(ids.device))
    if mask is not None:
        special &= mask.bool()
    counts = special.sum(-1)
    if bool((counts != counts[0]).any()):
        raise Unsupported(
            "The rows of a batch differ in their number of special tokens. Give inputs of one text, or pairs, at a time."
        )
    return special.nonzero()[:, 1].reshape(len(ids), -1)
