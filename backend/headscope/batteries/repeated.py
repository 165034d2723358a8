"""Batteries on random tokens that come twice: heads that attend to the previous token, to the same token, and to the one after it (induction)."""

from __future__ import annotations

import numpy as np

from ..core.arrays import Array
from ..core.lazy import torch
from ..measures.roles import repetitions
from .base import AttentionPrompt, Battery, TokenSource, earlier


def repeated_tokens(random: np.random.Generator, vocabulary: TokenSource) -> list[int]:
    """Return one token, and a row of 16 to 31 others twice, with up to 8 more between: so no key is at a fixed distance."""
    length, between = int(random.integers(16, 32)), int(random.integers(0, 9))
    first, *rest = vocabulary.draw(random, 1 + length + between)
    return [first, *rest, *rest[:length]]


def _prompt(ids: list[int], right: Array) -> AttentionPrompt:
    return AttentionPrompt(ids, right, earlier(right))


def make_previous(random: np.random.Generator, vocabulary: TokenSource) -> AttentionPrompt:
    """Return a prompt whose right keys are those before each query."""
    ids = repeated_tokens(random, vocabulary)
    return _prompt(ids, np.eye(len(ids), k=-1, dtype=bool))


def _make_repeated(random: np.random.Generator, vocabulary: TokenSource, after: int) -> AttentionPrompt:
    """Return a prompt whose right keys are so many tokens after the earlier occurrences of each token."""
    ids = repeated_tokens(random, vocabulary)
    queries, keys = repetitions(torch.tensor(ids), 0, len(ids))
    right = np.zeros((len(ids), len(ids)), bool)
    right[queries, keys + after] = True
    return _prompt(ids, right)


def make_duplicate(random: np.random.Generator, vocabulary: TokenSource) -> AttentionPrompt:
    """Return a prompt whose right keys are the earlier occurrences of each token."""
    return _make_repeated(random, vocabulary, after=0)


def make_induction(random: np.random.Generator, vocabulary: TokenSource) -> AttentionPrompt:
    """Return a prompt whose right keys are the tokens after the earlier occurrence of each token."""
    return _make_repeated(random, vocabulary, after=1)


PREVIOUS_TOKEN = Battery(
    name="previous-token",
    title="Previous token",
    doc="Attends to the token before: the share of attention on it, in random tokens.",
    not_="Not a use of that token: some heads only mark where it is.",
    citation="Olsson et al. 2022, In-context Learning and Induction Heads",
    make=make_previous,
)
DUPLICATE_TOKEN = Battery(
    name="duplicate-token",
    title="Duplicate token",
    doc="Attends to the earlier occurrence of the same token: the share of attention on it, in random tokens that come twice.",
    not_="Not copying: what the head passes on may be that the token is a duplicate.",
    citation="Wang et al. 2023, Interpretability in the Wild, sec. 3.3",
    make=make_duplicate,
)
INDUCTION = Battery(
    name="induction",
    title="Induction",
    doc="Attends to the token that followed the earlier occurrence of the same token: the share of attention on it, in random tokens that come twice.",
    not_="Not a proof that the head raises that token's logit; contributions tell.",
    citation="Olsson et al. 2022, In-context Learning and Induction Heads (prefix matching)",
    make=make_induction,
)
