"""Scores of lenses over a data set, against loops over the maps of single analyses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headscope
from headscope import Model
from headscope.core.tokens import Token
from headscope.errors import InvalidQuery, NotReady
from headscope.studies.scores import BASELINES, KeyQuestion, questions_of
from headscope.studies.statistics import bootstrap_weights, hash_rows
from tests.support.variants import variants

WORDS = "ann river green clock told market slowly lisbon before unwinding letter seven garden without".split()
LENSES = ("weights", "effective", "norm", "rollout")
COUNT = 14


def labelled(text: str, place: int) -> dict[str, Any]:
    """A text whose word 2 asks for word 0, or for the last one, and in every third text whose word 3 asks for word 1."""
    words = text.split()
    labels = ["O"] * len(words)
    labels[2], labels[-1 if place % 2 else 0] = "query", "key"
    if place % 3 == 0:
        labels[3], labels[1] = "query 2", "key 2"
    return {"text": " ".join(words), "labels": labels}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(WORDS, random.integers(6, 13))) for _ in range(COUNT)]
    return [labelled(text, place) for place, text in enumerate(texts)] + [{"text": "Nothing is marked here"}]


@pytest.fixture(scope="module")
def study(minilm: Model, rows: list[dict[str, Any]]) -> Any:
    return headscope.study(minilm, rows, lenses=LENSES, measures=(), figures=("scores",))


@pytest.fixture(scope="module")
def slowly(minilm: Model, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Accuracy and reciprocal rank of every input, by lens and baseline: [I, L, H, 2]."""
    found: dict[str, list[Any]] = {name: [] for name in (*LENSES, *BASELINES)}
    for row in rows[:COUNT]:
        a = headscope.analyze(minilm, lenses=LENSES, measures=(), **row)
        count = len(a.tokens)
        maps = {name: np.asarray(a.maps[name], float) for name in LENSES}
        maps |= {name: np.zeros((1, 1, count, count)) for name in BASELINES}
        for query in range(count):
            maps["first-token"][0, 0, query, 0] = 1
            if query:
                maps["previous-token"][0, 0, query, query - 1] = 1
        pairs = []
        for place, token in enumerate(a.tokens):
            ends = place + 1 == count or a.tokens[place + 1].word != token.word
            if ends and token.label in ("query", "query 2"):
                key = token.label.replace("query", "key")
                pairs.append((place, [other for other, one in enumerate(a.tokens) if one.label == key]))
        for name, heads in maps.items():
            scores = np.zeros((*heads.shape[:2], 2))
            for i, j in np.ndindex(heads.shape[:2]):
                scores[i, j] = np.mean([judged(heads[i, j, query], right) for query, right in pairs], 0)
            found[name].append(scores)
    return {name: np.stack(values) for name, values in found.items()}


def judged(row: Any, right: list[int]) -> tuple[float, float]:
    """The chance to draw the right key among the largest entries, and the mean of 1 / rank over all orders of equal ones."""
    own = max(row[key] for key in right)
    others = [row[key] for key in range(len(row)) if key not in right]
    above, equal = sum(one > own for one in others), sum(one == own for one in others)
    places = [above + 1 + extra for extra in range(equal + 1)]
    return (1 / (1 + equal) if above == 0 else 0.0), float(np.mean([1 / place for place in places]))


@variants("lens", [*LENSES, *BASELINES])
def test_scores_of_every_head(study: Any, slowly: dict[str, Any], lens: str) -> None:
    """Means over inputs that mark a question; those of effective maps up to rounding, which may decide a rank."""
    stat = study.stat("right_key", lens)
    assert (stat.inputs[..., 0] == COUNT).all()
    apart = np.abs(stat.input_mean[..., :2] - slowly[lens].mean(0))
    assert apart.max() < (1e-6 if lens != "effective" else 1 / COUNT + 1e-6)


