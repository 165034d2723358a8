"""Attention from the output of inseq's method `attention`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ..core.lazy import torch
from ..errors import InvalidRequest
from ..library.analysis import Analysis
from ..library.arguments import Method
from ..library.from_attentions import from_attentions


def from_output(
    output: Any,
    index: int = 0,
    *,
    side: Literal["source", "target"] | None = None,
    lenses: Sequence[Method] | None = None,
    measures: Sequence[Method] = ("entropy",),
) -> Analysis:
    """Analyse the attention of one of the sequences that `attribute` of a model with the method "attention" returned, before it is aggregated.

    Queries are the tokens from which inseq's steps predict: the one before each token that was attributed. Keys are those of `side`: the source, by default if
    there is one, or the target. Raises InvalidRequest for output without such attention, and what from_attentions raises.
    """
    sequences = getattr(output, "sequence_attributions", None)
    if sequences is None:
        raise InvalidRequest("output must be what attribute of a model returned, before it is aggregated.")
    try:
        one = sequences[index]
    except (IndexError, TypeError):
        raise InvalidRequest(f"index must be a number from 0 to {len(sequences) - 1}.", pointer="/index") from None
    side = side or ("target" if one.source_attributions is None else "source")
    scores = getattr(one, f"{side}_attributions", None)
    if scores is None or scores.dim() != 4:
        raise InvalidRequest(
            f'The output has no attention by layer and head to the {side}. Load the model with the method "attention", and do not aggregate its output.'
        )
    queries = [token.token for token in one.target[one.attr_pos_start - 1 : one.attr_pos_end - 1]]
    keys = [token.token for token in (one.source if side == "source" else one.target[: one.attr_pos_end - 1])]
    weights = torch.nan_to_num(scores[: len(keys)], nan=0.0).permute(
        2, 3, 1, 0
    )  # from [K, Q, L, H]; NaN are later tokens
    key_tokens = None if side == "target" and keys == queries else keys
    return from_attentions(list(weights), queries, key_tokens=key_tokens, lenses=lenses, measures=measures)
