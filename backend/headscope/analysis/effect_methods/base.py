"""What methods for effects compute from, and what they find."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ...capture import AttentionSites
from ...core.arrays import Array, to_lists
from ...core.attention import Kind
from ...core.lazy import Tensor
from ...errors import InvalidRequest, NonFinite, Unsupported
from ...models.loading import Model
from ...models.tokens import Encoded
from ..predictions import Predictions

# Called with the fraction that is done; may raise to stop.
Step = Callable[[float], None]


# Mean outputs of heads in reference texts, [1, H, D] per layer, by what they depend on beside the model.
Means = dict[tuple[Any, ...], list[Tensor]]


TOLERANCE = 1e-4  # of what contributions sum to, relative to the target and to the contributions


NOT_FINITE = "The model computes NaN or infinity on this input, so heads have no effect on it."


NO_SUCH_HEAD = "This model has no such head. Name heads as layer.head, both counted from 0."


@dataclass(frozen=True)
class ScorePair:
    """What a part of the model brings to a score through the query, times another one through the key. Parts are "4.5" (a head), "mlp 3", "embedding" or "bias"."""

    query: str
    key: str
    value: float


@dataclass(frozen=True)
class Score:
    """A score of a head: why the token `query` looks at the token `key`, both counted from 0.

    terms  name -> float32 [K], NaN where the query may not attend: "content", and "rotation", "cap" and "position" where the model has them, which sum to
           "score"; and "weight", what the softmax makes of it
    pairs  those of the parameter `pairs`, largest first whatever their sign; all pairs sum to content and rotation. None if none are asked for
    """

    query: int
    key: int
    terms: Mapping[str, Array] = field(repr=False)
    pairs: list[ScorePair] | None = field(default=None, repr=False)

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "query": self.query,
            "key": self.key,
            "terms": {name: to_lists(row) for name, row in self.terms.items()},
            "pairs": self.pairs and [asdict(pair) for pair in self.pairs],
        }


@dataclass(frozen=True)
class Together:
    """What happens when several heads are replaced at once.

    heads    as layer.head
    effect   in logits, with the sign of an Effect's; those of the heads on their own do not sum to it
    before, after  the most likely tokens or classes in the text that is changed, as it is and with the heads replaced, in one row each
    """

    heads: tuple[str, ...]
    effect: float
    before: Predictions = field(repr=False)
    after: Predictions = field(repr=False)

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        rows = {"before": self.before.to_list(0), "after": self.after.to_list(0)}
        return {"heads": list(self.heads), "effect": self.effect, **rows}


@dataclass(frozen=True)
class JudgedInput:
    """An input, whose heads are judged by the logits `ids` (the largest, if there are none) at a position."""

    model: Model
    encoded: Encoded
    sites: AttentionSites
    kind: Kind
    ids: list[int]
    position: int | None
    other: Encoded | None = None  # the text that it is compared with
    reference: Sequence[Encoded] = ()  # texts whose mean outputs replace its own
    step: Step = lambda fraction: None
    matrices: Mapping[int, Tensor] = field(default_factory=dict)  # of a Jacobian lens, by layer
    means: Means = field(default_factory=dict)  # of the last reference texts

    @property
    def arguments(self) -> tuple[Model, Encoded, AttentionSites, Kind, list[int], int | None]:
        """The arguments of a pass with gradients."""
        return self.model, self.encoded, self.sites, self.kind, self.ids, self.position

    def begin(self, site: int) -> None:
        """Report that heads of a site are judged next."""
        self.step(site / len(self.sites.of(self.kind)))


@dataclass(frozen=True)
class MethodResult:
    """What a method found; see Target and Effect. `logits` are those at the position of the target, if it is a prediction."""

    ids: tuple[int, ...]
    value: float
    logits: Tensor | None
    effects: Array
    capped: bool = False
    maps: Array | None = None
    completeness_error: Array | None = None
    sources: Array | None = None
    writes: tuple[Array, Array] | None = None  # ids and logits, [L, H, N] each
    parts: Mapping[str, Array] = field(default_factory=dict)
    baseline: float | None = None
    together: Together | None = None
    score: Score | None = None


def check_sum(value: float, parts: Mapping[str, Array], reason: str) -> None:
    """Raise NonFinite, or Unsupported with a reason, unless the parts sum to the value."""
    if not np.isfinite(value):
        raise NonFinite(NOT_FINITE)
    every = np.concatenate([part.ravel() for part in parts.values()])
    if abs(value - every.sum()) > TOLERANCE * max(abs(value), float(np.linalg.norm(every))):
        raise Unsupported(reason, pointer="/model")


def chosen_heads(
    judged: JudgedInput, heads: Sequence[str], pointer: str = "/method/heads"
) -> dict[int, list[int]] | None:
    """Return named heads by the number of their layer along axis L; None if none are named. Raises InvalidRequest for heads that the model does not have."""
    sites, chosen = judged.sites.of(judged.kind), dict[int, list[int]]()
    numbers = {site.layer: number for number, site in enumerate(sites)}
    for name in dict.fromkeys(heads):
        layer, head = map(int, name.split("."))
        if layer not in numbers or head >= sites[numbers[layer]].heads:
            raise InvalidRequest(NO_SUCH_HEAD, pointer=pointer)
        chosen.setdefault(numbers[layer], []).append(head)
    return chosen or None
