"""Roles of heads that their maps show: previous token, duplicate token, induction and others."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from ..core.tokens import Token
from ._maps import clean, is_causal
from .base import Measure, is_attention

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
    rows, _ = clean(readings[lens])
    rows = rows.abs() if readings[lens].signed else rows
    if params.exclude_bos or params.exclude_current:
        rows = rows.clone()
    if params.exclude_bos:
        rows[..., 0] = 0
    if params.exclude_current:
        rows.diagonal(dim1=-2, dim2=-1).fill_(0)
    totals = rows.sum(-1)  # [H, Q]
    found = {name: torch.full((len(rows),), torch.nan, dtype=rows.dtype) for name in COLUMNS}
    for name, (covered, matched) in roles(layer, rows).items():
        found[name] = covered / totals.sum(-1)
        if name in MATCHED:
            found[f"{name}_matched"] = covered / totals[:, matched].sum(-1)
    return torch.stack([found[name] for name in COLUMNS], -1)


def roles(layer: Layer, rows: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Return, by role, the sum of the entries [H, Q, K] that belong to it, [H], and which queries have any such entry, [Q]."""
    places = torch.arange(rows.shape[1])
    found = {
        "previous": (rows.diagonal(-1, 1, 2).sum(-1), places > 0),
        "self": (rows.diagonal(0, 1, 2).sum(-1), places >= 0),
        "first": (rows[..., 0].sum(-1), places >= 0),
    }
    if not is_causal(layer):
        return found | {"next": (rows.diagonal(1, 1, 2).sum(-1), places < len(places) - 1)}
    return found | {
        name: (rows.flatten(1) @ pattern.flatten().to(rows.dtype), pattern.any(-1))
        for name, pattern in repetitions([token.id for token in layer.axes.keys]).items()
    }


def repetitions(ids: list[int]) -> dict[str, Tensor]:
    """Return the entries from each token to earlier tokens of the same id, and to the tokens that followed those, [Q, K] (bool).

    The following token may be the token itself, if it repeats the one before.
    """
    tokens = torch.tensor(ids)
    duplicate = (tokens[:, None] == tokens).tril(-1)
    induction = torch.zeros_like(duplicate)
    induction[:, 1:] = duplicate[:, :-1]
    return {"duplicate": duplicate, "induction": induction}


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
    looks=looks,
)
