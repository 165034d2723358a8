"""The numbers of a study whose labels mark keys: how often the largest entry of a row is on the right one."""

from __future__ import annotations

from .declarations import Quantity

# The chance that a largest entry is on the right key, and 1 / the rank of that key; the latter on the inputs by which a head is chosen, and both on the others, NaN elsewhere.
COLUMNS = ("accuracy", "reciprocal_rank", "selection", "held_out_accuracy", "held_out_reciprocal_rank")
SCORES = Quantity(
    name="right_key",
    title="Entry of the right key",
    doc="How often the largest entry of a row is on the key that labels mark as right.",
    not_="Not what the model uses: the labels say where a person would look.",
    citation="Headscope's page about scores",
    range=(0.0, 1.0),
    shape="L H C",
    columns=COLUMNS,
)
