"""The tokens of a model, of which prompts are made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core.tokens import Token
from ..errors import Unsupported
from .model import Model
from .tokens import piece_texts

TOO_SMALL = "The vocabulary of this model has too few ordinary tokens for such a prompt."


class ModelVocabulary:
    """The tokens of a model. Ordinary ones are words after a space, or, without a tokenizer, all that are not special."""

    def __init__(self, model: Model) -> None:
        self._model, self._ordinary = model, np.array(_ordinary(model))

    def draw(self, random: np.random.Generator, count: int) -> list[int]:
        """Return different ordinary tokens, drawn at random. Raises Unsupported if there are fewer."""
        if count > len(self._ordinary):
            raise Unsupported(TOO_SMALL)
        drawn: list[int] = random.choice(self._ordinary, count, replace=False).tolist()
        return drawn

    def read(self, text: str) -> tuple[Token, ...]:
        """Return the tokens of a text, special ones included. Raises Unsupported without a tokenizer."""
        if self._model.tokenizer is None:
            raise Unsupported(self._model.no_tokenizer)
        return tuple(self._model.encode(text).tokens)

    def find(self, words: Sequence[str]) -> dict[str, int]:
        """Return the words that are one token after a space, with its number. Raises Unsupported without a tokenizer."""
        last = {word: self.read(f"The {word}")[-1] for word in words}
        return {word: token.id for word, token in last.items() if token.text.strip() == word}


def _ordinary(model: Model) -> list[int]:
    every = [one for one in range(model.vocabulary) if one not in model.special_ids]
    if model.tokenizer is None:
        return every
    texts = piece_texts(model.tokenizer, every)
    return [one for one, text in zip(every, texts, strict=True) if text[:1] == " " and text[1:].isalpha()] or every
