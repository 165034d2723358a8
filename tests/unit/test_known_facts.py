"""What is known of real heads comes out."""

from __future__ import annotations

import numpy as np
import pytest

import headscope
from headscope import MEASURES, Model

# 61 tokens of MiniLM.
TEXT = (
    "The quick brown fox jumps over the lazy dog while seventeen curious children watch from the old stone bridge, wondering whether the animal will ever "
    "stop. Later that evening, a storm rolled across the valley and the river carried away the small wooden boat that their late grandfather had built with "
    "care many years before."
)


@pytest.fixture(scope="module")
def facts(minilm: Model) -> headscope.Analysis:
    """One analysis of the text."""
    return headscope.analyze(minilm, TEXT, measures=("patterns", "special_tokens", "head_roles"))


def column(a: headscope.Analysis, measure: str, name: str) -> np.ndarray:
    """One named column of a measure of the weights, [L, H]."""
    values: np.ndarray = a.measures[measure]["weights"][..., MEASURES[measure].columns.index(name)]
    return values


def test_a_previous_token_head(facts: headscope.Analysis) -> None:
    """MiniLM's head 0.2 looks at the token before."""
    assert len(facts.tokens) == 61
    assert column(facts, "patterns", "diagonal_argmax")[0, 2] > 0.9
    assert column(facts, "patterns", "offset")[0, 2] == -1
    assert column(facts, "head_roles", "previous")[0, 2] > 0.9


def test_a_head_that_looks_at_the_first_token(facts: headscope.Analysis) -> None:
    """MiniLM's head 4.5 looks at [CLS]."""
    assert column(facts, "special_tokens", "first")[4, 5] > 0.6
    assert column(facts, "patterns", "special_argmax")[4, 5] > 0.9


def test_most_of_what_cls_gets_reaches_nothing(facts: headscope.Analysis) -> None:
    """In the middle layers [CLS] gets about two fifths of the weights, and a few thousandths of the effective attention."""
    weights, effective = (facts.maps[lens][1:5, :, :, 0].mean(axis=(1, 2)) for lens in ("weights", "effective"))
    assert ((weights > 0.35) & (weights < 0.5)).all()
    assert (np.abs(effective) < 0.005).all()


# Reactions, and for the atoms of the product, in the order of the text, those of the reactants that they were; None where symmetry leaves it open.
REACTIONS = {
    "CC(=O)Cl.NCC>>CC(=O)NCC": (0, 1, 2, 4, 5, 6),
    "CCI.OC(C)C>>CCOC(C)C": (0, 1, 3, 4, None, None),
    "BrCC1CC1.NC>>CNCC1CC1": (6, 5, 1, 2, None, None),
    "O=C(Cl)CC.CO>>COC(=O)CC": (5, 6, 1, 0, 3, 4),
    "O=Cc1ccccc1.CN>>CNCc1ccccc1": (8, 9, 1, 2, None, None, None, None, None),
}


def test_a_head_that_maps_atoms() -> None:
    """RXNMapper's head 10.5 looks from an atom of the product at the atom of the reactants that it was; most heads do not."""
    model = headscope.load("rxnmapper")
    right, asked = np.zeros((12, 8)), 0
    for text, truth in REACTIONS.items():
        a = headscope.analyze(model, text, lenses=("weights",), measures=())
        tokens = [token.text for token in a.tokens]
        letters = [at for at, token in enumerate(tokens) if token[0].isalpha()]
        keys, queries = ([at for at in letters if (at < tokens.index(">>")) is before] for before in (True, False))
        assert len(queries) == len(truth)
        for query, key in zip(queries, truth, strict=True):
            if key is not None:
                right += a.maps["weights"][:, :, query][..., keys].argmax(-1) == key
                asked += 1
    assert right[10, 5] / asked > 0.8
    assert np.median(right) / asked < 0.3


def test_the_tokens_of_a_reaction() -> None:
    """Atoms in brackets, two-letter elements and ring closures above 9 are one token; other characters are dropped, as by the tokenizer of the package."""
    model = headscope.load("rxnmapper")
    a = headscope.analyze(model, "[nH]1%12BrCl>>C é", lenses=("weights",), measures=())
    assert [token.text for token in a.tokens] == ["[CLS]", "[nH]", "1", "%12", "Br", "Cl", ">>", "C", "[SEP]"]
