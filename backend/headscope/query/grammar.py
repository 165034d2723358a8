"""The query language: text -> tree, tree -> text. `vertical and layer < 4 and null_share > 0.5 order by entropy desc limit 10`.

query      := [condition] ["order" "by" number ["asc" | "desc"]] ["limit" whole]
condition  := all ("or" all)*
all        := one ("and" one)*
one        := "not" one | "(" condition ")" | class | comparison
comparison := value (sign value)+            sign := < <= > >= = !=
value      := number of a head | 0.5 | 50%
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import InvalidQuery, InvalidRequest
from .terms import LIKE, PLACES, Direction, PatternClass, Term, resolve

MAX_CHARACTERS = 500
MAX_DEPTH = 20
SIGNS = ("<", "<=", ">", ">=", "=", "!=")
WORDS = ("and", "or", "not", "order", "by", "asc", "desc", "limit")
TOKEN = re.compile(
    r"(?P<number>-?(?:\d+(?:\.\d+)?|\.\d+)%?)(?![\w.])|(?P<name>[A-Za-z_]\w*(?:[+-][A-Za-z]\w*)*(?:\.\w+){0,2}(?:@[A-Za-z][\w-]*)?)|(?P<sign><=|>=|==|!=|[<>=()])",
    re.ASCII,
)


@dataclass(frozen=True)
class Comparison:
    """A chain of comparisons: `0.2 < entropy <= 1` holds if both comparisons do."""

    values: tuple[Term | float, ...]
    signs: tuple[str, ...]


@dataclass(frozen=True)
class Not:
    """Holds if the part does not."""

    part: Condition


@dataclass(frozen=True)
class And:
    """Holds if all parts do."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Or:
    """Holds if at least one part does."""

    parts: tuple[Condition, ...]


Condition = Comparison | PatternClass | Not | And | Or


@dataclass(frozen=True)
class Query:
    """Which heads to find, their order, and their maximum number. Without `order` the condition determines the ranking; see search."""

    where: Condition | None = None
    order: Term | None = None
    direction: Direction = "desc"
    limit: int | None = None


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    position: int


def parse(text: str) -> Query:
    """Parse a query; an empty one matches every head. Raises InvalidQuery with the position of the error."""
    if not isinstance(text, str):
        raise InvalidRequest("A query is a text, such as entropy < 0.5.", pointer="/where")
    if len(text) > MAX_CHARACTERS:
        raise InvalidQuery(f"A query has at most {MAX_CHARACTERS} characters.", MAX_CHARACTERS)
    return _Parser(list(_tokens(text)), len(text)).query()


def _tokens(text: str) -> Iterator[_Token]:
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        found = TOKEN.match(text, place)
        if found is None:
            raise InvalidQuery(
                "Unexpected character. A query consists of names, numbers, < <= > >= = != and ( ).", place
            )
        yield _Token(str(found.lastgroup), found[0], place)
        place = found.end()


