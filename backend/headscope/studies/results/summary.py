"""The result of a study, as figures, tables, the API and the page read it: a document and flat arrays, from memory or from the store.

Names of the arrays (v variant 0 or 1, m measure, s lens). Their last axes are those of the measure without its token axes, which are pooled: [L, H] for measures per
head, [L, H, C] for measures with columns, and [L], [L, C] or [L, H, H] for others. NaN values of an input are ignored.

stat/{v}/{m}/{s}/count mean m2 low high          over all entries (queries, keys) of all inputs; m2 is the sum of squared deviations
stat/{v}/{m}/{s}/inputs input_mean input_m2      over inputs, each counted once by the mean of its entries
stat/{v}/{m}/{s}/histogram edges                 entries by bin [..., BINS]; entries beyond the edges [BINS + 1] are in the first or last bin
stat/{v}/{m}/{s}/boot_sum boot_weight            Poisson bootstrap over inputs [B, ...]
class/{v}/{m}/{s}                                inputs by class [L, H, classes], for measures with classes
class_boot/{v}/{m}/{s}                           the same in every bootstrap replicate, summed over heads [B, L, classes]
shown/{v}/{s}/map row rank tokens keys           maps [L, H, Q, K] of the one input that is shown; see kept_maps.py
top/{v}/{m}/{s}/value row                        inputs with the largest means [..., K], largest first; padded with row -1
pair/{comparison}/{s}/...                        the parts of `stat` for the two variants, compared input by input [L, H]
top/pair/{comparison}/{s}/value row              inputs on which the variants differ most [L, H, K]; value is 1 - cosine, or the divergence
alike/{v}/{s}/sum count                          cosine between the maps of all pairs of heads [L H, L H], summed over some inputs
sparse/{v}/{row}/key value tokens                strongest entries of the weights of a few inputs; see kept_maps.py
fixed/{v}/{m}/{s}                                measures of the model's weights alone, which are the same for every input
sample/row                                       a random sample of inputs, in order
example/row json                                 every input referred to above: its number, and {"text", ...} as JSON
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...core.arrays import Array, check_share, divide
from ...errors import NotReady, Unknown, Unsupported
from ..quantities import QUANTITIES

# Metric -> its title, its measure, and the column of the measure (None if it has none).
METRICS: dict[str, tuple[str, str, str | None]] = {
    "self_attention_score": ("Self-attention", "head_roles", "self"),
    "prev_token_score": ("Previous token", "head_roles", "previous_matched"),
    "pattern_entropy": ("Entropy (nats)", "entropy", None),
    "qk_distance": ("Distance (tokens)", "qk_distance", "mean"),
    "qk_distance_variance": ("Variance of the distance", "qk_distance", "square"),
    "induction_score": ("Induction", "head_roles", "induction_matched"),
}


@dataclass(frozen=True)
class Means:
    """Means over inputs [...], and the same means in every bootstrap replicate [B, ...]."""

    mean: Array
    replicates: Array

    def map(self, reduce: Callable[[Array], Array]) -> Means:
        """Apply a function to the means and to every replicate; `reduce` may only touch the last axes."""
        return Means(reduce(self.mean), reduce(self.replicates))

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Return the bounds of the percentile intervals, each shaped like `mean`; NaN where nothing is defined. Raises InvalidRequest."""
        check_share(level, "level")
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # entries without any value
            low, high = np.nanquantile(self.replicates, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return low, high


@dataclass(frozen=True)
class Stat:
    """Statistics of a measure over all inputs, per head (in general: per index of the measure's axes without its token axes, which are pooled).

    `count`, `mean`, `m2`, `low` and `high` are over entries, such as one per query of each input. `inputs`, `input_mean` and `input_m2` are over inputs, each
    counted once. Undefined values are NaN.
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
        """Sample standard deviation (n - 1) of the entries; NaN for fewer than two."""
        return _deviation(self.m2, self.count)

    @property
    def input_std(self) -> Array:
        """Sample standard deviation of the inputs' means."""
        return _deviation(self.input_m2, self.inputs)

    def quantile(self, q: float) -> Array:
        """Return a quantile of the entries, interpolated within its bin and clipped to `low` and `high`. `within` bounds the error."""
        counts, total, place = self._bin(q)
        inside = np.take_along_axis(self.histogram, place, -1).astype(float)
        before = np.take_along_axis(counts, place, -1) - inside
        share = np.divide(q * total - before, inside, out=np.zeros_like(inside), where=inside > 0)
        inner = (self.edges[place] + share * (self.edges[place + 1] - self.edges[place]))[..., 0]
        clipped: Array = np.clip(np.where(self.count > 0, inner, np.nan), self.low, self.high)
        return clipped

    def within(self, q: float) -> tuple[Array, Array]:
        """Return bounds of a quantile: the edges of its bin, or `low` and `high` if they are tighter. NaN without entries."""
        place = self._bin(q)[2][..., 0]
        last = len(self.edges) - 2
        below = np.where(place == 0, -np.inf, self.edges[place])
        above = np.where(place == last, np.inf, self.edges[place + 1])
        return np.maximum(below, self.low), np.minimum(above, self.high)

    def _bin(self, q: float) -> tuple[Array, Array, Array]:
        """Return cumulative counts, their totals, and the index of a quantile's bin [..., 1]. Raises InvalidRequest."""
        check_share(q, "q")
        counts = np.cumsum(self.histogram, axis=-1).astype(float)
        total = counts[..., -1:]
        place = np.minimum((counts < q * total).sum(-1), self.histogram.shape[-1] - 1)[..., None]
        return counts, total, place

    @property
    def means(self) -> Means:
        """The means over inputs, with their bootstrap replicates, which are NaN for fewer than two inputs."""
        replicates = divide(self.boot_sum, self.boot_weight)
        return Means(self.input_mean.astype(float), np.where(self.inputs > 1, replicates, np.nan))

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Return the bootstrap interval of `input_mean`: percentiles of the means of resampled inputs. NaN for fewer than two inputs."""
        return self.means.interval(level)


STAT_PARTS = tuple(Stat.__dataclass_fields__)


@dataclass(frozen=True)
class StudySummary:
    """The document and arrays of a study, with access by meaning. `Study`, the API and the figures use it."""

    document: dict[str, Any]
    arrays: Mapping[str, Array]

    @property
    def inputs(self) -> int:
        """Number of inputs that were analysed."""
        return int(self.document["inputs"])

    @property
    def variants(self) -> list[dict[str, Any]]:
        """Model, mechanism, layers and heads of each variant."""
        return list(self.document["variants"])

    @property
    def layers(self) -> list[int]:
        """Layers along axis L, of the first variant."""
        return list(self.document["variants"][0]["layers"])

    @property
    def heads(self) -> list[int]:
        """Heads along axis H, of the first variant."""
        return list(self.document["variants"][0]["heads"])

    def place(self, layer: int, head: int, variant: int = 0) -> tuple[int, int]:
        """Return the indices of a head on axes L and H. Raises Unknown."""
        described = self.variant(variant)
        layers, heads = described["layers"], described["heads"]
        if layer not in layers:
            raise Unknown("layer", f"The study has layers {layers[0]} to {layers[-1]}.", pointer="/layer")
        if head not in heads:
            raise Unknown("head", f"The study has heads {heads[0]} to {heads[-1]}.", pointer="/head")
        return layers.index(layer), heads.index(head)

    def lenses_of(self, measure: str) -> list[str]:
        """Return the lenses that a measure was computed for. Raises NotReady if it was not computed."""
        computed = self.document["measures"]
        if measure not in computed:
            raise NotReady(
                f"This needs the measure {measure}, which the study lacks. Run the study again with this measure."
            )
        return list(computed[measure])

    def stat(self, measure: str, lens: str = "weights", variant: int = 0) -> Stat:
        """Return the statistics of a measure. Raises NotReady, Unsupported (lens not computed) or Unknown (no such variant)."""
        return self._stat(f"stat/{self._of(measure, lens, variant)}")

    def fixed(self, measure: str, lens: str = "weights", variant: int = 0) -> Array:
        """Return a measure of the model's weights alone. Raises what `stat` raises."""
        return self._array(f"fixed/{self._of(measure, lens, variant)}")

    def classes(self, measure: str = "patterns", lens: str = "weights", variant: int = 0) -> Array:
        """Return the number of inputs per class, [L, H, classes]. Raises what `stat` raises."""
        return self._array(f"class/{self._of(measure, lens, variant)}")

    def top(self, measure: str, lens: str = "weights", variant: int = 0) -> tuple[Array, Array]:
        """Return the largest means of an input and their rows, both [..., K], padded with row -1. Raises what `stat` raises."""
        of = self._of(measure, lens, variant)
        return self._array(f"top/{of}/value"), self._array(f"top/{of}/row")

    @cached_property
    def comparisons(self) -> list[str]:
        """Names of the comparisons of the two variants; empty for one variant, or if they cannot be compared."""
        return list(dict.fromkeys(name.split("/")[1] for name in self.arrays if name.startswith("pair/")))

    def pair(self, comparison: str, lens: str = "weights") -> Stat:
        """Return the comparison of the two variants, input by input, [L, H]. Raises Unsupported if they were not compared."""
        if f"pair/{comparison}/{lens}/count" not in self.arrays:
            reason = self.document.get("not_compared") or "It has one variant, or lacks this lens."
            raise Unsupported(f"This study has no {comparison} of two variants. {reason}", pointer="/lens")
        return self._stat(f"pair/{comparison}/{lens}")

    def top_pair(self, comparison: str, lens: str = "weights") -> tuple[Array, Array]:
        """Return the largest differences (1 - cosine, or the divergence) and their rows, both [L, H, K]. Raises what `pair` raises."""
        self.pair(comparison, lens)
        of = f"pair/{comparison}/{lens}"
        return self._array(f"top/{of}/value"), self._array(f"top/{of}/row")

    def neighbours(
        self, layer: int, head: int, lens: str = "weights", variant: int = 0, most: int = 5
    ) -> list[tuple[int, int, float]]:
        """Return the heads with the most similar maps: (layer, head, mean cosine), most similar first. Raises Unknown or Unsupported."""
        place, described = self.place(layer, head, variant), self.variant(variant)
        layers, heads = described["layers"], described["heads"]
        if f"alike/{variant}/{lens}/sum" not in self.arrays:
            raise Unsupported("Heads were not compared with each other for this lens.", pointer="/lens")
        at = place[0] * len(heads) + place[1]  # on the flat axis L H
        total, count = (self.arrays[f"alike/{variant}/{lens}/{part}"][at] for part in ("sum", "count"))
        cosines = divide(total, count)
        order = [i for i in np.argsort(-cosines, kind="stable").tolist() if i != at and np.isfinite(cosines[i])]
        places = [(i, *divmod(i, len(heads))) for i in order[:most]]
        return [(layers[row], heads[column], float(cosines[i])) for i, row, column in places]

    def sample(self) -> list[int]:
        """Return the row numbers of a random sample of inputs."""
        return [int(row) for row in self.arrays["sample/row"]]

    def example(self, row: int) -> dict[str, Any]:
        """Return a kept input: {"row", "text"}, with "text_pair" and "label" if it has them. Raises Unknown."""
        if row not in self._examples:
            raise Unknown(
                "row", "The study did not keep the text of this row. Look it up in the data set.", pointer="/row"
            )
        return {"row": row, **self._examples[row]}

    @cached_property
    def _examples(self) -> dict[int, dict[str, Any]]:
        return unpack_examples({part: self.arrays[f"example/{part}"] for part in ("row", "json")})

    def variant(self, variant: int) -> dict[str, Any]:
        """Return the model, mechanism, layers and heads of a variant. Raises Unknown."""
        if variant not in range(len(self.document["variants"])):
            raise Unknown(
                "variant", f"The study has variants 0 to {len(self.document['variants']) - 1}.", pointer="/variant"
            )
        described: dict[str, Any] = self.document["variants"][variant]
        return described

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
            raise Unsupported("The study has no such values for this measure and lens.", pointer="/lens")
        return self.arrays[name]


def unpack_examples(parts: Mapping[str, Array]) -> dict[int, dict[str, Any]]:
    """Return the kept texts by row, given the arrays under example/."""
    return dict(zip(parts["row"].tolist(), json.loads(parts["json"].tobytes()), strict=True))


def _deviation(m2: Array, count: Array) -> Array:
    below = np.where(count > 1, count - 1, 1)
    deviation: Array = np.where(count > 1, np.sqrt(m2 / below), np.nan)
    return deviation


def metric(study: StudySummary, name: str, variant: int) -> Means:
    """Return one of METRICS, [L, H]. The variance of the distance is over all queries of all inputs."""
    _, measure, column = METRICS[name]
    found = study.stat(measure, "weights", variant).means
    if column is None:
        return found
    if name != "qk_distance_variance":
        return found.map(pick_column(measure, column))
    mean, square = pick_column(measure, "mean"), pick_column(measure, "square")
    return found.map(lambda values: np.maximum(square(values) - mean(values) ** 2, 0))


def mean_over(values: Array, axis: int) -> Array:
    """Return the mean of the defined values along an axis; NaN where there are none."""
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        found: Array = np.nanmean(values, axis=axis)
    return found


def column_index(measure: str, column: str) -> int:
    """Return the index of a named column on axis C."""
    return QUANTITIES[measure].columns.index(column)


def pick_column(measure: str, column: str) -> Callable[[Array], Array]:
    """Return a function that picks one column: [..., C] -> [...]."""
    index = column_index(measure, column)

    def pick(values: Array) -> Array:
        picked: Array = values[..., index]
        return picked

    return pick
