"""Select the rows of a study and divide them into chunks. Inputs of similar length share a chunk, and the same rows always give the same chunks."""

from __future__ import annotations

import hashlib
import json
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, islice, pairwise
from tempfile import SpooledTemporaryFile

import numpy as np
from tokenizers import Tokenizer

from .data.dataset import Row

# Maximum inputs and tokens per chunk: what is lost when a worker is killed, and what is in memory at a time.
INPUTS, TOKENS = 256, 16_384
# Rows that are tokenized together.
BATCH = 1_000
# Bytes of rows kept in memory; beyond that they are spooled to a file.
SPOOL_BYTES = 4 * 2**20


def select_rows(rows: Iterable[Row], limit: int | None, seed: int = 0) -> Iterable[Row]:
    """Draw `limit` rows without replacement, in file order; without a limit return all of them.

    Iterates twice and keeps no row in memory. The seed and a row's number determine its rank, and the lowest ranks are drawn, so a smaller limit selects a
    subset of what a larger one selects.
    """
    if limit is None:
        return rows
    ranks = np.fromiter((_rank(row.number, seed) for row in rows), np.uint64)
    selected = np.zeros(len(ranks), bool)
    selected[np.argsort(ranks, kind="stable")[:limit]] = True
    return compress(rows, selected)


def _rank(number: int, seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}:{number}".encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True)
class Chunk:
    """Rows of a data set in the order in which they are analysed, as JSON lines: the input of a worker."""

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
    """All rows in chunks, sorted by number of tokens, then by row number. No chunk is empty.

    Rows are stored in a temporary file; only their offsets and one chunk at a time are in memory. `longest` is the largest number of tokens of a row.
    """

    def __init__(self, rows: Iterable[Row], tokenizer: Tokenizer | None, max_tokens: int | None = None) -> None:
        self._file = SpooledTemporaryFile(SPOOL_BYTES)  # noqa: SIM115 - closed with this object
        weakref.finalize(self, self._file.close)
        counts, numbers, ends = array("q"), array("q"), array("q", [0])
        remaining = iter(rows)
        while batch := list(islice(remaining, BATCH)):
            counts.extend(count_tokens(tokenizer, batch, max_tokens))
            for row in batch:
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
        """SHA-256 of all rows, as used in the study's id."""
        return hashlib.sha256("".join(chunk.digest for chunk in self).encode()).hexdigest()


def _cuts(counts: Sequence[int]) -> Iterator[int]:
    """Yield the index at which each chunk begins, given the tokens of every row."""
    begin, tokens = 0, 0
    for place, count in enumerate(counts):
        if place == 0 or place - begin == INPUTS or tokens + count > TOKENS:
            begin, tokens = place, 0
            yield place
        tokens += count


def count_tokens(tokenizer: Tokenizer | None, rows: Sequence[Row], max_tokens: int | None = None) -> list[int]:
    """Return the tokens of every row, at most `max_tokens`; without a tokenizer the characters, which group inputs by length just as well."""
    if tokenizer is None:
        return [len(row.text) + len(row.text_pair or "") for row in rows]
    texts = [row.text if row.text_pair is None else (row.text, row.text_pair) for row in rows]
    counts = [len(encoding) for encoding in tokenizer.encode_batch_fast(texts)]
    return counts if max_tokens is None else [min(count, max_tokens) for count in counts]


def chunk_id(study: str, number: int, content: str) -> str:
    """Return the id of chunk `number` of a study, as a job and in the store. `content` is the digest of what the chunk computes."""
    return f"{study}.{number}.{content}"
