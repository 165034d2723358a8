"""How much heads copy tokens: whether attending to a token raises its own logit, by weights alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.attention import Layer, Reading
from ..core.declarations import NoParams
from ..core.lazy import Tensor, torch
from ..errors import Unsupported
from .base import Measure


def compute(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    """Return the sum of the eigenvalues of W_E W_V W_O W_Uᵀ over the sum of their sizes, [H]; NaN where all are 0. Raises Unsupported where these are unknown.

    They are those of a matrix [D, D], because the eigenvalues of a product other than 0 stay when its factors are turned round.
    """
    if layer.value_weights is None or layer.token_map is None or layer.projection is None:
        raise Unsupported("The output matrix of this model was not found, so this measure is not available.")
    small = layer.projection.double() @ layer.token_map @ layer.value_weights
    values = torch.linalg.eigvals(small)
    ratio: Tensor = values.real.sum(-1) / values.abs().sum(-1)
    return ratio


OV_COPYING = Measure(
    name="ov_copying",
    title="Copying",
    doc="Whether a head raises the logits of the tokens to which it attends: the sum of the eigenvalues of W_E W_V W_O W_Uᵀ over the sum of their sizes, by "
    "the model's weights alone. Near 1 it copies, near 0 it does not, near -1 it lowers what it attends to.",
    not_="Not what the head does on this input, nor where it attends: its values are taken as if it read the embeddings themselves, and its output as if nothing "
    "followed but the output matrix.",
    citation="Elhage et al. 2021, A Mathematical Framework for Transformer Circuits, sec. Summarizing OV/QK Matrices",
    params=NoParams,
    range=(-1.0, 1.0),
    shape="L H",
    needs=("projection", "unembedding"),
    fixed=True,
    phrases={"": ("copying score", "OV circuit")},
    compute=compute,
)
