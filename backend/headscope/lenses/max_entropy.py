"""The most even distribution with the same output."""

from __future__ import annotations

from pydantic import Field

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ._gate import require_open
from ._newton import most_even
from .base import Lens


class MaxEntropyParams(Params):
    """When to stop."""

    iterations: int = Field(
        default=100,
        ge=1,
        le=1000,
        description="Maximum number of Newton steps per query. A query that has not converged by then has no reading.",
    )


def read(layer: Layer, params: MaxEntropyParams) -> Reading:
    """Return p_i = argmax H(p) subject to p >= 0, sum(p) = 1, p V = a_i V over the keys that query i may see. [H, Q, K], rows sum to 1.

    Queries whose keys have affinely independent values keep their weights exactly, since no other distribution has their output. Queries that do not
    converge, and those whose weights are all zero, are NaN and counted in `undefined`. Raises Unsupported for values in half precision.
    """
    require_open(layer)
    return most_even(layer.weights, layer.values, layer.keys, layer.epsilon, params.iterations)


MAX_ENTROPY = Lens(
    name="max-entropy",
    title="Maximum entropy",
    doc="Of all distributions over the keys with the same output of the head, the one of largest entropy: it assumes nothing that the output does not require.",
    not_="Not what the model computed, and not a better explanation by itself: it is the most even of many distributions with this output. "
    "It considers one head alone.",
    citation="Maximum entropy (Jaynes 1957) over the distributions that Brunner et al. 2020, On Identifiability in Transformers, call indistinguishable",
    params=MaxEntropyParams,
    range=(0.0, 1.0),
    distribution=True,
    needs=("values", "distribution"),
    undefined="the computation did not converge or all weights are zero",
    beyond=1,
    phrases={"": ("maximum entropy lens",)},
    read=read,
)
