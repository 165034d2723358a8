"""Means of scores over inputs, with intervals, for benchmarks.scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headscope.studies.scores import Ranks
from headscope.studies.statistics import bootstrap_weights

RESAMPLES = 1000
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Judged:
    """Sums over the questions of one input: accuracy and reciprocal rank of every lens, [L, H] each. A lens that answered fewer counts by its means."""

    questions: int
    accuracy: Arrays
    reciprocal: Arrays

    @classmethod
    def of(cls, found: Mapping[str, Ranks]) -> Judged:
        """Sum what was found of every lens."""
        questions = max(len(one.larger) for one in found.values())
        accuracy = {name: one.accuracy().mean(0) * questions for name, one in found.items()}
        reciprocal = {name: one.reciprocal().mean(0) * questions for name, one in found.items()}
        return cls(questions, accuracy, reciprocal)


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
