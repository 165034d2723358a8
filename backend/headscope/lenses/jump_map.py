"""The jump map: how strongly a head's scores tie every two tokens (Zhou et al. 2022)."""

from __future__ import annotations

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ..core.lazy import torch
from ..core.ties import RHO, Rho, Signed, adjacency
from ..errors import Unsupported
from .base import Lens


class JumpMapParams(Params):
    """Which tokens are tied."""

    rho: Rho = RHO
    signed: Signed = False


def read(layer: Layer, params: JumpMapParams) -> Reading:
    """Return A~ of every head, [H, N, N]: symmetric, 0..1, positive on the diagonal. Raises Unsupported where some queries may not see every key."""
    if layer.keys.rule != "all":
        raise Unsupported(
            f"Layer {layer.index} hides some tokens from others. The jump map ties tokens through all keys, so it is not defined there.",
            pointer="/lenses",
        )
    group = layer.query.shape[0] // layer.key.shape[0]
    maps = [
        adjacency(query @ layer.key[place // group].mT, layer.key[place // group], params.rho, params.signed)
        for place, query in enumerate(layer.query)
    ]
    return Reading(torch.stack(maps))


JUMP_MAP = Lens(
    name="jump-map",
    title="Jump map",
    doc="How strongly every two tokens are tied: the share of keys on which both have large scores of the same sign, normalised as a graph. "
    "The mechanism jump spreads scores along this graph.",
    not_="Not attention: it is symmetric, is computed from the scores before the softmax, and its rows do not sum to 1. "
    "The threshold is absolute, so heads with small scores tie no tokens.",
    citation="Zhou et al. 2022, Jump Self-attention; the threshold as in their code for BERT",
    range=(0.0, 1.0),
    shows="ties",
    params=JumpMapParams,
    needs=("scores", "same-tokens", "bidirectional"),
    read=read,
)
