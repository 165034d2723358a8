"""Evaluate a twin on held-out data and on the sample that comes with the twins, compared with a baseline without a model.

.venv/bin/python -m models.evaluate models/twins/twin-bert-hopfield

loads each twin with headscope.load and prints its loss next to the one measured at the end of training; it fails if they differ.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import headscope

from .data import IGNORED, TAGS, Batch
from .objectives import CLASSES, Objective, logits
from .tasks import sample

TOLERANCE = 1e-4


@dataclass
class Score:
    """The score of predicted labels, as sums over all of them."""

    loss: float = 0.0  # nats
    labels: int = 0
    right: int = 0
    bytes: int = 0  # of the text of the labels
    entities: tuple[int, int, int] = (0, 0, 0)  # predicted, true, and both

    def add(self, predicted: Tensor, labels: Tensor) -> None:
        """Add logits [n, classes] and labels [n]."""
        self.loss += torch.nn.functional.cross_entropy(predicted.float(), labels, reduction="sum").item()
        self.right += int((predicted.argmax(-1) == labels).sum())
        self.labels += len(labels)

    @property
    def figures(self) -> dict[str, float]:
        """Mean loss in nats, accuracy 0..1, and bits per byte or F1 where they apply."""
        found: dict[str, float] = {
            "labels": self.labels,
            "loss": self.loss / self.labels,
            "accuracy": self.right / self.labels,
        }
        if self.bytes:
            found["bits_per_byte"] = self.loss / math.log(2) / self.bytes
        predicted, true, both = self.entities
        if true:
            found["f1"] = 2 * both / (predicted + true)
        return found


@torch.inference_mode()
def score(objective: Objective, module: Any, batches: Iterable[Batch], lengths: Tensor | None = None) -> Score:
    """Score all batches in eval mode. `lengths` [vocabulary] are the bytes of every token."""
    training, total = module.training, Score()
    module.eval()
    for batch in batches:
        batch = batch.to(str(module.device))
        known = batch.labels != IGNORED
        predicted, labels = logits(objective, module, batch), batch.labels[known]
        total.add(predicted, labels)
        if lengths is not None:
            total.bytes += int(lengths.to(labels.device)[labels].sum())
        if objective == "words":
            tags = torch.full_like(batch.labels, IGNORED).masked_scatter(known, predicted.argmax(-1))
            counts = (spans(tags), spans(batch.labels))
            both = counts[0] & counts[1]
            total.entities = tuple(a + len(b) for a, b in zip(total.entities, (*counts, both), strict=True))  # type: ignore[assignment]
    module.train(training)
    return total


def spans(labels: Tensor) -> set[tuple[int, int, int, str]]:
    """Return the entities of labels [B, N]: row, first word, last word, type."""
    found = set[tuple[int, int, int, str]]()
    for row, line in enumerate(labels.tolist()):
        tags = [TAGS[label] for label in line if label != IGNORED]
        start, kind = 0, ""
        for place, tag in enumerate([*tags, "O"]):
            side, _, name = tag.partition("-")
            if kind and (side != "I" or name != kind):
                found.add((row, start, place - 1, kind))
            if side == "B" or (name and name != kind):
                start = place
            kind = name
    return found


def majority(counts: Tensor, batches: Iterable[Batch], lengths: Tensor | None = None) -> Score:
    """Score the baseline: every label as probable as in the training data, with `counts` [classes] plus one."""
    predicted, total = (counts.double() + 1).log(), Score()
    for batch in batches:
        labels = batch.labels[batch.labels != IGNORED]
        total.add(predicted.expand(len(labels), -1), labels)
        total.bytes += 0 if lengths is None else int(lengths[labels].sum())
    return total


# -- finished twins ---------------------------------------------------------------------------------------------------------------------------------


def load(folder: Path) -> tuple[Objective, headscope.Model]:
    """Load a twin with headscope.load, attending by its own mechanism; return its objective and the model."""
    model = headscope.load(folder)
    config = model.module.config
    mechanism = getattr(config, "headscope", {}).get("mechanism", {"name": "softmax"})
    special = model.special_ids if mechanism["name"] == "pasta" else ()
    headscope.attend_by(model.module, mechanism, special_ids=special)
    named = type(model.module).__name__
    return next(objective for objective, name in CLASSES.items() if name == named), model


def remeasure(folder: Path) -> tuple[float, float]:
    """Return the loss on the sample now, and at the end of training."""
    kept = json.loads((folder / "evaluation.json").read_text("utf-8"))
    objective, model = load(folder)
    return score(objective, model.module, sample(objective, model.tokenizer)).figures["loss"], kept["sample"]["loss"]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Measure the loss of finished twins again.")
    parser.add_argument("folders", nargs="+", type=Path)
    wrong = 0
    for folder in parser.parse_args().folders:
        now, then = remeasure(folder)
        wrong += abs(now - then) > TOLERANCE
        print(f"{folder.name}: loss on the sample {now:.6f}, at the end of training {then:.6f}")
    sys.exit(f"{wrong} of them differ by more than {TOLERANCE}." if wrong else 0)


if __name__ == "__main__":
    main()
