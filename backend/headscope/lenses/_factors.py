"""The maps of a block of heads as factors, for lenses whose maps are determined by less than a map."""

from __future__ import annotations

from ..core.attention import Keys, Layer
from ..core.factors import Array, Factors, ProjectionFactors, Remainder, Visible, WeightFactors
from ..core.lazy import Tensor
from ._gate import require_open
from ._rowspace import project_span


def weight_factors(layer: Layer) -> WeightFactors | None:
    """Return the factors of the weights; None where the mechanism computes weights in another way than by a softmax of scores."""
    terms = layer.terms
    if terms is None:
        return None
    return WeightFactors.of(
        _array(layer.query),
        _array(layer.key),
        terms.scaling,
        visible(layer.keys),
        softcap=terms.softcap,
        bias=None if terms.bias is None else _array(terms.bias),
        sink=None if terms.sink is None else _array(terms.sink)[..., 0],
    )


def effective_factors(layer: Layer) -> ProjectionFactors | None:
    """Return the factors of effective attention; None where each row has a space of its own, and up to as many keys as the head is wide."""
    require_open(layer)
    reading, span = project_span(layer.weights, layer.values, layer.output, layer.keys, layer.epsilon)
    if span is None:
        return None
    first = reading.map[:, : span.first, : span.first]
    return ProjectionFactors(_array(span.coefficients), _array(span.basis), _array(first), span.causal)


def null_factors(layer: Layer) -> Factors | None:
    """Return the factors of what effective attention removes from the weights, where both have factors."""
    whole, part = weight_factors(layer), effective_factors(layer)
    return None if whole is None or part is None else Remainder(whole, part)


def visible(keys: Keys) -> Visible:
    """Describe which keys a query sees."""
    if keys.mask is not None:
        return Visible.of(keys.mask.cpu().numpy())
    return Visible("all" if keys.rule == "all" else "prefix")


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.detach().float().cpu().numpy()
    return array.copy()
