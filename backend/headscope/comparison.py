"""Two analyses of the same tokens, head by head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import InvalidRequest, Unknown
from .lenses import LENSES
from .measures.compare import COMPARISONS, Array

if TYPE_CHECKING:
    from .library import Analysis


def compare(a: Analysis, b: Analysis, lens: str = "weights") -> dict[str, Array]:
    """How alike the maps of each head are in two analyses: comparison -> [L, H] in float64.

    `cosine`, and for lenses whose maps are never negative also `js_divergence`; see COMPARISONS. The two may come from different models, such as a model before and after
    fine-tuning, or from different mechanisms. Both need the same tokens, layers and heads.

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
    if _texts(a) != _texts(b):
        raise InvalidRequest("The two analyses are of different tokens. Compare analyses of the same text, cut alike.")
    if (a.layers, a.heads) != (b.layers, b.heads):
        raise InvalidRequest("The two analyses hold different layers or heads. Ask for the same ones in both.")
    return {
        name: comparison(a.maps[lens], b.maps[lens])
        for name, comparison in COMPARISONS.items()
        if comparison.signed or not LENSES[lens].signed
    }


def _texts(a: Analysis) -> tuple[list[str], list[str]]:
    queries, keys = ([token.text for token in side] for side in (a.tokens, a.key_tokens))
    return queries, keys
