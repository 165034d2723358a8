"""What a query may name: a head's place, every measure with one number per head, and the classes of patterns."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..errors import InvalidQuery
from ..lenses import LENSES
from ..measures import MEASURES
from ..measures.base import Measure

PLACES = ("layer", "head")
Direction = Literal["asc", "desc"]
# The measure that gives every head a class, and the column with its number.
CLASSES, CLASS = "patterns", "class"


@dataclass(frozen=True)
class Term:
    """One number per head: its layer, its own number, or what a measure says of it. Without a lens it is read under the one that is asked about."""

    measure: str
    column: str = ""
    lens: str = ""

    @property
    def name(self) -> str:
        """As it is written in a query."""
        column, lens = f".{self.column}" if self.column else "", f"@{self.lens}" if self.lens else ""
        return f"{self.measure}{column}{lens}"


@dataclass(frozen=True)
class Kind:
    """Whether the pattern of a head is of this class."""

    name_: str
    lens: str = ""

    @property
    def name(self) -> str:
        """As it is written in a query."""
        return f"{self.name_}@{self.lens}" if self.lens else self.name_

    @property
    def margin(self) -> Term:
        """How far the decision is from another one."""
        return Term(CLASSES, "margin", self.lens)


def is_per_head(measure: Measure) -> bool:
    """One number per head, or several with names, or one per head and token, which counts with its mean."""
    axes = measure.shape.split()
    return axes[:2] == ["L", "H"] and (len(axes) == 2 or (len(axes) == 3 and axes[2] in ("Q", "K", "C")))


def columns_of(measure: str) -> tuple[str, ...]:
    """Names of the numbers that a measure gives; its class is no number."""
    return tuple(column for column in MEASURES[measure].columns if column != CLASS)


def numbers() -> tuple[str, ...]:
    """Everything that can be compared with a number."""
    found = list(PLACES)
    for name, measure in MEASURES.items():
        if is_per_head(measure):
            found += [f"{name}.{column}" for column in columns_of(name)] or [name]
    return tuple(found)


def kinds() -> tuple[str, ...]:
    """The classes of patterns."""
    return MEASURES[CLASSES].classes


def resolve(text: str, position: int) -> Term | Kind:
    """What a name means. Raises InvalidQuery at the position for names that mean nothing."""
    named, _, lens = text.partition("@")
    if lens and lens not in LENSES:
        raise InvalidQuery(f"There is no such lens. {near(lens, LENSES)}", position)
    if kind := matching(named, kinds()):
        return Kind(kind[0], _readable(CLASSES, lens, position))
    written, _, column = named.partition(".")
    measure = next(iter(matching(written, (*PLACES, *MEASURES))), "")
    if measure in PLACES and not (column or lens):
        return Term(measure)
    if measure not in MEASURES or not is_per_head(MEASURES[measure]):
        raise InvalidQuery(
            f"There is no such measure or class of heads. {near(named, (*numbers(), *kinds()))}", position
        )
    return Term(measure, _column(measure, column, position), _readable(measure, lens, position))


def _column(measure: str, column: str, position: int) -> str:
    known = columns_of(measure)
    if not known and column:
        raise InvalidQuery(f"{measure} is one number: leave out what stands after the point.", position)
    found = matching(column, known)
    if len(found) == 1 or not known:
        return "".join(found)
    offered = ", ".join(f"{measure}.{name}" for name in found or known)
    why = "has columns that differ only in capitals" if found else "gives several numbers"
    raise InvalidQuery(f"{measure} {why}. Choose one: {offered}.", position)


def matching(text: str, names: Iterable[str]) -> list[str]:
    """The name that is written so, else all that differ from the text in capitals only."""
    known = list(names)
    return [text] if text in known else [name for name in known if name.lower() == text.lower()]


def _readable(measure: str, lens: str, position: int) -> str:
    offered = MEASURES[measure].lenses
    if lens and lens not in offered:
        raise InvalidQuery(f"{measure} is not defined for that lens. It is for: {', '.join(offered)}.", position)
    return lens


def near(text: str, known: Iterable[str]) -> str:
    """A sentence that offers the nearest names, or all of a short list."""
    names = list(known)
    found = difflib.get_close_matches(text.lower(), names, n=3, cutoff=0.5)
    if found:
        return f"Did you mean {' or '.join(found)}?"
    return f"There are: {', '.join(names)}." if len(names) <= 20 else "GET /api/v1/measures lists the measures."
