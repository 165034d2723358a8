"""Roles of heads that their maps show: previous token, duplicate token, induction and others."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from ..core.tokens import Token
from ._maps import clean
from .base import ByRows, Measure, is_attention

MATCHED = ("previous", "next", "duplicate", "induction")  # the others match in every row or nearly every row
ROLES = ("previous", "next", "self", "first", "duplicate", "induction")
COLUMNS = (*ROLES, *(f"{name}_matched" for name in MATCHED))


class HeadRolesParams(Params):
    """What is left out before shares are computed."""

    exclude_bos: bool = Field(False, description="Leave out what goes to the first token.")
    exclude_current: bool = Field(False, description="Leave out what a token gives to itself.")


def looks(token: Token, params: HeadRolesParams) -> object:
    """Look at which tokens repeat others."""
    return token.id


def compute(layer: Layer, lens: str, readings: Mapping[str, Reading], params: HeadRolesParams) -> Tensor:
    """Return the share of attention that a pattern covers, sum(A * pattern) / sum(A), and the same over queries with a match: [H, C] in the order of COLUMNS.

    Signed maps count by magnitude. NaN for `duplicate` and `induction` in models that are not causal, for `next` in causal models, and where the sum is 0.
    """
    return _combine(layer, readings, _sums(layer, lens, readings, params), params)


def _sums(layer: Layer, lens: str, readings: Mapping[str, Reading], params: HeadRolesParams) -> Tensor:
    """Return the sum of all entries; and by role that of its entries, and that of all entries of queries with a match: [H, 1 + 2 R]."""
    rows, _ = clean(readings[lens])
    rows = rows.abs() if readings[lens].signed else rows
    if params.exclude_bos or params.exclude_current:
        rows = rows.clone()
    if params.exclude_bos:
        rows[..., 0] = 0
    if params.exclude_current:
        rows.diagonal(layer.keys.first, -2, -1).fill_(0)
    totals = rows.sum(-1)  # [H, Q]
    found = [totals.sum(-1)]
    for covered, matched in roles(layer, rows).values():
        found += [covered, totals[:, matched].sum(-1)]
    return torch.stack(found, -1)


def _combine(layer: Layer, facts: Mapping[str, Reading], sums: Tensor, params: HeadRolesParams) -> Tensor:
    found = dict.fromkeys(COLUMNS, torch.full((len(sums),), torch.nan, dtype=sums.dtype))
    for place, name in enumerate(role_names(layer)):
        covered, matched = sums[:, 2 * place + 1], sums[:, 2 * place + 2]
        found[name] = covered / sums[:, 0]
        if name in MATCHED:
            found[f"{name}_matched"] = covered / matched
    return torch.stack([found[name] for name in COLUMNS], -1)


def role_names(layer: Layer) -> tuple[str, ...]:
    """Return the roles that heads of the layer can have."""
    return tuple(name for name in ROLES if name not in (("next",) if layer.causal else ("duplicate", "induction")))


def roles(layer: Layer, rows: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Return, by role, the sum of the entries [H, R, K] that belong to it, [H], and which queries have any such entry, [R]."""
    first, names = layer.keys.first, role_names(layer)
    places = torch.arange(first, first + rows.shape[1])
    found = {
        "previous": (rows.diagonal(first - 1, 1, 2).sum(-1), places > 0),
        "next": (rows.diagonal(first + 1, 1, 2).sum(-1), places < len(layer.axes.queries) - 1),
        "self": (rows.diagonal(first, 1, 2).sum(-1), places >= 0),
        "first": (rows[..., 0].sum(-1), places >= 0),
    }
    if "duplicate" in names:
        ids = layer.marked(_ids)[1][0, : rows.shape[2]]
        queries, keys = repetitions(ids, first, rows.shape[1])
        matched = torch.zeros(rows.shape[1], dtype=torch.bool).index_fill(0, queries, value=True)
        found |= {"duplicate": (_covered(rows, queries, keys), matched)}
        found |= {"induction": (_covered(rows, queries, keys + 1), matched)}
    return {name: found[name] for name in names}


def _covered(rows: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    """Return the sum of these entries of rows [H, R, K], [H]."""
    return rows.flatten(1).index_select(1, queries * rows.shape[2] + keys).sum(-1)


def _ids(tokens: tuple[Token, ...]) -> list[int]:
    return [token.id for token in tokens]


def repetitions(tokens: Tensor, first: int, queries: int) -> tuple[Tensor, Tensor]:
    """Return the entries from tokens, `first` and those after it, to earlier tokens of the same id: rows and keys, [N] each.

    The key after it, which followed this token before, is an entry of induction. It may be the token itself, if that repeats the one before.
    """
    duplicate = (tokens[first : first + queries, None] == tokens).tril(first - 1)
    found, keys = duplicate.nonzero().unbind(-1)
    return found, keys


HEAD_ROLES = Measure(
    name="head_roles",
    title="Head roles",
    doc="How much of a head's attention goes to the token before, the next token, the token itself, the first token, and in causal models to earlier occurrences of the same "
    "token (duplicate) and to the tokens that followed them (induction).",
    not_="Not a proof of what the head does: true induction also copies the token attended to into the prediction. Natural text has few repetitions; "
    "test with repeated random tokens.",
    citation="Olsson et al. 2022, In-context Learning and Induction Heads; patterns and the share as in TransformerLens' head detector (score `mul`)",
    params=HeadRolesParams,
    range=(0.0, 1.0),
    shape="L H C",
    columns=COLUMNS,
    needs=("same-tokens",),
    accepts=is_attention,
    phrases={
        "previous": (
            "previous token",
            "preceding token",
            "word before",
            "token right before",
            "one token back",
            "looks backward by one",
            "prior word",
            "prev token",
            "token in front",
            "precedes",
        ),
        "next": (
            "next token",
            "following word",
            "word after",
            "looks ahead",
            "one token ahead",
            "looks forward",
            "comes next",
            "follows",
            "subsequent token",
        ),
        "self": (
            "itself",
            "themselves",
            "own token",
            "self-attention to the same token",
            "current token",
            "self-attending",
            "each token attends to itself",
        ),
        "first": ("first token", "beginning of the text", "first word", "start of the sentence"),
        "duplicate": ("duplicate token", "repeated words", "earlier copies of the same token", "copying"),
        "induction": ("induction", "token that followed an earlier occurrence"),
    },
    compute=compute,
    by_rows=ByRows(_sums, _combine, summed=True),
    looks=looks,
)
