"""The memory that an analysis needs, from its shapes alone, so that it can be checked before it is queued."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod

from ..core.attention import BLOCK_BYTES
from ..core.rows import FEWEST_ROWS, HEAD_BYTES, HEADS_AT_ONCE, ROWS_BYTES
from ..effects.base import EffectMethod
from ..errors import BudgetExceeded, Unknown
from ..lenses import LENSES
from ..measures import MEASURES
from ..mechanisms import MECHANISMS
from ..models.facts import Tower
from ..settings import Keep
from .request import AnalysisRequest

FLOAT = 4
# Blocks in memory at once while a layer is read: scores, weights, one projected map per lens, and scratch.
BLOCKS = 6
# Rows in a block of causal rows, and multiples of a head's factors in memory while it is read by rows: in float64, and what solves causal rows.
ROWS = 48
ROW_FLOATS = 12
# Maps of all heads of a layer that are in memory at once while an effect is computed.
EFFECT_MAPS = 2


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What an analysis computes: layers, heads, tokens along both axes, the lenses whose maps are kept, and whether whole layers are needed at once.

    `keep` says which maps are kept as factors, `width` is that of the heads.
    """

    layers: list[int]
    heads: list[int]
    queries: int
    keys: int
    kept: list[str]
    whole: bool
    counts: Mapping[int, int]  # heads of every layer
    keep: Keep = "maps"
    width: int = 0
    softmax: bool = True  # whether weights are the softmax of scores
    readings: tuple[str, ...] = ()  # all lenses that are read
    rowwise: bool = True  # whether measures can be computed from some rows after others
    limit: float = inf  # bytes that the analysis may take

    def present(self, layer: int) -> list[int]:
        """Return the selected heads that a layer has."""
        return [head for head in self.heads if head < self.counts[layer]]

    def absent(self, layer: int) -> int:
        """Return how many of the selected heads a layer does not have."""
        return len(self.heads) - len(self.present(layer))

    def shape(self, lens: str) -> tuple[int, int, int, int]:
        """Return the shape [L, H, Q, K] of a lens' map; H is 1 if it reads whole layers."""
        heads = len(self.heads) if LENSES[lens].of == "heads" else 1
        return (len(self.layers), heads, self.queries, self.keys)

    @property
    def factored(self) -> list[str]:
        """Lenses of which factors are kept, where heads have some."""
        return [lens for lens in self.kept if self.prefers(self.factor_bytes(lens))]

    def prefers(self, size: float) -> bool:
        """Return whether a head's factors of `size` bytes are kept instead of its map."""
        most = {"maps": 0, "smaller": self.queries * self.keys * FLOAT, "factors": inf}
        return size < most[self.keep]

    def factor_bytes(self, lens: str) -> float:
        """Return about how many bytes the factors of a head take; infinitely many if maps of the lens have none."""
        factoring = LENSES[lens].factoring
        if factoring is None or (factoring.softmax and not self.softmax):
            return inf
        pair = (self.queries + self.keys + self.width) * self.width * FLOAT
        return factoring.pairs * pair + 2 * FLOAT * self.queries

    @property
    def map_bytes(self) -> int:
        """Bytes of the maps, or factors, that are kept."""
        factored, heads = self.factored, len(self.layers) * len(self.heads)
        maps = sum(prod(self.shape(lens)) for lens in self.kept if lens not in factored) * FLOAT
        return maps + heads * sum(int(self.factor_bytes(lens)) for lens in factored)

    @property
    def by_rows(self) -> bool:
        """Whether large heads are read row by row: each lens and measure can be, and no maps of heads are kept."""
        lenses = [LENSES[name] for name in self.readings if LENSES[name].of == "heads"]
        able = self.softmax and self.rowwise and all(lens.factoring for lens in lenses)
        factored = self.factored
        return able and not self.whole and all(name in factored for name in self.kept if LENSES[name].of == "heads")

    @property
    def work_bytes(self) -> int:
        """Bytes in use while a layer is read, if all its heads have factors."""
        if self.by_rows and self.queries * self.keys * FLOAT > BLOCK_BYTES:
            sides, lenses = self.queries + self.keys, sum(1 for name in self.readings if LENSES[name].of == "heads")
            heads = HEADS_AT_ONCE if self.queries * self.keys * FLOAT <= HEAD_BYTES else 1
            return (
                BLOCKS * max(ROWS_BYTES, FEWEST_ROWS * self.keys * FLOAT)
                + heads * lenses * sides * ROW_FLOATS * (self.width + ROWS) * FLOAT
            )
        return self.map_work_bytes

    @property
    def map_work_bytes(self) -> int:
        """Bytes in use while a layer is read, if whole maps are needed."""
        head = self.queries * self.keys * FLOAT
        blocks = BLOCKS * max(min(len(self.heads) * head, BLOCK_BYTES), head)
        return blocks + (2 * len(self.heads) * head if self.whole else 0)

    @property
    def bytes(self) -> int:
        """Bytes of both together."""
        return self.map_bytes + self.work_bytes


