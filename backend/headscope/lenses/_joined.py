"""Rollout over layers: how much of each input token is in a token after a layer, by the shares of that layer and the layers before it."""

from __future__ import annotations

from ..core.lazy import Tensor


def join(shares: Tensor, before: Tensor) -> Tensor:
    """Multiply one layer's shares [1, Q, K] with the joined shares of the layers before, [1, Q, K]: R_l = C_l R_{l-1}.

    No identity is added, since the shares include the residual connection. Rows that depend on an undefined row (of NaN) are undefined.
    """
    undefined = before.isnan().any(-1)  # [1, K]
    if not bool(undefined.any()):
        return shares @ before
    joined = shares @ before.nan_to_num()
    touched = (shares * undefined[:, None, :]).sum(-1, keepdim=True) > 0
    return joined.masked_fill_(touched, float("nan"))
