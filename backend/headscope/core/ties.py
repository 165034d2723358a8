"""Ties between tokens by a head's scores: the adjacency with which jump attention mixes scores, computed without a [N, N, N] tensor."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .lazy import Tensor, torch

# Parameters of every method that ties tokens.
Rho = Annotated[
    float,
    Field(
        gt=0,
        le=1_000,
        description="Threshold above which a key ties two tokens: the product of their scores, divided by the head width and the length of the key.",
    ),
]
Signed = Annotated[
    bool,
    Field(description="Ignore pairs of negative scores, which otherwise tie tokens like pairs of positive scores."),
]
RHO = 5.0  # as in the published code for BERT


# Numbers compared at once, so that they stay in the processor's cache.
BLOCK = 2**18


def adjacency(products: Tensor, key: Tensor, rho: float, signed: bool, real: Tensor | None = None) -> Tensor:
    """A~ = D^-1/2 A^ D^-1/2, [..., N, N], symmetric, 0..1: the normalised share of keys that tie two queries.

    products [..., N, N]  query · key of a head: not scaled, not masked; NaN counts as 0
    key      [..., N, D']
    real     [..., N]     False for padding, if there is any; padding neither ties nor is tied

    Key j ties queries y and z if S_yj * S_zj / (D' * max(|K_j|, 1)) >= rho; unless `signed`, this includes two strongly negative scores. A^ is the share of
    keys that tie each pair, with 1 on its diagonal; D is the diagonal matrix of its row sums. Computed in float32 or wider and without gradients, as in the
    code of Zhou et al. 2022.
    """
    with torch.no_grad(), torch.autocast(products.device.type, enabled=False):
        dtype = torch.promote_types(products.dtype, torch.float32)
        scores = products.to(dtype).nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)
        count: Tensor | int = products.shape[-1]
        if real is not None:
            scores = scores.masked_fill(~(real[..., None] & real[..., None, :]), 0)
            count = real.sum(-1)[..., None, None]
        floor = key.to(dtype).norm(dim=-1).clamp(min=1)  # [..., N]
        shares = count_ties(scores, rho * key.shape[-1] * floor, signed) / count
        shares.diagonal(dim1=-2, dim2=-1).fill_(1)
        degree = shares.sum(-1).rsqrt()
        return shares.mul_(degree[..., None]).mul_(degree[..., None, :])


def count_ties(scores: Tensor, thresholds: Tensor, signed: bool) -> Tensor:
    """Count the keys j with scores_yj * scores_zj >= thresholds_j > 0 for every two rows: [..., N, K], [..., K] -> [..., N, N], symmetric whole numbers.

    With `signed`, two negative scores do not count. For row y the product becomes a comparison with a cut, t_j / S_yj: keys with a positive score tie where
    S_zj >= cut, keys with a negative score where not S_zj > cut. So one row's counts are one comparison and one product with the signs of its scores, N²
    numbers at a time. A product that rounds to its threshold may fall on either side of it.
    """
    rows, keys = scores.shape[-2:]
    size = max(1, BLOCK // max(1, rows * keys))
    blocks = zip(
        torch.split(scores.reshape(-1, rows, keys), size),
        torch.split(thresholds.reshape(-1, keys), size),
        strict=True,
    )
    return torch.cat([_count_block(*block, signed) for block in blocks]).reshape(*scores.shape[:-1], rows)


def _count_block(scores: Tensor, thresholds: Tensor, signed: bool) -> Tensor:
    """Count the ties of one block: [M, N, K], [M, K] -> [M, N, N]."""
    tied = (scores.abs().amax(1).square() >= thresholds).any(0)  # all other keys tie no two rows
    scores, thresholds = scores[..., tied].contiguous(), thresholds[:, None, tied]
    counts = scores.new_zeros(*scores.shape[:2], scores.shape[1])
    if not scores.numel():
        return counts
    sign = scores.sign()
    if signed:
        sign.clamp_(min=0)
    cuts = thresholds / scores
    cuts = torch.where(scores < 0, cuts.nextafter(cuts.new_tensor(torch.inf)), cuts)
    above = torch.empty_like(scores)
    for row in range(scores.shape[1]):
        torch.ge(scores[:, row:], cuts[:, row, None], out=above[:, row:])  # [M, N - row, K]
        torch.bmm(above[:, row:], sign[:, row, :, None], out=counts[:, row, row:, None])
    counts += sign.lt(0).sum(-1, keepdim=True)  # adds the keys of negative scores, from which the loop subtracts
    return counts.triu_() + counts.triu(1).mT
