"""How often the heads of RXNMapper find the atom that an atom of the product was, through four lenses.

python -m models.atom_maps REACTIONS.tsv

REACTIONS.tsv has a column `mapped_reaction`: SMILES in which an atom has the same map number on both sides. Needs rdkit, which removes the numbers before the
model sees the reaction. For an atom of the product the answer of a head is the atom of the reactants with the largest entry of its row; of equivalent atoms only
the one with the number is right. Intervals of 95 % are percentiles of 1,000 resamples of the reactions, not of their atoms.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rdkit import Chem, RDLogger

import headscope
from headscope.errors import HeadscopeError

MODEL = Path(__file__).parent / "rxnmapper"
HEAD = (10, 5)
LENSES = ("weights", "effective", "norm", "alti")
RESAMPLES = 1000


class Reaction(NamedTuple):
    """A reaction without map numbers, and those of its atoms in the order of the text; 0 is none."""

    text: str
    reactants: list[int]
    products: list[int]


class Counts(NamedTuple):
    """Answers about the atoms of one reaction: right ones and their reciprocal ranks, summed, [L, H] each; and what chance would give."""

    atoms: int
    right: np.ndarray
    reciprocal: np.ndarray
    chance: float


def read(smiles: str) -> Reaction:
    """Read a mapped reaction. Raises ValueError if RDKit cannot."""
    before, _, after = smiles.partition(">>")
    (reactants, left), (products, right) = map(_unmapped, (before, after))
    return Reaction(f"{reactants}>>{products}", left, right)


def _unmapped(smiles: str) -> tuple[str, list[int]]:
    molecule = Chem.MolFromSmiles(smiles)
    if molecule is None:
        raise ValueError(smiles)
    numbers = [atom.GetAtomMapNum() for atom in molecule.GetAtoms()]
    for atom in molecule.GetAtoms():
        atom.SetAtomMapNum(0)
    text = Chem.MolToSmiles(molecule)
    order = molecule.GetPropsAsDict(includePrivate=True, includeComputed=True)["_smilesAtomOutputOrder"]
    return text, [numbers[atom] for atom in order]


def atoms(tokens: list[str]) -> tuple[list[int], list[int]]:
    """Return the positions of the atoms of reactants and products among the tokens."""
    arrow = tokens.index(">>")
    found = [
        at
        for at, token in enumerate(tokens)
        if token[0].isalpha() or (token[0] == "[" and token not in ("[CLS]", "[SEP]"))
    ]
    return [at for at in found if at < arrow], [at for at in found if at > arrow]


def count(maps: np.ndarray, tokens: list[str], reaction: Reaction) -> Counts:
    """Compare maps [L, H, Q, K] with the truth."""
    keys, queries = atoms(tokens)
    asked = [
        (query, reaction.reactants.index(number))
        for query, number in zip(queries, reaction.products, strict=True)
        if number and number in reaction.reactants
    ]
    rows = maps[:, :, [query for query, _ in asked]][..., keys]  # [L, H, atoms, atoms of the reactants]
    true = np.array([key for _, key in asked], dtype=int)
    own = np.take_along_axis(rows, true[None, None, :, None], axis=-1)
    ranks = 1 + (rows > own).sum(-1)  # [L, H, atoms]
    return Counts(len(asked), (rows.argmax(-1) == true).sum(-1), (1 / ranks).sum(-1), len(asked) / max(len(keys), 1))


def interval(right: np.ndarray, total: np.ndarray) -> tuple[float, float]:
    """Return the interval of the accuracy, by resampling reactions."""
    draws = np.random.default_rng(0).integers(0, len(total), (RESAMPLES, len(total)))
    low, high = np.percentile(right[draws].sum(1) / total[draws].sum(1), [2.5, 97.5])
    return float(low), float(high)


def report(title: str, counted: list[Counts]) -> str:
    """Return a line of the table: the known head, the best one of half of the reactions on the other half, the mean of all."""
    total = np.array([one.atoms for one in counted])
    right = np.array([one.right for one in counted])  # [reactions, L, H]
    reciprocal = np.array([one.reciprocal for one in counted])
    head = HEAD[0], min(HEAD[1], right.shape[2] - 1)  # a lens of layers has one map in each
    low, high = interval(right[:, *head], total)
    best = np.unravel_index(right[::2].sum(0).argmax(), right.shape[1:])
    held_out = right[1::2, *best].sum() / total[1::2].sum()
    known, rank = right[:, *head].sum() / total.sum(), reciprocal[:, *head].sum() / total.sum()
    mean = right.mean((1, 2)).sum() / total.sum()
    return f"| {title} | {known:.3f} ({low:.3f}-{high:.3f}) | {rank:.3f} | {best[0]}.{best[1]}: {held_out:.3f} | {mean:.3f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Score the heads of RXNMapper on mapped reactions.")
    parser.add_argument("reactions", type=Path)
    RDLogger.DisableLog("rdApp.*")
    model = headscope.load(str(MODEL))
    counted: dict[str, list[Counts]] = {lens: [] for lens in LENSES}
    left_out = 0
    with parser.parse_args().reactions.open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            try:
                reaction = read(row["mapped_reaction"])
                analysis = headscope.analyze(model, reaction.text, lenses=LENSES, measures=())
                tokens = [token.text for token in analysis.tokens]
                found = {lens: count(np.asarray(analysis.maps[lens]), tokens, reaction) for lens in LENSES}
            except (ValueError, HeadscopeError) as error:
                left_out += 1
                print(f"left out: {error}", file=sys.stderr)
                continue
            for lens, one in found.items():
                if one.atoms:
                    counted[lens].append(one)
    each = counted["weights"]
    print(f"{len(each)} reactions, {sum(one.atoms for one in each):,} atoms; {left_out} left out.\n")
    print(
        "| lens | head 10.5 | reciprocal rank | best head of one half, on the other | mean of all heads |\n| --- | --- | --- | --- | --- |"
    )
    for lens, of_lens in counted.items():
        print(report(lens, of_lens))
    print(f"\nChance: {sum(one.chance for one in each) / sum(one.atoms for one in each):.3f}.")


if __name__ == "__main__":
    main()
