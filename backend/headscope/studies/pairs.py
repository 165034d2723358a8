"""Maps laid beside each other while one input's are in memory: those of the two variants, head by head, and those of each two heads of a variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.alignment import align, check_enough, laid
from ..core.tokens import Token
from ..errors import InvalidRequest
from ..lenses import LENSES
from ..measures.compare import COMPARISONS
from .aggregate import compared

Array = NDArray[Any]
# Maps by lens, and the tokens along both of their axes.
Laid = tuple[Mapping[str, Array], Sequence[Token], Sequence[Token]]


class Pairs:
    """The two variants of a study, compared input by input."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._found: dict[tuple[str, str], list[Array]] = {}  # comparison, lens -> one [L, H] per input
        self._rows: list[int] = []
        self.unaligned = 0

    def add(self, row: int, one: Laid, other: Laid) -> None:
        """The maps of an input in both variants. Where its tokens differ words are compared, and if too few are alike the input is left out and counted."""
        queries, keys = align(one[1], other[1]), align(one[2], other[2])
        try:
            check_enough(queries, keys)
        except InvalidRequest:
            self.unaligned += 1
            return
        self._rows.append(row)
        for lens, maps in one[0].items():
            ours = laid(maps, [pair.tokens for pair in queries.pairs], [pair.tokens for pair in keys.pairs])
            theirs = laid(other[0][lens], [pair.others for pair in queries.pairs], [pair.others for pair in keys.pairs])
            for name, comparison in COMPARISONS.items():
                if comparison.signed or not LENSES[lens].signed:
                    self._found.setdefault((name, lens), []).append(comparison(ours, theirs))

    def arrays(self) -> dict[str, Array]:
        """What summary.py lists under pair/ and top/pair/."""
        rows, arrays = np.array(self._rows, np.int64), dict[str, Array]()
        for (comparison, lens), values in self._found.items():
            arrays |= compared(comparison, lens, np.stack(values, axis=-1), rows, self._seed)
        return arrays


class Alike:
    """The heads of each variant, compared with each other on a few inputs."""

    def __init__(self) -> None:
        self._sums: dict[str, Array] = {}  # variant/lens -> [L H, L H]
        self._counts: dict[str, Array] = {}

    def add(self, variant: int, maps: Mapping[str, Array]) -> None:
        """The maps of an input, by lens. Rows without a reading count as zeros, and heads whose map is all zeros are like no other."""
        for lens, found in maps.items():
            if LENSES[lens].of != "heads":
                continue
            cosines = _cosines(found)
            defined, name = np.isfinite(cosines), f"{variant}/{lens}"
            self._sums[name] = self._sums.get(name, 0.0) + np.where(defined, cosines, 0.0)
            self._counts[name] = self._counts.get(name, 0) + defined.astype(np.int64)

    def arrays(self) -> dict[str, Array]:
        """What summary.py lists under alike/."""
        arrays = {f"alike/{name}/sum": values for name, values in self._sums.items()}
        return arrays | {f"alike/{name}/count": values for name, values in self._counts.items()}


def _cosines(maps: Array) -> Array:
    """Cosine between each two heads' maps read as one long vector each, [L, H, Q, K] -> [L H, L H] float64; NaN where one is all zeros."""
    flat = np.nan_to_num(maps.reshape(maps.shape[0] * maps.shape[1], -1).astype(np.float64))
    lengths = np.linalg.norm(flat, axis=1)
    products = flat @ flat.T
    scale = np.outer(lengths, lengths)
    cosines: Array = np.divide(products, scale, out=np.full(products.shape, np.nan), where=scale > 0)
    return cosines.clip(-1, 1)
