"""Batteries: their prompts by slow code, scores by the definition, and what heads of trained and random models get."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

import headscope
from headscope import BATTERIES, Model
from headscope.analysis.head_scores import written
from headscope.batteries import lists, sentences
from headscope.batteries.base import AttentionPrompt, ChoicePrompt
from headscope.capture import examine
from headscope.errors import InvalidRequest, Unsupported
from headscope.models.vocabulary import ModelVocabulary

from .conftest import TINY
from .effects.test_contribution import SMALL

TOKENS = ("previous-token", "duplicate-token", "induction")
SENTENCES = ("s-inhibition", "retrieval", "delimiter")


@pytest.fixture(scope="module")
def gpt() -> Model:
    """A small trained GPT with its tokenizer."""
    return headscope.load("twin-gpt-softmax")


@pytest.fixture(scope="module")
def vocabulary(gpt: Model) -> ModelVocabulary:
    """Its tokens."""
    return ModelVocabulary(gpt)


def made(name: str, vocabulary: ModelVocabulary, seed: int = 3) -> Any:
    return BATTERIES[name].make(np.random.default_rng(seed), vocabulary)


def test_ordinary_tokens_are_words(gpt: Model, vocabulary: ModelVocabulary) -> None:
    """After a space; none of them special."""
    assert gpt.tokenizer is not None
    drawn = vocabulary.draw(np.random.default_rng(0), 100)
    assert len({*drawn}) == 100
    texts = [gpt.tokenizer.decode([one]) for one in drawn]
    assert all(text[0] == " " and text[1:].isalpha() for text in texts)
    assert not {*drawn} & gpt.special_ids
    with pytest.raises(Unsupported, match="too few"):
        vocabulary.draw(np.random.default_rng(0), 10**6)


def test_a_score_is_the_share_of_attention() -> None:
    """Of the queries that are asked, on right keys and, on average, on as many of the others; against loops over all draws' means."""
    random = np.random.default_rng(0)
    weights = np.tril(random.random((2, 3, 7, 7)))
    weights /= weights.sum(-1, keepdims=True)
    right = np.tril(random.random((7, 7)) < 0.3, -1)
    others = np.tril(random.random((7, 7)) < 0.5, -1) & ~right
    score, control = AttentionPrompt([*range(7)], right, others).score(weights)
    hits, draws, total = np.zeros((2, 3)), np.zeros((2, 3)), 0
    for query in range(7):
        keys, rest = np.flatnonzero(right[query]), np.flatnonzero(others[query])
        if len(keys) and len(rest):
            total += 1
            hits += sum(weights[..., query, key] for key in keys)
            draws += len(keys) * np.mean([weights[..., query, key] for key in rest], axis=0)
    assert total > 2
    np.testing.assert_allclose(score, hits / total)
    np.testing.assert_allclose(control, draws / total)


@pytest.mark.parametrize("name", [*TOKENS, *SENTENCES])
def test_a_perfect_head_gets_1_and_a_uniform_one_its_control(name: str, vocabulary: ModelVocabulary) -> None:
    prompt = made(name, vocabulary)
    counts = prompt.right.sum(-1, keepdims=True)
    score, control = prompt.score(prompt.right / np.maximum(counts, 1))
    assert (score, control) == (pytest.approx(1), 0)
    uniform = np.tri(len(prompt.ids)) / np.arange(1, len(prompt.ids) + 1)[:, None]
    score, control = prompt.score(uniform)
    assert score == pytest.approx(control)
    assert 0 < score < 0.5


def test_random_tokens_come_twice(vocabulary: ModelVocabulary) -> None:
    """The right keys, by loops over the ids; the others are all earlier ones but the first."""
    for seed in range(5):
        for name in TOKENS:
            prompt = made(name, vocabulary, seed)
            for query, token in enumerate(prompt.ids):
                same = [key for key in range(query) if prompt.ids[key] == token]
                keys = {
                    "previous-token": [query - 1] if query else [],
                    "duplicate-token": same,
                    "induction": [key + 1 for key in same],
                }[name]
                assert np.flatnonzero(prompt.right[query]).tolist() == keys
                assert np.flatnonzero(prompt.others[query]).tolist() == [
                    key for key in range(1, query) if key not in keys
                ]
        assert len({*prompt.ids}) < len(prompt.ids)
        assert prompt.ids.count(prompt.ids[0]) == 1


def test_roles_are_those_of_the_measure(gpt: Model, vocabulary: ModelVocabulary) -> None:
    """The share of attention at queries with a match, as head_roles has it, but for the second token, whose only other key is the first one."""
    columns = headscope.MEASURES["head_roles"].columns
    for name, role in (("duplicate-token", "duplicate"), ("induction", "induction")):
        prompt = made(name, vocabulary)
        a = headscope.analyze(gpt, token_ids=prompt.ids, lenses=["weights"], measures=["head_roles"])
        expected = a.measures["head_roles"]["weights"][..., columns.index(f"{role}_matched")]
        np.testing.assert_allclose(prompt.score(a.maps["weights"])[0], expected, atol=1e-5)


