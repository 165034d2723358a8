"""The query language: what is written is read back, what is found is what a slow reader would find, and faults say where they are."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headscope
from headscope.errors import InvalidQuery, Unknown
from headscope.measures import MEASURES
from headscope.query import SearchSpace, find, measures_of, parse, write
from headscope.query.grammar import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    And,
    Comparison,
    Not,
    Or,
    Query,
    clauses,
    write_condition,
)
from headscope.query.search import ranking, token_mean
from headscope.query.terms import PatternClass, Term, is_per_head, kinds, numbers
from tests.support.extent import extent
from tests.support.variants import variants

COMPUTED = {
    "entropy": ("weights", "max-entropy"),
    "null_share": ("weights",),
    "patterns": ("weights", "max-entropy"),
    "rank": ("weights",),
}
LAYERS, HEADS, TOKENS = [0, 2, 3], [1, 2, 5, 7], 6


def subject(lens: str = "weights") -> SearchSpace:
    """Numbers from a seed, some of them missing, of layers and heads that were chosen; head 7 of layer 0 does not exist."""
    rng = np.random.default_rng(7)
    there = np.ones((3, 4), bool)
    there[0, 3] = False
    arrays = {
        (measure, name): values_of(rng, MEASURES[measure]) for measure, lenses in COMPUTED.items() for name in lenses
    }
    return SearchSpace(LAYERS, HEADS, there, COMPUTED, lambda measure, of: arrays[measure, of], lens)


def values_of(rng, measure):
    sizes = {"L": 3, "H": 4, "Q": TOKENS, "K": TOKENS, "C": len(measure.columns)}
    values = rng.random([sizes[axis] for axis in measure.shape.split()], np.float32)
    if measure.name == "patterns":
        values[..., measure.columns.index("class")] = rng.integers(0, len(measure.classes), (3, 4))
    values[rng.random((3, 4)) < 0.2] = np.nan
    return values


TERMS = st.sampled_from(
    [
        *(Term("layer"), Term("head"), Term("entropy"), Term("entropy", "", "max-entropy"), Term("null_share")),
        *(Term("rank", "stable"), Term("patterns", "margin")),
    ]
)
KINDS = st.builds(PatternClass, st.sampled_from(kinds()), st.sampled_from(["", "max-entropy"]))
VALUES = TERMS | st.integers(-2, 8).map(float) | st.floats(0, 1).map(lambda value: round(value, 4))
SIGNS = st.sampled_from(["<", "<=", ">", ">=", "=", "!="])


@st.composite
def comparisons(draw):
    values = [draw(TERMS), *draw(st.lists(VALUES, min_size=1, max_size=2))]
    values = draw(st.permutations(values))
    return Comparison(tuple(values), tuple(draw(SIGNS) for _ in values[1:]))


CONDITIONS = st.recursive(
    comparisons() | KINDS,
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple))
        | st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=6,
)


def truth(condition, layer: int, head: int, this: SearchSpace) -> bool | None:
    """By the book, one head at a time: True, False, or None without a reading."""
    if isinstance(condition, Not):
        inner = truth(condition.part, layer, head, this)
        return None if inner is None else not inner
    if isinstance(condition, (And, Or)):
        found = [truth(part, layer, head, this) for part in condition.parts]
        decisive = isinstance(condition, Or)
        if decisive in found:
            return decisive
        return None if None in found else not decisive
    if isinstance(condition, PatternClass):
        number = value(Term("patterns", "class", condition.lens), layer, head, this)
        return None if number is None else kinds()[int(number)] == condition.pattern
    read = [item if isinstance(item, float) else value(item, layer, head, this) for item in condition.values]
    if None in read:
        return None
    tests = {"<": float.__lt__, "<=": float.__le__, ">": float.__gt__, ">=": float.__ge__, "=": float.__eq__}
    tests["!="] = float.__ne__
    return all(tests[sign](a, b) for sign, a, b in zip(condition.signs, read, read[1:], strict=False))


def value(term: Term, layer: int, head: int, this: SearchSpace) -> float | None:
    if term.measure in ("layer", "head"):
        return float(LAYERS[layer] if term.measure == "layer" else HEADS[head])
    values = this.values(term.measure, term.lens or "weights")[layer, head]
    if term.column:
        number = values[MEASURES[term.measure].columns.index(term.column)]
    else:
        number = np.float32(np.mean(values, dtype=np.float64))
    return None if np.isnan(number) else float(number)


@given(CONDITIONS, st.none() | TERMS, st.sampled_from(["asc", "desc"]), st.none() | st.integers(1, 99))
@settings(max_examples=extent(150, 50), deadline=None)
def test_what_is_written_is_read_back(where, order, direction, limit):
    query = Query(where, order, direction if order else "desc", limit)
    text = write(query)
    if len(text) <= MAX_CHARACTERS:
        assert write(parse(text)) == text
        assert parse(text).order == order
        assert measures_of(parse(text)) == measures_of(query)


@given(CONDITIONS)
@settings(max_examples=extent(150, 50), deadline=None)
def test_finds_what_a_slow_reader_finds(where):
    this, text = subject(), write_condition(where)
    if len(text) > MAX_CHARACTERS:
        return
    found = {(head.layer, head.head) for head in find(this, text).heads}
    expected = {
        (LAYERS[layer], HEADS[head])
        for layer in range(3)
        for head in range(4)
        if this.exists[layer, head] and truth(where, layer, head, this)
    }
    assert found == expected


def test_an_empty_query_finds_every_head_in_order():
    found = find(subject(), "  ")
    assert [(head.layer, head.head) for head in found.heads][:4] == [(0, 1), (0, 2), (0, 5), (2, 1)]
    assert (found.of, len(found.heads), found.ranked_by) == (11, 11, None)


@variants(
    ("text", "by", "direction"),
    [
        ("entropy > 0.2", "entropy", "desc"),
        ("entropy < 0.9", "entropy", "asc"),
        ("0.9 > entropy", "entropy", "asc"),
        ("not entropy < 0.1", "entropy", "desc"),
        ("entropy < 0.9 and null_share > 0", "null_share", "desc"),
        ("null_share > 0 and layer < 4", "null_share", "desc"),
        ("vertical or diagonal", "patterns.margin", "desc"),
        ("vertical and entropy >= 0", "entropy", "desc"),
        ("entropy < 9 order by null_share", "null_share", "desc"),
        ("order by layer asc", "layer", "asc"),
        ("layer = 2", None, "desc"),
    ],
)
def test_ranks_by_what_was_asked_last(text, by, direction):
    term, towards = ranking(parse(text))
    assert (term and term.name, towards) == (by, direction)
    heads = find(subject(), text).heads
    if by in ("entropy", "null_share"):
        values = [head.values[by] for head in heads if head.values[by] is not None]
        assert values == sorted(values, reverse=direction == "desc")


def test_heads_without_a_reading_are_not_ranked_and_limit_cuts():
    found = find(subject(), "order by entropy asc").heads
    values = [head.values["entropy"] for head in found]
    assert 0 < len(found) < 11
    assert values == sorted(value for value in values if value is not None)
    assert find(subject(), "order by entropy asc limit 2").heads == found[:2]
    ranked = {(head.layer, head.head) for head in found}
    either = find(subject(), "entropy >= 0 or not entropy >= 0").heads
    assert {(head.layer, head.head) for head in either} == ranked


def test_names_that_differ_in_capitals_only_are_told_apart():
    columns = MEASURES["token_types"].columns
    values = np.full((1, 2, len(columns)), np.nan)
    values[..., columns.index("punct")], values[0, 1, columns.index("PUNCT")] = 0.25, 0.75
    this = SearchSpace([0], [0, 1], np.ones((1, 2), bool), {"token_types": ["weights"]}, lambda *_: values)
    for text in ("token_types.PUNCT > 0.5", "order by token_types.PUNCT asc"):
        assert [(head.head, head.values) for head in find(this, text).heads] == [(1, {"token_types.PUNCT": 0.75})]
    assert find(this, "token_types.punct > 0.5").heads == []
    assert write(parse("Token_Types.noun > 0 and VERTICAL")) == "token_types.NOUN > 0 and vertical"
    with pytest.raises(InvalidQuery, match=r"Choose one: token_types\.punct, token_types\.PUNCT\."):
        parse("token_types.Punct > 0.5")


def test_a_measure_is_read_under_the_lens_it_names_else_the_one_asked_about_else_its_own():
    this = subject("max-entropy")
    by_default = find(this, "order by entropy").heads
    assert (
        by_default[0].values["entropy"]
        == find(subject(), "order by entropy@max-entropy").heads[0].values["entropy@max-entropy"]
    )
    assert find(this, "order by null_share").heads[0].values["null_share"] is not None  # it is about the weights only


@variants(
    ("text", "position", "word"),
    [
        ("entropi < 1", 0, "entropy"),
        ("layer < 4 and", 13, "missing"),
        ("(entropy < 1", 12, "parenthesis"),
        ("entropy < 1)", 11, "and, or"),
        ("entropy", 0, "Compare"),
        ("entropy < vertical", 10, "class"),
        ("1 < 2", 4, "measure"),
        ("rank > 1", 0, "rank.stable"),
        ("entropy.mean > 1", 0, "single number"),
        ("entropy@nolens < 1", 0, "lens"),
        ("null_share@effective < 1", 0, "weights"),
        ("layer < 4 entropy > 1", 10, "and, or"),
        ("entropy < 1 order entropy", 18, "by"),
        ("order by vertical", 9, "Order heads"),
        ("limit 0", 6, "whole number"),
        ("limit x", 6, "whole number"),
        ("entropy < 1 # 2", 12, "Unexpected character"),
        ("and", 0, "missing"),
        ("entropy < 1e5", 10, "Unexpected character"),
        ("output_overlap > 1", 0, "does not have a number for each head"),
        ("patterns.class = 1", 0, "several numbers"),
        ("layer.x < 1", 0, "Unknown measure"),
        ("(" * (MAX_DEPTH + 1) + "vertical" + ")" * (MAX_DEPTH + 1), MAX_DEPTH, "nested"),
        ("not " * 100 + "vertical", 4 * MAX_DEPTH, "nested"),
        ("vertical or " * 50, MAX_CHARACTERS, "characters"),
    ],
)
def test_faults_say_where_and_what(text, position, word):
    with pytest.raises(InvalidQuery) as caught:
        parse(text)
    assert caught.value.position == position
    assert word in caught.value.detail
    document = caught.value.problem()
    assert (document["status"], document["code"], document["position"]) == (422, "invalid-query", position)
    assert document["errors"][0]["pointer"] == "/where"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.detail, again.position) == (caught.value.detail, position)


def test_a_measure_that_was_not_computed_is_named():
    with pytest.raises(Unknown, match="needs sink, which was not computed"):
        find(subject(), "sink.value > 0.3")
    with pytest.raises(InvalidQuery, match="patterns for: weights, max-entropy"):
        find(subject(), "rank.stable < 1 and patterns.margin@effective < 1")


def test_every_measure_per_head_can_be_named():
    for name in numbers()[2:]:
        measure = parse(f"{name} > 0").where.values[0].measure
        assert is_per_head(MEASURES[measure])
    assert {measure.name for measure in MEASURES.values() if is_per_head(measure)} == {
        name.partition(".")[0] for name in numbers()[2:]
    }


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("vertical and layer<4 and (head=1 or head=2)", ["vertical", "layer < 4", "(head = 1 or head = 2)"]),
        ("vertical or diagonal", ["(vertical or diagonal)"]),
        ("not (vertical and diagonal) and 20% <= null_share", ["not (vertical and diagonal)", "0.2 <= null_share"]),
    ],
)
def test_clauses_are_the_conditions_that_must_all_hold(text, parts):
    assert clauses(parse(text)) == parts
    joined = parse(" and ".join(parts))
    assert clauses(joined) == parts


def test_means_leave_out_what_is_missing():
    values = np.array([[[1.0, np.nan, 3.0], [np.nan] * 3]])
    assert token_mean(values, ["L", "H", "Q"])[0, 0] == 2
    assert np.isnan(token_mean(values, ["L", "H", "Q"])[0, 1])


def test_from_python():
    a = headscope.analyze("minilm", "The cat sat on the mat.", measures=("entropy", "patterns"))
    means = a.measures["entropy"]["weights"].mean(-1)
    best = a.find("order by entropy asc limit 1").heads[0]
    assert means[best.layer, best.head] == means.min()
    column = MEASURES["patterns"].columns.index("class")
    verticals = np.argwhere(a.measures["patterns"]["weights"][..., column] == 0).tolist()
    assert sorted([head.layer, head.head] for head in a.find("vertical").heads) == verticals
    with pytest.raises(Unknown, match="null_share"):
        a.find("null_share > 0.5")
