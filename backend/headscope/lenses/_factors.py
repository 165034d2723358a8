"""The maps of a block of heads as factors, for lenses whose maps are determined by less than a map."""

from __future__ import annotations

from ..core.attention import Keys, Layer, Reading, ScoreTerms, Span, required
from ..core.factors import Array, Bias, Factors, ProjectionFactors, Remainder, Visible, WeightFactors
from ..core.lazy import Tensor, torch
from ..core.rows import largest_weights


def weight_factors(layer: Layer, reading: Reading) -> WeightFactors | None:
    """Return the factors of the weights; None where the mechanism computes weights in another way than by a softmax of scores."""
    terms = layer.terms
    if terms is None:
        return None
    if layer.epsilon <= torch.finfo(torch.float32).eps:
        return weight_factors_of(layer, log_sums(layer, terms, *largest_weights(layer)).cpu().numpy())
    # Weights of half precision are off by more than tiles may be.
    bias, sink = (None if one is None else _array(one) for one in (terms.bias, terms.sink))
    return WeightFactors.of(
        _array(layer.query), _array(layer.key), terms.scaling, visible(layer.keys), softcap=terms.softcap, bias=bias,
        sink=None if sink is None else sink[..., 0],
    )  # fmt: skip


def weight_factors_of(layer: Layer, sums: Array) -> WeightFactors:
    """Return the factors of weights that are the softmax of scores, with the logarithms of their sums of exponentials, float64 [H, Q]."""
    terms = required(layer.terms)
    bias = None if terms.bias is None else Bias.of(_array(terms.bias))
    query, key = _array(layer.query), _array(layer.key)
    return WeightFactors(query, key, terms.scaling, sums, visible(layer.keys), terms.softcap, bias)


def log_sums(layer: Layer, terms: ScoreTerms, largest: Tensor, place: Tensor) -> Tensor:
    """Return the logarithm of the sum of exponentials of every row, float64 [H, Q]: the score of its `largest` weight, at the key `place`, minus that weight's logarithm."""
    groups = torch.arange(len(layer.query), device=place.device) // (len(layer.query) // len(layer.key))  # [H]
    chosen = layer.key[groups[:, None], place]  # [H, Q, D']
    scores = (layer.query.double() * chosen.double()).sum(-1) * terms.scaling
    if terms.softcap is not None:
        scores = (scores / terms.softcap).tanh() * terms.softcap
    if terms.bias is not None:
        scores = scores + terms.bias.expand(*scores.shape, -1).gather(2, place[..., None])[..., 0]
    return scores - largest.double().log()  # infinite for rows without weight


def effective_factors(layer: Layer, reading: Reading) -> ProjectionFactors | None:
    """Return the factors of effective attention; None where each row has a space of its own, and up to as many keys as the head is wide."""
    return None if reading.span is None else projection_factors(reading.span, reading.map)


def null_factors(layer: Layer, reading: Reading) -> Factors | None:
    """Return the factors of what effective attention removes from the weights, where both have factors."""
    span, whole = reading.span, weight_factors(layer, reading)
    if span is None or whole is None:
        return None
    rows = slice(span.first)
    return Remainder(whole, projection_factors(span, layer.weights[:, rows, rows] - reading.map[:, rows, rows]))


def projection_factors(span: Span, projected: Tensor) -> ProjectionFactors:
    """Return the factors of a projected map [H, Q, K], of which the first rows and keys are enough."""
    first = projected[:, : span.first, : span.first]
    return ProjectionFactors(_array(span.coefficients), _array(span.basis), _array(first), span.causal)


def visible(keys: Keys) -> Visible:
    """Describe which keys a query sees."""
    if keys.mask is not None:
        return Visible.of(keys.mask.cpu().numpy())
    if keys.interval is not None:
        return Visible("interval", *(one.int().cpu().numpy() for one in keys.interval))
    return Visible("all" if keys.rule == "all" else "prefix")


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.detach().float().cpu().numpy()
    return array
