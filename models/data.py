"""The training data of the twins: batches that depend only on a seed and the step, so that a run can be resumed."""

from __future__ import annotations

import csv
import io
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
IGNORED = -100  # label of positions that are not predicted
PAD, CLS, SEP, MASK, END = range(5)
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>"]
KEPT, SWAPPED = 0.1, 0.1  # shares of the tokens to predict that are shown unchanged, and as another token
# Curriculum of masked language models: until which share of the run a piece is cut, and into how many parts. Among hundreds of tokens no head discovers that
# neighbours matter: runs without it got stuck at token frequencies. It is short, since later positions must also be learned while steps are still large.
CURRICULUM = ((0.2, 16), (0.3, 4))

# Entity types that wikigold and wnut17 share.
TYPES = {
    "PER": "person",
    "person": "person",
    "LOC": "location",
    "location": "location",
    "ORG": "organisation",
    "corporation": "organisation",
    "group": "organisation",
}
TAGS = ["O"] + [f"{side}-{kind}" for kind in ("person", "location", "organisation") for side in "BI"]


Ids = np.ndarray[Any, np.dtype[np.uint16]]


class MissingData(Exception):
    """A data set is missing; the message says what to do."""


@dataclass(frozen=True)
class Batch:
    """Arguments of a forward pass, and labels [B, N] or [B], IGNORED where nothing is predicted."""

    inputs: dict[str, Tensor]
    labels: Tensor

    @property
    def tokens(self) -> int:
        """Number of tokens or images, without padding."""
        mask = self.inputs.get("attention_mask")
        first = next(iter(self.inputs.values()))
        return int(mask.sum()) if mask is not None else first.numel() if "input_ids" in self.inputs else len(first)

    def to(self, device: str) -> Batch:
        """Move the batch to a device."""
        return Batch({name: tensor.to(device) for name, tensor in self.inputs.items()}, self.labels.to(device))


class Source(Protocol):
    """Training batches, one for every step."""

    def batch(self, step: int) -> Batch: ...


def find_file(folder: Path, *names: str) -> Path:
    """Return the path of a data set's file. Raises MissingData."""
    path = folder.joinpath(*names)
    if not path.exists():
        raise MissingData(
            f"There is no {'/'.join(names)} in the data folder. Set the folder of the data sets with --data."
        )
    return path


