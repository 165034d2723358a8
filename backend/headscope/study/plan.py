"""How a data set becomes chunks: inputs of like length together, so that they share forward passes; the same chunks whenever the rows are the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tokenizers import Tokenizer

from .dataset import Row

# Most inputs of a chunk, and most tokens of all of them: what is lost when a worker is killed, and what is in memory at a time.
INPUTS, TOKENS = 256, 16_384
# Rows that are tokenized at once.
BATCH = 1_000


@dataclass(frozen=True)
class Chunk:
    """Some rows of a data set, in the order in which they are analysed."""

    rows: tuple[Row, ...]

    @cached_property
    def data(self) -> bytes:
        """The rows as JSON lines: what a worker is sent."""
        return b"".join(json.dumps(row.as_dict(), separators=(",", ":")).encode() + b"\n" for row in self.rows)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the rows, as 64 hexadecimal digits."""
        return hashlib.sha256(self.data).hexdigest()

    @classmethod
    def read(cls, data: bytes) -> Chunk:
        """The chunk of these JSON lines."""
        return cls(tuple(Row.from_dict(json.loads(line)) for line in data.splitlines()))


def plan(rows: Sequence[Row], counts: Sequence[int]) -> list[Chunk]:
    """All rows in chunks, by their numbers of tokens and then by their own; no chunk is empty."""
    order = sorted(zip(counts, rows, strict=True), key=lambda pair: (pair[0], pair[1].number))
    return [Chunk(tuple(part)) for part in _parts(order)]


def _parts(order: Sequence[tuple[int, Row]]) -> Iterator[list[Row]]:
    part: list[Row] = []
    taken = 0
    for count, row in order:
        if part and (len(part) == INPUTS or taken + count > TOKENS):
            yield part
            part, taken = [], 0
        part.append(row)
        taken += count
    if part:
        yield part


def counted(tokenizer: Tokenizer | None, rows: Sequence[Row], most: int | None = None) -> list[int]:
    """Tokens of every row, at most `most`; characters where there is no tokenizer: either puts inputs of like length together."""
    if tokenizer is None:
        return [len(row.text) + len(row.text_pair or "") for row in rows]
    found: list[int] = []
    for low in range(0, len(rows), BATCH):
        texts = [row.text if row.text_pair is None else (row.text, row.text_pair) for row in rows[low : low + BATCH]]
        found += [len(encoding) for encoding in tokenizer.encode_batch_fast(texts)]
    return found if most is None else [min(count, most) for count in found]


def digest(chunks: Sequence[Chunk]) -> str:
    """SHA-256 of all rows, as the study's id takes it."""
    return hashlib.sha256("".join(chunk.digest for chunk in chunks).encode()).hexdigest()
