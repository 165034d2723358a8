"""The pattern of a head's map: vertical, diagonal, both, block or none of these, by documented rules without learned weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from ..core.rows import largest, largest_weights
from ..core.tokens import Token
from . import patterns_published as published
from ._classes import BLOCK, CLASSES, DIAGONAL, HETEROGENEOUS, MIXED, UNCLASSIFIED, VERTICAL, settle
from ._maps import are_second, are_special, distributions, marked_in, special
from .base import ByRows, Measure, is_attention
from .concentration import entropy_of_rows, entropy_without_first, row_entropy

OFFSETS = (-2, -1, 0, 1, 2)
SCORES = (
    "special",
    "special_argmax",
    "stripes",
    "diagonal",
    "offset",
    "diagonal_argmax",
    "band",
    "block",
    "broad",
    "sink",
    "sink_rows",
)
YANG = ("globalness", "verticality", "diagonality")
COLUMNS = (*SCORES, *YANG, "class", "margin", "unstable")
# What scores are computed of, sums over queries: how many count and give more than a little to other tokens than the sink, and so on.
_ALONG = [f"{name} {offset}" for name in ("mass", "hit", "free") for offset in OFFSETS]
SUMS = ("rows", "sink", "silent", "judged", "upon_special", "energy", "spread", "own", "usable", *_ALONG, "several")


def _share(default: float, description: str) -> Any:
    return Field(default, ge=0, le=1, description=description)


class PatternParams(Params):
    """Thresholds of rules v1, and whose rules decide the class."""

    rules: Literal["v1", "pasta", "voita", "clark", "yang"] = Field(
        "v1",
        description="The rules that give the class: Headscope's (v1) or those of a paper, as published. The scores are always those of v1.",
    )
    vertical_special: float = _share(0.6, "v1, vertical: mean weight on special tokens is at least this.")
    vertical_argmax: float = _share(
        0.9, "v1, vertical: share of queries whose largest weight is on a special token is at least this."
    )
    diagonal: float = _share(0.5, "v1, diagonal: mean weight at one offset is at least this.")
    diagonal_argmax: float = _share(
        0.9, "v1, diagonal: share of queries whose largest weight is at one offset is at least this."
    )
    mixed_special: float = _share(
        0.3, "v1, vertical+diagonal: mean weight on special tokens is at least this, and mixed_band is reached."
    )
    mixed_band: float = _share(
        0.3, "v1, vertical+diagonal: mean weight on the token itself and its neighbours is at least this."
    )
    block: float = Field(0.6, ge=-1, le=1, description="v1, block: block score is at least this.")
    block_special: float = _share(0.3, "v1, block: mean weight on special tokens is below this.")
    broad: float = _share(0.9, "v1: at a normalised entropy of at least this, a head is neither vertical nor diagonal.")
    sink_rest: float = _share(
        0.1, "Causal models: a query is active if it gives at least this to other tokens than the first."
    )
    sink_rows: float = _share(0.5, "Causal models: vertical if at least this share of queries is inactive.")
    first_row: int = Field(
        8,
        ge=0,
        le=4096,
        description="Causal models: earlier queries see too few keys to have a pattern and are left out.",
    )
    min_rows: int = Field(
        4, ge=1, le=4096, description="Heads with fewer queries to classify them by are unclassified."
    )
    wobble: float = _share(0.05, "Unstable: the class changes if thresholds move by up to this.")


@dataclass(frozen=True, slots=True)
class TokenMasks:
    """Masks over tokens that the scores use, the same for all heads (1) or one for each (H).

    rows     [1 or H, Q]  queries that count
    special  [1 or H, K]  special tokens
    taken    [1 or H, K]  special tokens and the sink
    second   queries [1 or H, Q] and keys [1 or H, K] of the second text
    causal   whether column 0 is left out
    """

    rows: Tensor
    special: Tensor
    taken: Tensor
    second: tuple[Tensor, Tensor]
    causal: bool


def masks(layer: Layer, rows: Tensor, params: PatternParams) -> TokenMasks:
    """Return the masks of some rows [H, R, K']: queries count unless special (or, in causal models, among the first); their sink is no special key."""
    (queries, keys), causal = marked_in(layer, are_special, rows), layer.causal
    first, places = torch.arange(rows.shape[2]) == 0, layer.keys.first + torch.arange(rows.shape[1])
    counted = ~queries & (places >= params.first_row) if causal else ~queries
    second = marked_in(layer, are_second, rows)
    return TokenMasks(counted, keys & ~first if causal else keys, keys | first if causal else keys, second, causal)


def looks(token: Token, params: PatternParams) -> object:
    """Look at special tokens, the second text and, for Clark's rules, punctuation marks. Rules v1 ask Layer.marked, which knows each head's input."""
    if params.rules == "v1":
        return None
    return special(token, params), token.segment == 1, params.rules == "clark" and token.text in published.MARKS


def compute(layer: Layer, lens: str, readings: Mapping[str, Reading], params: PatternParams) -> Tensor:
    """Return scores, class (a number of CLASSES), margin and whether the class is unstable: [H, C] in the order of COLUMNS."""
    found = _sums(layer, lens, readings, params)
    if params.rules == "v1":
        return _combine(layer, readings, found, params)
    whole, there = distributions(lens, readings[lens])
    if params.rules == "yang":
        nothing = torch.full((len(whole),), torch.nan)
        kind = torch.full((len(whole),), UNCLASSIFIED)
        return _columns(scores(layer, found), published.yang(whole, there), kind, nothing, params)
    kind, margin = published.classify(params.rules, layer, whole, there)
    return _columns(scores(layer, found), None, kind, margin, params)


def _combine(layer: Layer, facts: Mapping[str, Reading], sums: Tensor, params: PatternParams) -> Tensor:
    """Return the same by rules v1."""
    found = scores(layer, sums)
    kind, margin = classify(found, params)
    few = sums[:, SUMS.index("rows")] < params.min_rows
    return _columns(found, None, kind.masked_fill(few, UNCLASSIFIED), margin.masked_fill(few, torch.nan), params)


def _columns(
    found: Mapping[str, Tensor], shape: Tensor | None, kind: Tensor, margin: Tensor, params: PatternParams
) -> Tensor:
    yang = torch.full((len(kind), len(YANG)), torch.nan) if shape is None else shape
    unstable = torch.where(margin.isnan(), margin, (margin <= params.wobble).float())
    columns = [*(found[name] for name in SCORES), *yang.unbind(-1), kind, margin, unstable]
    return torch.stack([column.float() for column in columns], -1)


def _sums(layer: Layer, lens: str, readings: Mapping[str, Reading], params: PatternParams) -> Tensor:
    """Return the SUMS over the queries that count, and the sum of their rows: [H, S + K]."""
    rows, there = distributions(lens, readings[lens])
    tokens = masks(layer, rows, params)
    judged = there & tokens.rows
    number, sink, silent = judged.sum(-1), judged.new_zeros(len(judged)), judged.new_zeros(len(judged))
    # Causal rows lose column 0, and are divided by what is left of them once they are sums.
    counts, rest, scale = layer.keys.counts(*rows.shape[1:]), None, rows.new_ones(rows.shape[:2])  # [Q], [H, Q]
    if tokens.causal:
        rest = rows[..., 1:].sum(-1)  # [H, Q]
        active = judged & (rest >= params.sink_rest) & (rest > 0)
        # 1 - rest instead of column 0: the weight of a learned sink, which has no column, belongs to the sink, too.
        sink, silent = ((1 - rest).clamp(0, 1) * judged).sum(-1), (judged & ~active).sum(-1)
        scale = rest.masked_fill(rest == 0, 1).reciprocal()
        judged = active
        counts = counts - layer.keys.sees(torch.arange(rows.shape[1]), torch.tensor(0)).long()
    # Among equal weights a special token wins, then the first key.
    most, best = _largest(layer, rows, causal=tokens.causal)  # [H, Q]
    upon = _upon(rows, tokens.special)
    several = (counts > 1).to(rows.dtype)
    spread = _entropies(layer, lens, readings, rows, rest) * (several / counts.clamp_min(2).log())
    own, usable = block(layer, tokens, rows, judged)
    energy = ((rows[..., 1:] if tokens.causal else rows).norm(dim=-1) * scale).square()  # [H, Q]
    by_query = [judged.to(rows.dtype), (upon >= most).to(rows.dtype), energy, spread, own, usable]
    free, masses, hits = diagonals(layer, tokens, rows, best.where(upon < most, -1))
    along = torch.cat([masses * scale[:, None], hits], 1)
    open_to = torch.cat([free, several.expand(len(free), 1, -1)], 1)  # [1 or H, O + 1, Q]
    counted = judged.to(rows.dtype)
    columns = ((counted * scale)[:, None] @ rows)[:, 0]  # [H, K]
    if tokens.causal:
        columns[:, 0] = 0
    sums = [
        torch.stack([number, sink, silent], -1).to(rows.dtype),
        (torch.cat([torch.stack(by_query, 1), along], 1) @ counted[..., None])[..., 0],
        (open_to @ counted[..., None])[..., 0],
        columns,
    ]
    return torch.cat(sums, -1)


def _largest(layer: Layer, rows: Tensor, *, causal: bool) -> tuple[Tensor, Tensor]:
    """Return the largest weight of every query, in causal models but that on the first key, and its key, [H, Q] each."""
    if not causal:
        return layer.once(largest_weights) if rows is layer.weights else largest(rows)
    if rows.shape[-1] == 1:
        return rows.new_zeros(rows.shape[:2]), torch.zeros(rows.shape[:2], dtype=torch.long)
    most, best = largest(rows[..., 1:])
    return most, best + 1


def _entropies(layer: Layer, lens: str, readings: Mapping[str, Reading], rows: Tensor, rest: Tensor | None) -> Tensor:
    """Return the entropy of each of the distributions `rows` [H, Q, K], which are the map itself or made from it: [H, Q].

    With `rest` [H, Q], the weight on other keys than the first, those of the rows without their first key, divided by it.
    """
    if rest is not None:
        if layer.weighted_logs is not None and lens == "weights":
            return entropy_without_first(layer, rest)
        return row_entropy(rows[..., 1:] / rest.masked_fill(rest == 0, 1)[..., None])
    if rows is not readings[lens].map:
        return row_entropy(rows)
    return (
        readings[lens].once(row_entropy)
        if layer.weighted_logs is None
        else entropy_of_rows(layer, lens, readings, None)
    )


def scores(layer: Layer, sums: Tensor) -> dict[str, Tensor]:
    """Return the scores of rules v1, each [H], of what _sums gives."""
    by_name, columns = dict(zip(SUMS, sums[:, : len(SUMS)].unbind(-1), strict=True)), sums[:, len(SUMS) :]
    number, offsets = by_name["judged"], torch.stack([by_name[name] for name in _ALONG], -1)
    masses, hits, free = offsets.chunk(3, -1)
    averages = columns / number[:, None]  # [H, K]
    causal, missing = layer.causal, torch.full_like(number, torch.nan)
    return {
        "sink": by_name["sink"] / by_name["rows"] if causal else missing,
        "sink_rows": by_name["silent"] / by_name["rows"] if causal else missing,
        "special": (averages * _special_keys(layer)).sum(-1),
        "special_argmax": by_name["upon_special"] / number,
        "stripes": averages.square().sum(-1) * number / by_name["energy"],
        "broad": by_name["spread"] / by_name["several"],
        "block": (by_name["own"] / by_name["usable"]).where(two_texts(layer), torch.nan),
        **diagonal(masses, hits, free, number),
    }


def _special_keys(layer: Layer) -> Tensor:
    """Return which keys of the whole input are special, without the sink of a causal model, [1 or H, K]."""
    keys = layer.marked(are_special)[1]
    return keys & (torch.arange(keys.shape[1]) > 0) if layer.causal else keys


def _upon(rows: Tensor, special: Tensor) -> Tensor:
    """Return the largest weight of every query on a special token, [H, Q]; -1 where there is none. rows [H, Q, K], special [1 or H, K]."""
    if len(special) > 1:
        return rows.masked_fill(~special[:, None], -1).amax(-1)
    marked = special[0].nonzero()[:, 0]
    return rows.index_select(-1, marked).amax(-1) if len(marked) else rows.new_full(rows.shape[:2], -1)


def diagonals(layer: Layer, tokens: TokenMasks, rows: Tensor, best: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return which queries have a token at each offset, 0 or 1, [1 or H, O, Q]; each query's weight there; and whether it is its largest, [H, O, Q] each.

    `best` [H, Q] is the key of each query's largest weight, -1 where that is on a special token. Special tokens and the sink count for the vertical scores
    only, so a column is never a diagonal as well.
    """
    _, count, keys = rows.shape
    queries = torch.arange(count)
    places = layer.keys.first + queries + torch.tensor(OFFSETS)[:, None]  # [O, Q]: the key at each offset of each query
    safe = places.clamp(0, keys - 1)
    free = (places == safe) & ~tokens.taken[:, safe] & layer.keys.sees(queries, safe)
    # [H, Q, K] -> [H, Q K], whose entry (q, k) is at q K + k -> [H, O Q] -> [H, O, Q]
    entries = rows.flatten(1).index_select(1, (queries * keys + safe).flatten()).view(-1, *safe.shape)
    hits = (best[:, None] == places) & free
    weight = free.to(rows.dtype)
    return weight, entries * weight, hits.to(rows.dtype)


def diagonal(masses: Tensor, hits: Tensor, numbers: Tensor, judged: Tensor) -> dict[str, Tensor]:
    """Return mean weight and share of queries at the offset where they are largest, that offset, and the mean weight on a token and its neighbours: each [H].

    masses, hits, numbers [H, O]  over the queries that count: their weight at an offset, how many have their largest weight there, how many have a token there
    judged [H]  how many queries count. An offset counts if more than half of them have a token there.
    """
    offsets = torch.tensor(OFFSETS)
    rare, empty = 2 * numbers <= judged[:, None], judged == 0
    mass, place = (masses / numbers).masked_fill(rare, 0).max(-1)
    share = (hits / numbers).masked_fill(rare, 0).amax(-1)
    offset = offsets[place].float().masked_fill(empty | (mass == 0), torch.nan)
    found = {"diagonal": mass, "diagonal_argmax": share, "band": masses[:, offsets.abs() <= 1].sum(-1) / judged}
    return {name: score.masked_fill(empty, torch.nan) for name, score in found.items()} | {"offset": offset}


def block(layer: Layer, tokens: TokenMasks, rows: Tensor, judged: Tensor) -> tuple[Tensor, Tensor]:
    """Return how much more each query attends to its own text than uniform attention would, (x - b) / (1 - b), and whether it has such a number, [H, Q] each.

    x is its own text's share of the weight on ordinary tokens, b its share of their number: 1 is its own text only, 0 is uniform. 0 unless there are two texts.
    """
    if not bool(two_texts(layer).any()):
        return (torch.zeros_like(judged, dtype=rows.dtype),) * 2
    queries, keys = tokens.second
    sides = torch.stack([~keys & ~tokens.taken, keys & ~tokens.taken], -1).float()  # [1 or H, K, 2]
    mine = queries.long()[..., None]  # [1 or H, Q, 1]
    masses = rows @ sides  # [H, Q, 2]
    numbers = layer.keys.allowed(*rows.shape[1:]).float() @ sides  # [1 or H, Q, 2]
    total, total_number = masses.sum(-1), numbers.sum(-1)
    own = masses.gather(-1, mine.expand(len(rows), -1, 1))[..., 0] / total.masked_fill(total == 0, 1)
    expected = numbers.gather(-1, mine.expand(len(numbers), -1, 1))[..., 0] / total_number.clamp_min(1)
    usable = (judged & (total > 0) & (expected < 1)).to(rows.dtype)
    return (own - expected) / (1 - expected).masked_fill(expected >= 1, 1) * usable, usable


def two_texts(layer: Layer) -> Tensor:
    """Return whether the keys have ordinary tokens of two texts, [1 or H]."""
    (_, special), (_, second), causal = layer.marked(are_special), layer.marked(are_second), layer.causal
    ordinary = ~special & (torch.arange(special.shape[1]) > 0) if causal else ~special
    return (ordinary & second).any(-1) & (ordinary & ~second).any(-1)


def decide(
    silent: bool,
    special: bool,
    special_argmax: bool,
    diagonal: bool,
    diagonal_argmax: bool,
    mixed_special: bool,
    mixed_band: bool,
    block: bool,
    block_special: bool,
    broad: bool,
) -> int:
    """Apply rules v1: return the class from which scores have reached their threshold."""
    vertical, along = special or special_argmax, diagonal or diagonal_argmax
    if silent:
        return VERTICAL
    if not broad and ((vertical and along) or (mixed_special and mixed_band)):
        return MIXED
    if not broad and (vertical or along):
        return VERTICAL if vertical else DIAGONAL
    return BLOCK if block and not block_special else HETEROGENEOUS


def classify(found: Mapping[str, Tensor], params: PatternParams) -> tuple[Tensor, Tensor]:
    """Return class and margin by rules v1, [H] each."""
    # In the order of the arguments of decide.
    names = ["sink_rows", "special", "special_argmax", "diagonal", "diagonal_argmax"]
    thresholds = [
        params.sink_rows,
        params.vertical_special,
        params.vertical_argmax,
        params.diagonal,
        params.diagonal_argmax,
    ]
    names += ["special", "band", "block", "special", "broad"]
    thresholds += [params.mixed_special, params.mixed_band, params.block, params.block_special, params.broad]
    return settle(decide, torch.stack([found[name] for name in names], -1), thresholds)


def _is_v1(params: PatternParams) -> bool:
    return params.rules == "v1"


PATTERNS = Measure(
    name="patterns",
    title="Pattern",
    doc="What the map of a head looks like: vertical (columns at special tokens), diagonal (neighbours), both, block (its own text of two) or heterogeneous; "
    "with the scores behind the class, and how far thresholds may move before the class changes.",
    not_="Not a learned classifier and not the classes of Kovaleva et al., whose network was never published: documented thresholds, each of them a parameter. "
    "One text does not characterise a head: look at the classes over many texts.",
    citation="Rules v1 of Headscope; classes after Kovaleva et al. 2019; published rules of PASTA (Yang et al. 2023), Voita et al. 2019, Clark et al. 2019, Yang et al. 2020",
    params=PatternParams,
    shape="L H C",
    columns=COLUMNS,
    classes=CLASSES,
    needs=("same-tokens",),
    accepts=is_attention,
    phrases={
        "vertical": ("vertical stripes", "vertical lines", "column pattern"),
        "diagonal": ("diagonal stripes",),
        "block": ("block pattern", "block shaped", "attends within its own sentence", "attends within a segment"),
        "heterogeneous": ("heterogeneous pattern", "mixed pattern"),
    },
    compute=compute,
    by_rows=ByRows(_sums, _combine, summed=True, able=_is_v1),
    looks=looks,
)
