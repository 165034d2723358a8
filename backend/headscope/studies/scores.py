"""How often the largest entry of a row is on the right key, on inputs whose labels mark where a head should look.

The label `query` marks a word that asks, `key` the word that its row should have its largest entry on, and `candidate`, if any word has it, the words that
compete; otherwise all keys do that the query may attend to. Several questions of one input have the same ending behind both names, as in `query 2` and `key 2`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.right_key import COLUMNS
from ..core.tokens import Token
from . import statistics

BASELINES = ("uniform", "previous-token", "first-token")


class KeyQuestion(NamedTuple):
    """A row of a map: its query, the keys that may be the answer, and those of them that are right, which count as one."""

    query: int
    keys: list[int]
    right: list[int]


class Ranks(NamedTuple):
    """How the right keys of N questions compare in every map, [N, L, H]: the number of keys with larger entries, and of other keys with the same entry."""

    larger: Array
    equal: Array

    def accuracy(self) -> Array:
        """Return the chance that a largest entry is the right one, if one of them is drawn, [N, L, H]."""
        return np.where(self.larger == 0, 1 / (1 + self.equal), 0.0)

    def reciprocal(self) -> Array:
        """Return the mean of the reciprocal rank over all orders of equal entries, [N, L, H]."""
        larger, equal = self.larger.astype(int), self.equal.astype(int)
        upto = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, 2 + (larger + equal).max()))])
        reciprocal: Array = (upto[larger + equal + 1] - upto[larger]) / (1 + equal)
        return reciprocal


def ranks(maps: Array, questions: Sequence[KeyQuestion]) -> Ranks:
    """Judge maps [L, H, Q, K]. Right keys count as one, with the largest of their entries. An entry without a reading is the smallest."""
    found = [_rank(maps[:, :, one.query], one) for one in questions]
    larger, equal = (np.stack(part) for part in zip(*found, strict=True))
    return Ranks(larger, equal)


def _rank(rows: Array, question: KeyQuestion) -> tuple[Array, Array]:
    rows = np.where(np.isnan(rows), -np.inf, rows)
    own = rows[..., question.right].max(-1, keepdims=True)
    others = rows[..., [key for key in question.keys if key not in question.right]]
    return (others > own).sum(-1).astype(np.uint16), (others == own).sum(-1).astype(np.uint16)


def baselines(queries: int, keys: int) -> dict[str, Array]:
    """Return maps [1, 1, Q, K] that know nothing of the model, by name in BASELINES."""
    first = np.zeros((queries, keys))
    first[:, 0] = 1
    made = np.ones((queries, keys)), np.eye(queries, keys, k=-1), first
    return {name: one[None, None] for name, one in zip(BASELINES, made, strict=True)}


def questions_of(queries: Sequence[Token], keys: Sequence[Token], causal: bool) -> Iterator[KeyQuestion]:
    """Yield the questions that labels mark: the last token of every word that asks, and the right keys among those that it sees."""
    right, others = _marked(keys, "key"), _marked(keys, "candidate")
    candidates = sorted({*right, *others}) if others else range(len(keys))
    for query, name in _marked(queries, "query").items():
        if query + 1 < len(queries) and queries[query + 1].word == queries[query].word:
            continue
        seen = query + 1 if causal else len(keys)
        answers = [key for key, of in right.items() if of == name and key < seen]
        choices = [key for key in candidates if key < seen]
        if answers and len(choices) > len(answers):
            yield KeyQuestion(query, choices, answers)


def _marked(tokens: Sequence[Token], role: str) -> dict[int, str]:
    """Return the places of the tokens whose label begins with a role, and how it ends."""
    labels = {place: token.label for place, token in enumerate(tokens) if token.label is not None}
    return {place: label.removeprefix(role) for place, label in labels.items() if label.startswith(role)}


def score(maps: Mapping[str, Array], questions: Sequence[KeyQuestion], row: int, seed: int) -> dict[str, Array]:
    """Return the means over the questions of an input by lens and baseline, [L, H, C] in the order of COLUMNS; NaN without questions.

    `maps` are by lens, [L, H, Q, K]. A hash of the row tells whether heads are chosen by this input, or the chosen ones scored.
    """
    held_out = bool(int(statistics.hash_rows(seed, np.array([row]))[0]) & 1)
    every = {**maps, **baselines(*next(iter(maps.values())).shape[2:])}
    return {lens: _columns(one, questions, held_out) for lens, one in every.items()}


def _columns(maps: Array, questions: Sequence[KeyQuestion], held_out: bool) -> Array:
    columns = np.full((*maps.shape[:2], len(COLUMNS)), np.nan, np.float32)
    if questions:
        found = ranks(maps, questions)
        both = np.stack([found.accuracy().mean(0), found.reciprocal().mean(0)], -1)  # [L, H, 2]
        columns[..., :2] = both
        if held_out:
            columns[..., 3:] = both
        else:
            columns[..., 2] = both[..., 1]
    return columns
