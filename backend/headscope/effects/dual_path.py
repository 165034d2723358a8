"""What each attention weight passes to a target through all later layers, in which every factor of a product counts for an equal share."""

from __future__ import annotations

from .base import EffectMethod, EffectParams

DUAL_PATH = EffectMethod(
    name="dual-path",
    title="Dual path attribution",
    doc="A map per head: what each weight times its value passes to the target through everything that follows, with normalisations and activations held fixed. "
    "Half of it goes on through values and the linear half of gated feed-forward parts (the content path), half through queries, keys and gates (the control path).",
    not_="Not what happens without the weight, and no gradient: the shares of the paths are chosen, not derived. Maps do not sum to the target.",
    citation="Jantsch et al. 2026, Dual Path Attribution (arXiv:2603.19742), for gated feed-forward parts with SiLU",
    params=EffectParams,
    unit="logits",
    needs=("values", "one-text", "equal-heads"),
    activations=40,
    maps=True,
)
