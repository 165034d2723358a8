"""Pattern classes: scores against loops, classes on heads made for them, margins by moving thresholds, published rules."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from headscope.measures._classes import settle
from headscope.measures.patterns import CLASSES, SCORES, PatternParams, classify
from headscope.measures.patterns_published import yang_classes
from tests.support.variants import variants

from .heads import FEW, Array, agree, allowed, average, cases, distribution, head_layer, measure, sentence

NAN = float("nan")


def slow_scores(layer: Any, lens: str, map_: Array, mask: Array) -> list[dict[str, float]]:
    """The scores of rules v1 with their default parameters, head by head, row by row, entry by entry, in float64."""
    tokens, n = layer.axes.keys, len(layer.axes.keys)
    causal = not any(mask[i, j] for i in range(n) for j in range(i + 1, n)) and (n > 1 or layer.keys.rule != "all")
    special = [token.kind == "special" and not (causal and j == 0) for j, token in enumerate(tokens)]
    taken = [special[j] or (causal and j == 0) for j in range(n)]
    candidates = [i for i in range(n) if tokens[i].kind != "special" and (i >= 8 or not causal)]
    found = []
    for head in distribution(lens, map_):
        judged = [i for i in candidates if head[i] is not None]
        columns: dict[str, float] = {"sink": NAN, "sink_rows": NAN}
        if causal:
            rest = {i: sum(head[i][1:]) for i in judged}
            columns["sink"] = average(max(0.0, 1 - rest[i]) for i in judged)
            columns["sink_rows"] = average(rest[i] < 0.1 for i in judged)
            judged = [i for i in judged if rest[i] >= 0.1]
            head = [
                [0.0, *(entry / rest[i] for entry in row[1:])] if i in judged else row for i, row in enumerate(head)
            ]
        keys = {i: [j for j in range(n) if mask[i, j] and not (causal and j == 0)] for i in judged}
        most = {i: max(head[i]) for i in judged}
        upon = {i: max((head[i][j] for j in range(n) if special[j]), default=-1) for i in judged}
        columns["special"] = average(sum(head[i][j] for j in range(n) if special[j]) for i in judged)
        columns["special_argmax"] = average(upon[i] == most[i] for i in judged)
        means = [average(head[i][j] for i in judged) for j in range(n)]
        energy = average(sum(entry**2 for entry in head[i]) for i in judged)
        columns["stripes"] = sum(m**2 for m in means) / energy if judged else NAN
        columns["broad"] = average(
            sum(-a * math.log(a) for a in head[i] if a > 0) / math.log(len(keys[i])) for i in judged if len(keys[i]) > 1
        )
        masses, shares = {}, {}
        for k in range(-2, 3):
            valid = [i for i in judged if 0 <= i + k < n and mask[i, i + k] and not taken[i + k]]
            enough = 2 * len(valid) > len(judged)
            masses[k] = average(head[i][i + k] for i in valid) if enough else 0
            shares[k] = average(head[i].index(most[i]) == i + k and most[i] > upon[i] for i in valid) if enough else 0
        columns["diagonal"] = max(masses.values()) if judged else NAN
        columns["diagonal_argmax"] = max(shares.values()) if judged else NAN
        columns["band"] = average(
            sum(head[i][i + k] for k in (-1, 0, 1) if 0 <= i + k < n and mask[i, i + k] and not taken[i + k])
            for i in judged
        )
        ratios = []
        for i in judged:
            plain = [j for j in range(n) if not taken[j]]
            own = [j for j in plain if tokens[j].segment == tokens[i].segment]
            mass, number = sum(head[i][j] for j in plain), sum(mask[i, j] for j in plain)
            baseline = sum(mask[i, j] for j in own) / number if number else 1
            if mass > 0 and baseline < 1:
                ratios.append((sum(head[i][j] for j in own) / mass - baseline) / (1 - baseline))
        two = {token.segment for j, token in enumerate(tokens) if not taken[j]} == {0, 1}
        columns["block"] = average(ratios) if two else NAN
        found.append(columns)
    return found


@FEW
@given(cases())
def test_scores_against_a_loop(case: Any) -> None:
    """Any mask, one text or two, signed maps and missing rows; 1e-5."""
    layer, lens, map_, mask = case
    expected = slow_scores(layer, lens, map_, mask)
    found = measure("patterns", layer, lens, map_)
    # A query right at the threshold of saying something may fall on either side.
    agree(found, expected, 1e-5)
    for head in range(len(map_)):
        for name in set(SCORES) - {"offset", "block"}:
            assert np.isnan(found[name][head]) or -1e-6 <= found[name][head] <= 1 + 1e-6


def slow_class(scores: dict[str, float], moved: dict[str, float]) -> str:
    """Rules v1 as a person would apply them to scores in single precision, in which 9 of 10 reach 0.9; `moved` says by how much each threshold is off."""

    def reaches(name: str, score: str, least: float) -> bool:
        return scores[score] >= float(np.float32(least)) + moved.get(name, 0)

    vertical = reaches("vertical_argmax", "special_argmax", 0.9) or reaches("vertical_special", "special", 0.6)
    diagonal = reaches("diagonal_argmax", "diagonal_argmax", 0.9) or reaches("diagonal", "diagonal", 0.5)
    mixed = reaches("mixed_special", "special", 0.3) and reaches("mixed_band", "band", 0.3)
    shaped = not reaches("broad", "broad", 0.9)
    if reaches("sink_rows", "sink_rows", 0.5):
        return "vertical"
    if shaped and ((vertical and diagonal) or mixed):
        return "vertical+diagonal"
    if shaped and vertical:
        return "vertical"
    if shaped and diagonal:
        return "diagonal"
    if reaches("block", "block", 0.6) and not reaches("block_special", "special", 0.3):
        return "block"
    return "heterogeneous"


SCORE = st.one_of(st.floats(0, 1, width=32), st.just(NAN))
NAMES = ("special", "special_argmax", "diagonal", "diagonal_argmax", "band", "block", "broad", "sink_rows")
THRESHOLDS = (
    *("vertical_special", "vertical_argmax", "diagonal", "diagonal_argmax", "mixed_special", "mixed_band"),
    *("block", "block_special", "broad", "sink_rows"),
)


@FEW
@given(st.lists(st.tuples(*[SCORE] * len(NAMES)), min_size=1, max_size=4), st.integers(0, 10**6))
@example([(0.0, NAN, 0.0, float(np.float32(0.9)), 0.0, NAN, NAN, 0.0)], 0)
def test_margins_against_moved_thresholds(values: list[tuple[float, ...]], seed: int) -> None:
    """Nothing short of the margin changes the class; just beyond it some move of the thresholds does."""
    columns = {name: torch.tensor([row[i] for row in values]) for i, name in enumerate(NAMES)}
    kinds, margins = classify(columns, PatternParams())
    random = np.random.default_rng(seed)
    for head, row in enumerate(values):
        scores, margin = dict(zip(NAMES, row, strict=True)), float(margins[head])
        assert CLASSES[kinds[head]] == slow_class(scores, {})
        within = 0.999 * min(margin, 2.0) - 1e-6
        for _ in range(50):
            signs = random.choice([-1, 0, 1], len(THRESHOLDS))
            moved = dict(zip(THRESHOLDS, within * signs, strict=True))
            assert within < 0 or slow_class(scores, moved) == CLASSES[kinds[head]]
        if margin < 1:
            beyond = 1.001 * margin + 1e-6
            corners = np.array(np.meshgrid(*[[-1, 1]] * len(THRESHOLDS))).reshape(len(THRESHOLDS), -1).T
            found = {slow_class(scores, dict(zip(THRESHOLDS, beyond * corner, strict=True))) for corner in corners}
            assert found - {CLASSES[kinds[head]]}


def test_margin_of_a_rule_that_never_changes() -> None:
    """Infinite."""
    assert settle(lambda a: 3, torch.tensor([[0.2]]), [0.5])[1].isinf().all()


# Heads made for each class

N = 26
ONE = sentence(["[CLS]", *[f"w{i}" for i in range(N - 2)], "[SEP]"])
TWO = sentence(["[CLS]", *[f"w{i}" for i in range(12)], "[SEP]", *[f"w{i}" for i in range(11)], "[SEP]"])
PLAIN = sentence([f"w{i}" for i in range(N)])


def shift(k: int) -> Array:
    """All weight on the token k further on; at the ends on the token itself."""
    return np.eye(N)[np.clip(np.arange(N) + k, 0, N - 1)]


def column(j: int) -> Array:
    """All weight on token j."""
    return np.eye(N)[np.full(N, j)]


def blocks() -> Array:
    """Uniform within the own text, by the place of the tokens."""
    sides = np.array([token.segment for token in TWO])
    map_ = (sides[:, None] == sides) * np.array([token.kind != "special" for token in TWO])
    return map_ / map_.sum(-1, keepdims=True)


def crossed() -> Array:
    """Uniform over the words of the other text."""
    sides = np.array([token.segment for token in TWO])
    map_ = (sides[:, None] != sides) * np.array([token.kind != "special" for token in TWO])
    return map_ / map_.sum(-1, keepdims=True)


def class_of(map_: Array, tokens: Any = ONE, rule: str = "all", lens: str = "weights", **params: Any) -> str:
    """The class by name."""
    return CLASSES[
        int(measure("patterns", head_layer(map_[None], tokens, rule), lens, map_[None], **params)["class"][0])
    ]


UNIFORM = np.full((N, N), 1 / N)
RANDOM = np.random.default_rng(0).dirichlet(np.full(N, 0.3), N)
ENCODER = {
    "column [CLS]": (column(0), ONE, "vertical"),
    "column [SEP]": (column(N - 1), ONE, "vertical"),
    "column in the middle [SEP]": (column(13), TWO, "vertical"),
    "column at a word": (column(5), ONE, "heterogeneous"),
    "identity": (np.eye(N), ONE, "diagonal"),
    "previous": (shift(-1), ONE, "diagonal"),
    "next": (shift(1), ONE, "diagonal"),
    "two before": (shift(-2), ONE, "diagonal"),
    "five before": (shift(-5), ONE, "heterogeneous"),
    "half column, half previous": ((column(0) + shift(-1)) / 2, ONE, "vertical+diagonal"),
    "half of the rows each": (np.where(np.arange(N)[:, None] % 2, column(0), shift(-1)), ONE, "vertical+diagonal"),
    "mostly column": (0.8 * column(0) + 0.2 * shift(-1), ONE, "vertical"),
    "mostly previous": (0.8 * shift(-1) + 0.2 * column(0), ONE, "diagonal"),
    "blocks": (blocks(), TWO, "block"),
    "blocks and a column": (0.5 * blocks() + 0.5 * column(0), TWO, "vertical"),
    "blocks of one text": (blocks(), ONE, "heterogeneous"),
    "other text": (crossed(), TWO, "heterogeneous"),
    "random": (RANDOM, ONE, "heterogeneous"),
    "uniform": (UNIFORM, ONE, "heterogeneous"),
    "uniform, two texts": (UNIFORM, TWO, "heterogeneous"),
}


@variants(("map_", "tokens", "expected"), ENCODER.values(), ids=ENCODER)
def test_encoder_heads(map_: Array, tokens: Any, expected: str) -> None:
    """Columns, diagonals, mixtures, blocks, and what is none of them, also with a little noise."""
    assert class_of(map_, tokens) == expected
    noisy = 0.97 * map_ + 0.03 * RANDOM
    assert class_of(noisy, tokens) == expected
    assert class_of(-noisy, tokens, lens="effective") == expected, "signed maps go by magnitude"


def causal(map_: Array) -> Array:
    """A map cut to what a causal model can see; rows with nothing left look at the first token."""
    map_ = np.tril(map_)
    map_[:, 0] += map_.sum(-1) == 0
    return map_ / map_.sum(-1, keepdims=True)


CAUSAL = {
    "pure sink": (column(0), "vertical"),
    "sink with a little of everything": (causal(0.95 * column(0) + 0.05 * RANDOM), "vertical"),
    "sink and previous": (causal(0.7 * column(0) + 0.3 * shift(-1)), "diagonal"),
    "little sink and previous": (causal(0.1 * column(0) + 0.9 * shift(-1)), "diagonal"),
    "previous": (causal(shift(-1)), "diagonal"),
    "self": (np.eye(N), "diagonal"),
    "sink and itself": (causal(0.6 * column(0) + 0.4 * np.eye(N)), "diagonal"),
    "sink and anything": (causal(0.7 * column(0) + 0.3 * RANDOM), "heterogeneous"),
    "next": (causal(shift(1)), "vertical"),  # weight on hidden keys goes to the sink here
    "uniform": (causal(UNIFORM), "heterogeneous"),
    "random": (causal(RANDOM), "heterogeneous"),
    "sink with few rows that fire": (np.where(np.arange(N)[:, None] % 5 == 0, shift(-1), column(0)), "vertical"),
    "sink in fewer than half of the rows": (np.where(np.arange(N)[:, None] % 3 == 0, column(0), shift(-1)), "diagonal"),
}


@variants(("map_", "expected"), CAUSAL.values(), ids=CAUSAL)
@variants("first", ["word", "start"])
def test_causal_heads(map_: Array, expected: str, first: str) -> None:
    """The first token is a sink whether it is special or not: it hides no class, and a head that does nothing else is vertical."""
    tokens = PLAIN if first == "word" else sentence(["[BOS]", *[f"w{i}" for i in range(N - 1)]])
    assert class_of(map_, tokens, "prefix") == expected
    assert class_of(-map_, tokens, "prefix", "effective") == expected


def test_special_tokens_of_a_causal_text() -> None:
    """Special tokens after the first one make a head vertical as in an encoder."""
    tokens = sentence(["[BOS]", "a", "[USER]", *[f"w{i}" for i in range(N - 3)]])
    assert class_of(causal(0.5 * column(0) + 0.5 * column(2)), tokens, "prefix") == "vertical"


def test_the_sink_has_its_own_scores() -> None:
    """Mean mass on the first token, and the share of queries that say nothing; not defined where every query sees every key."""
    half = np.where(np.arange(N)[:, None] % 2, column(0), causal(0.4 * column(0) + 0.6 * shift(-1)))
    found = measure("patterns", head_layer(half[None], PLAIN, "prefix"))
    assert found["sink"][0] == pytest.approx(0.7)
    assert found["sink_rows"][0] == pytest.approx(0.5)
    assert found["diagonal"][0] == pytest.approx(1), "of what is left without the sink"
    found = measure("patterns", head_layer(column(0)[None], ONE))
    assert np.isnan([found["sink"][0], found["sink_rows"][0]]).all()


def test_a_learned_sink_is_a_sink() -> None:
    """What such a sink takes is in no column; a head whose rows sum to next to nothing does nothing else."""
    assert class_of(0.05 * causal(shift(-1)), PLAIN, "prefix") == "vertical"
    assert class_of(0.5 * causal(shift(-1)), PLAIN, "prefix") == "diagonal"


def test_a_sliding_window_has_no_sink_beyond_it() -> None:
    """Queries that do not see the first token are judged by all they see."""
    mask = allowed("window", N)
    uniform = mask / mask.sum(-1, keepdims=True)
    found = measure("patterns", head_layer(uniform[None], PLAIN, "window"))
    assert found["sink"][0] == pytest.approx(0, abs=1e-6)
    assert found["broad"][0] == pytest.approx(1)
    assert class_of(causal(shift(-1)), PLAIN, "window") == "diagonal"


@pytest.mark.parametrize(("words", "expected"), [(1, 5), (3, 5), (4, 1)])
def test_too_few_rows(words: int, expected: int) -> None:
    """Unclassified, without a margin."""
    tokens = sentence(["[CLS]", *["a"] * words, "[SEP]"])
    found = measure("patterns", head_layer(np.eye(words + 2)[None], tokens))
    assert found["class"][0] == expected
    assert np.isnan(found["margin"][0]) == np.isnan(found["unstable"][0]) == (expected == 5)


@pytest.mark.parametrize("n", [1, 2, 8, 11, 12])
def test_short_causal_texts(n: int) -> None:
    """The first 8 queries see too little to be judged by, so that 4 more are needed."""
    found = measure("patterns", head_layer(np.eye(n)[None], sentence(["a"] * n), "prefix"))
    assert CLASSES[int(found["class"][0])] == ("diagonal" if n == 12 else "unclassified")


def test_unstable() -> None:
    """Near a threshold the class is unstable, and a parameter says how near."""
    near = 0.31 * column(0) + 0.31 * column(N - 1) + 0.38 * column(5)
    found = measure("patterns", head_layer(near[None], ONE))
    assert CLASSES[int(found["class"][0])] == "vertical"
    assert found["margin"][0] == pytest.approx(0.02, abs=1e-5)
    assert found["unstable"][0] == 1
    assert measure("patterns", head_layer(near[None], ONE), wobble=0.01)["unstable"][0] == 0


def test_rows_without_a_reading() -> None:
    """They are left out, not counted as zeros."""
    map_ = shift(-1)
    map_[3:20] = np.nan
    found = measure("patterns", head_layer(shift(-1)[None], ONE), "effective", map_[None])
    assert found["diagonal"][0] == pytest.approx(1)
    map_[:] = np.nan
    assert class_of(map_, lens="effective") == "unclassified"


def test_the_band_is_a_share_of_the_weight() -> None:
    """Words in pairs between separators, each attending to the other of its pair, but for one triple: means over the queries with such a neighbour add up to more than 1."""
    names = ["[CLS]", *["a", "b", "[SEP]"] * 3, "a", "b", "c", "[SEP]"]
    tokens, n = sentence(names), len(names)
    words = [place for place in range(n) if tokens[place].kind != "special"]
    partner = {i: next(j for j in (i + 1, i - 1) if j in words) for i in words}
    weights = np.zeros((n, n))
    weights[range(n), [partner.get(i, i) for i in range(n)]] = 1
    assert measure("patterns", head_layer(weights[None], tokens))["band"][0] == pytest.approx(1)
    means = [average(weights[i, i + k] for i in words if i + k in words) for k in (-1, 0, 1)]
    assert sum(means) > 1.5


# Published rules


def slow_published(rules: str, lens: str, map_: Array, tokens: Any) -> list[str]:
    """PASTA's, Voita's and Clark's rules from their descriptions, by loops."""
    found, n = [], len(tokens)
    separators = [j for j in range(1, n) if tokens[j].text == "[SEP]"]
    for head in distribution(lens, map_):
        there = [i for i in range(n) if head[i] is not None]
        best = {i: max(range(n), key=lambda j: (head[i][j], -j)) for i in there}
        count = len(there)
        if not there:
            found.append("unclassified")
        elif rules == "pasta":
            found.append("vertical" if sum(best[i] in (0, n - 1) for i in there) >= 0.9 * count else "heterogeneous")
        elif rules == "voita":
            most = max(sum(best[i] - i == k for i in there) for k in range(-n, n + 1))
            found.append("diagonal" if most >= 0.9 * count else "heterogeneous")
        else:
            label = "heterogeneous"
            for k in (1, -1):
                if sum(head[i][i + k] for i in there if 0 <= i + k < n) / count >= 0.5:
                    label = "diagonal"
            smooth = [[0.9999 * a + 0.0001 / n for a in head[i]] for i in there]
            if average(-sum(a * math.log(a) for a in row) for row in smooth) >= 3.8:
                label = "heterogeneous"
            first = [0] if tokens[0].kind == "special" else []
            for places in (first, separators, [j for j in range(n) if tokens[j].text in (".", ",")]):
                if sum(head[i][j] for i in there for j in places) / count >= 0.6:
                    label = "vertical"
            found.append(label)
    return found


