"""Run the studies over the twins: python docs/twins.py [--data FOLDER] [QUESTION ...]

Writes docs/measured/twins.json, from which the tables of explanation/twins.md are made. A question whose twins or data are missing is left as it was. Without names all
are asked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import measured
import numpy as np

import headscope

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # models is not part of the package
TWINS = HERE.parent / "models" / "twins"
# Twins that are not shipped; models/runs/seeds.sh trains them.
COMPARED = HERE.parent / "build" / "twins" / "compared"
RESAMPLED, LONGEST = 1_000, 256

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Question:
    """A table of a study over one or two models: its inputs, their number, and the figure whose numbers are used."""

    models: tuple[str, ...]
    inputs: Callable[[Path], Any]
    figure: str
    limit: int
    # Once for each of the two models, if the figure shows one.
    each: bool = False
    # The mechanism of the second model, if it is not its trained one.
    mechanism: str | None = None

    def answer(self, folder: Path) -> Rows:
        """Return the rows of the table."""
        study = _study(self.models, self.inputs, folder, self.limit, self.mechanism)
        if not self.each:
            return _rows(study.table(self.figure))
        return [
            {"model": name, **row}
            for place, name in enumerate(self.models)
            for row in _rows(study.table(self.figure, variant=place))
        ]


def _folder(name: str) -> Path:
    return TWINS / name if (TWINS / name).is_dir() else COMPARED / name


def _rows(table: Any) -> Rows:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


# -- inputs -----------------------------------------------------------------------------------------------------------------------------------------


def paragraphs(folder: Path) -> list[str]:
    """Return the long paragraphs of the test split of WikiText-2."""
    text = (folder / "wikitext2" / "test.txt").read_text("utf-8")
    return [line.strip() for line in text.splitlines() if len(line.split()) > 120]


def reviews(folder: Path) -> Path:
    """Return the test sentences of SST-2."""
    return folder / "sst2" / "test.tsv"


def questions(folder: Path) -> Path:
    """Return the pairs of question and sentence of QNLI."""
    return folder / "qnli" / "dev.tsv"


def entities(folder: Path) -> Path:
    """Return the sentences of WikiGold, with their entities."""
    return folder / "wikigold" / "wikigold.conll.txt"


@cache
def _study(
    models: tuple[str, ...], inputs: Callable[[Path], Any], folder: Path, limit: int, mechanism: str | None
) -> Any:
    """Run one study for all questions about the same models and inputs."""
    what = (models, inputs, limit, mechanism)
    asked = [one for one in QUESTIONS.values() if (one.models, one.inputs, one.limit, one.mechanism) == what]
    return headscope.study(
        models[0],
        inputs(folder),
        *models[1:],
        against_mechanism=mechanism,
        figures=[one.figure for one in asked],
        lenses=("weights",),
        measures=(),
        limit=limit,
        max_tokens=LONGEST,
    )


# -- images -----------------------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pictures:
    """A measure of vision models by layer, because studies read texts only: its mean over images and heads, with a bootstrap interval.

    Of a measure with columns that is the one named `mean`.
    """

    models: tuple[str, ...]
    measure: str
    limit: int

    def answer(self, folder: Path) -> Rows:
        """Return one row per model and layer."""
        return list(self._rows(folder))

    def _rows(self, folder: Path) -> Iterator[dict[str, Any]]:
        pixels = _test_images(folder)[: self.limit].transpose(0, 2, 3, 1)
        draws = np.random.default_rng(0).integers(len(pixels), size=(RESAMPLED, len(pixels)))
        for name in self.models:
            model = headscope.load(_folder(name))
            found = np.stack([self._by_layer(model, image) for image in pixels])
            low, high = np.quantile(found[draws].mean(1), (0.025, 0.975), axis=0)
            for layer, mean in enumerate(found.mean(0)):
                yield {"model": name, "layer": layer, "mean": mean, "low": low[layer], "high": high[layer]}

    def _by_layer(self, model: Any, image: Any) -> Any:
        """[L]."""
        a = headscope.analyze(model, image=image, lenses=("weights",), measures=(self.measure,), maps=False)
        values, columns = a.measures[self.measure]["weights"], headscope.MEASURES[self.measure].columns
        if columns:
            values = values[..., columns.index("mean")]
        return values.reshape(len(values), -1).mean(-1)


@cache
def _test_images(folder: Path) -> Any:
    """Return the test images of CIFAR-10, uint8 [N, 3, 32, 32]."""
    from models.data import cifar10

    return cifar10(folder)[2].numpy()


BERT, JUMP = ("twin-bert-softmax", "twin-bert-hopfield"), ("twin-bert-softmax", "twin-bert-jump")
GPT, NER = ("twin-gpt-softmax", "twin-gpt-hopfield"), ("twin-ner-softmax", "twin-ner-jump")
VIT = ("twin-vit-softmax", "twin-vit-hopfield-05", "twin-vit-hopfield-07")
TUNED = {
    "softmax": ("twin-bert-softmax", "twin-sst2-softmax"),
    "hopfield": ("twin-bert-hopfield", "twin-sst2-hopfield"),
}

QUESTIONS: dict[str, Question] = {
    **{
        f"{figure}-{family}": Question(models, paragraphs, figure, 300, each=figure != "residual-ratio")
        for family, models in (("bert", BERT), ("gpt", GPT))
        for figure in ("residual-ratio", "token-similarity", "entropy")
    },
    "connections": Question(NER, entities, "connections", 1_000),
    "patterns": Question(BERT, questions, "pattern-shares", 400),
    "patterns-jump": Question(JUMP, questions, "pattern-shares", 400),
    **{f"tuning-{name}": Question(models, reviews, "tuning", 500) for name, models in TUNED.items()},
    "jumps": Question(JUMP[1:], paragraphs, "tuning", 300, mechanism="softmax"),
    "patterns-reviews": Question(("twin-bert-softmax", "twin-reviews"), reviews, "pattern-shares", 500),
}
PICTURES = {
    **{f"{measure}-vit": Pictures(VIT, measure, 200) for measure in ("residual_ratio", "token_similarity", "entropy")},
    "token_similarity-seeds": Pictures(
        tuple(f"{name}-seed-{seed}" for seed in (1, 2) for name in VIT[:2]), "token_similarity", 200
    ),
}


def main() -> None:
    """Run the named questions, or all."""
    every = {**QUESTIONS, **PICTURES}
    parser = argparse.ArgumentParser(description="Ask studies over the twins.")
    parser.add_argument("questions", nargs="*", metavar="QUESTION", choices=[[], *every], help=", ".join(every))
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "shared" / "data")
    given = parser.parse_args()
    for name in given.questions or every:
        question = every[name]
        missing = [model for model in question.models if not _folder(model).is_dir()]
        if missing:
            print(f"{name}: no {', '.join(missing)}")
            continue
        rows = [{key: _short(value) for key, value in row.items()} for row in question.answer(given.data)]
        measured.keep("twins", {name: {"models": question.models, "inputs": question.limit, "rows": rows}})
        print(f"{name}: {len(rows)} rows", flush=True)


def _short(value: Any) -> Any:
    return float(f"{float(value):.4g}") if isinstance(value, (float, np.floating)) else value


if __name__ == "__main__":
    main()
