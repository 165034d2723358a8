"""Five numbers of a study from their definitions: plain transformers with eager attention, one input at a time, loops in float64. Nothing of ours but the tokenizer.

As a script it takes a model's name and a file with one text (or two, with a tab between) per line, and compares a study of its first 200 lines with this:

    python -m tests.unit.studies.slow minilm texts.txt
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel

import headscope

Array = NDArray[Any]
KINDS = ("vertical", "diagonal", "vertical+diagonal", "block", "heterogeneous", "unclassified")
# How near a score may come to its threshold before rounding in float32 decides.
NEAR = 2e-5
ATOL = 1e-6


def plain(model: Any) -> Any:
    """The same weights in a module that transformers alone has made."""
    if model.source is not None:
        return AutoModel.from_pretrained(model.source.folder, attn_implementation="eager").eval()
    module = type(model.module)(model.module.config)
    module.load_state_dict(model.module.state_dict())
    module.set_attn_implementation("eager")
    return module.eval()


class Input:
    """One text or two through a plain module."""

    def __init__(self, module: Any, tokenizer: Any, text: str, pair: str | None = None) -> None:
        encoding = tokenizer.encode(text) if pair is None else tokenizer.encode(text, pair)
        self.special = [bool(flag) for flag in encoding.special_tokens_mask]
        self.second = [type_ == 1 and not flag for type_, flag in zip(encoding.type_ids, self.special, strict=True)]
        self.names = encoding.tokens
        given = {
            name: torch.tensor([getattr(encoding, of)])
            for name, of in (("input_ids", "ids"), ("token_type_ids", "type_ids"))
        }
        with torch.no_grad():
            output = module(**given, output_attentions=True, output_hidden_states=True)
        self.maps = np.stack([layer[0].double().numpy() for layer in output.attentions])  # [L, H, n, n]
        self.hidden = [layer[0].double().numpy() for layer in output.hidden_states[1:]]


def entropy(one: Input) -> Array:
    """Mean over queries of -sum A ln A, [L, H]."""
    found = np.zeros(one.maps.shape[:2])
    for place in np.ndindex(found.shape):
        rows = [-sum(w * math.log(w) for w in row if w > 0) for row in one.maps[place].tolist()]
        found[place] = math.fsum(rows) / len(rows)
    return found


def special_tokens(one: Input) -> Array:
    """Mean attention of other tokens to [CLS], to the [SEP] that gets most, and to all special tokens, [L, H, 3]."""
    others = [place for place, flag in enumerate(one.special) if not flag]
    marked = [place for place, flag in enumerate(one.special) if flag]
    closing = [place for place in marked if place > 0 and one.names[place] == one.names[marked[-1]]]
    found = np.zeros((*one.maps.shape[:2], 3))
    for place in np.ndindex(*found.shape[:2]):
        received = [math.fsum(one.maps[place][q, k] for q in others) / len(others) for k in range(len(one.special))]
        found[place] = received[0], max(received[k] for k in closing), math.fsum(received[k] for k in marked)
    return found


def residual_ratio(one: Input) -> Array:
    """||X - mean over tokens|| / ||X||, both sqrt(largest column sum * largest row sum), [L]."""

    def norm(matrix: Array) -> float:
        return math.sqrt(max(np.abs(matrix).sum(0)) * max(np.abs(matrix).sum(1)))

    return np.array([norm(X - X.mean(0)) / norm(X) for X in one.hidden])


def cosine(one: Input, other: Input) -> Array:
    """Cosine of the two maps of every head, [L, H]."""
    a, b = (each.maps.reshape(*each.maps.shape[:2], -1) for each in (one, other))
    return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))


def patterns(one: Input) -> tuple[Array, int]:
    """Number of each head's class by rules v1 [L, H], and how many scores are so near to a threshold that float32 decides."""
    found, near = np.zeros(one.maps.shape[:2], int), 0
    for place in np.ndindex(found.shape):
        found[place], close = _pattern(one, one.maps[place])
        near += close
    return found, near


