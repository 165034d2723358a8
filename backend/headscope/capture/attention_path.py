"""The gradient of an output while the attention weights of one layer grow from 0 to what they are, and all others stay.

Values do not depend on the weights of their own layer, so the outputs of its heads grow in proportion. Layers below compute nothing again, and places on the
path are the inputs of one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.attention import Kind
from ..models.loading import Model
from ..models.tokens import Encoded
from .direct import PlainRecorder
from .interface import NAME, AttentionCall, attending_with
from .outputs import AttentionGradients, differentiate, values_of
from .replaced import Runner
from .sites import AttentionSites

# A place on the path, 0..1, and its factor in the mean.
Place = tuple[float, float]


@dataclass(frozen=True)
class PathGradients(AttentionGradients):
    """As AttentionGradients, with the mean gradients on the path of each site; `gains` are by how much the target grows on it."""

    gains: list[float]


def gradients_on_path(
    model: Model,
    encoded: Encoded,
    sites: AttentionSites,
    kind: Kind,
    ids: Sequence[int],
    position: int | None,
    places: Sequence[Place],
    tokens: int,
    begin: Callable[[int], None],
) -> PathGradients:
    """Return the mean gradient of a target at the outputs of the heads of each site, while all of them grow from 0. Otherwise as gradients_of_attention.

    Inputs of about `tokens` tokens are computed at once; `begin(number of a site)` is called before each. Raises Unsupported for layers that cannot be run on
    their own, too.
    """
    runner = _PathRunner(model, encoded, sites, kind, position)
    with torch.no_grad(), attending_with(NAME, model.module), runner.hooks():
        logits = runner.first()
        ids = tuple(ids) or (int(logits.argmax()),)
        runner.check(logits[list(ids)], ids)
        gradients, gains = [], []
        for number in range(len(runner.sites)):
            begin(number)
            parts = [runner.read(number, some, ids) for some in runner.batches([(0.0, 0.0), *places], tokens)]
            gradients.append(torch.stack([gradient for gradient, _ in parts]).sum(0))
            gains.append(float(values_of(logits, ids).double() - parts[0][1][0].double()))
    return PathGradients(logits, ids, runner.plain.outputs, gradients, gains)


class _PathRunner(Runner):
    """A model of which the heads of one layer are multiplied by a share in each copy of the input."""

    plain: PlainRecorder
    scaled: _ShareRecorder
    _shares: Tensor | None = None

    def read(self, number: int, places: Sequence[Place], ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the sum of the gradients at these places, times their factors, [H, Q, D], and the target at each."""
        self._shares, factors = torch.tensor(places, dtype=torch.float64).T
        with torch.enable_grad():
            logits = self.again({number: [()] * len(places)}, lambda number, written, heads: written)
            _, (found,) = differentiate(logits, ids, [self.scaled.output])
        return torch.einsum("b,bhqd->hqd", factors.to(found), found), values_of(logits.detach(), ids)

    def recorder(self, size: int) -> PlainRecorder:
        """Keep what heads attend to in the first run, and multiply the heads of a site later."""
        if not self.changes:
            self.plain = PlainRecorder(self.model, self.all, self.sites)
            return self.plain
        if self._shares is None:
            return PlainRecorder(self.model, self.all, size=size)
        modules = {id(self.model.module.get_submodule(str(site.module))) for site in self.sites}
        self.scaled = _ShareRecorder(self.model, self.all, size=size)
        self.scaled.begin(modules, next(iter(self.changes)) - self.upcoming, self._shares)
        return self.scaled


class _ShareRecorder(PlainRecorder):
    """Multiplies the outputs of the heads in one call of some modules by the share of each input."""

    output: Tensor

    def begin(self, modules: set[int], before: int, shares: Tensor) -> None:
        """Choose the call: the one after `before` others of the modules with these ids."""
        self._modules, self._before, self._shares = modules, before, shares

    def attend(self, call: AttentionCall) -> Tensor:
        """Return the heads' outputs [B, H, Q, D]."""
        found = super().attend(call)
        if id(call.module) not in self._modules:
            return found
        self._before -= 1
        if self._before != -1:
            return found
        self.output = (found.detach() * self._shares.to(found)[:, None, None, None]).requires_grad_()
        return self.output