def test_heads_are_chosen_on_one_half_and_scored_on_the_other(study: Any, slowly: dict[str, Any]) -> None:
    drawn = [dict(zip(study.table("scores").columns, row, strict=True)) for row in study.table("scores").rows]
    assert [row["lens"] for row in drawn] == [*LENSES, *BASELINES]
    held_out = (hash_rows(0, np.arange(1, COUNT + 1)) & np.uint64(1)).astype(bool)
    assert 0 < held_out.sum() < COUNT
    best = {}
    for row in drawn:
        values = slowly[row["lens"]]
        place = np.unravel_index(values[~held_out, ..., 1].mean(0).argmax(), values.shape[1:3])
        best[row["lens"]] = values[held_out][:, *place, 0]
        if row["lens"] in ("weights", "norm"):
            assert (row["layer"], row["head"]) == place
        if row["lens"] == "rollout":
            assert (row["layer"], row["head"]) == (place[0], None)
        if row["lens"] != "effective":
            assert row["accuracy"] == pytest.approx(best[row["lens"]].mean(), abs=1e-6)
            assert row["mean_accuracy"] == pytest.approx(values[..., 0].mean(), abs=1e-6)
            assert row["reciprocal_rank"] == pytest.approx(values[held_out][:, *place, 1].mean(), abs=1e-6)
    (first,) = [row for row in drawn if row["lens"] == "first-token"]
    drawn_times = bootstrap_weights(0, np.arange(1, COUNT + 1), 200)[:, held_out]
    with np.errstate(invalid="ignore"):
        resampled = drawn_times @ (best["first-token"] - best["weights"]) / drawn_times.sum(1)
    assert first["against_weights"] == pytest.approx((best["first-token"] - best["weights"]).mean(), abs=1e-6)
    low, high = np.nanquantile(resampled, [0.025, 0.975])
    assert (first["against_weights_low"], first["against_weights_high"]) == pytest.approx((low, high), abs=1e-6)


def test_a_head_has_its_scores_and_other_lenses_have_none_of_one(study: Any) -> None:
    numbers = {one["column"]: one["mean"] for one in study.head(5, 11)["numbers"] if one["measure"] == "right_key"}
    assert numbers["accuracy"] == pytest.approx(study.stat("right_key").mean[5, 11, 0])
    assert [one for one in study.head(5, 11, lens="rollout")["numbers"] if one["measure"] == "right_key"] == []


def test_queries_read_scores(study: Any) -> None:
    """Through the lens of the search or of the term; a lens of layers has no heads."""
    found = study.find("right_key.accuracy > 0 order by right_key.reciprocal_rank@norm desc")
    weights, norm = (study.stat("right_key", lens).input_mean for lens in ("weights", "norm"))
    assert {(one.layer, one.head) for one in found.heads} == set(zip(*np.nonzero(weights[..., 0] > 0), strict=True))
    ranks = [one.values["right_key.reciprocal_rank@norm"] for one in found.heads]
    assert ranks == pytest.approx([norm[one.layer, one.head, 1] for one in found.heads])
    assert ranks == sorted(ranks, reverse=True)
    assert study.find("order by right_key.accuracy desc", lens="rollout").heads[0].values["right_key.accuracy"] == (
        pytest.approx(weights[..., 0].max())
    )
    with pytest.raises(InvalidQuery, match="not defined for this lens"):
        study.find("right_key.accuracy@rollout > 0")


def token(word: int | None, label: str | None = None) -> Token:
    return Token("x", 0, 0, 1, word, 0, "word", label=label)


def test_questions_that_labels_mark() -> None:
    """The last token of a word asks; keys after it count in models that see them; candidates are all keys, or those that are marked."""
    marked = [token(0, "key"), token(1, "O"), token(2, "query"), token(2, "query"), token(3, "key"), token(None)]
    assert list(questions_of(marked, marked, False)) == [KeyQuestion(3, [0, 1, 2, 3, 4, 5], [0, 4])]
    assert list(questions_of(marked, marked, True)) == [KeyQuestion(3, [0, 1, 2, 3], [0])]
    few = [token(0, "key 1"), token(1, "candidate"), token(2, "key 2"), token(3, "query 2"), token(4, "query 1")]
    assert list(questions_of(few, few, True)) == [KeyQuestion(3, [0, 1, 2], [2]), KeyQuestion(4, [0, 1, 2], [0])]
    assert list(questions_of([token(0, "query"), token(1, "key")], [token(0, "query"), token(1, "key")], True)) == []


def test_without_labels_it_says_what_to_do(minilm: Model) -> None:
    s = headscope.study(minilm, ["The cat sat.", "It rained."], lenses=(), measures=(), figures=("scores",))
    with pytest.raises(NotReady, match="Label the words"):
        s.figure("scores")
    other = headscope.study(minilm, ["The cat sat.", "It rained."], lenses=("weights",), measures=())
    with pytest.raises(NotReady, match="right_key"):
        other.figure("scores")
    assert other.id != s.id