def _pattern(one: Input, A: Array) -> tuple[int, bool]:
    n, close = len(A), False
    rows = [q for q in range(n) if not one.special[q]]
    marked = [k for k in range(n) if one.special[k]]

    def reaches(score: float, least: float) -> bool:
        nonlocal close
        close |= abs(score - least) < NEAR
        return score >= least

    if len(rows) < 4:
        return KINDS.index("unclassified"), False
    special = float(np.mean([A[q, marked].sum() for q in rows]))
    # Where two weights are as good as equal the largest is decided by rounding.
    close |= any(np.diff(np.sort(A[q])[-2:])[0] < 1e-6 for q in rows)
    best = {q: int(np.argmax(A[q])) for q in rows}
    upon = float(np.mean([best[q] in marked for q in rows]))
    masses, shares, band = [0.0], [0.0], 0.0
    for offset in (-2, -1, 0, 1, 2):
        valid = [q for q in rows if 0 <= q + offset < n and q + offset not in marked]
        if abs(offset) <= 1:
            band += sum(A[q, q + offset] for q in valid) / len(rows)
        if 2 * len(valid) > len(rows):
            masses.append(float(np.mean([A[q, q + offset] for q in valid])))
            shares.append(float(np.mean([best[q] == q + offset for q in valid])))
    logs = [-sum(w * math.log(w) for w in A[q].tolist() if w > 0) / math.log(n) for q in rows]
    broad = reaches(float(np.mean(logs)), 0.9)
    vertical = reaches(special, 0.6) | reaches(upon, 0.9)
    along = reaches(max(masses), 0.5) | reaches(max(shares), 0.9)
    mixed = reaches(special, 0.3) & reaches(band, 0.3)
    if not broad and ((vertical and along) or mixed):
        return KINDS.index("vertical+diagonal"), close
    if not broad and (vertical or along):
        return KINDS.index("vertical" if vertical else "diagonal"), close
    own = _block(one, A, rows)
    if own is not None and reaches(own, 0.6) and not reaches(special, 0.3):
        return KINDS.index("block"), close
    return KINDS.index("heterogeneous"), close


def _block(one: Input, A: Array, rows: Sequence[int]) -> float | None:
    sides = [[k for k in range(len(A)) if not one.special[k] and one.second[k] is second] for second in (False, True)]
    if not all(sides):
        return None
    scores = []
    for q in rows:
        mine, other = sides[one.second[q]], sides[not one.second[q]]
        own, expected = A[q, mine].sum() / A[q, mine + other].sum(), len(mine) / len(mine + other)
        scores.append((own - expected) / (1 - expected))
    return float(np.mean(scores))


def slowly(model: Any, other: Any, inputs: Iterable[tuple[str, str | None]]) -> dict[str, Any]:
    """Means over inputs of everything above; `patterns` are shares of classes over all heads and inputs, with `near` beside them."""
    modules = [plain(model), plain(other)]
    found: dict[str, list[Any]] = {
        name: [] for name in ("entropy", "special_tokens", "residual_ratio", "cosine", "patterns", "near")
    }
    for text, pair in inputs:
        one, second = (Input(module, model.tokenizer, text, pair) for module in modules)
        for name, of in (("entropy", entropy), ("special_tokens", special_tokens), ("residual_ratio", residual_ratio)):
            found[name].append(of(one))
        found["cosine"].append(cosine(one, second))
        kinds, near = patterns(one)
        found["patterns"].append(np.bincount(kinds.ravel(), minlength=len(KINDS)) / kinds.size)
        found["near"].append(near / kinds.size)
    return {name: np.mean(np.stack(values), axis=0) for name, values in found.items()}


def studied(model: Any, other: Any, inputs: Iterable[tuple[str, str | None]]) -> dict[str, Any]:
    """The same from a study."""
    s = headscope.study(
        model, [text if pair is None else (text, pair) for text, pair in inputs], other, lenses=("weights",),
        measures=("entropy", "special_tokens", "residual_ratio", "patterns"),
    )  # fmt: skip
    found = {name: s.stat(name).input_mean for name in ("entropy", "special_tokens", "residual_ratio")}
    counts = s.classes().sum((0, 1))
    return {**found, "cosine": s.pair("cosine").input_mean, "patterns": counts / counts.sum()}


def tuned(model: Any, seed: int = 0, size: float = 0.02) -> Any:
    """A model of the same shape with other weights, as after fine-tuning."""
    module = plain(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * size)
    return headscope.load(module, model.tokenizer)


def differences(quick: dict[str, Any], slow: dict[str, Any]) -> dict[str, float]:
    """The largest difference of each number; classes that rounding decides may fall either way."""
    found = {name: float(np.abs(quick[name] - slow[name]).max()) for name in quick}
    return found | {"patterns": max(0.0, found["patterns"] - float(slow["near"]))}


def main(name: str, path: str) -> None:
    """Compare a study of the first 200 lines with the slow way."""
    model = headscope.load(name)
    lines = [line.split("\t") for line in Path(path).read_text("utf-8").splitlines()[:200]]
    inputs = [(line[0], line[1] if len(line) > 1 else None) for line in lines]
    other = tuned(model)
    for number, apart in differences(studied(model, other, inputs), slowly(model, other, inputs)).items():
        print(f"{number}: {apart:.1e} {'agrees' if apart <= ATOL else 'DIFFERS'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
