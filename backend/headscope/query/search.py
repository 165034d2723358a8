"""Finding heads: which satisfy a query, in which order, with the numbers that decided it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidQuery, Unknown
from ..measures import MEASURES
from .grammar import All, Comparison, Condition, Either, Not, Query, parse, terms_of, write
from .terms import CLASS, CLASSES, PLACES, Direction, Kind, Term, kinds

Array = NDArray[Any]
TOKEN_AXES = frozenset({"Q", "K"})
COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class Subject:
    """The analysis that is asked about, read under `lens`.

    `layers` [L] and `heads` [H] are the model's numbers of what was analysed, `there` [L, H] says which of them exist. `computed` is measure -> its lenses,
    and `values` gives what was computed for one.
    """

    layers: Sequence[int]
    heads: Sequence[int]
    there: Array
    computed: Mapping[str, Collection[str]]
    values: Callable[[str, str], Array]
    lens: str = "weights"


def heads_there(scales: Iterable[Array], shape: tuple[int, int]) -> Array:
    """Which of [L, H] heads exist, by the scales of their thumbnails under any lens: layers may have fewer heads than others."""
    found = next((scale for scale in scales if scale.shape == shape), None)
    return np.ones(shape, bool) if found is None else ~np.isnan(found)


@dataclass(frozen=True)
class HeadMatch:
    """A head, and by the names in the query what it was judged by: numbers, the name of its class, None where there is no reading."""

    layer: int
    head: int
    values: dict[str, float | str | None]


@dataclass(frozen=True)
class SearchResult:
    """The query as it was understood, what it ranks by (None: in order of layers and heads), of how many heads, and those found, the best first."""

    query: str
    ranked_by: str | None
    direction: Direction
    of: int
    heads: list[HeadMatch]


def find(subject: Subject, text: str) -> SearchResult:
    """The heads that satisfy a query, without those that `order by` finds no reading of.

    Raises InvalidQuery, or Unknown for a measure that was not computed.
    """
    query = parse(text)
    term, direction = ranking(query)
    yes = subject.there if query.where is None else subject.there & _truth(subject, query.where)[0]
    places = np.argwhere(yes)
    if term is not None:
        places = _ranked(places, _numbers(subject, term)[yes], direction, leave_out=query.order is not None)
    places = places[: query.limit]
    named = list(dict.fromkeys([*terms_of(query.where), *([term] if term is not None else [])]))
    columns = {item.name: _shown(subject, item) for item in named if item.name not in PLACES}
    heads = [
        HeadMatch(
            subject.layers[layer], subject.heads[head], {name: column(layer, head) for name, column in columns.items()}
        )
        for layer, head in places.tolist()
    ]
    return SearchResult(write(query), None if term is None else term.name, direction, int(subject.there.sum()), heads)


def _ranked(places: Array, keys: Array, direction: Direction, *, leave_out: bool) -> Array:
    """Places [N, 2] by their keys [N]; equal ones stay in order of layers and heads. Those without a reading come last, or are left out."""
    read = np.isfinite(keys)
    order = np.argsort(np.where(read, keys if direction == "asc" else -keys, np.inf), kind="stable")
    kept: Array = places[order[: read.sum()] if leave_out else order]
    return kept


def ranking(query: Query) -> tuple[Term | None, Direction]:
    """What a query ranks by: what `order by` names, else the last measure or class in the condition.

    A measure that must be small ranks the smallest first, any other the largest; a class ranks by how clear the decision is.
    """
    if query.order is not None:
        return query.order, query.direction
    found = [pair for pair in _wanted(query.where, "desc") if pair[0].measure not in PLACES]
    return found[-1] if found else (None, "desc")


def _wanted(condition: Condition | None, towards: Direction) -> list[tuple[Term, Direction]]:
    """Every measure of a condition, and which of its ends is wanted."""
    other: Direction = "asc" if towards == "desc" else "desc"
    if isinstance(condition, Kind):
        return [(condition.margin, "desc")]
    if isinstance(condition, Not):
        return _wanted(condition.part, other)
    if isinstance(condition, (All, Either)):
        return [pair for part in condition.parts for pair in _wanted(part, towards)]
    if condition is None:
        return []
    found: list[tuple[Term, Direction]] = []
    for place, value in enumerate(condition.values):
        if isinstance(value, Term):
            after = condition.signs[place] if place < len(condition.signs) else ""
            before = condition.signs[place - 1] if place > 0 else ""
            small = after.startswith("<") or (not after and before.startswith(">"))
            found.append((value, other if small else towards))
    return found


def _truth(subject: Subject, condition: Condition) -> tuple[Array, Array]:
    """Where a condition holds and where it does not, [L, H] each; neither where there is no reading, so that `not` does not find it either."""
    if isinstance(condition, Not):
        yes, no = _truth(subject, condition.part)
        return no, yes
    if isinstance(condition, (All, Either)):
        both = [_truth(subject, part) for part in condition.parts]
        every, some = np.logical_and.reduce, np.logical_or.reduce
        decided = (every, some) if isinstance(condition, All) else (some, every)
        return decided[0]([yes for yes, _ in both]), decided[1]([no for _, no in both])
    if isinstance(condition, Kind):
        numbers = _numbers(subject, Term(CLASSES, CLASS, condition.lens))
        read, holds = np.isfinite(numbers), numbers == kinds().index(condition.name_)
    else:
        read, holds = _compared(subject, condition)
    return read & holds, read & ~holds


def _compared(subject: Subject, comparison: Comparison) -> tuple[Array, Array]:
    shape = subject.there.shape
    values = [
        _numbers(subject, value) if isinstance(value, Term) else np.full(shape, value) for value in comparison.values
    ]
    pairs = zip(comparison.signs, values[:-1], values[1:], strict=True)
    holds = np.logical_and.reduce([COMPARE[sign](left, right) for sign, left, right in pairs])
    return np.logical_and.reduce([np.isfinite(value) for value in values]), holds


def _numbers(subject: Subject, term: Term) -> Array:
    """One number per head, [L, H] float; NaN where there is no reading."""
    if term.measure == "layer":
        return np.broadcast_to(np.asarray(subject.layers, float)[:, None], subject.there.shape)
    if term.measure == "head":
        return np.broadcast_to(np.asarray(subject.heads, float), subject.there.shape)
    values = subject.values(term.measure, _lens(subject, term))
    if term.column:
        return values[..., MEASURES[term.measure].columns.index(term.column)]
    return token_mean(values, MEASURES[term.measure].shape.split())


def _lens(subject: Subject, term: Term) -> str:
    """The lens that a term names, else the one asked about where the measure has it, else the measure's own."""
    computed = subject.computed.get(term.measure)
    if not computed:
        raise Unknown(
            "measure",
            f"The query needs the measure {term.measure}, which was not computed in this analysis. Send its request again with it.",
            pointer="/where",
        )
    if not term.lens:
        return subject.lens if subject.lens in computed else next(iter(computed))
    if term.lens not in computed:
        raise InvalidQuery(f"This analysis has {term.measure} for: {', '.join(computed)}.", 0)
    return term.lens


def _shown(subject: Subject, item: Term | Kind) -> Callable[[int, int], float | str | None]:
    """Place of a head -> what it was judged by, as plain JSON."""
    numbers = _numbers(subject, item if isinstance(item, Term) else Term(CLASSES, CLASS, item.lens))

    def shown(layer: int, head: int) -> float | str | None:
        value = float(numbers[layer, head])
        if not np.isfinite(value):
            return None
        return kinds()[int(value)] if isinstance(item, Kind) else value

    return shown


def token_mean(values: Array, axes: Sequence[str]) -> Array:
    """Values with these axes -> the mean over tokens (Q, K) of what is defined; NaN where nothing is."""
    over = tuple(place for place, axis in enumerate(axes) if axis in TOKEN_AXES)
    return values if not over else _mean(values, over)


def _mean(values: Array, axes: tuple[int, ...]) -> Array:
    defined = np.isfinite(values)
    count = defined.sum(axis=axes)
    total = np.where(defined, values, 0).sum(axis=axes, dtype=np.float64)
    means: Array = np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
    return means.astype(np.float32)