def plan(
    request: AnalysisRequest,
    counts: Mapping[int, int],
    queries: int,
    keys: int,
    *,
    keep: Keep = "maps",
    width: int = 0,
) -> MemoryPlan:
    """Plan an analysis; `counts` is the number of heads of every layer that attends, and `width` their width.

    Raises Unknown for a layer or head that the model does not have.
    """
    layers, heads = list(counts), range(max(counts.values()))
    chosen = layers if request.layers is None else request.layers
    if not set(chosen) <= set(layers):
        raise Unknown("layer", f"The model attends in layers {_spans(layers)}.", pointer="/layers")
    if request.heads is not None and request.heads[-1] not in heads:
        raise Unknown("head", f"The model has heads 0 to {heads[-1]}.", pointer="/heads")
    whole = any(LENSES[name].of == "layer" for name in request.readings)
    kept = request.lens_names if request.maps else []
    softmax = request.mechanism is None or MECHANISMS[request.mechanism.name].softmax
    rowwise = all(MEASURES[one.name].reads_rows(one) for one in request.measures if MEASURES[one.name].of == "heads")
    return MemoryPlan(
        chosen, list(request.heads or heads), queries, keys, kept, whole, counts, keep, width, softmax,
        readings=tuple(request.readings), rowwise=rowwise,
    )  # fmt: skip


def check(planned: MemoryPlan, limit: int) -> MemoryPlan:
    """Return the plan with its limit. Raise BudgetExceeded, with suggestions that would fit, if an analysis needs more than `limit` bytes."""
    actual = planned.bytes
    if actual <= limit:
        return replace(planned, limit=limit)
    longest = max(planned.queries, planned.keys)
    fitting_tokens = _fitting(longest - 1, limit, lambda tokens: _cut(planned, tokens))
    hints = []
    if planned.kept:
        if len(planned.kept) > 1 and any(replace(planned, kept=[lens]).bytes <= limit for lens in planned.kept):
            hints.append("fewer lenses at a time (lenses)")
        layers = _fitting(len(planned.layers) - 1, limit, lambda most: replace(planned, layers=planned.layers[:most]))
        if layers > 0:
            hints.append(f"{layers} layer{'s' if layers > 1 else ''} at a time (layers)")
        if replace(planned, kept=[]).bytes <= limit:
            hints.append("measures and thumbnails without the maps (maps: false)")
    if fitting_tokens > 0:
        hints.append(f"{fitting_tokens} tokens (max_tokens)")
    raise BudgetExceeded(
        f"{longest} tokens need {size(actual)}; one analysis may take {size(limit)}. What would fit: {', or '.join(hints) or 'nothing'}.",
        pointer="/text",
        limit=limit,
        actual=actual,
    )


def _fitting(most: int, limit: int, plan_of: Callable[[int], MemoryPlan]) -> int:
    """Return how many of something fit, at most `most`; -1 if not even the plan without any does."""
    return bisect_right(range(most + 1), limit, key=lambda count: plan_of(count).bytes) - 1


def check_effect(method: EffectMethod, tower: Tower, queries: int, keys: int, limit: int) -> None:
    """Raise BudgetExceeded, with the number of tokens that would fit, if the effects of all heads of a tower need more than `limit` bytes."""

    def needed(most: int) -> int:
        tokens = max(min(queries, most), method.tokens)
        stream = method.activations * tower.layers * tower.head_width * tokens
        maps = EFFECT_MAPS + tower.layers * method.maps
        return tower.heads * FLOAT * (stream + maps * min(queries, most) * min(keys, most))

    longest = max(queries, keys)
    if (actual := needed(longest)) > limit:
        fitting = max(0, bisect_right(range(longest), limit, key=needed) - 1)
        raise BudgetExceeded(
            f"{method.title} for {longest} tokens needs about {size(actual)}; one job may take {size(limit)}. Analyse at most {fitting} tokens.",
            limit=limit,
            actual=actual,
        )


def check_matrices(count: int, width: int, limit: int) -> None:
    """Raise BudgetExceeded if so many square matrices of a Jacobian lens need more than `limit` bytes."""
    if (actual := FLOAT * count * width**2) > limit:
        raise BudgetExceeded(
            f"The matrices of this Jacobian lens need about {size(actual)}; one job may take {size(limit)}.",
            pointer="/jacobian_lens",
            limit=limit,
            actual=actual,
        )


def check_kept(planned: MemoryPlan, kept: int) -> None:
    """Raise BudgetExceeded if the bytes kept so far exceed the plan's limit, because heads that were expected to have factors have none."""
    _check(
        planned,
        kept + planned.work_bytes,
        "Some heads have no factors, and with their maps the result needs {}; one analysis may take {}. "
        "Analyse fewer tokens, layers or lenses, or keep no maps (maps: false).",
    )


def check_whole(planned: MemoryPlan) -> None:
    """Raise BudgetExceeded if there is no room for whole maps, which some heads need although they were expected to have factors."""
    _check(
        planned,
        planned.map_bytes + planned.map_work_bytes,
        "Some heads can only be read as whole maps, which need {}; one analysis may take {}. "
        "Analyse fewer tokens, or choose other lenses.",
    )


def _check(planned: MemoryPlan, actual: int, detail: str) -> None:
    """Raise BudgetExceeded with both sizes in its detail if so many bytes exceed the limit."""
    if actual > planned.limit:
        limit = int(planned.limit)
        raise BudgetExceeded(detail.format(size(actual), size(limit)), pointer="/text", limit=limit, actual=actual)


def _cut(planned: MemoryPlan, tokens: int) -> MemoryPlan:
    return replace(planned, queries=min(planned.queries, tokens), keys=min(planned.keys, tokens))


def _spans(numbers: Sequence[int]) -> str:
    """Return numbers in words: 0 to 11, or 3, 7, 11 if there are gaps."""
    if list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(str(number) for number in numbers)


def size(number: int) -> str:
    """Return bytes in words: 91 MB, 1.2 GB."""
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"
