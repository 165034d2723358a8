"""What an effect is about: one logit, or the difference of two, at one position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from ..core.lazy import Tensor
from ..errors import InvalidRequest, Unsupported
from ..models.loading import Model
from ..models.tokens import Encoded
from .effect_request import Output
from .predictions import output_count, writes_tokens

# A text of one token that another text can follow.
BEFORE = "The"


@dataclass(frozen=True)
class Target:
    """What an effect is about: one logit, or the difference of two, at one position; or a score of a head.

    ids, texts  of the token or class, and of the one whose logit is subtracted, if there is one; none of a score
    position    of the token at which the model predicts, or which looks, counted from 0; None for a class of the whole input
    value       the logit or the difference, in logits, or the score; before the cap if the model caps its logits (`capped`)
    """

    ids: tuple[int, ...]
    texts: tuple[str, ...]
    position: int | None
    value: float
    capped: bool = False

    def __str__(self) -> str:
        name = " - ".join(map(repr, self.texts)) or "a cell"
        return name if self.position is None else f"{name} at token {self.position}"


def find_output(model: Model, output: Output) -> int:
    """Return the number of a token or class. Raises InvalidRequest if the model has no such one."""
    tokens = writes_tokens(model)
    if isinstance(output, str):
        return _token(model, output) if tokens else _class(model, output)
    one, count = output, output_count(model) if tokens else int(model.module.config.num_labels)
    if not isinstance(one, int) or not 0 <= one < count:
        raise InvalidRequest(f"The target must be a text, or a number below {count}.", pointer="/target")
    return one


def _token(model: Model, text: str) -> int:
    tokenizer = model.target_tokenizer or model.tokenizer
    if tokenizer is None:
        raise Unsupported(model.no_tokenizer, pointer="/model")
    known = tokenizer.token_to_id(text)
    ids = [known] if known is not None else tokenizer.encode(text, add_special_tokens=False).ids
    if len(ids) != 1:  # some tokenizers add a space before a text, but not within one
        ids = _within(tokenizer, text) or ids
    if len(ids) != 1:
        raise InvalidRequest(
            f"The target has {len(ids)} tokens in this model. Give a text of one token, with its leading space if it has one, or the number of a token.",
            pointer="/target",
        )
    return int(ids[0])


def _within(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of a text after another one; none if they change the ids of that one."""
    before, both = (tokenizer.encode(one, add_special_tokens=False).ids for one in (BEFORE, BEFORE + text))
    return both[len(before) :] if both[: len(before)] == before else []


def _class(model: Model, name: str) -> int:
    named = {str(label): int(one) for one, label in (model.module.config.id2label or {}).items()}
    if name not in named:
        raise InvalidRequest("This model has no class of that name. Give its number.", pointer="/target")
    return named[name]


def find_position(model: Model, encoded: Encoded, position: int | None) -> int | None:
    """Return the place of the token at which the model predicts; None for a class of the whole input. Raises InvalidRequest."""
    if not writes_tokens(model):
        if position is not None:
            raise InvalidRequest("This model predicts no tokens. Omit position.", pointer="/position")
        return None
    tokens = encoded.target or encoded.tokens
    count = 1 if model.facts.kind == "encoder-decoder" and not encoded.target else len(tokens)
    if position is None and model.facts.kind == "encoder" and model.facts.predicts != "next-token":
        masked = [place for place, token in enumerate(tokens) if model.mask is not None and token.text == model.mask]
        if len(masked) != 1:
            raise InvalidRequest(
                "Give the position at which the model predicts, or mask one token (mask). A special token written in a text is read as text.",
                pointer="/position",
            )
        return masked[0]
    place = count - 1 if position is None else position + count if position < 0 else position
    if not 0 <= place < count:
        raise InvalidRequest(
            f"The input has {count} tokens: position must be from {-count} to {count - 1}.", pointer="/position"
        )
    return place


def target_value(logits: Tensor, ids: Sequence[int]) -> float:
    """Return the value of the target of these ids: the first logit, minus the second one if there is one."""
    chosen = logits[list(ids)].double().tolist()
    return float(chosen[0] - sum(chosen[1:]))
