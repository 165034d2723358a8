"""How a data set becomes chunks: inputs of like length together, so that they share forward passes; the same chunks whenever the rows are the same."""

from __future__ import annotations

import hashlib
import json
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from tempfile import SpooledTemporaryFile

import numpy as np
from tokenizers import Tokenizer

from .data.dataset import Row

# Most inputs of a chunk, and most tokens of all of them: what is lost when a worker is killed, and what is in memory at a time.
INPUTS, TOKENS = 256, 16_384
# Rows that are tokenized at once.
BATCH = 1_000
# Bytes of rows that are kept in memory; what is more goes to a file.
HELD = 4 * 2**20


@dataclass(frozen=True)
class Chunk:
    """Some rows of a data set in the order in which they are analysed, as JSON lines: what a worker is sent."""

    data: bytes
    tokens: int = 0

    def __len__(self) -> int:
        return self.data.count(b"\n")

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows."""
        return tuple(Row.from_dict(json.loads(line)) for line in self.data.splitlines())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the rows, as 64 hexadecimal digits."""
        return hashlib.sha256(self.data).hexdigest()


class ChunkPlan:
    """All rows in chunks, by their numbers of tokens and then by their own; no chunk is empty.

    The rows are in a file that is gone with this; in memory is of each where it stands, and one chunk at a time. `longest` is the most tokens of a row.
    """

    def __init__(self, rows: Iterable[Row], tokenizer: Tokenizer | None, most: int | None = None) -> None:
        self._file = SpooledTemporaryFile(HELD)  # noqa: SIM115 - it lives as long as this
        weakref.finalize(self, self._file.close)
        counts, numbers, ends = array("q"), array("q"), array("q", [0])
        left = iter(rows)
        while some := list(islice(left, BATCH)):
            counts.extend(counted(tokenizer, some, most))
            for row in some:
                line = json.dumps(row.as_dict(), separators=(",", ":")).encode() + b"\n"
                numbers.append(row.number)
                ends.append(ends[-1] + self._file.write(line))
        self._counts, self._ends = np.array(counts), np.array(ends)
        self._order = np.lexsort((np.array(numbers), self._counts))
        self._cuts = [*_cuts(self._counts[self._order].tolist()), len(counts)]
        self.longest = int(self._counts.max(initial=0))

    @property
    def inputs(self) -> int:
        """Number of rows."""
        return len(self._counts)

    def __len__(self) -> int:
        return len(self._cuts) - 1

    def __iter__(self) -> Iterator[Chunk]:
        for low, high in pairwise(self._cuts):
            places = self._order[low:high].tolist()
            yield Chunk(b"".join(map(self._line, places)), int(self._counts[places].sum()))

    def _line(self, place: int) -> bytes:
        start, end = self._ends[place : place + 2].tolist()
        self._file.seek(start)
        return self._file.read(end - start)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all rows, as the study's id takes it."""
        return hashlib.sha256("".join(chunk.digest for chunk in self).encode()).hexdigest()


def _cuts(counts: Sequence[int]) -> Iterator[int]:
    """Where a chunk begins, in rows of these numbers of tokens."""
    begun, taken = 0, 0
    for place, count in enumerate(counts):
        if place == 0 or place - begun == INPUTS or taken + count > TOKENS:
            begun, taken = place, 0
            yield place
        taken += count


def counted(tokenizer: Tokenizer | None, rows: Sequence[Row], most: int | None = None) -> list[int]:
    """Tokens of every row, at most `most`; characters where there is no tokenizer: either puts inputs of like length together."""
    if tokenizer is None:
        return [len(row.text) + len(row.text_pair or "") for row in rows]
    texts = [row.text if row.text_pair is None else (row.text, row.text_pair) for row in rows]
    found = [len(encoding) for encoding in tokenizer.encode_batch_fast(texts)]
    return found if most is None else [min(count, most) for count in found]


def chunk_id(study: str, number: int, content: str) -> str:
    """Return the id of chunk `number` of a study, as a job and in the store. `content` is the digest of what the chunk computes."""
    return f"{study}.{number}.{content}"
