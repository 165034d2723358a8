"""Comparison of two analyses, head by head."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..core.alignment import align, check_enough, select_aligned
from ..core.arrays import Array
from ..errors import InvalidRequest, Unknown
from ..lenses import LENSES
from ..measures.compare import COMPARISONS
from ..store.map_file import blocks
from .analysis import Analysis
from .arguments import check_analysis


def compare(a: Analysis, b: Analysis, lens: str = "weights") -> dict[str, Array]:
    """Compare the maps of each head in two analyses: comparison -> [L, H] float64.

    The comparisons are `cosine`, and `js_divergence` for lenses whose maps are never negative; see COMPARISONS. The analyses may be of different models, such as
    before and after fine-tuning, of different mechanisms, or of two texts. If their tokens differ, words are compared: at least half of the tokens must have a
    match. Both must have the same layers and heads.

    Raises Unknown for a lens that does not exist, and InvalidRequest for analyses that cannot be compared.

    >>> import headscope
    >>> model = headscope.load("minilm")
    >>> a = headscope.analyze(model, "The cat sat.", lenses=("weights",))
    >>> headscope.compare(a, a)["js_divergence"].max()
    0.0
    """
    check_analysis(a, b)
    if lens not in tuple(LENSES):  # it may be a value that cannot be looked up
        raise Unknown("lens", f"There is no such lens. Choose one of {', '.join(LENSES)}.", pointer="/lens")
    if lens not in a.maps or lens not in b.maps:
        raise InvalidRequest("Both analyses need the maps of that lens. Run both with it, and with maps=True.")
    if (a.layers, a.heads) != (b.layers, b.heads):
        raise InvalidRequest("The two analyses have different layers or heads. Run both with the same ones.")
    queries, keys = align(a.tokens, b.tokens), align(a.key_tokens, b.key_tokens)
    check_enough(queries, keys)
    ours = partial(
        select_aligned, queries=[one.tokens for one in queries.pairs], keys=[one.tokens for one in keys.pairs]
    )
    theirs = partial(
        select_aligned, queries=[one.others for one in queries.pairs], keys=[one.others for one in keys.pairs]
    )
    shape = a.maps[lens].shape
    found = {name: np.empty(shape[:2]) for name, one in COMPARISONS.items() if one.signed or not LENSES[lens].signed}
    for part in blocks(shape):  # maps of long texts are computed when they are read
        maps = ours(a.maps[lens][part]), theirs(b.maps[lens][part])
        for name, values in found.items():
            values[part] = COMPARISONS[name](*maps)
    return found
