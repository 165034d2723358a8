"""`attention_heads`, `attention_patterns` and `attention_pattern` of CircuitsVis: the weights of the heads of one layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import InvalidRequest, Unsupported
from ...library.from_attentions import from_attentions, to_tensor
from ...library.notebook import NotebookView
from ..views import AttentionView, fit


def attention_heads(
    attention: Any,
    tokens: Sequence[str],
    attention_head_names: Sequence[str] | None = None,
    max_value: float | None = None,
    min_value: float | None = None,
    negative_color: str | None = None,
    positive_color: str | None = None,
    mask_upper_tri: bool | None = None,
) -> AttentionView:
    """Show the attention weights [H, Q, K] of some heads, numbered 0.0, 0.1, ...; a note gives their names.

    `mask_upper_tri` states whether queries see only themselves and earlier tokens; by default the zeros tell. Raises InvalidRequest for arrays that are not
    attention weights, and Unsupported for a range or colours, which follow from the weights.
    """
    _reject(max_value=max_value, min_value=min_value, negative_color=negative_color, positive_color=positive_color)
    weights = to_tensor(attention, "The attention")
    weights = weights[0] if weights.dim() == 4 and len(weights) == 1 else weights
    if weights.dim() != 3:
        raise InvalidRequest("The attention needs three axes: heads, queries, keys.")
    if mask_upper_tri and bool(weights.triu(1).any()):
        raise InvalidRequest("With mask_upper_tri=True no query may attend to a later token. Leave it out.")
    count = fit(len(weights), *weights.shape[1:])
    a = from_attentions([weights[:count]], tokens, causal=mask_upper_tri)
    notes = [_name_heads(attention_head_names, len(weights))] if attention_head_names is not None else []
    if count < len(weights):
        notes.append(f"Shown are the first {count} of {len(weights)} heads: more would be too large for a notebook.")
    return AttentionView({"": NotebookView(a.id, a.source, {"head": "0.0"})}, notes)


def attention_patterns(tokens: Sequence[str], attention: Any) -> AttentionView:
    """Show the attention weights [H, Q, K] of some heads."""
    return attention_heads(attention, tokens)


def attention_pattern(
    tokens: Sequence[str],
    attention: Any,
    max_value: float | None = None,
    min_value: float | None = None,
    negative_color: str | None = None,
    show_axis_labels: bool | None = None,
    positive_color: str | None = None,
    mask_upper_tri: bool | None = None,
) -> AttentionView:
    """Show the attention weights [Q, K] of one head. The other arguments are those of attention_heads."""
    if show_axis_labels is False:
        raise Unsupported("Maps always have their tokens along both axes. Leave out show_axis_labels.")
    weights = to_tensor(attention, "The attention")
    return attention_heads(
        weights[None] if weights.dim() == 2 else weights,
        tokens,
        None,
        max_value,
        min_value,
        negative_color,
        positive_color,
        mask_upper_tri,
    )


def _reject(**given: object) -> None:
    """Raise Unsupported for an argument that is given."""
    for name in (name for name, value in given.items() if value is not None):
        raise Unsupported(f"Headscope chooses the colours by the weights it draws. Leave out {name}.")


def _name_heads(names: Sequence[str], count: int) -> str:
    if isinstance(names, str) or not isinstance(names, Sequence) or len(names) != count:
        raise InvalidRequest(f"attention_head_names must be a list of {count} names.")
    return ", ".join(f"0.{number}: {name}" for number, name in enumerate(names))
