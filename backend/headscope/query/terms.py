"""The names in queries: layer and head, every measure with one number per head, and the classes of patterns."""

from __future__ import annotations

import difflib
import re
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from ..core.declarations import Quantity
from ..core.right_key import SCORES
from ..effects.quantities import EFFECT_QUANTITIES
from ..errors import InvalidQuery
from ..lenses import LENSES
from ..measures import MEASURES

PLACES = ("layer", "head")
# What queries read: measures, and the effects and scores that studies keep.
KNOWN = cast(
    "Mapping[str, Quantity]",
    ChainMap(cast("dict[str, Quantity]", MEASURES), EFFECT_QUANTITIES, {SCORES.name: SCORES}),
)
# How alike the maps of a head and of another are: `like.3.1`.
LIKE = "like"
Direction = Literal["asc", "desc"]
# The measure that classifies heads, and its column with the number of the class.
CLASSES, CLASS = "patterns", "class"


@dataclass(frozen=True)
class Term:
    """One number per head: its layer, its own number, or a value of a measure. Without a lens, the lens of the search applies."""

    measure: str
    column: str = ""
    lens: str = ""

    @property
    def name(self) -> str:
        """The term as written in a query."""
        column, lens = f".{self.column}" if self.column else "", f"@{self.lens}" if self.lens else ""
        return f"{self.measure}{column}{lens}"


@dataclass(frozen=True)
class PatternClass:
    """A condition: the pattern of a head has this class."""

    pattern: str
    lens: str = ""

    @property
    def name(self) -> str:
        """The term as written in a query."""
        return f"{self.pattern}@{self.lens}" if self.lens else self.pattern

    @property
    def margin(self) -> Term:
        """How far the head is from another class."""
        return Term(CLASSES, "margin", self.lens)


def is_per_head(measure: Quantity) -> bool:
    """Return whether a measure has one number per head, several named ones, or one per head and token, which is averaged."""
    axes = measure.shape.split()
    return axes[:2] == ["L", "H"] and (len(axes) == 2 or (len(axes) == 3 and axes[2] in ("Q", "K", "C")))


def columns_of(measure: str) -> tuple[str, ...]:
    """Return the columns of a measure that are numbers, that is all but its class."""
    return tuple(column for column in KNOWN[measure].columns if column != CLASS)


def numbers() -> tuple[str, ...]:
    """Return everything that can be compared with a number."""
    names = list(PLACES)
    for name, measure in MEASURES.items():
        if is_per_head(measure):
            names += [f"{name}.{column}" for column in columns_of(name)] or [name]
    return tuple(names)


def kinds() -> tuple[str, ...]:
    """Return the classes of patterns."""
    return MEASURES[CLASSES].classes


def resolve(text: str, position: int) -> Term | PatternClass:
    """Resolve a name. Raises InvalidQuery at the position for unknown names."""
    name, _, lens = text.partition("@")
    if lens and lens not in LENSES:
        raise InvalidQuery(f"Unknown lens. {suggest(lens, LENSES)}", position)
    if kind := match_name(name, kinds()):
        return PatternClass(kind[0], _check_lens(CLASSES, lens, position))
    stem, _, column = name.partition(".")
    if stem.lower() == LIKE and (head := re.fullmatch(r"(\d+)\.(\d+)", column)):
        return Term(LIKE, f"{int(head[1])}.{int(head[2])}", lens)
    measure = next(iter(match_name(stem, (*PLACES, *KNOWN))), "")
    if measure in PLACES and not (column or lens):
        return Term(measure)
    if measure in KNOWN and not is_per_head(KNOWN[measure]):
        raise InvalidQuery(f"{measure} does not have a number for each head. {suggest(name, numbers())}", position)
    if measure not in KNOWN:
        raise InvalidQuery(f"Unknown measure or class of heads. {suggest(name, (*numbers(), *kinds()))}", position)
    return Term(measure, _column(measure, column, position), _check_lens(measure, lens, position))


def _column(measure: str, column: str, position: int) -> str:
    known = columns_of(measure)
    if not known and column:
        raise InvalidQuery(f"{measure} is a single number: remove the part after the dot.", position)
    found = match_name(column, known)
    if len(found) == 1 or not known:
        return "".join(found)
    offered = ", ".join(f"{measure}.{name}" for name in found or known)
    why = "has columns that differ only in case" if found else "has several numbers"
    raise InvalidQuery(f"{measure} {why}. Choose one: {offered}.", position)


def match_name(text: str, names: Iterable[str]) -> list[str]:
    """Return the name that equals the text, else all names that differ from it only in case."""
    known = list(names)
    return [text] if text in known else [name for name in known if name.lower() == text.lower()]


def _check_lens(measure: str, lens: str, position: int) -> str:
    offered = _lenses_of(measure)
    if lens and lens not in offered:
        raise InvalidQuery(
            f"{measure} is not defined for this lens. Available: {', '.join(offered) or 'none'}.", position
        )
    return lens


def _lenses_of(measure: str) -> Sequence[str]:
    """Return the lenses of a measure. Effects are the same through every lens, and scores are about the lens."""
    if measure == SCORES.name:
        return [name for name, lens in LENSES.items() if lens.of == "heads"]
    return MEASURES[measure].lenses if measure in MEASURES else ()


def suggest(text: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests similar names, or all names of a short list."""
    names = list(known)
    found = difflib.get_close_matches(text.lower(), names, n=3, cutoff=0.5)
    if found:
        return f"Did you mean {' or '.join(found)}?"
    return (
        f"Available: {', '.join(names)}."
        if len(names) <= 20
        else "`headscope measures` and GET /api/v1/measures list them."
    )
