"""Data sets: a stream of rows, and a report on the file: columns, encoding, and rows that cannot be used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

# Roles of columns. `words` is a text already split into words; `pos` and `labels` have one entry per word, `label` is one value per row. Effects of heads read
# `target` and `minus`, the tokens or classes whose logits are judged, and `against`, the other text of patching.
Role = Literal["text", "text_pair", "words", "pos", "labels", "label", "target", "minus", "against"]
ROLES: tuple[Role, ...] = ("text", "text_pair", "words", "pos", "labels", "label", "target", "minus", "against")
BadRows = Literal["skip", "fail"]
# Bad rows that are listed; further ones are only counted.
MAX_BAD = 100
# Rows in a preview of a data set.
SAMPLE = 5


@dataclass(frozen=True, slots=True)
class Row:
    """One input. `number` counts from 1: the line of the file on which it begins (in Parquet files, the row).

    `pos` and `labels` have one entry per word of `text`, as in AnalysisRequest. `target`, `minus` and `against` are as in EffectRequest, where a target that
    is a difference has the second token or class as `minus`.
    """

    number: int
    text: str
    text_pair: str | None = None
    pos: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    label: str | None = None
    target: str | int | None = None
    minus: str | int | None = None
    against: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the row as JSON, without empty fields."""
        return {name: value for name in _FIELDS if (value := getattr(self, name)) is not None}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Row:
        """Return the row described by such JSON."""
        lists: dict[str, Any] = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return cls(**(values | lists))


_FIELDS = tuple(each.name for each in fields(Row))


@dataclass(frozen=True, slots=True)
class BadRow:
    """The number of a row that cannot be used, and the reason in one sentence."""

    number: int
    problem: str


@dataclass
class Dataset:
    """The rows of a file, and a report on them.

    `rows` can be iterated any number of times and need not be in memory. `chosen` maps roles to columns, `reasons` gives the reason for each, and `guessed` is
    whether any choice was a guess. `bad` (the first MAX_BAD), `bad_count` and `total` (all rows, usable or not) are complete after one full iteration.
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

    def reject(self, number: int, problem: str) -> None:
        """Count a row that cannot be used."""
        self.bad_count += 1
        if len(self.bad) < MAX_BAD:
            self.bad.append(BadRow(number, problem))

    def report(self) -> dict[str, Any]:
        """Return the report as JSON; `rows` is the number of usable rows."""
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
