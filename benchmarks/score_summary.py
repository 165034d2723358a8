"""Ranks of the right keys, and their means over inputs with intervals, for benchmarks.scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from headscope.studies.statistics import bootstrap_weights

from .score_cases import Question

RESAMPLES = 1000
Arrays = Mapping[str, np.ndarray]


class Ranks(NamedTuple):
    """Of the right key of N questions in every map, [N, L, H]: the number of keys with larger entries, and of other keys with the same entry."""

    larger: np.ndarray
    equal: np.ndarray

    def accuracy(self) -> np.ndarray:
        """Return the chance that a largest entry is the right one, if one of them is drawn, [N, L, H]."""
        return np.where(self.larger == 0, 1 / (1 + self.equal), 0.0)

    def reciprocal(self) -> np.ndarray:
        """Return the mean of the reciprocal rank over all orders of equal entries, [N, L, H]."""
        larger, equal = self.larger.astype(int), self.equal.astype(int)
        upto = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, 2 + (larger + equal).max()))])
        reciprocal: np.ndarray = (upto[larger + equal + 1] - upto[larger]) / (1 + equal)
        return reciprocal


def ranks(maps: np.ndarray, questions: Sequence[Question]) -> Ranks:
    """Judge maps [L, H, Q, K]. The tokens of a word count as one key, with the largest of their entries. An entry without a reading is the smallest."""
    found = [_rank(maps[:, :, one.query], one) for one in questions]
    larger, equal = (np.stack(part) for part in zip(*found, strict=True))
    return Ranks(larger, equal)


def _rank(rows: np.ndarray, question: Question) -> tuple[np.ndarray, np.ndarray]:
    rows = np.where(np.isnan(rows), -np.inf, rows)
    own = rows[..., question.right].max(-1, keepdims=True)
    others = rows[..., [key for key in question.keys if key not in question.right]]
    return (others > own).sum(-1).astype(np.uint16), (others == own).sum(-1).astype(np.uint16)


@dataclass(frozen=True)
class Judged:
    """Sums over the questions of one input: accuracy and reciprocal rank of every lens, [L, H] each."""

    questions: int
    accuracy: Arrays
    reciprocal: Arrays

    @classmethod
    def of(cls, found: Mapping[str, Ranks]) -> Judged:
        """Sum what was found of every lens."""
        accuracy = {name: one.accuracy().sum(0) for name, one in found.items()}
        reciprocal = {name: one.reciprocal().sum(0) for name, one in found.items()}
        return cls(len(next(iter(found.values())).larger), accuracy, reciprocal)


@dataclass(frozen=True)
class Bootstrap:
    """Means over inputs, and over resamples of them (not of their questions): weights [B, I] of the inputs, by the number of their questions [I]."""

    weights: np.ndarray
    questions: np.ndarray

    @classmethod
    def of(cls, questions: np.ndarray) -> Bootstrap:
        """Draw the resamples; the first one is the inputs as they are."""
        drawn = bootstrap_weights(0, np.arange(len(questions)), RESAMPLES)
        return cls(np.concatenate([np.ones((1, len(questions))), drawn]), questions)

    def half(self, which: slice) -> Bootstrap:
        """Return the same for some of the inputs."""
        return Bootstrap(self.weights[:, which], self.questions[which])

    def means(self, sums: np.ndarray) -> np.ndarray:
        """Return the mean over the questions in every resample, [B], from sums over those of every input [I]."""
        means: np.ndarray = (self.weights @ sums) / (self.weights @ self.questions)
        return means


def interval(means: np.ndarray) -> list[float]:
    """Return the mean, and the ends of its 95 % interval."""
    return [round(float(one), 4) for one in (means[0], *np.percentile(means[1:], [2.5, 97.5]))]


def summary(judged: Sequence[Judged], known: tuple[int, int] | None = None) -> dict[str, Any]:
    """Return the scores of every lens.

    best   those of the head that is best, by reciprocal rank, on every other input, on the inputs between them; `against` is its accuracy minus that of the
           weights' best head, on the same inputs
    mean   those of all heads
    known  those of the head that is known to do the task
    """
    every = Bootstrap.of(np.array([one.questions for one in judged], float))
    rows = {name: _row(judged, name, every, known) for name in judged[0].accuracy}
    base = rows["weights"]["best"]["accuracy"]
    lenses = {}
    for name, row in rows.items():
        against = row["best"]["accuracy"] - base
        scores = {
            part: {of: interval(means) for of, means in row[part].items()}
            for part in ("best", "mean", "known")
            if part in row
        }
        scores["best"]["against"] = interval(against)
        lenses[name] = {"head": row["head"], **scores}
    return {"inputs": len(judged), "questions": int(every.questions.sum()), "lenses": lenses}


def _row(judged: Sequence[Judged], name: str, every: Bootstrap, known: tuple[int, int] | None) -> dict[str, Any]:
    """Return the means of a lens in every resample."""
    sums = {of: np.stack([getattr(one, of)[name] for one in judged]) for of in ("accuracy", "reciprocal")}
    layers, heads = sums["accuracy"].shape[1:]
    head = np.unravel_index(sums["reciprocal"][::2].sum(0).argmax(), (layers, heads))
    half = slice(1, None, 2)
    row: dict[str, Any] = {
        "head": str(head[0]) if heads == 1 else ".".join(map(str, head)),
        "best": {of: every.half(half).means(one[half, *head]) for of, one in sums.items()},
        "mean": {of: every.means(one.mean((1, 2))) for of, one in sums.items()},
    }
    if known and heads > known[1]:
        row["known"] = {of: every.means(one[:, *known]) for of, one in sums.items()}
    return row
