"""A data set: rows to analyse, one after the other, and what was found in its file: columns, encoding, rows that can't be used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

# What a column is for. `words` are the words of a text already cut; `pos` and `labels` have one entry per word, `label` is one for the whole row.
Role = Literal["text", "text_pair", "words", "pos", "labels", "label"]
ROLES: tuple[Role, ...] = ("text", "text_pair", "words", "pos", "labels", "label")
BadRows = Literal["skip", "fail"]
# Bad rows beyond these are only counted.
KEPT_BAD = 100
# Rows that are shown of a data set.
SAMPLE = 5


@dataclass(frozen=True, slots=True)
class Row:
    """One input. `number` counts from 1: the line of the file on which it begins, in Parquet the row.

    `pos` and `labels` have one entry per word of `text`, as an AnalysisRequest takes them.
    """

    number: int
    text: str
    text_pair: str | None = None
    pos: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    label: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON, without what it does not have."""
        return {name: value for name in _FIELDS if (value := getattr(self, name)) is not None}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Row:
        """The row of that JSON."""
        tags: dict[str, Any] = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return cls(**(values | tags))


_FIELDS = tuple(one.name for one in fields(Row))


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that can't be used, by its number, and why in one sentence."""

    number: int
    problem: str


@dataclass
class Dataset:
    """The rows of a file and what is known of it.

    `rows` may be gone through any number of times; it need not be in memory. `chosen` says which column is what and `reasons` why; `guessed` is whether any
    of that was guessed. `bad` (the first KEPT_BAD), `bad_count` and `total`, all rows of the file, used or not, are complete once `rows` has been gone
    through to its end.
    """

    name: str
    format: str
    encoding: str
    columns: tuple[str, ...]
    chosen: dict[Role, str]
    rows: Iterable[Row]
    reasons: dict[Role, str] = field(default_factory=dict)
    guessed: bool = False
    bad: list[BadRow] = field(default_factory=list)
    bad_count: int = 0
    total: int = 0

    def refuse(self, number: int, problem: str) -> None:
        """Count a row that can't be used."""
        self.bad_count += 1
        if len(self.bad) < KEPT_BAD:
            self.bad.append(BadRow(number, problem))

    def report(self) -> dict[str, Any]:
        """What is known of the data set as JSON; `rows` is the number of those that can be used."""
        return {
            "name": self.name,
            "format": self.format,
            "encoding": self.encoding,
            "columns": list(self.columns),
            "chosen": dict(self.chosen),
            "reasons": dict(self.reasons),
            "guessed": self.guessed,
            "rows": self.total - self.bad_count,
            "bad_rows": [{"row": bad.number, "problem": bad.problem} for bad in self.bad],
            "bad_count": self.bad_count,
        }
