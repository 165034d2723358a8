"""Which tokens a head's scores tie together: the adjacency that jump attention mixes scores with, without ever holding a [N, N, N] tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

if TYPE_CHECKING:
    from torch import Tensor

# Parameters of every method that ties tokens.
Rho = Annotated[
    float,
    Field(
        gt=0,
        le=1_000,
        description="Threshold above which a key ties two tokens: of the product of their scores, over the head width and the length of the key.",
    ),
]
Signed = Annotated[bool, Field(description="Whether two negative scores tie nothing.")]
RHO = 5.0  # as in the published code for BERT


def adjacency(products: Tensor, key: Tensor, rho: float, signed: bool) -> Tensor:
    """A~ = D^-1/2 A^ D^-1/2, [N, N], symmetric, 0..1: the normalised share of keys through which two queries are bound.

    products [N, N]  query · key of one head: not scaled, not masked; NaN counts as 0
    key      [N, D']

    Queries y and z are bound by key j where S_yj * S_zj / (D' * max(|K_j|, 1)) >= rho, so also where both scores are strongly negative, unless `signed`.
    A^ holds the share of keys that bind each pair and 1 on its diagonal; D is the diagonal matrix of its row sums. Computed in float32 at least.
    Zhou et al. 2022, as their code has it.
    """
    import torch

    with torch.no_grad():
        dtype = torch.promote_types(products.dtype, torch.float32)
        scores = products.to(dtype).nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)
        floor = key.to(dtype).norm(dim=-1).clamp(min=1)  # [N]
        shares = bonds(scores, rho * key.shape[-1] * floor, signed) / products.shape[-1]
        shares.fill_diagonal_(1)
        degree = shares.sum(-1).rsqrt()
        return shares.mul_(degree[:, None]).mul_(degree)


def bonds(scores: Tensor, thresholds: Tensor, signed: bool) -> Tensor:
    """Number of keys j with scores_yj * scores_zj >= thresholds_j > 0, for every two rows. [N, K], [K] -> [N, N], symmetric whole numbers.

    With `signed`, two negative scores bind nothing. Every row turns the product into a comparison with its own cut, t_j / S_yj: the keys of a
    positive score bind where S_zj >= cut, those of a negative one where not S_zj > cut. So one row's counts are one comparison and one product with
    the signs of its scores, N² numbers at a time. A product that rounds to its threshold may fall on either side of it.
    """
    import torch

    tied = scores.abs().amax(0).square() >= thresholds  # every other key binds no two rows
    scores, thresholds = scores[:, tied].contiguous(), thresholds[tied]
    counts = scores.new_zeros(len(scores), len(scores))
    if not len(thresholds):
        return counts
    sign = scores.sign()
    if signed:
        sign.clamp_(min=0)
    cuts = thresholds / scores
    cuts = torch.where(scores < 0, cuts.nextafter(cuts.new_tensor(torch.inf)), cuts)
    above = torch.empty_like(scores)
    for row, (cut, side) in enumerate(zip(cuts, sign, strict=True)):
        torch.ge(scores[row:], cut, out=above[row:])  # [N - row, K]
        torch.mv(above[row:], side, out=counts[row, row:])
    counts += sign.lt(0).sum(-1, keepdim=True)  # "not" counts every key that it does not count off
    return counts.triu_() + counts.triu(1).mT
