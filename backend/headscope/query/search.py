"""Evaluate queries: find the heads that satisfy one, ranked, with the numbers that decided."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..core.arrays import Array, divide
from ..core.declarations import TOKEN_AXES
from ..core.right_key import SCORES
from ..errors import InvalidQuery, Unknown
from ..measures import MEASURES
from .grammar import And, Comparison, Condition, Not, Or, Query, parse, terms_of, write
from .terms import CLASS, CLASSES, KNOWN, LIKE, PLACES, Direction, PatternClass, Term, kinds

COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class SearchSpace:
    """The heads to search, and their measures.

    `layers` [L] and `heads` [H] are the model's indices of what was analysed, and `exists` [L, H] is whether a head exists. `computed` maps measures to their
    lenses, and `values` returns a measure for a lens. `tiles` returns the thumbnails of a lens: `tiles`
    [L, H, t, t] (bytes), `scale` and `offset` [L, H]. Terms without a lens use `lens`.
    """

    layers: Sequence[int]
    heads: Sequence[int]
    exists: Array
    computed: Mapping[str, Collection[str]]
    values: Callable[[str, str], Array]
    lens: str = "weights"
    tiles: Callable[[str], Mapping[str, Array]] | None = None


def existing_heads(scales: Iterable[Array], shape: tuple[int, int]) -> Array:
    """Return which of the [L, H] heads exist, by the scales of their thumbnails for any lens. Layers may have fewer heads than others."""
    found = next((scale for scale in scales if scale.shape == shape), None)
    return np.ones(shape, bool) if found is None else ~np.isnan(found)


@dataclass(frozen=True)
class HeadMatch:
    """A head, and its value for each name in the query: a number, the name of its class, or None if undefined."""

    layer: int
    head: int
    values: dict[str, float | str | None]


@dataclass(frozen=True)
class SearchResult:
    """The canonical query, the term that it ranks by (None: by layer and head), the number of heads searched, and the matches, best first."""

    query: str
    ranked_by: str | None
    direction: Direction
    of: int
    heads: list[HeadMatch]


def find(space: SearchSpace, text: str) -> SearchResult:
    """Return the heads that satisfy a query, without those for which the `order by` term is undefined.

    Raises InvalidQuery, or Unknown for a measure that was not computed.
    """
    query = parse(text)
    term, direction = ranking(query)
    matches = space.exists if query.where is None else space.exists & _evaluate(space, query.where)[0]
    places = np.argwhere(matches)  # [N, 2]
    if term is not None:
        places = _rank(places, _numbers(space, term)[matches], direction, leave_out=query.order is not None)
    places = places[: query.limit]
    terms = list(dict.fromkeys([*terms_of(query.where), *([term] if term is not None else [])]))
    columns = {item.name: _value_getter(space, item) for item in terms if item.name not in PLACES}
    heads = [
        HeadMatch(
            space.layers[layer], space.heads[head], {name: column(layer, head) for name, column in columns.items()}
        )
        for layer, head in places.tolist()
    ]
    return SearchResult(write(query), None if term is None else term.name, direction, int(space.exists.sum()), heads)


def _rank(places: Array, keys: Array, direction: Direction, *, leave_out: bool) -> Array:
    """Sort places [N, 2] by their keys [N]; ties stay in order of layers and heads. Undefined keys come last, or are left out."""
    defined = np.isfinite(keys)
    order = np.argsort(np.where(defined, keys if direction == "asc" else -keys, np.inf), kind="stable")
    kept: Array = places[order[: defined.sum()] if leave_out else order]
    return kept


def ranking(query: Query) -> tuple[Term | None, Direction]:
    """Return the term that a query ranks by: that of `order by`, else the last measure or class in the condition.

    A measure with an upper bound ranks the smallest values first, any other measure the largest; a class ranks by its margin.
    """
    if query.order is not None:
        return query.order, query.direction
    found = [pair for pair in _preferences(query.where, "desc") if pair[0].measure not in PLACES]
    return found[-1] if found else (None, "desc")


def _preferences(condition: Condition | None, towards: Direction) -> list[tuple[Term, Direction]]:
    """Return every measure of a condition with the direction in which it satisfies the condition best."""
    other: Direction = "asc" if towards == "desc" else "desc"
    if isinstance(condition, PatternClass):
        return [(condition.margin, "desc")]
    if isinstance(condition, Not):
        return _preferences(condition.part, other)
    if isinstance(condition, (And, Or)):
        return [pair for part in condition.parts for pair in _preferences(part, towards)]
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


def _evaluate(space: SearchSpace, condition: Condition) -> tuple[Array, Array]:
    """Return where a condition holds and where it fails, [L, H] each; neither if a value is undefined, so that `not` does not match it either."""
    if isinstance(condition, Not):
        holds, fails = _evaluate(space, condition.part)
        return fails, holds
    if isinstance(condition, (And, Or)):
        met, failed = zip(*(_evaluate(space, part) for part in condition.parts), strict=True)
        if isinstance(condition, And):
            return np.logical_and.reduce(met), np.logical_or.reduce(failed)
        return np.logical_or.reduce(met), np.logical_and.reduce(failed)
    if isinstance(condition, PatternClass):
        numbers = _numbers(space, Term(CLASSES, CLASS, condition.lens))
        defined, holds = np.isfinite(numbers), numbers == kinds().index(condition.pattern)
    else:
        defined, holds = _compare(space, condition)
    return defined & holds, defined & ~holds


def _compare(space: SearchSpace, comparison: Comparison) -> tuple[Array, Array]:
    shape = space.exists.shape
    values = [
        _numbers(space, value) if isinstance(value, Term) else np.full(shape, value) for value in comparison.values
    ]
    pairs = zip(comparison.signs, values[:-1], values[1:], strict=True)
    holds = np.logical_and.reduce([COMPARE[sign](left, right) for sign, left, right in pairs])
    return np.logical_and.reduce([np.isfinite(value) for value in values]), holds


def _numbers(space: SearchSpace, term: Term) -> Array:
    """Return one number per head, [L, H] float; NaN where undefined."""
    if term.measure == "layer":
        return np.broadcast_to(np.asarray(space.layers, float)[:, None], space.exists.shape)
    if term.measure == LIKE:
        return _likeness(space, term)
    if term.measure == "head":
        return np.broadcast_to(np.asarray(space.heads, float), space.exists.shape)
    values = space.values(term.measure, _lens(space, term))
    if term.column:
        return values[..., KNOWN[term.measure].columns.index(term.column)]
    return token_mean(values, KNOWN[term.measure].shape.split())


def _likeness(space: SearchSpace, term: Term) -> Array:
    """Return the cosine between the thumbnail of a head's map and that of every other head, [L, H]; NaN for the head itself."""
    layer, head = map(int, term.column.split("."))
    if layer not in space.layers or head not in space.heads:
        raise InvalidQuery(f"This analysis has no head {term.column}.", 0)
    parts = space.tiles(term.lens or space.lens) if space.tiles else {}
    if not parts or parts["tiles"].shape[:2] != space.exists.shape:
        raise InvalidQuery(f"There are no maps of heads here that {term.name} could compare.", 0)
    place = list(space.layers).index(layer), list(space.heads).index(head)
    maps = parts["offset"][..., None, None] + parts["scale"][..., None, None] * parts["tiles"].astype(np.float64)
    flat = np.nan_to_num(maps.reshape(*space.exists.shape, -1))
    lengths = np.linalg.norm(flat, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines: Array = flat @ flat[place] / (lengths * lengths[place])
    cosines[place] = np.nan
    return cosines


def _lens(space: SearchSpace, term: Term) -> str:
    """Return the lens of a term, else the lens of the search if the measure has it, else the measure's first lens."""
    computed = space.computed.get(term.measure)
    if not computed:
        known = "measures" if term.measure in MEASURES else "figures" if term.measure == SCORES.name else "effects"
        raise Unknown(
            "measure",
            f"The query needs {term.measure}, which was not computed. Send the request again with it among the {known}.",
            pointer="/where",
        )
    if not term.lens:
        return space.lens if space.lens in computed else next(iter(computed))
    if term.lens not in computed:
        raise InvalidQuery(f"This analysis has {term.measure} for: {', '.join(computed)}.", 0)
    return term.lens


def _value_getter(space: SearchSpace, item: Term | PatternClass) -> Callable[[int, int], float | str | None]:
    """Return a function that maps a head's indices to its value as JSON."""
    numbers = _numbers(space, item if isinstance(item, Term) else Term(CLASSES, CLASS, item.lens))

    def value_of(layer: int, head: int) -> float | str | None:
        value = float(numbers[layer, head])
        if not np.isfinite(value):
            return None
        return kinds()[int(value)] if isinstance(item, PatternClass) else value

    return value_of


def token_mean(values: Array, axes: Sequence[str]) -> Array:
    """Average values with these axes over tokens (Q, K), ignoring undefined ones; NaN where all are."""
    over = tuple(place for place, axis in enumerate(axes) if axis in TOKEN_AXES)
    return values if not over else _mean(values, over)


def _mean(values: Array, axes: tuple[int, ...]) -> Array:
    defined = np.isfinite(values)
    total = np.where(defined, values, 0).sum(axis=axes, dtype=np.float64)
    return divide(total, defined.sum(axis=axes)).astype(np.float32)