class _Parser:
    """A recursive-descent parser, one method per rule."""

    def __init__(self, tokens: list[_Token], end: int) -> None:
        self._tokens = tokens
        self._end = end
        self._at = 0
        self._depth = 0

    def query(self) -> Query:
        where = None if not self._tokens or self._word() in ("order", "limit") else self._condition()
        order, direction = self._order()
        limit = self._limit()
        if self._at < len(self._tokens):
            raise self._error("Join conditions with and, or.")
        return Query(where, order, direction, limit)

    def _order(self) -> tuple[Term | None, Direction]:
        if not self._take("order"):
            return None, "desc"
        if not self._take("by"):
            raise self._error("After order, write by and the name of a measure.")
        value = self._value()
        if not isinstance(value, Term):
            raise self._error("Order heads by a measure, layer or head.", back=1)
        word = self._word()
        self._at += word in ("asc", "desc")
        return value, "asc" if word == "asc" else "desc"

    def _limit(self) -> int | None:
        if not self._take("limit"):
            return None
        token = self._next()
        if token is None or not token.text.isdecimal() or int(token.text) == 0:
            raise self._error("After limit, write a whole number of at least 1.", back=token is not None)
        return int(token.text)

    def _condition(self) -> Condition:
        parts = [self._all()]
        while self._take("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _all(self) -> Condition:
        parts = [self._one()]
        while self._take("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _one(self) -> Condition:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"Conditions can be nested at most {MAX_DEPTH} levels deep.")
        try:
            if self._take("not"):
                return Not(self._one())
            if self._take("("):
                inner = self._condition()
                if not self._take(")"):
                    raise self._error("A parenthesis is not closed.")
                return inner
            return self._test()
        finally:
            self._depth -= 1

    def _test(self) -> Condition:
        value = self._value()
        if isinstance(value, PatternClass):
            return value
        values, signs = [value], []
        while (token := self._peek()) is not None and (sign := token.text.replace("==", "=")) in SIGNS:
            self._at += 1
            signs.append(sign)
            value = self._value()
            if isinstance(value, PatternClass):
                raise self._error("A class of heads cannot be compared: write only its name.", back=1)
            values.append(value)
        if not signs:
            raise self._error("Compare this with a number, as in entropy < 1.", back=1)
        if not any(isinstance(value, Term) for value in values):
            raise self._error("One side of a comparison must be a measure, layer or head.", back=1)
        return Comparison(tuple(values), tuple(signs))

    def _value(self) -> Term | PatternClass | float:
        token = self._next()
        if token is None or token.kind == "sign" or token.text.lower() in WORDS:
            raise self._error("A measure, a class of heads or a number is missing here.", back=token is not None)
        if token.kind == "name":
            return resolve(token.text, token.position)
        return float(token.text[:-1]) / 100 if token.text.endswith("%") else float(token.text)

    def _peek(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> _Token | None:
        token = self._peek()
        self._at += token is not None
        return token

    def _word(self) -> str:
        token = self._peek()
        return "" if token is None else token.text.lower()

    def _take(self, text: str) -> bool:
        found = self._word() == text
        self._at += found
        return found

    def _error(self, sentence: str, back: int = 0) -> InvalidQuery:
        place = self._at - back
        return InvalidQuery(sentence, self._tokens[place].position if place < len(self._tokens) else self._end)


def write(query: Query) -> str:
    """Return the query as canonical text, which parse() reads back."""
    parts = [] if query.where is None else [write_condition(query.where)]
    if query.order is not None:
        parts.append(f"order by {query.order.name} {query.direction}")
    if query.limit is not None:
        parts.append(f"limit {query.limit}")
    return " ".join(parts)


def write_condition(condition: Condition, *, within: bool = False) -> str:
    """Return a condition as text. `within` another condition it is put in parentheses where needed."""
    if isinstance(condition, PatternClass):
        return condition.name
    if isinstance(condition, Not):
        return f"not {write_condition(condition.part, within=True)}"
    if isinstance(condition, Comparison):
        first, *rest = (value.name if isinstance(value, Term) else _number(value) for value in condition.values)
        return " ".join([first, *(f"{sign} {value}" for sign, value in zip(condition.signs, rest, strict=True))])
    word = " and " if isinstance(condition, And) else " or "
    text = word.join(write_condition(part, within=True) for part in condition.parts)
    return f"({text})" if within else text


def _number(value: float) -> str:
    return f"{value:.12f}".rstrip("0").rstrip(".")


def clauses(query: Query) -> list[str]:
    """Return the conditions that must all hold, as texts; joined with `and` they are the whole condition."""
    if query.where is None:
        return []
    parts = query.where.parts if isinstance(query.where, And) else (query.where,)
    return [write_condition(part, within=True) for part in parts]


def terms_of(condition: Condition | None) -> list[Term | PatternClass]:
    """Return every name in a condition, from left to right."""
    if condition is None:
        return []
    if isinstance(condition, PatternClass):
        return [condition]
    if isinstance(condition, Not):
        return terms_of(condition.part)
    if isinstance(condition, Comparison):
        return [value for value in condition.values if isinstance(value, Term)]
    return [term for part in condition.parts for term in terms_of(part)]


def measures_of(query: Query) -> list[str]:
    """Return the measures that a query needs, without duplicates."""
    terms = [*terms_of(query.where), *([query.order] if query.order else [])]
    names = ["patterns" if isinstance(term, PatternClass) else term.measure for term in terms]
    return [name for name in dict.fromkeys(names) if name not in (*PLACES, LIKE)]
