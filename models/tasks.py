"""The training and test data of each objective."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from . import data
from .data import Batch, Source
from .objectives import Objective

SAMPLE = Path(__file__).resolve().parent / "twins" / "sample"
SHARE = 0.3  # of the tokens of running text to predict


class Task:
    """The data of one objective, for a run of `steps`. `folder` holds the data sets, `work` the files made from them. Raises MissingData."""

    def __init__(
        self, objective: Objective, text: Literal["english", "reviews"], seed: int, steps: int, folder: Path, work: Path
    ) -> None:
        self.objective, self._text, self._seed, self._steps = objective, text, seed, steps
        self._folder, self._work = folder, work
        work.mkdir(parents=True, exist_ok=True)

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer of all text twins, trained on every fifth document of english_text; None for images."""
        if self.objective == "images":
            return None
        path = self._work / "tokenizer.json"
        if not path.exists():
            data.train_tokenizer(data.documents(self._folder, "train")[::5]).save(str(path))
        return Tokenizer.from_file(str(path))

    @cached_property
    def labels(self) -> list[str]:
        """Names of the classes; empty for language models."""
        if self.objective == "images":
            return self._images[-1]
        return {"sentences": ["negative", "positive"], "words": data.TAGS}.get(self.objective, [])

    @cached_property
    def source(self) -> Source:
        """The training batches."""
        if self.objective == "images":
            pixels, labels, *_ = self._images
            return data.Images(pixels, labels, self._seed)
        if self.objective in ("sentences", "words"):
            return data.Rows(self._rows, self.tokenizer, self._seed)
        return data.Text(self._ids, self._seed, SHARE if self.objective == "masked-lm" else None, self._steps)

    @cached_property
    def _images(self) -> tuple[Tensor, Tensor, Tensor, Tensor, list[str]]:
        return data.cifar10(self._folder)

    @property
    def _rows(self) -> list[data.Labelled]:
        read = data.reviews if self.objective == "sentences" else data.entities
        return read(self._folder, "train")

    @cached_property
    def _ids(self) -> data.Ids:
        """The training text as token ids."""
        if self._text == "reviews":
            return data.encode(self.tokenizer, data.review_texts(self._folder, "train"))
        path = self._work / "train.npy"
        if not path.exists():
            partial = self._work / "train.part.npy"
            np.save(partial, data.encode(self.tokenizer, data.documents(self._folder, "train")))
            partial.replace(path)
        ids: data.Ids = np.load(path, mmap_mode="r")
        return ids

    def held_out(self) -> Iterator[Batch]:
        """Yield all of the test data once."""
        if self.objective == "images":
            _, _, pixels, labels, _ = self._images
            return data.Images(pixels, labels, 0).held_out()
        if self.objective in ("sentences", "words"):
            read = data.reviews if self.objective == "sentences" else data.entities
            return data.Rows(read(self._folder, "test"), self.tokenizer, 0).held_out()
        texts = data.review_texts if self._text == "reviews" else data.documents
        return running(self.objective, self.tokenizer, texts(self._folder, "test"))

    @cached_property
    def counts(self) -> Tensor:
        """Number of training labels of each class, or of each token of the vocabulary."""
        if self.objective == "images":
            return self._images[1].bincount()
        if self.objective in ("sentences", "words"):
            labels = [label for _, labels in self._rows for label in labels]
            return torch.tensor(labels).bincount(minlength=len(self.labels))
        return torch.from_numpy(np.bincount(self._ids, minlength=self.tokenizer.get_vocab_size()))

    @cached_property
    def lengths(self) -> Tensor | None:
        """Bytes of every token of the vocabulary, 0 for special tokens; None unless a language model is trained."""
        if self.objective not in ("masked-lm", "causal-lm"):
            return None
        names = [self.tokenizer.id_to_token(id_) for id_ in range(self.tokenizer.get_vocab_size())]
        return torch.tensor([0 if name in data.SPECIAL else len(name) for name in names])


def running(objective: Objective, tokenizer: Any, texts: list[str]) -> Iterator[Batch]:
    """Yield running text to evaluate a language model on."""
    return data.Text(data.encode(tokenizer, texts), 0, SHARE if objective == "masked-lm" else None).held_out()


def sample(objective: Objective, tokenizer: Any) -> Iterator[Batch]:
    """Yield the sample that comes with the twins, so that a loss can be measured again anywhere. Its images are random squares, for licensing reasons."""
    if objective == "images":
        squares = torch.randint(256, (64, 3, 8, 8), generator=data.generator(0))
        pixels = squares.repeat_interleave(4, -1).repeat_interleave(4, -2)
        return data.Images(pixels, torch.arange(64) % 10, 0).held_out()
    if objective == "sentences":
        return data.Rows(data.read_labelled(SAMPLE / "reviews.tsv"), tokenizer, 0).held_out()
    if objective == "words":
        return data.Rows(data.read_tagged(SAMPLE / "entities.conll"), tokenizer, 0).held_out()
    return running(objective, tokenizer, (SAMPLE / "text.txt").read_text("utf-8").strip().split("\n\n"))