@FEW
@given(cases(), st.sampled_from(["pasta", "voita", "clark"]))
def test_published_rules_against_loops(case: Any, rules: str) -> None:
    """The same class, unless the score is within rounding of the threshold."""
    layer, lens, map_, _ = case
    found = measure("patterns", layer, lens, map_, rules=rules)
    expected = slow_published(rules, lens, map_, layer.axes.keys)
    clear = ~(found["margin"] < 1e-6)
    exact = found["margin"] == 0 if rules != "clark" else np.zeros(len(map_), bool)
    for head in np.flatnonzero(clear | exact):
        assert CLASSES[int(found["class"][head])] == expected[head]


PUBLISHED = [
    ("pasta", column(0), "vertical"),
    ("pasta", column(N - 1), "vertical"),
    ("pasta", shift(-1), "heterogeneous"),
    ("voita", shift(-1), "diagonal"),
    ("voita", shift(1), "diagonal"),
    ("voita", np.eye(N), "diagonal"),
    ("voita", column(0), "heterogeneous"),
    ("clark", 0.55 * shift(-1) + 0.45 * RANDOM, "diagonal"),
    ("clark", 0.55 * shift(1) + 0.45 * RANDOM, "diagonal"),
    ("clark", np.eye(N), "heterogeneous"),
    ("clark", 0.65 * column(N - 1) + 0.35 * RANDOM, "vertical"),
    ("clark", RANDOM, "heterogeneous"),
    ("yang", shift(-1), "unclassified"),
]