def test_what_sentences_ask_for(gpt: Model, vocabulary: ModelVocabulary) -> None:
    """The tokens of the right and the other keys, as text."""
    assert gpt.tokenizer is not None
    for seed in range(5):
        for name in SENTENCES:
            prompt = made(name, vocabulary, seed)
            text = gpt.tokenizer.decode(prompt.ids)
            right, others = (
                gpt.tokenizer.decode([prompt.ids[key] for key in np.flatnonzero(one[-1])])
                for one in (prompt.right, prompt.others)
            )
            if name == "retrieval":
                thing = text.split()[-3]
                assert f"The {thing} is in{right}." in text
                assert sorted(f"{others}{right}".split()) == sorted(city for city in sentences.CITIES if city in text)
            elif name == "s-inhibition":
                assert text.count(right.strip()) == 2
                assert {*others.split()} == {name for name in sentences.NAMES if name in text}
                (key,) = np.flatnonzero(prompt.right[-1])[-1:]
                assert right.strip() not in gpt.tokenizer.decode(prompt.ids[key + 1 :])
            else:
                marks = np.array([gpt.tokenizer.decode([one]).strip() in (",", ".") for one in prompt.ids])
                before = np.tri(len(marks), k=-1, dtype=bool)
                np.testing.assert_array_equal(prompt.right, before & marks & ~marks[:, None])
                assert not (prompt.others & marks).any()


def test_what_lists_ask_for(gpt: Model, vocabulary: ModelVocabulary) -> None:
    """Three words of a list in a row, and the one that follows among all of its words that are one token."""
    assert gpt.tokenizer is not None
    for seed in range(5):
        prompt = made("successor", vocabulary, seed)
        shown = gpt.tokenizer.decode(prompt.ids).split()[-3:]
        answers = [gpt.tokenizer.decode([one]).strip() for one in prompt.answers]
        words = next(words for words in lists.LISTS if {*answers} <= {*words} and {*shown} <= {*words})
        assert [*shown, answers[prompt.right]] == words[words.index(shown[0]) :][:4]


def test_contributions_to_answers(gpt: Model, vocabulary: ModelVocabulary) -> None:
    """Those of the effect, for every answer; the score is 1 where the right one is the largest."""
    prompt = made("successor", vocabulary)
    found = written(gpt, prompt)
    for place, answer in enumerate(prompt.answers):
        effects = headscope.effect(gpt, token_ids=prompt.ids, target=answer).effects
        np.testing.assert_allclose(found[..., place], effects, atol=1e-4)
    score, control = ChoicePrompt([1], [4, 5, 6], 1).score(np.array([[0.0, 2, 1], [3, 2, 1]]))
    assert (score.tolist(), control.tolist()) == ([1, 0], [0, 0.5])


def test_a_random_model_is_at_chance() -> None:
    """No head of it is far from its control, and what needs a tokenizer is missing, with the reason."""
    torch.manual_seed(0)
    found = headscope.head_scores(TINY["llama"](), prompts=4)
    assert tuple(found.scores) == TOKENS
    assert {*found.missing} == {*BATTERIES} - {*TOKENS}
    assert all("without a tokenizer" in reason for reason in found.missing.values())
    for name in TOKENS:
        assert found.scores[name].shape == (3, 4)
        assert np.abs(found.scores[name] - found.controls[name]).mean() < 0.1


def test_scores_of_a_model(gpt: Model) -> None:
    """In every battery; the same seed gives the same ones; a document is JSON."""
    seen: list[float] = []
    found = headscope.head_scores(gpt, prompts=2, progress=lambda fraction, stage, detail: seen.append(fraction))
    assert (tuple(found.scores), found.missing) == (tuple(BATTERIES), {})
    assert seen == sorted(seen)
    again = headscope.head_scores(gpt, ["induction"], prompts=2)
    np.testing.assert_array_equal(again.scores["induction"], found.scores["induction"])
    other = headscope.head_scores(gpt, ["induction"], prompts=2, seed=1)
    assert not np.array_equal(other.scores["induction"], found.scores["induction"])
    name, score, control = found.top("previous-token", 1)[0]
    layer, head = map(int, name.split("."))
    assert score == found.scores["previous-token"].max() == found.scores["previous-token"][layer, head]
    assert control < 0.2 < score
    with pytest.raises(InvalidRequest, match="battery is one of induction"):
        again.top("previous-token")
    with pytest.raises(InvalidRequest, match="count must be a whole number, 0 or larger"):
        again.top("induction", -1)
    document = found.to_document()
    assert json.loads(json.dumps(document)) == document
    assert len(examine(gpt).all) == len(document["layers"])


def test_refusals(minilm: Model) -> None:
    """Models that predict no next token, names that do not exist, and numbers of prompts; a battery that is named and impossible."""
    tiny = headscope.load(TINY["gpt2"]())
    for error, match, model, given in (
        (Unsupported, "predict the next token", minilm, {}),
        (Unsupported, "predict the next token", BertModel(BertConfig(**SMALL)), {}),
        (InvalidRequest, "batteries.0", tiny, {"batteries": ["name-mover"]}),
        (InvalidRequest, "prompts: ", tiny, {"prompts": 0}),
        (Unsupported, "without a tokenizer", tiny, {"batteries": ["retrieval"]}),
    ):
        with pytest.raises(error, match=match):
            headscope.head_scores(model, **given)
