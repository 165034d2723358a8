"""The scoreboard: what it computes equals what slow code in float64 computes from the definitions, on random models."""

from __future__ import annotations

import copy
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import scores
from benchmarks.score_cases import Case, antecedent, head_noun, repetitions
from benchmarks.score_check import check, effect_of, entry_differences
from benchmarks.score_edges import BOUNDS, EDGES, correlation, draw, effects, faithfulness, logits_with, measure
from benchmarks.score_maps import SlowMaps
from benchmarks.score_slow import numbers, slow
from benchmarks.score_summary import Judged, summary
from benchmarks.scores import edges_of, judge, once, random_twin, readable
from transformers import AlbertConfig, AlbertForMaskedLM, LlamaConfig, LlamaForCausalLM

import headscope
from headscope import Model
from headscope.studies.scores import BASELINES, KeyQuestion, Ranks, baselines, ranks
from tests.support.extent import mostly_long

SHAPE = {
    "vocab_size": 100, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 32, "initializer_range": 0.3,
}  # fmt: skip
IDS = np.random.default_rng(0).integers(5, 100, 15).tolist()


@pytest.fixture(scope="module", params=["llama", "albert"])
def model(request: pytest.FixtureRequest) -> Model:
    """A random model whose heads are narrower than the input is long."""
    return decoder() if request.param == "llama" else encoder()


def decoder() -> Model:
    torch.manual_seed(0)
    return headscope.load(LlamaForCausalLM(LlamaConfig(**SHAPE, num_key_value_heads=2)).eval())


def encoder() -> Model:
    torch.manual_seed(0)
    return headscope.load(AlbertForMaskedLM(AlbertConfig(**SHAPE, embedding_size=16, hidden_act="gelu")).eval())


# Ranks


def test_ranks_are_means_over_all_orders_of_equal_entries():
    """Against sorting in every order."""
    rng = np.random.default_rng(0)
    maps = rng.integers(0, 3, (2, 3, 1, 5)).astype(float)
    found = ranks(maps, [KeyQuestion(0, [0, 1, 2, 3], [2])])
    for layer, head in np.ndindex(2, 3):
        places = []
        for order in permutations(range(4)):
            by_size = sorted(order, key=lambda key: -maps[layer, head, 0, key])  # stable
            places.append(1 + by_size.index(2))
        assert found.accuracy()[0, layer, head] == pytest.approx(np.mean([place == 1 for place in places]))
        assert found.reciprocal()[0, layer, head] == pytest.approx(np.mean([1 / place for place in places]))


def test_a_word_counts_as_its_largest_token_and_no_reading_as_the_smallest():
    row = np.array([0.1, 0.5, np.nan, 0.4, 0.9])
    assert [int(part[0, 0, 0]) for part in ranks(row[None, None, None], [KeyQuestion(0, [0, 1, 2, 3], [0, 3])])] == [
        1,
        0,
    ]
    assert [int(part[0, 0, 0]) for part in ranks(row[None, None, None], [KeyQuestion(0, [0, 1, 2, 3], [2])])] == [3, 0]


def test_chance_is_that_of_the_uniform_map():
    found = ranks(baselines(4, 4)["uniform"], [KeyQuestion(3, [0, 1, 2, 3], [1])])
    assert found.accuracy().item() == pytest.approx(1 / 4)
    assert found.reciprocal().item() == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)


def test_the_models_are_those_of_transformers(model: Model):
    """In float64, with and without padding, which only the model that reads both ways knows. Llama of transformers turns and normalises in float32."""
    whole = copy.deepcopy(model.module).double()
    known = slow(model.module)
    for ids, real in ((IDS, 15), ([*IDS, 0, 0], 15 if model.facts.kind == "encoder" else 17)):
        with torch.inference_mode():
            mask = (torch.arange(len(ids)) < real).long()[None]
            logits = whole(torch.tensor([ids]), attention_mask=mask).logits[0, :real]
            found = known.logits(known.layers(ids, real=real)[-1].after[:real])
        assert torch.allclose(found, logits, atol=1e-9 if model.facts.kind == "encoder" else 1e-5)


@pytest.mark.parametrize("model", mostly_long(["llama", "albert"], "albert"), indirect=True)
def test_everything_is_ranked_as_slow_code_ranks_it(model: Model):
    seen = (lambda query: query + 1) if model.facts.kind == "decoder" else (lambda query: 15)
    questions = [KeyQuestion(query, list(range(seen(query))), [key]) for query, key in ((14, 3), (9, 2), (12, 12))]
    case = Case(IDS, questions, (7, 9))
    twin, names = random_twin(model), [*readable(model, IDS), *BASELINES, "random-model"]
    assert {"effective", "max-entropy", "alti", "value-zeroing", "integrated-gradients", "dual-path"} < set(names)
    stored = judge(model, twin, case, names)
    judged = slow(model.module), slow(twin.module)
    verdicts = list(check(*judged, case, stored))
    assert {name for name, _ in verdicts} == set(names)
    assert [name for name, right in verdicts if not right] == []
    for name in names:
        stored[f"{name}/larger"] += len(IDS)  # more than there are keys
    assert not any(right for _, right in check(*judged, case, stored))


# Questions


@pytest.mark.parametrize(
    ("prefix", "noun"),
    [
        ("A niece of most senators", "niece"),
        ("A lot of schools that have concealed Adam", "schools"),
        ("The newspaper articles about Galileo", "articles"),
        ("Students who noticed Kenneth", "Students"),
        ("That driver that had left Benjamin", "driver"),
    ],
)
def test_head_noun(prefix: str, noun: str):
    assert prefix.split()[head_noun(prefix.split())] == noun


