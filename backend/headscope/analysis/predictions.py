"""What a model with an output head predicts at every token, or of the whole input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.arrays import Array, to_lists
from ..core.lazy import torch
from ..models.tokens import piece_texts

if TYPE_CHECKING:  # it imports transformers, which those who only import headscope.analyze need not wait for
    from ..models.loading import Model


@dataclass(frozen=True, eq=False)
class Predictions:
    """The k most likely tokens at every position, most likely first; of a classifier of whole inputs, the classes in one row.

    ids            int64 [Q, k]    numbers of the tokens or classes, counted from 0
    texts          Q lists of k    the token with its leading space, the name of the class, or the number where neither is known
    logits         float32 [Q, k]  the model's own output
    probabilities  float32 [Q, k]  softmax over all tokens or classes, 0..1

    In a causal model, row i predicts token i + 1; in a masked one, token i itself.
    """

    ids: Array
    texts: list[list[str]]
    logits: Array
    probabilities: Array

    def to_list(self, row: int) -> list[dict[str, Any]]:
        """Return a row as JSON, most likely first."""
        columns = (
            self.ids[row].tolist(),
            self.texts[row],
            to_lists(self.logits[row]),
            to_lists(self.probabilities[row]),
        )
        return [
            dict(zip(("id", "text", "logit", "probability"), values, strict=True))
            for values in zip(*columns, strict=True)
        ]


@dataclass(frozen=True)
class WrittenLogit:
    """What a head adds to the logit of one token or class, by its number and text."""

    id: int
    text: str
    logit: float


def written_logits(model: Model, ids: Array, logits: Array) -> list[list[list[WrittenLogit]]]:
    """Return [L][H][N] what heads add to logits, of ids and logits [L, H, N]."""
    numbers = np.unique(ids).tolist()
    texts = dict(zip(numbers, texts_of(model, numbers), strict=True))

    def one_head(row: list[int], values: list[float]) -> list[WrittenLogit]:
        return [WrittenLogit(one, texts[one], value) for one, value in zip(row, values, strict=True)]

    layers = zip(ids.tolist(), logits.tolist(), strict=True)
    return [[one_head(*head) for head in zip(*layer, strict=True)] for layer in layers]


def top_predictions(model: Model, logits: Array, count: int) -> Predictions:
    """Return the `count` largest of the logits [Q, vocabulary] or [classes] of every row, fewer if there are fewer."""
    rows = torch.from_numpy(logits).reshape(-1, logits.shape[-1])
    found = rows.topk(min(count, rows.shape[-1]), dim=-1)
    probabilities = torch.exp(found.values.double() - rows.double().logsumexp(-1, keepdim=True)).float()
    texts = [texts_of(model, row) for row in found.indices.tolist()]
    return Predictions(found.indices.numpy(), texts, found.values.numpy(), probabilities.numpy())


def texts_of(model: Model, ids: Sequence[int]) -> list[str]:
    """Return what the model's outputs with these numbers stand for: tokens, or classes."""
    if not writes_tokens(model):
        named = getattr(model.module.config, "id2label", None) or {}
        return [str(named.get(one, one)) for one in ids]
    tokenizer = model.target_tokenizer or model.tokenizer
    return [str(one) for one in ids] if tokenizer is None else piece_texts(tokenizer, ids)


def output_count(model: Model) -> int:
    """Return the number of tokens that the model can predict, which differs from those that it reads where encoder and decoder have their own."""
    return int(getattr(model.module.get_output_embeddings(), "out_features", model.vocabulary))


def writes_tokens(model: Model) -> bool:
    """Return whether the model's outputs are logits of tokens."""
    return model.module.get_output_embeddings() is not None
