"""Comparison of two analyses, head by head."""

from __future__ import annotations

from ..core.alignment import align, check_enough, select_aligned
from ..core.arrays import Array
from ..errors import InvalidRequest, Unknown
from ..lenses import LENSES
from ..measures.compare import COMPARISONS
from .analysis import Analysis


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
    if lens not in LENSES:
        raise Unknown("lens", f"There is no such lens. Choose one of {', '.join(LENSES)}.", pointer="/lens")
    if lens not in a.maps or lens not in b.maps:
        raise InvalidRequest("Both analyses need the maps of that lens. Run both with it, and with maps=True.")
    if (a.layers, a.heads) != (b.layers, b.heads):
        raise InvalidRequest("The two analyses have different layers or heads. Run both with the same ones.")
    queries, keys = align(a.tokens, b.tokens), align(a.key_tokens, b.key_tokens)
    check_enough(queries, keys)
    ours = select_aligned(a.maps[lens], [pair.tokens for pair in queries.pairs], [pair.tokens for pair in keys.pairs])
    theirs = select_aligned(b.maps[lens], [pair.others for pair in queries.pairs], [pair.others for pair in keys.pairs])
    return {
        name: comparison(ours, theirs)
        for name, comparison in COMPARISONS.items()
        if comparison.signed or not LENSES[lens].signed
    }