@pytest.mark.parametrize(
    ("prefix", "noun"),
    [("Katherine can't help", "Katherine"), ("Some girls weren't", "girls"), ("A lot of guests hurt", "guests")],
)
def test_antecedent(prefix: str, noun: str):
    assert prefix.split()[antecedent(prefix.split())] == noun


def test_repetitions():
    case = next(repetitions(decoder(), None, 10))
    assert len(set(case.ids)) == 10
    assert all(case.ids[one.right[0]] == case.ids[one.query + 1] for one in case.questions)
    assert all(case.ids[one.right[0] - 1] == case.ids[one.query] for one in case.questions)


# Means and intervals


def test_the_best_head_is_chosen_on_other_inputs_than_it_is_judged_on():
    """Head 0.0 is right on every even input, 0.1 on every odd one."""
    right = np.arange(40)[:, None, None, None] % 2 == np.arange(2)  # [inputs, questions, L, H]
    judged = [Judged.of({"weights": Ranks((~one).astype(int), np.zeros_like(one, int))}) for one in right]
    row = summary(judged, (0, 1))["lenses"]["weights"]
    assert row["head"] == "0.0"
    assert row["best"]["accuracy"] == [0, 0, 0]
    middle, low, high = row["known"]["accuracy"]
    assert middle == row["mean"]["accuracy"][0] == 0.5
    assert 0.3 < low < 0.4 < 0.6 < high < 0.7  # half of 40: 0.5 ± 0.16


# Edges


def test_edges_have_the_effects_that_slow_code_finds():
    model = decoder()
    known = slow(model.module)
    last = [layer.weights[:, -1] for layer in known.layers(IDS)]
    places = [(layer, head, int(last[layer][head].argmax())) for layer, head in np.ndindex(3, 4)]
    edges = np.array([*places, (1, 3, 0)])
    target, found = effects(model, IDS, edges, (3, 4, 15))
    assert int(numbers(known.logits(known.layers(IDS)[-1].after[-1])).argmax()) == target
    assert found == pytest.approx([effect_of(SlowMaps(known, IDS), *edge) for edge in edges.tolist()], abs=2e-4)
    assert np.abs(found).max() > 0.01


def test_entries_of_edges_are_those_of_slow_code():
    model = decoder()
    names = [*readable(model, IDS), "previous-token", "first-token", "random", "contribution"]
    found = dict(edges_of(model, IDS, 0, names))
    maps = SlowMaps(slow(model.module), IDS)
    differences = dict(entry_differences(maps, found))
    assert set(differences) == set(names) - {"random"}
    assert {name: one for name, one in differences.items() if one > 1e-4} == {}
    found["alti/entry"] = found["alti/entry"] * 1.01
    assert dict(entry_differences(maps, found))["alti"] > 1e-3


def test_what_is_stored_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scores, "BUILD", tmp_path)
    asked: list[list[str]] = []

    def compute(names: list[str]) -> dict[str, np.ndarray]:
        asked.append(names)
        return {f"{name}/larger": np.array([len(asked)]) for name in names}

    once("kind", 0, ["weights", "null"], compute)
    found = once("kind", 0, ["weights", "norm"], compute)
    assert asked == [["weights", "null"], ["norm"]]
    assert {name: one.tolist() for name, one in found.items()} == {
        "weights/larger": [1],
        "null/larger": [1],
        "norm/larger": [2],
    }


def test_all_edges_are_the_model_as_it_is():
    model = decoder()
    with torch.inference_mode():
        whole = model.module(torch.tensor([IDS])).logits[0, -1]
    assert torch.allclose(logits_with(model, IDS, torch.ones(2, 3, 4, 15)), whole.expand(2, -1), atol=1e-4)


def test_edges_are_drawn_from_every_stratum():
    weights = np.random.default_rng(0).dirichlet(np.full(64, 0.05), (30, 9))
    drawn = draw(weights, 0)
    assert len({tuple(edge) for edge in drawn.tolist()}) == EDGES
    counts = np.bincount(np.digitize(weights[tuple(drawn.T)], BOUNDS))
    assert counts.tolist() == [EDGES // 5] * 5


def test_correlation_of_ranks():
    """Against ranks that are counted; equal values share the mean of theirs."""
    rng = np.random.default_rng(0)
    one, other = rng.integers(-5, 5, 40).astype(float), rng.normal(size=40)
    slow = [
        [sum(abs(b) < abs(a) for b in xs) + sum(abs(b) == abs(a) for b in xs) / 2 for a in xs] for xs in (one, other)
    ]
    assert correlation(one, other) == pytest.approx(np.corrcoef(*slow)[0, 1])
    assert correlation(np.ones(5), np.arange(5.0)) == 0


def test_the_effects_themselves_are_faithful():
    """A lens that shows the effects correlates with them perfectly; with all of its edges the prediction is whole."""
    model, shape = decoder(), (3, 4, 15)
    every = np.stack(np.unravel_index(np.arange(180), shape), 1)
    exact = effects(model, IDS, every, shape)[1].reshape(shape)
    weights = np.asarray(headscope.analyze(model, token_ids=IDS, lenses=("weights",), measures=()).maps["weights"])
    found = [measure(model, IDS, {"weights": weights[:, :, -1], "exact": exact}, seed) for seed in range(20)]
    rows = faithfulness(found, ["weights", "exact"])
    assert rows["edges"] == 20 * 180
    assert rows["lenses"]["exact"]["correlation"][0] == pytest.approx(1, abs=1e-3)
    assert rows["lenses"]["exact"]["within"][0] == pytest.approx(1, abs=1e-3)
    assert rows["lenses"]["weights"]["correlation"][0] < 1
