"""Two analyses, head by head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.alignment import align, check_enough, laid
from ..errors import InvalidRequest, Unknown
from ..lenses import LENSES
from ..measures.compare import COMPARISONS, Array

if TYPE_CHECKING:
    from .analysis import Analysis


def compare(a: Analysis, b: Analysis, lens: str = "weights") -> dict[str, Array]:
    """How alike the maps of each head are in two analyses: comparison -> [L, H] in float64.

    `cosine`, and for lenses whose maps are never negative also `js_divergence`; see COMPARISONS. The two may come from different models, such as a model before and after
    fine-tuning, from different mechanisms, or from two texts. Where they are not cut into the same tokens, words are compared, as far as both have them: at least half
    of the tokens need a counterpart. Both need the same layers and heads.

    Raises Unknown for a lens that does not exist, InvalidRequest for analyses that can't be compared.

    >>> import headscope
    >>> model = headscope.load("minilm")
    >>> a = headscope.analyze(model, "The cat sat.", lenses=("weights",))
    >>> headscope.compare(a, a)["js_divergence"].max()
    0.0
    """
    if lens not in LENSES:
        raise Unknown("lens", f"There is no such lens. There are: {', '.join(LENSES)}.", pointer="/lens")
    if lens not in a.maps or lens not in b.maps:
        raise InvalidRequest("Both analyses must hold the maps of that lens. Ask for it in both, with maps.")
    if (a.layers, a.heads) != (b.layers, b.heads):
        raise InvalidRequest("The two analyses hold different layers or heads. Ask for the same ones in both.")
    queries, keys = align(a.tokens, b.tokens), align(a.key_tokens, b.key_tokens)
    check_enough(queries, keys)
    one = laid(a.maps[lens], [pair.tokens for pair in queries.pairs], [pair.tokens for pair in keys.pairs])
    other = laid(b.maps[lens], [pair.others for pair in queries.pairs], [pair.others for pair in keys.pairs])
    return {
        name: comparison(one, other)
        for name, comparison in COMPARISONS.items()
        if comparison.signed or not LENSES[lens].signed
    }
