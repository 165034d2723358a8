"""Comparisons of maps while those of one input are in memory: head by head between two variants, and between all heads of a variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..core.alignment import align, check_enough, select_aligned
from ..core.arrays import Array, divide
from ..core.tokens import Token
from ..errors import InvalidRequest
from ..lenses import LENSES
from ..measures.compare import COMPARISONS
from .aggregate import collect_comparison

# Maps by lens, and the tokens along both of their axes.
InputMaps = tuple[Mapping[str, Array], Sequence[Token], Sequence[Token]]


class VariantComparison:
    """Comparisons of the two variants of a study, input by input."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._values: dict[tuple[str, str], list[Array]] = {}  # comparison, lens -> one [L, H] per input
        self._rows: list[int] = []
        self.unaligned = 0

    def add(self, row: int, first: InputMaps, second: InputMaps) -> None:
        """Compare the maps of an input. Different tokens are compared as words; if too few of them agree, the input is counted as unaligned."""
        queries, keys = align(first[1], second[1]), align(first[2], second[2])
        try:
            check_enough(queries, keys)
        except InvalidRequest:
            self.unaligned += 1
            return
        self._rows.append(row)
        for lens, maps in first[0].items():
            ours = select_aligned(maps, [pair.tokens for pair in queries.pairs], [pair.tokens for pair in keys.pairs])
            theirs = select_aligned(
                second[0][lens], [pair.others for pair in queries.pairs], [pair.others for pair in keys.pairs]
            )
            for name, comparison in COMPARISONS.items():
                if comparison.signed or not LENSES[lens].signed:
                    self._values.setdefault((name, lens), []).append(comparison(ours, theirs))

    def arrays(self) -> dict[str, Array]:
        """Return the arrays under pair/ and top/pair/ (see results/summary.py)."""
        rows, arrays = np.array(self._rows, np.int64), dict[str, Array]()
        for (comparison, lens), values in self._values.items():
            arrays |= collect_comparison(comparison, lens, np.stack(values, axis=-1), rows, self._seed)  # [L, H, I]
        return arrays


class HeadSimilarity:
    """Similarity of all heads of a variant to each other, on a few inputs."""

    def __init__(self) -> None:
        self._sums: dict[str, Array] = {}  # variant/lens -> [L H, L H]
        self._counts: dict[str, Array] = {}

    def add(self, variant: int, maps: Mapping[str, Array]) -> None:
        """Add the maps of an input, by lens. Rows without a reading count as zeros; heads whose map is all zeros are similar to no other."""
        for lens, values in maps.items():
            if LENSES[lens].of != "heads":
                continue
            cosines = _cosines(values)
            defined, name = np.isfinite(cosines), f"{variant}/{lens}"
            self._sums[name] = self._sums.get(name, 0.0) + np.where(defined, cosines, 0.0)
            self._counts[name] = self._counts.get(name, 0) + defined.astype(np.int64)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays under alike/ (see results/summary.py)."""
        arrays = {f"alike/{name}/sum": values for name, values in self._sums.items()}
        return arrays | {f"alike/{name}/count": values for name, values in self._counts.items()}


def _cosines(maps: Array) -> Array:
    """Return the cosines between the flattened maps of all pairs of heads, [L, H, Q, K] -> [L H, L H] float64; NaN where a map is all zeros."""
    flat = np.nan_to_num(maps.reshape(maps.shape[0] * maps.shape[1], -1).astype(np.float64))  # [L H, Q K]
    lengths = np.linalg.norm(flat, axis=1)
    return divide(flat @ flat.T, np.outer(lengths, lengths)).clip(-1, 1)