def generator(*numbers: int) -> torch.Generator:
    """Return a random number generator seeded by these numbers."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1))


class Order:
    """The order in which steps take `items` things: `size` at a time, shuffled in every epoch."""

    def __init__(self, items: int, size: int, seed: int) -> None:
        if items < size:
            raise MissingData(f"There is too little data: a batch takes {size} pieces, but there are {items}.")
        self._items, self._size, self._seed = items, size, seed
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def at(self, step: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the indices that a step takes; steps are counted from 0."""
        epoch, place = divmod(step, self._items // self._size)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, np.random.default_rng([self._seed, epoch]).permutation(self._items)
        return self._order[place * self._size : (place + 1) * self._size]


# -- running text ---------------------------------------------------------------------------------------------------------------------------------


def documents(folder: Path, split: str) -> list[str]:
    """Read the documents of english_text; `split` is train, valid or test."""
    with lzma.open(find_file(folder, "english_text", f"{split}.txt.xz"), "rt", encoding="utf-8") as file:
        return file.read().strip().split("\n\n")


def train_tokenizer(texts: Sequence[str], size: int = 8_192) -> Any:
    """Train a byte-level BPE tokenizer of `size` tokens, SPECIAL first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Any, texts: Sequence[str], part: int = 500) -> Ids:
    """Encode all texts as one row of token ids, with END after each."""
    blocks = (list(texts[low : low + part]) for low in range(0, len(texts), part))
    encoded = (one for block in blocks for one in tokenizer.encode_batch_fast(block, add_special_tokens=False))
    return np.concatenate([np.array([*one.ids, END], dtype=np.uint16) for one in encoded])


class Text:
    """Running text in pieces.

    A piece takes all positions of the model. Three of four steps cut it in two, so that most of the work is done on short inputs; the fourth trains the
    later positions. `share` is the share of tokens to predict from both sides, between CLS and SEP, in a run of `steps` that begins with the CURRICULUM; None
    predicts each token from those before it.
    """

    def __init__(
        self,
        ids: Ids,
        seed: int,
        share: float | None,
        steps: int = 0,
        pieces: int = 16,
        positions: int = 256,
        size: int = 8_192,
    ) -> None:
        length = positions if share is None else positions - 2
        self._pieces = ids[: len(ids) // length * length].reshape(-1, length)
        self._seed, self._share, self._steps, self._count, self._size = seed, share, steps, pieces, size

    @cached_property
    def _order(self) -> Order:
        return Order(len(self._pieces), self._count, self._seed)

    def batch(self, step: int) -> Batch:
        """Return the batch of a step, counted from 0."""
        chosen, parts = self._pieces[self._order.at(step)], self._parts(step)
        length = chosen.shape[1] // parts
        return self._make(chosen[:, : parts * length].reshape(parts * len(chosen), length), step)

    def _parts(self, step: int) -> int:
        """Return into how many parts a piece is cut."""
        curriculum = () if self._share is None else CURRICULUM
        usual = 1 if step % 4 == 3 else 2
        return next((parts for until, parts in curriculum if step < until * self._steps), usual)

    def held_out(self) -> Iterator[Batch]:
        """Yield every piece once, in order, always with the same tokens to predict."""
        for low in range(0, len(self._pieces), self._count):
            yield self._make(self._pieces[low : low + self._count], low)

    def _make(self, pieces: Ids, number: int) -> Batch:
        ids = torch.from_numpy(pieces.astype(np.int64))
        return (
            causal_batch(ids)
            if self._share is None
            else masked_batch(ids, self._share, self._size, (self._seed, number))
        )


def causal_batch(pieces: Tensor) -> Batch:
    """Create a batch of pieces [B, N] in which each token is predicted from those before it."""
    labels = torch.full_like(pieces, IGNORED)
    labels[:, :-1] = pieces[:, 1:]
    return Batch({"input_ids": pieces}, labels)


def masked_batch(pieces: Tensor, share: float, size: int, seed: tuple[int, int]) -> Batch:
    """Create a batch of pieces [B, N] between CLS and SEP with a share of tokens to predict: most masked, some swapped, some unchanged."""
    random = generator(*seed)
    # All batches have the same size, because kernels are selected for each number of rows.
    chosen = torch.rand(pieces.shape, generator=random).argsort(-1) < round(share * pieces.shape[1])
    how = torch.rand(pieces.shape, generator=random)
    others = torch.randint(len(SPECIAL), size, pieces.shape, generator=random)
    shown = torch.where(how < KEPT, pieces, torch.where(how < KEPT + SWAPPED, others, MASK))
    first, last, beside = (torch.full((len(pieces), 1), id_) for id_ in (CLS, SEP, IGNORED))
    inputs = torch.cat([first, torch.where(chosen, shown, pieces), last], dim=1)
    return Batch({"input_ids": inputs}, torch.cat([beside, pieces.masked_fill(~chosen, IGNORED), beside], dim=1))


# -- sentences and words with labels --------------------------------------------------------------------------------------------------------------

Labelled = tuple[Sequence[str], Sequence[int]]  # words with a tag each, or a text with one label


class Rows:
    """Short texts with labels, padded to the longest of a batch.

    The label of a word is at its first token. A text with one label is a single "word", and its batch has labels [B].
    """

    def __init__(
        self, rows: Sequence[Labelled], tokenizer: Any, seed: int, count: int = 32, positions: int = 256
    ) -> None:
        self._encoded = [_tokens(tokenizer, row, positions) for row in rows]
        self._seed, self._count = seed, count
        self._by_word = any(len(words) > 1 for words, _ in rows)

    @cached_property
    def _order(self) -> Order:
        return Order(len(self._encoded), self._count, self._seed)

    def batch(self, step: int) -> Batch:
        """Return the batch of a step, counted from 0."""
        return self._make(self._order.at(step).tolist())

    def held_out(self) -> Iterator[Batch]:
        """Yield every row once, in order."""
        for low in range(0, len(self._encoded), self._count):
            yield self._make(range(low, min(low + self._count, len(self._encoded))))

    def _make(self, places: Sequence[int]) -> Batch:
        rows = [self._encoded[place] for place in places]
        longest = max(len(ids) for ids, _ in rows)
        ids = torch.tensor([ids + [PAD] * (longest - len(ids)) for ids, _ in rows])
        labels = torch.tensor([labels + [IGNORED] * (longest - len(labels)) for _, labels in rows])
        inputs = {"input_ids": ids, "attention_mask": (ids != PAD).long()}
        return Batch(inputs, labels if self._by_word else labels[:, 1])


def _tokens(tokenizer: Any, row: Labelled, positions: int) -> tuple[list[int], list[int]]:
    """Return token ids between CLS and SEP and their labels, truncated to `positions`."""
    ids, labels = [CLS], [IGNORED]
    for word, label in zip(*row, strict=True):
        pieces = tokenizer.encode(word, add_special_tokens=False).ids
        ids += pieces
        labels += [label, *[IGNORED] * (len(pieces) - 1)][: len(pieces)]
    return [*ids[: positions - 1], SEP], [*labels[: positions - 1], IGNORED]


def reviews(folder: Path, split: str) -> list[Labelled]:
    """Read sentences of film reviews, with label 1 if positive; `split` is train, dev or test."""
    return read_labelled(find_file(folder, "sst2", f"{split}.tsv"))


def read_labelled(path: Path) -> list[Labelled]:
    """Read a text and its label per line, separated by a tab."""
    with path.open(encoding="utf-8", newline="") as file:
        return [((text,), (int(label),)) for text, label in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def review_texts(folder: Path, split: str) -> list[str]:
    """Read review sentences without labels: film reviews, and the product and film reviews of the English Web Treebank."""
    lines = find_file(folder, "ud_ewt", f"en_ewt-ud-{split}.conllu").read_text("utf-8").splitlines()
    web, inside = list[str](), False
    for line in lines:
        if line.startswith("# newdoc id = "):
            inside = line.removeprefix("# newdoc id = ").startswith("reviews-")
        elif inside and line.startswith("# text = "):
            web.append(line.removeprefix("# text = "))
    return [words[0] for words, _ in reviews(folder, split)] + web


def entities(folder: Path, split: str) -> list[Labelled]:
    """Read sentences of wikigold and wnut17 with TAGS of their common types; a tenth of wikigold is dev and a tenth is test."""
    part = {"train": "wnut17train.conll", "dev": "emerging.dev.conll", "test": "emerging.test.annotated"}[split]
    wiki = read_tagged(find_file(folder, "wikigold", "wikigold.conll.txt"))
    places = {"dev": (0,), "test": (1,), "train": range(2, 10)}[split]
    chosen = [sentence for place, sentence in enumerate(wiki) if place % 10 in places]
    return chosen + read_tagged(find_file(folder, "wnut17", part))


def read_tagged(path: Path) -> list[Labelled]:
    """Read a CoNLL file: one word and its tag per line, an empty line after each sentence."""
    sentences = list[Labelled]()
    for block in path.read_text("utf-8").replace("\r", "").replace("\t\n", "\n").split("\n\n"):
        lines = [line.split() for line in block.splitlines() if len(line.split()) >= 2 and "DOCSTART" not in line]
        if lines:
            sentences.append(([line[0] for line in lines], _tagged([line[-1] for line in lines])))
    return sentences


def _tagged(tags: Sequence[str]) -> list[int]:
    """Return indices of TAGS. wikigold marks no beginnings, so an entity begins where the tag before is of another type."""
    numbers, before = list[int](), ""
    for tag in tags:
        side, _, name = tag.partition("-")
        kind = TYPES.get(name, "")
        begins = side == "B" or kind != before
        numbers.append(TAGS.index(f"{'B' if begins else 'I'}-{kind}") if kind else 0)
        before = kind
    return numbers


# -- images ---------------------------------------------------------------------------------------------------------------------------------------


class Images:
    """Images uint8 [N, 3, S, S] with labels, shifted by up to 4 pixels and randomly mirrored for training, unchanged for evaluation."""

    def __init__(self, pixels: Tensor, labels: Tensor, seed: int, count: int = 128) -> None:
        self._pixels, self._labels, self._seed, self._count = pixels, labels, seed, count

    @cached_property
    def _order(self) -> Order:
        return Order(len(self._labels), self._count, self._seed)

    def batch(self, step: int) -> Batch:
        """Return the batch of a step, counted from 0."""
        chosen = torch.from_numpy(self._order.at(step))
        pixels = _augment(self._pixels[chosen], generator(self._seed, step))
        return Batch({"pixel_values": _scale(pixels)}, self._labels[chosen])

    def held_out(self) -> Iterator[Batch]:
        """Yield every image once, in order."""
        for low in range(0, len(self._labels), self._count):
            block = slice(low, low + self._count)
            yield Batch({"pixel_values": _scale(self._pixels[block])}, self._labels[block])


def _scale(pixels: Tensor) -> Tensor:
    """Scale bytes to -1..1, as the image processor of a twin does."""
    return pixels.float().div(127.5).sub(1)


def _augment(pixels: Tensor, random: torch.Generator, shift: int = 4) -> Tensor:
    """Crop each padded image [N, 3, S, S] at a random place, and mirror half of them."""
    count, size = len(pixels), pixels.shape[-1]
    wide = torch.nn.functional.pad(pixels, [shift] * 4)
    down, right = torch.randint(2 * shift + 1, (2, count, 1), generator=random)
    mirrored = torch.rand(count, 1, generator=random) < 0.5
    rows, columns = (torch.arange(size) + offset for offset in (down, right))
    columns = torch.where(mirrored, columns.flip(-1), columns)
    return wide[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def cifar10(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor, list[str]]:
    """Read train pixels, train labels, test pixels, test labels and class names; pixels are uint8 [N, 3, 32, 32]."""
    with np.load(find_file(folder, "cifar10", "cifar10_jpeg_packed.npz")) as packed:
        held = {name: packed[name] for name in ("jpeg", "offset", "label", "is_train", "classes")}
    pixels = np.empty((len(held["label"]), 32, 32, 3), dtype=np.uint8)
    for place, (low, high) in enumerate(zip(held["offset"], held["offset"][1:], strict=False)):
        pixels[place] = np.asarray(Image.open(io.BytesIO(held["jpeg"][low:high].tobytes())).convert("RGB"))
    images, labels = torch.from_numpy(pixels).permute(0, 3, 1, 2), torch.from_numpy(held["label"].astype(np.int64))
    train = torch.from_numpy(held["is_train"])
    return images[train], labels[train], images[~train], labels[~train], held["classes"].tolist()
