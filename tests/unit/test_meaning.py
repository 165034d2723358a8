"""Sentences are understood by meaning: a fixed list on MiniLM's real analysis, new measures by their own words, and clear words where MiniLM is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import headscope
from headscope.errors import ModelUnavailable
from headscope.library.analysis import Analysis
from headscope.measures import MEASURES
from headscope.models.sentence_encoder import SentenceEncoder
from headscope.query import SentenceContext, parse, understand, write
from headscope.settings import Settings
from tests.support.extent import extent
from tests.support.variants import variants

from .later_sentences import FIFTH_UNSEEN_SENTENCES, FOURTH_UNSEEN_SENTENCES, SIXTH_UNSEEN_SENTENCES
from .sentences import ASKED_SENTENCES, COMMON_SENTENCES, LATER_SENTENCES, OWN_SENTENCES, TEXT
from .unseen_sentences import UNSEEN_SENTENCES

MEASURED = ("entropy", "patterns", "head_roles", "token_norms", "special_tokens", "sink")
OTHER_SLOTS = {"head", "pair", "edge", "query", "key", "lens", "compare", "difference", "measure", "chart", "special"}
OTHER_SLOTS |= {"explain", "count", "page"}


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return headscope.analyze("minilm", TEXT, lenses=("weights", "norm"), measures=MEASURED)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> SentenceEncoder:
    return SentenceEncoder(Settings(home=tmp_path_factory.mktemp("home")))


def meaning(analysis: Analysis, said: str, encoder: SentenceEncoder | None) -> str:
    """The query and the other slots of a sentence; `?` for a question."""
    context = SentenceContext(analysis.layers, analysis.heads, analysis.tokens, analysis.key_tokens)
    view = understand(said, context, encoder).view
    if view is None:
        return "?"
    return canonical(" ".join([view.query, *(f"{p.slot} {p.value}" for p in view.parts if p.slot in OTHER_SLOTS)]))


def canonical(expected: str) -> str:
    """A query in one spelling, then the slots in alphabetical order."""
    if expected.strip() == "?":
        return "?"
    words = expected.split()
    starts = [
        at
        for at, word in enumerate(words)
        if word in OTHER_SLOTS
        and words[at - 1 : at] not in (["by"], ["not"])
        and words[at + 1 : at + 2] not in (["="], ["<="])
    ]
    query, slots = words[: (starts or [len(words)])[0]], words[(starts or [len(words)])[0] :]
    return " ".join([write(parse(" ".join(query))), *sorted(slots)]).strip()


@variants(
    "sentences",
    [
        OWN_SENTENCES,
        COMMON_SENTENCES,
        {**LATER_SENTENCES, **ASKED_SENTENCES},
        UNSEEN_SENTENCES,
        FOURTH_UNSEEN_SENTENCES,
        FIFTH_UNSEEN_SENTENCES,
        SIXTH_UNSEEN_SENTENCES,
    ],
    ids=["own", "common", "later", "unseen", "fourth", "fifth", "sixth"],
)
def test_sentences_mean_what_was_written_down_before(analysis, encoder, sentences):
    sentences = dict(list(sentences.items())[:: extent(1, 12)])
    answers = {said: meaning(analysis, said, encoder) for said in sentences}
    differing = {
        said: answers[said]
        for said, expected in sentences.items()
        if answers[said] not in [canonical(one) for one in expected.split("//")]
    }
    assert {said: answer for said, answer in differing.items() if answer != "?"} == {}
    # German is asked about, and one in a hundred of the others.
    assert len(differing) <= max(1, len(sentences) // 100), differing


def test_what_is_found_has_a_reading(analysis, encoder):
    """Induction is not defined for a model that sees both ways, so no head is ranked by it."""
    assert analysis.find(meaning(analysis, "induction heads", encoder)).heads == []
    found = analysis.find(meaning(analysis, "heads that look at punctuation", encoder)).heads
    weights = analysis.maps["weights"]
    dot = [token.text for token in analysis.tokens].index(".")
    best = np.unravel_index(weights[..., dot].mean(-1).argmax(), weights.shape[:2])
    assert len(found) == 5
    assert (found[0].layer, found[0].head) == best


def test_heads_like_another(analysis, encoder):
    """By the cosine of their maps; these are small enough that their thumbnails have every entry."""
    found = analysis.find(meaning(analysis, "heads like 2.9", encoder)).heads
    maps = analysis.maps["weights"].reshape(6, 12, -1).astype(float)
    lengths = np.linalg.norm(maps, axis=-1)
    cosines = maps @ maps[2, 9] / lengths / lengths[2, 9]
    cosines[2, 9] = -1
    order = [(int(place) // 12, int(place) % 12) for place in np.argsort(-cosines, axis=None)[:5]]
    assert [(head.layer, head.head) for head in found] == order
    assert found[0].values["like.2.9"] == pytest.approx(cosines.max(), abs=0.01)


def test_a_new_measure_is_found_by_its_own_words(analysis, encoder):
    """Its title and its description are enough."""
    MEASURES["zigzag"] = replace(
        MEASURES["max_activation"],
        name="zigzag",
        title="Alternation",
        doc="How often attention jumps between even and odd positions.",
        phrases={},
    )
    try:
        for said in ("alternation above 0.2", "heads that jump between odd and even positions"):
            assert "zigzag" in meaning(analysis, said, encoder), said
    finally:
        del MEASURES["zigzag"]
    assert meaning(analysis, "alternation above 0.2", encoder) == "?"


def test_it_means_the_pinned_token(analysis, encoder):
    context = SentenceContext(analysis.layers, analysis.heads, analysis.tokens, analysis.key_tokens, pinned=[6])
    (part,) = understand("what does it look at", context, encoder).view.parts
    assert (part.slot, part.value) == ("query", "6")


def test_a_name_is_never_taken_for_another(analysis, encoder):
    """Two columns differ only in case: each is found by its own name, and neither in place of the other."""
    for name in ("token_types.punct", "token_types.PUNCT"):
        assert meaning(analysis, f"{name} > 0.02", encoder) == f"{name} > 0.02"
        assert meaning(analysis, f"heads sorted by {name}", encoder) == f"order by {name} desc"
    assert meaning(analysis, "heads sorted by token types punct", encoder) == "?"


def test_without_minilm_known_phrases_work_and_others_say_why(analysis, tmp_path, monkeypatch):
    monkeypatch.setattr("headscope.models.catalog.Catalog._local", lambda *_: None)
    monkeypatch.setattr(
        "headscope.models.catalog._located", lambda name, entry: headscope.models.located.Located(name, None)
    )
    encoder = SentenceEncoder(Settings(home=tmp_path))
    with pytest.raises(ModelUnavailable):
        encoder.encode(["a"])
    assert meaning(analysis, "vertical heads with entropy below 1", encoder) == "vertical and entropy < 1"
    context = SentenceContext(analysis.layers, analysis.heads, analysis.tokens, analysis.key_tokens)
    question = understand("heads with blurred maps", context, encoder).question
    assert "MiniLM" in question.text


def test_embeddings_are_stored_and_damage_costs_only_time(encoder, tmp_path):
    texts = ["previous token", "punctuation"]
    first = SentenceEncoder(Settings(home=tmp_path)).encode_fixed(texts)
    (file,) = (tmp_path / "phrases").iterdir()
    stored = SentenceEncoder(Settings(home=tmp_path)).encode_fixed(texts)
    file.write_bytes(b"damaged")
    again = SentenceEncoder(Settings(home=tmp_path)).encode_fixed(texts)
    assert np.array_equal(first, stored)
    assert np.array_equal(first, again)
    assert np.allclose(np.linalg.norm(first, axis=1), 1)
    assert np.allclose(first, encoder.encode(texts))


def test_embeddings_are_those_of_the_model():
    """Mean of the last hidden states, normalised."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = Path(__file__).parents[2] / "models" / "minilm"
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    text = "Heads that look at [SEP], naïvely."
    with torch.no_grad():
        states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)
    assert np.allclose(SentenceEncoder(Settings()).encode([text])[0], (states / states.norm()).numpy(), atol=1e-5)


def test_torch_is_not_imported():
    code = """
import sys
from headscope.models.sentence_encoder import SentenceEncoder
from headscope.settings import Settings
assert SentenceEncoder(Settings()).encode(["a head"]).shape == (1, 384)
assert not {"torch", "transformers"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_threads_of_the_server_leave_cores_to_others():
    """Two threads of numpy would wait for each other while analyses use the cores, and those of torch would spin. It is set before numpy starts its threads."""
    code = """
import os, sys
from headscope.cli.main import main
assert "numpy" not in sys.modules
main.get_command(None, "serve")
assert "numpy" in sys.modules
print(len(os.listdir("/proc/self/task")), os.environ["OPENBLAS_NUM_THREADS"], os.environ["GOMP_SPINCOUNT"])
"""
    free = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "OPENBLAS_"))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=free)
    assert done.stdout.split() == ["1", "1", "1000"], done.stderr
