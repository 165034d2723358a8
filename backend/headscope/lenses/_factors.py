"""The maps of a block of heads as factors, for lenses whose maps are determined by less than a map."""

from __future__ import annotations

from ..core.attention import Keys, Layer, Reading, ScoreTerms, Span
from ..core.factors import Array, Bias, Factors, ProjectionFactors, Remainder, Visible, WeightFactors
from ..core.lazy import Tensor, torch


def weight_factors(layer: Layer, reading: Reading) -> WeightFactors | None:
    """Return the factors of the weights; None where the mechanism computes weights in another way than by a softmax of scores."""
    terms = layer.terms
    if terms is None:
        return None
    bias = None if terms.bias is None else _array(terms.bias)
    query, key, seen = _array(layer.query), _array(layer.key), visible(layer.keys)
    if layer.epsilon > torch.finfo(torch.float32).eps:  # weights of half precision are off by more than tiles may be
        sink = None if terms.sink is None else _array(terms.sink)[..., 0]
        return WeightFactors.of(query, key, terms.scaling, seen, softcap=terms.softcap, bias=bias, sink=sink)
    described = None if bias is None else Bias.of(bias)
    return WeightFactors(query, key, terms.scaling, _log_sums(layer, terms), seen, terms.softcap, described)


def _log_sums(layer: Layer, terms: ScoreTerms) -> Array:
    """Return the logarithm of the sum of exponentials of every row from its largest weight, float64 [H, Q]: that key's score minus the weight's logarithm."""
    largest, place = layer.weights.max(-1)  # [H, Q]
    keys = layer.key.repeat_interleave(len(layer.query) // len(layer.key), 0)  # [G, K, D'] -> [H, K, D']
    chosen = keys.gather(1, place[..., None].expand(-1, -1, keys.shape[2]))  # [H, Q, D']
    scores = (layer.query.double() * chosen.double()).sum(-1) * terms.scaling
    if terms.softcap is not None:
        scores = (scores / terms.softcap).tanh() * terms.softcap
    if terms.bias is not None:
        scores = scores + terms.bias.expand(*layer.weights.shape).gather(2, place[..., None])[..., 0]
    sums: Array = (scores - largest.double().log()).cpu().numpy()  # infinite for rows without weight
    return sums


def effective_factors(layer: Layer, reading: Reading) -> ProjectionFactors | None:
    """Return the factors of effective attention; None where each row has a space of its own, and up to as many keys as the head is wide."""
    return None if reading.span is None else _projection(reading.span, reading.map)


def null_factors(layer: Layer, reading: Reading) -> Factors | None:
    """Return the factors of what effective attention removes from the weights, where both have factors."""
    span, whole = reading.span, weight_factors(layer, reading)
    if span is None or whole is None:
        return None
    rows = slice(span.first)
    return Remainder(whole, _projection(span, layer.weights[:, rows, rows] - reading.map[:, rows, rows]))


def _projection(span: Span, projected: Tensor) -> ProjectionFactors:
    """Return the factors of a projected map [H, Q, K], of which the first rows and keys are enough."""
    first = projected[:, : span.first, : span.first]
    return ProjectionFactors(_array(span.coefficients), _array(span.basis), _array(first), span.causal)


def visible(keys: Keys) -> Visible:
    """Describe which keys a query sees."""
    if keys.mask is not None:
        return Visible.of(keys.mask.cpu().numpy())
    return Visible("all" if keys.rule == "all" else "prefix")


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.detach().float().cpu().numpy()
    return array
