"""What a study found, as figures, tables, the API and the page read it: from memory or from the store, a document and flat arrays.

Names of the arrays (v variant 0 or 1, m measure, s lens). Their last axes are those of the measure without its token axes, which are pooled: [L, H] for measures per
head, [L, H, C] where there are columns, and [L], [L, C] or [L, H, H] for the others. What is NaN in an input is left out.

stat/{v}/{m}/{s}/count mean m2 low high          over all entries (queries, keys) of all inputs; m2 is the sum of squared differences to the mean
stat/{v}/{m}/{s}/inputs input_mean input_m2      over inputs, each counted once by the mean of its entries
stat/{v}/{m}/{s}/histogram edges                 entries by bin [..., BINS]; what lies beyond the edges [BINS + 1] is in the first or last bin
stat/{v}/{m}/{s}/boot_sum boot_weight            Poisson bootstrap over inputs [B, ...]
class/{v}/{m}/{s}                                inputs by class [L, H, classes], for measures with classes
class_boot/{v}/{m}/{s}                           the same in every replicate of the bootstrap, summed over heads [B, L, classes]
shown/{v}/{s}/map row rank tokens keys           maps [L, H, Q, K] of the one input that is kept to be shown; see shown.py
top/{v}/{m}/{s}/value row                        inputs with the largest mean [..., K], largest first; row -1 where there are fewer
pair/{comparison}/{s}/...                        the parts of `stat` for the two variants, compared input by input [L, H]
top/pair/{comparison}/{s}/value row              inputs in which they are least alike [L, H, K]; value is 1 - cosine, or the divergence
alike/{v}/{s}/sum count                          cosine between the maps of each two heads [L H, L H], summed over some inputs
sparse/{v}/{row}/key value tokens                strongest entries of the weights of a few inputs; see sequences.py
fixed/{v}/{m}/{s}                                measures of the weights alone, which are the same for every input
sample/row                                       inputs drawn evenly, in order
example/row json                                 every input that is named above: its number, and {"text", ...} as JSON
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import NotReady, Unknown, Unsupported

Array = NDArray[Any]


@dataclass(frozen=True)
class Stat:
    """Numbers of a measure over all inputs, head by head (or whatever axes the measure has but for its token axes, which are pooled).

    `count`, `mean`, `m2`, `low` and `high` are over entries: one for each query of each input where the measure has a number per query. `inputs`, `input_mean` and
    `input_m2` are over inputs, each counted once. NaN where nothing is defined.
    """

    count: Array
    mean: Array
    m2: Array
    low: Array
    high: Array
    histogram: Array  # [..., BINS]
    edges: Array  # [BINS + 1]
    inputs: Array
    input_mean: Array
    input_m2: Array
    boot_sum: Array  # [B, ...]
    boot_weight: Array

    @property
    def std(self) -> Array:
        """Standard deviation of the entries, of the sample (n - 1); NaN below two."""
        return _deviation(self.m2, self.count)

    @property
    def input_std(self) -> Array:
        """The same of the inputs' means."""
        return _deviation(self.input_m2, self.inputs)

    def quantile(self, q: float) -> Array:
        """A quantile of the entries, evenly spread within its bin: exact to what `within` gives, and never outside `low` and `high`."""
        counts, total, place = self._bin(q)
        inside = np.take_along_axis(self.histogram, place, -1).astype(float)
        before = np.take_along_axis(counts, place, -1) - inside
        share = np.divide(q * total - before, inside, out=np.zeros_like(inside), where=inside > 0)
        found = (self.edges[place] + share * (self.edges[place + 1] - self.edges[place]))[..., 0]
        kept: Array = np.clip(np.where(self.count > 0, found, np.nan), self.low, self.high)
        return kept

    def within(self, q: float) -> tuple[Array, Array]:
        """The bounds between which a quantile is known to be: the edges of its bin, or `low` and `high` where they are nearer. NaN of nothing."""
        place = self._bin(q)[2][..., 0]
        last = len(self.edges) - 2
        below = np.where(place == 0, -np.inf, self.edges[place])
        above = np.where(place == last, np.inf, self.edges[place + 1])
        return np.maximum(below, self.low), np.minimum(above, self.high)

    def _bin(self, q: float) -> tuple[Array, Array, Array]:
        """Cumulative counts, their totals, and the bin that a quantile is in, [..., 1]."""
        counts = np.cumsum(self.histogram, axis=-1).astype(float)
        total = counts[..., -1:]
        place = np.minimum((counts < q * total).sum(-1), self.histogram.shape[-1] - 1)[..., None]
        return counts, total, place

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Bootstrap interval of `input_mean`: percentiles of the means of resampled inputs. NaN below two inputs."""
        weight = np.where(self.boot_weight > 0, self.boot_weight, 1)
        means = np.where(self.boot_weight > 0, self.boot_sum / weight, np.nan)
        defined = self.inputs > 1
        low, high = (np.full(defined.shape, np.nan) for _ in range(2))
        tails = [(1 - level) / 2, (1 + level) / 2]
        found = np.nanquantile(means[:, defined], tails, axis=0) if defined.any() else np.empty((2, 0))
        low[defined], high[defined] = found
        return low, high


STAT_PARTS = tuple(Stat.__dataclass_fields__)


@dataclass(frozen=True)
class StudySummary:
    """A study's document and arrays, by what they mean. Also what Study, the API and the figures are handed."""

    document: dict[str, Any]
    arrays: Mapping[str, Array]

    @property
    def inputs(self) -> int:
        """How many inputs were analysed."""
        return int(self.document["inputs"])

    @property
    def variants(self) -> list[dict[str, Any]]:
        """By variant its model, mechanism, layers and heads."""
        return list(self.document["variants"])

    @property
    def layers(self) -> list[int]:
        """What axis L holds, of the first variant."""
        return list(self.document["variants"][0]["layers"])

    @property
    def heads(self) -> list[int]:
        """What axis H holds, of the first variant."""
        return list(self.document["variants"][0]["heads"])

    def place(self, layer: int, head: int, variant: int = 0) -> tuple[int, int]:
        """Where a head stands on axes L and H. Raises Unknown."""
        one = self.variant(variant)
        if layer not in one["layers"]:
            raise Unknown(
                "layer", f"The study has the layers {one['layers'][0]} to {one['layers'][-1]}.", pointer="/layer"
            )
        if head not in one["heads"]:
            raise Unknown("head", f"The study has the heads {one['heads'][0]} to {one['heads'][-1]}.", pointer="/head")
        return one["layers"].index(layer), one["heads"].index(head)

    def lenses_of(self, measure: str) -> list[str]:
        """The lenses a measure was computed for. Raises NotReady if it was not computed at all."""
        computed = self.document["measures"]
        if measure not in computed:
            raise NotReady(f"This needs the measure {measure}, which the study lacks. Send it again with that measure.")
        return list(computed[measure])

    def stat(self, measure: str, lens: str = "weights", variant: int = 0) -> Stat:
        """A measure over all inputs. Raises NotReady, Unsupported (a lens it was not computed for) or Unknown (no such variant)."""
        return self._stat(f"stat/{self._of(measure, lens, variant)}")

    def fixed(self, measure: str, lens: str = "weights", variant: int = 0) -> Array:
        """A measure of the weights alone. Raises as `stat`."""
        return self._array(f"fixed/{self._of(measure, lens, variant)}")

    def classes(self, measure: str = "patterns", lens: str = "weights", variant: int = 0) -> Array:
        """How many inputs each class was found in, [L, H, classes]. Raises as `stat`."""
        return self._array(f"class/{self._of(measure, lens, variant)}")

    def top(self, measure: str, lens: str = "weights", variant: int = 0) -> tuple[Array, Array]:
        """The largest means of an input and the rows they are of, both [..., K]; row -1 where there is none. Raises as `stat`."""
        of = self._of(measure, lens, variant)
        return self._array(f"top/{of}/value"), self._array(f"top/{of}/row")

    @cached_property
    def comparisons(self) -> list[str]:
        """By which comparisons the two variants were compared; none if there is one variant, or they can't be."""
        return list(dict.fromkeys(name.split("/")[1] for name in self.arrays if name.startswith("pair/")))

    def pair(self, comparison: str, lens: str = "weights") -> Stat:
        """The two variants compared input by input, [L, H]. Raises Unsupported if they were not."""
        if f"pair/{comparison}/{lens}/count" not in self.arrays:
            reason = self.document.get("not_compared") or "The study has one variant, or lacks that lens."
            raise Unsupported(f"There is no {comparison} of two variants here. {reason}", pointer="/lens")
        return self._stat(f"pair/{comparison}/{lens}")

    def top_pair(self, comparison: str, lens: str = "weights") -> tuple[Array, Array]:
        """1 - cosine, or the divergence, where the variants are least alike, and the rows, both [L, H, K]. Raises as `pair`."""
        self.pair(comparison, lens)
        of = f"pair/{comparison}/{lens}"
        return self._array(f"top/{of}/value"), self._array(f"top/{of}/row")

    def neighbours(
        self, layer: int, head: int, lens: str = "weights", variant: int = 0, most: int = 5
    ) -> list[tuple[int, int, float]]:
        """The heads whose maps are most like those of a head: (layer, head, mean cosine), the nearest first. Raises Unknown or Unsupported."""
        place, one = self.place(layer, head, variant), self.variant(variant)
        if f"alike/{variant}/{lens}/sum" not in self.arrays:
            raise Unsupported("Heads were not compared with each other for that lens.", pointer="/lens")
        at = place[0] * len(one["heads"]) + place[1]
        total, count = (self.arrays[f"alike/{variant}/{lens}/{part}"][at] for part in ("sum", "count"))
        cosines = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        order = [i for i in np.argsort(-cosines, kind="stable").tolist() if i != at and np.isfinite(cosines[i])]
        width = len(one["heads"])
        return [(one["layers"][i // width], one["heads"][i % width], float(cosines[i])) for i in order[:most]]

    def sample(self) -> list[int]:
        """Numbers of inputs drawn evenly from all."""
        return [int(row) for row in self.arrays["sample/row"]]

    def example(self, row: int) -> dict[str, Any]:
        """An input that the study kept: {"row", "text", and "text_pair", "label" where there is one}. Raises Unknown."""
        if row not in self._examples:
            raise Unknown(
                "row", "The study did not keep the text of that row. Look it up in the data set.", pointer="/row"
            )
        return {"row": row, **self._examples[row]}

    @cached_property
    def _examples(self) -> dict[int, dict[str, Any]]:
        texts: list[dict[str, Any]] = json.loads(self.arrays["example/json"].tobytes() or b"[]")
        return dict(zip((int(row) for row in self.arrays["example/row"]), texts, strict=True))

    def variant(self, variant: int) -> dict[str, Any]:
        """A variant: model, mechanism, layers, heads. Raises Unknown."""
        if not 0 <= variant < len(self.document["variants"]):
            raise Unknown(
                "variant", f"The study has the variants 0 to {len(self.document['variants']) - 1}.", pointer="/variant"
            )
        one: dict[str, Any] = self.document["variants"][variant]
        return one

    def _of(self, measure: str, lens: str, variant: int) -> str:
        self.variant(variant)
        if lens not in self.lenses_of(measure):
            known = ", ".join(self.lenses_of(measure))
            raise Unsupported(f"{measure} was computed for: {known}.", pointer="/lens")
        return f"{variant}/{measure}/{lens}"

    def _stat(self, prefix: str) -> Stat:
        return Stat(*(self._array(f"{prefix}/{part}") for part in STAT_PARTS))

    def _array(self, name: str) -> Array:
        if name not in self.arrays:
            raise Unsupported("The study keeps nothing of that kind for this measure and lens.", pointer="/lens")
        return self.arrays[name]


def _deviation(m2: Array, count: Array) -> Array:
    below = np.where(count > 1, count - 1, 1)
    found: Array = np.where(count > 1, np.sqrt(m2 / below), np.nan)
    return found
