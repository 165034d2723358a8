"""Tokens of an input that are replaced by the model's mask token."""

from __future__ import annotations

from dataclasses import replace

from tokenizers import Tokenizer

from ..core.attention import ResultWarning
from ..errors import InvalidRequest, Unsupported
from .tokens import Encoded


def mask_tokens(encoded: Encoded, places: list[int], tokenizer: Tokenizer | None, mask: str | None) -> Encoded:
    """Replace tokens by the token of the name `mask`, at the same place in the text. Raises InvalidRequest, or Unsupported without such a token."""
    id_ = tokenizer.token_to_id(mask) if tokenizer and mask else None
    if id_ is None or mask is None:
        raise Unsupported("This model has no mask token, so no token can be masked.", pointer="/mask")
    if places[-1] >= len(encoded.tokens):
        raise InvalidRequest(f"The input has tokens 0 to {len(encoded.tokens) - 1}. Mask only these.", pointer="/mask")
    masked = list(encoded.tokens)
    for place in places:
        masked[place] = replace(masked[place], text=mask, id=id_, kind="special", word=None)
    several = "tokens are" if len(places) > 1 else "token is"
    warned = ResultWarning("masked", f"This is a what-if: {len(places)} {several} replaced by {mask}.")
    return replace(encoded, tokens=masked, warnings=(*encoded.warnings, warned))
