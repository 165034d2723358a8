"""Inputs in which it is known where a head that does a task should look, for benchmarks.scores."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from headscope import Model
from headscope.core.tokens import Token
from headscope.studies.scores import KeyQuestion
from models.needles import QUERIES
from models.needles import lines as needle_lines

# Before these words stands the head noun of a subject whose verb follows later, as BLiMP builds its distractors.
AFTER_HEAD_NOUN = {"of", "about", "that", "who", "which"}
DETERMINERS = {"A", "An", "The", "This", "That", "These", "Those", "Some", "Most", "Many", "All", "Every", "Each"}
# Integrated gradients run a large model hundreds of times, and value zeroing runs every layer once per token.
SLOWEST = ("integrated-gradients",)
SLOW = (*SLOWEST, "value-zeroing")
LONGEST = 128  # tokens of a reaction: effective-published reads no more
REPEATED = 50  # tokens, each of which comes twice


class Case(NamedTuple):
    """One input, the questions about it, and the two tokens whose logits attribution maps compare; by default they explain the largest logit."""

    ids: list[int]
    questions: list[KeyQuestion]
    target: tuple[int, int] | None = None


class Missing(Exception):
    """A model, data or a package that is not here."""


@dataclass(frozen=True)
class Truth:
    """A kind of truth: the model, and its inputs from a folder of data sets.

    head     known beforehand to do the task
    without  lenses and attribution maps that take too long on these inputs
    """

    title: str
    model: str
    cases: Callable[[Model, Path], Iterator[Case]]
    head: tuple[int, int] | None = None
    without: tuple[str, ...] = ()


def distractors(model: Model, folder: Path) -> Iterator[Case]:
    """Yield sentences up to a verb, whose number is that of the head noun of the subject; another noun is nearer."""
    names = ("distractor_agreement_relational_noun", "distractor_agreement_relative_clause")
    return _pairs(model, folder, names, head_noun)


def anaphors(model: Model, folder: Path) -> Iterator[Case]:
    """Yield sentences up to a reflexive pronoun, whose antecedent is the subject."""
    return _pairs(model, folder, ("anaphor_gender_agreement", "anaphor_number_agreement"), antecedent)


def head_noun(words: list[str]) -> int | None:
    """Return the place of the head noun of the subject: "A lot of *teachers* who ...", "The *movies* about ..."."""
    first = 3 if words[:3] == ["A", "lot", "of"] else 0
    found = (place - 1 for place, word in enumerate(words) if place > first and word in AFTER_HEAD_NOUN)
    return next(found, None)


def antecedent(words: list[str]) -> int | None:
    """Return the place of the antecedent: a name in front, or the noun behind a determiner."""
    if words[:3] == ["A", "lot", "of"]:
        return 3
    return int(words[0] in DETERMINERS)


def _pairs(
    model: Model, folder: Path, names: tuple[str, ...], deciding: Callable[[list[str]], int | None]
) -> Iterator[Case]:
    """Yield the pairs of paradigms of BLiMP that the model gets right, in turn; another sentence of BLiMP is in front, so that no position is always right."""
    before = (row["sentence_good"] for row in _blimp(folder, "determiner_noun_agreement_1"))
    for pair, context in zip(
        chain.from_iterable(zip(*(_blimp(folder, n) for n in names), strict=True)), before, strict=False
    ):
        prefix = pair["one_prefix_prefix"]
        place = deciding(prefix.split())
        text = f"{context} {prefix}"
        tokens = model.encode(text).tokens
        good, bad = (
            model.encode(f"{text} {pair[f'one_prefix_word_{which}']}").tokens[len(tokens)].id
            for which in ("good", "bad")
        )
        if place is None or good == bad:
            continue
        ids = [token.id for token in tokens]
        logits = last_logits(model, ids)
        if logits[good] > logits[bad]:
            right = _tokens_of(tokens, len(context) + 1, prefix.split(), place)
            yield Case(ids, [KeyQuestion(len(ids) - 1, list(range(len(ids))), right)], (good, bad))


def _blimp(folder: Path, name: str) -> list[dict[str, Any]]:
    path = folder / "blimp" / f"{name}.jsonl"
    if not path.exists():
        raise Missing(f"blimp/{name}.jsonl of github.com/alexwarstadt/blimp is not in the folder of data.")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _tokens_of(tokens: list[Token], start: int, words: list[str], place: int) -> list[int]:
    """Return the places of the tokens of a word; the words begin at `start` of the text, with one space between them."""
    first = start + len(" ".join([*words[:place], ""]))
    last = first + len(words[place])
    return [at for at, token in enumerate(tokens) if token.start < last and token.end > first]


def last_logits(model: Model, ids: list[int]) -> torch.Tensor:
    """Return the logits [vocabulary] at the last token."""
    model.module.set_attn_implementation("eager")
    with torch.inference_mode():
        logits: torch.Tensor = model.module(torch.tensor([ids]), use_cache=False).logits[0, -1]
    return logits


def repetitions(model: Model, folder: Path, count: int = REPEATED) -> Iterator[Case]:
    """Yield random tokens that come twice, without end; the second time, the token after the earlier occurrence is the one that comes next."""
    usual = np.array([one for one in range(model.vocabulary) if one not in model.special_ids])
    for seed in range(1_000_000):
        ids = np.random.default_rng(seed).choice(usual, count, replace=False).tolist()
        asked = range(count, 2 * count - 1)
        yield Case([*ids, *ids], [KeyQuestion(query, list(range(query + 1)), [query - count + 1]) for query in asked])


def reactions(model: Model, folder: Path) -> Iterator[Case]:
    """Yield chemical reactions; an atom of the product was one of the reactants' atoms."""
    path = folder / "reactions" / "golden_half.tsv"
    if not path.exists():
        raise Missing("reactions/golden_half.tsv, mapped reactions, is not in the folder of data.")
    try:
        atom_maps = import_module("models.atom_maps")
    except ModuleNotFoundError as error:
        raise Missing("Mapped reactions are read with rdkit, which is not installed.") from error
    atom_maps.RDLogger.DisableLog("rdApp.*")
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            reaction = atom_maps.read(row["mapped_reaction"])
            tokens = model.encode(reaction.text).tokens
            keys, queries = atom_maps.atoms([token.text for token in tokens])
            questions = [
                KeyQuestion(query, keys, [keys[reaction.reactants.index(number)]])
                for query, number in zip(queries, reaction.products, strict=True)
                if number and number in reaction.reactants
            ]
            if questions and len(tokens) <= LONGEST:
                yield Case([token.id for token in tokens], questions)


def needles(model: Model, folder: Path) -> Iterator[Case]:
    """Yield lines in which four tokens come again, without end; what followed each of them before is what comes next."""
    for seed in range(1_000_000):
        ids, places = needle_lines(torch.Generator().manual_seed(2 + seed), 1)
        asked = zip(QUERIES.tolist(), places[0].tolist(), strict=True)
        yield Case(ids[0].tolist(), [KeyQuestion(query, list(range(query + 1)), [place]) for query, place in asked])


TRUTHS = {
    "distractors": Truth("Subject of a verb behind a distractor (BLiMP)", "smollm2", distractors, without=SLOWEST),
    "anaphors": Truth("Antecedent of a reflexive pronoun (BLiMP)", "smollm2", anaphors, without=SLOWEST),
    "repetitions": Truth("Token after the earlier occurrence", "smollm2", repetitions, without=SLOW),
    "needles": Truth("Planted needle", "needle", needles),
    "reactions": Truth("Atom of the reactants", "rxnmapper", reactions, (10, 5), SLOWEST),
}
