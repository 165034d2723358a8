"""Models and data small enough to be trained within a test."""

from __future__ import annotations

import functools

import torch
import transformers

from models import data
from models.objectives import CLASSES, Shape, configuration
from models.tasks import SAMPLE

SHAPE = Shape(layers=2, heads=4, width=32, positions=256, vocabulary=400)
HOPFIELD = {"name": "hopfield", "alpha": 0.5}
# Scores of a small random model are small, and so is the threshold above which they tie anything.
JUMP = {"name": "jump", "rho": 0.02}


def module_of(objective, seed=0, labels=("O", "B")):
    """A random model, with weights large enough for its heads to look somewhere."""
    torch.manual_seed(seed)
    module = getattr(transformers, CLASSES[objective])(configuration(objective, SHAPE, list(labels)))
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.dim() > 1 and "embed" not in name:
                parameter.mul_(1.5)
    return module


@functools.cache
def texts():
    """The documents of the sample."""
    return (SAMPLE / "text.txt").read_text("utf-8").strip().split("\n\n")


@functools.cache
def tokenizer():
    return data.train_tokenizer(texts(), SHAPE.vocabulary)


@functools.cache
def ids():
    return data.encode(tokenizer(), texts())


def source_of(objective, seed=0):
    """Something to learn from, for every objective."""
    if objective == "images":
        pixels = torch.randint(256, (32, 3, 32, 32), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
        return data.Images(pixels, torch.arange(32) % 2, seed, count=8)
    if objective == "sentences":
        return data.Rows(data.read_labelled(SAMPLE / "reviews.tsv"), tokenizer(), seed, count=8, positions=64)
    if objective == "words":
        return data.Rows(data.read_tagged(SAMPLE / "entities.conll"), tokenizer(), seed, count=8, positions=64)
    share = 0.2 if objective == "masked-lm" else None
    return data.Text(ids(), seed, share, pieces=8, positions=64, size=SHAPE.vocabulary)