@variants(("rules", "map_", "expected"), PUBLISHED)
def test_published_rules(rules: str, map_: Array, expected: str) -> None:
    """What each rule is for."""
    assert class_of(map_, ONE, rules=rules) == expected


def test_the_middle_separator_does_not_count_for_pasta() -> None:
    """Its code looks at the first and the last position only, though its text says [CLS] or [SEP]."""
    assert class_of(column(13), TWO, rules="pasta") == "heterogeneous"
    assert class_of(column(13), TWO) == "vertical"


def test_exactly_nine_tenths() -> None:
    """Reaches the threshold, whatever the rounding of 0.9."""
    for n in (10, 30, 70, 90):
        map_ = np.eye(n)[np.zeros(n, int)]
        map_[: n // 10] = np.eye(n)[1]
        assert class_of(map_, sentence(["a"] * n), rules="pasta") == "vertical"


def test_yang_against_closed_forms() -> None:
    """Uniform: ln n, -ln n, -mean distance / n. A column: 0, 0. The identity: 0, -ln n, 0."""
    maps = np.stack([UNIFORM, column(0), np.eye(N)])
    found = measure("patterns", head_layer(maps, ONE), rules="yang")
    far = abs(np.subtract.outer(np.arange(N), np.arange(N)))
    np.testing.assert_allclose(found["globalness"], [math.log(N), 0, 0], atol=1e-5)
    np.testing.assert_allclose(found["verticality"], [-math.log(N), 0, -math.log(N)], atol=1e-5)
    np.testing.assert_allclose(found["diagonality"], [-(far.mean()) / N, -far[:, 0].mean() / N, 0], atol=1e-5)
    values = np.stack([found[name] for name in ("globalness", "verticality", "diagonality")], -1)
    assert [CLASSES[kind] for kind in yang_classes(values[None])[0]] == ["heterogeneous", "vertical", "diagonal"]
    assert np.isnan(measure("patterns", head_layer(maps, ONE))["globalness"]).all(), "only where asked for"


def test_yang_ranks_over_the_model() -> None:
    """Not by value: the quantity in which a head ranks highest among all heads; heads without numbers are unclassified."""
    values = np.array([[[3.0, -3, -0.1], [1, -1, -0.2]], [[2, -2, -0.3], [NAN, -2, 0]]])
    assert [[CLASSES[kind] for kind in layer] for layer in yang_classes(values[:, :1])] == [
        ["heterogeneous"],
        ["vertical"],
    ]
    assert CLASSES[yang_classes(values)[1, 1]] == "unclassified"
