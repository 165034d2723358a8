"""How good a twin is: on what was held out, on the sample that comes with the twins, and beside an answer that takes no model.

.venv/bin/python -m models.evaluate models/twins/twin-bert-hopfield

loads each twin through headscope.load and shows its loss beside the one that was measured when its training ended; it fails where they differ.
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
    """How well labels were told: sums over all of them."""

    loss: float = 0.0  # nats
    labels: int = 0
    right: int = 0
    bytes: int = 0  # of the text that the labels stand for
    entities: tuple[int, int, int] = (0, 0, 0)  # told, there, and both

    def add(self, said: Tensor, wanted: Tensor) -> None:
        """Logits [n, classes] of labels [n]."""
        self.loss += torch.nn.functional.cross_entropy(said.float(), wanted, reduction="sum").item()
        self.right += int((said.argmax(-1) == wanted).sum())
        self.labels += len(wanted)

    @property
    def figures(self) -> dict[str, float]:
        """What is reported: mean loss in nats, accuracy 0..1, and bits per byte or F1 where they mean something."""
        found: dict[str, float] = {
            "labels": self.labels,
            "loss": self.loss / self.labels,
            "accuracy": self.right / self.labels,
        }
        if self.bytes:
            found["bits_per_byte"] = self.loss / math.log(2) / self.bytes
        told, there, both = self.entities
        if there:
            found["f1"] = 2 * both / (told + there)
        return found


@torch.inference_mode()
def score(objective: Objective, module: Any, batches: Iterable[Batch], lengths: Tensor | None = None) -> Score:
    """All batches, in eval mode. `lengths` [vocabulary] are the bytes of every token."""
    training, total = module.training, Score()
    module.eval()
    for batch in batches:
        batch = batch.to(str(module.device))
        known = batch.labels != IGNORED
        said, wanted = logits(objective, module, batch), batch.labels[known]
        total.add(said, wanted)
        if lengths is not None:
            total.bytes += int(lengths.to(wanted.device)[wanted].sum())
        if objective == "words":
            told = torch.full_like(batch.labels, IGNORED).masked_scatter(known, said.argmax(-1))
            counts = (spans(told), spans(batch.labels))
            both = counts[0] & counts[1]
            total.entities = tuple(a + len(b) for a, b in zip(total.entities, (*counts, both), strict=True))  # type: ignore[assignment]
    module.train(training)
    return total


def spans(labels: Tensor) -> set[tuple[int, int, int, str]]:
    """The entities of labels [B, N]: row, first word, last word, type."""
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
    """The answer without a model: every label as probable as it was among `counts` [classes] of the training data, plus one."""
    said, total = (counts.double() + 1).log(), Score()
    for batch in batches:
        wanted = batch.labels[batch.labels != IGNORED]
        total.add(said.expand(len(wanted), -1), wanted)
        total.bytes += 0 if lengths is None else int(lengths[wanted].sum())
    return total


# -- twins that are there ---------------------------------------------------------------------------------------------------------------------------


def load(folder: Path) -> tuple[Objective, headscope.Model]:
    """A twin through headscope.load, attending by its own mechanism, and what it was trained for."""
    model = headscope.load(folder)
    config = model.module.config
    mechanism = getattr(config, "headscope", {}).get("mechanism", {"name": "softmax"})
    special = model.special_ids if mechanism["name"] == "pasta" else ()
    headscope.attend_by(model.module, mechanism, special_ids=special)
    named = type(model.module).__name__
    return next(objective for objective, name in CLASSES.items() if name == named), model


def again(folder: Path) -> tuple[float, float]:
    """The loss on the sample, measured now and when training ended."""
    kept = json.loads((folder / "evaluation.json").read_text("utf-8"))
    objective, model = load(folder)
    return score(objective, model.module, sample(objective, model.tokenizer)).figures["loss"], kept["sample"]["loss"]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure twins again.")
    parser.add_argument("folders", nargs="+", type=Path)
    wrong = 0
    for folder in parser.parse_args().folders:
        now, then = again(folder)
        wrong += abs(now - then) > TOLERANCE
        print(f"{folder.name}: loss on the sample {now:.6f}, when training ended {then:.6f}")
    sys.exit(f"{wrong} of them differ by more than {TOLERANCE}." if wrong else 0)


if __name__ == "__main__":
    main()
