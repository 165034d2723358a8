"""How fast hidden states change along the text: their energy by period in tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from .base import Measure
from .hidden import states

# Bands of periods in tokens: [2, 4), [4, 8), ..., [128, infinity).
EDGES = (2, 4, 8, 16, 32, 64, 128)
BANDS = (*(f"{low}_{2 * low}" for low in EDGES[:-1]), f"{EDGES[-1]}_up")
# Numbers transformed at once; bounds the scratch memory to a few tens of MB.
ENTRIES = 512 * 1024


class FrequencyParams(Params):
    """How the spectrum is computed."""

    transform: Literal["dct", "dft"] = Field(
        default="dct",
        description="Cosine transform (type II), which does not join the last token to the first, or Fourier transform, which does.",
    )
    window: Literal["none", "hann"] = Field(
        default="none",
        description="A Hann window fades out both ends, for the Fourier transform; the mean is removed first.",
    )
    special: bool = Field(default=False, description="Keep special tokens; without them the other tokens are joined.")


def spectrum(signal: Tensor, transform: str) -> Tensor:
    """Energy of each frequency, added over channels. [n, d] -> [n] (dct) or [n // 2 + 1] (dft); adds up to ||X||²."""
    n = signal.shape[0]
    columns = max(1, ENTRIES // n)
    if transform == "dft":
        energy = (
            torch.stack([_energy(torch.fft.rfft(part, dim=0)) for part in torch.split(signal, columns, 1)]).sum(0) / n
        )
        energy[1 : (n + 1) // 2] *= 2  # the frequencies that a real transform does not repeat
        return energy
    turn = torch.exp(-1j * math.pi / (2 * n) * torch.arange(n, dtype=signal.dtype, device=signal.device))[:, None]
    energy = signal.new_zeros(n)
    for part in torch.split(signal, columns, 1):
        mirrored = torch.fft.rfft(torch.cat([part, part.flip(0)]), dim=0)[:n]
        energy += (mirrored * turn).real.square().sum(-1)
    energy /= 2 * n
    energy[0] /= 2
    return energy


def _energy(coefficients: Tensor) -> Tensor:
    return coefficients.abs().square().sum(-1)


def periods(n: int, transform: str) -> Tensor:
    """Period in tokens of every frequency but 0, in the order of `spectrum`."""
    if transform == "dct":
        return 2 * n / torch.arange(1, n, dtype=torch.float64)
    return n / torch.arange(1, n // 2 + 1, dtype=torch.float64)


def banded(energy: Tensor, n: int, transform: str) -> Tensor:
    """Shares of each band in the energy of all frequencies but 0, [7]; all 0 if there is no energy."""
    edges = torch.tensor(EDGES[1:], dtype=torch.float64)
    places = torch.bucketize(periods(n, transform), edges, right=True).to(energy.device)
    sums = energy.new_zeros(len(BANDS)).index_add_(0, places, energy)
    total = sums.sum()
    return sums / total.where(total > 0, 1.0)


def shuffled(window: Tensor, transform: str) -> Tensor:
    """Energies of all frequencies but 0 up to a common factor, as the mean over all orders of the tokens. Window [n] -> [n - 1] or [n // 2].

    Over all orders, centred states are white except for their mean, with covariance I - 1/n. A windowed basis vector b then has energy |b|² - |sum b|² / n.
    """
    n = window.shape[0]
    # |b|² of a cosine is the squared window times cos², summed; all exponentials have the same |b|².
    sums = spectrum(window[:, None], transform)[1:]
    if transform == "dft":
        weights = torch.full_like(sums, 2.0)
        if n % 2 == 0:
            weights[-1] = 1.0
        return weights * window.square().mean() - sums / n
    k = torch.arange(1, n, dtype=window.dtype, device=window.device)
    places = torch.arange(n, dtype=window.dtype, device=window.device) + 0.5
    energies = torch.cat(
        [
            (part[:, None] * places * math.pi / n).cos().square() @ window.square()
            for part in torch.split(k, max(1, ENTRIES // n))
        ]
    )
    return energies * (2 / n) - sums / n


def compute(layer: Layer, lens: str, readings: Mapping[str, Reading], params: FrequencyParams) -> Tensor:
    """Return the share of the mean over tokens, shares by band, and shares by band of shuffled tokens, [15]; see FREQUENCY.

    The share of the mean is 1 - ||X - mean||² / ||X||² whatever the window; the bands share the rest. NaN where all states are zero, or no token is left.
    """
    X = states(layer)
    if not params.special:
        X = X[~layer.special[0].to(X.device)]
    n, total = X.shape[0], X.square().sum()
    if n == 0 or not bool(total > 0):
        return X.new_full((1 + 2 * len(BANDS),), torch.nan)
    rest = X - X.mean(0)
    share = (rest.square().sum() / total).clamp(0, 1)
    if n == 1 or not bool(share > 0):
        return torch.cat([X.new_ones(1), X.new_zeros(2 * len(BANDS))])
    window = X.new_ones(n)
    if params.window == "hann":
        window = torch.hann_window(n + 2, periodic=False, dtype=X.dtype, device=X.device)[1:-1]
    found = banded(spectrum(rest * window[:, None], params.transform)[1:], n, params.transform)
    expected = banded(shuffled(window, params.transform), n, params.transform)
    return torch.cat([(1 - share)[None], share * found, share * expected])


FREQUENCY = Measure(
    name="frequency",
    title="Frequency of hidden states",
    doc="How the energy of the hidden states after a layer is shared between their mean over tokens and periods of 2 to 4, 4 to 8, ... tokens, "
    "and the shares of the same states in random order.",
    not_="Not a kind of linguistic information: that slow changes are topics and fast changes syntax is a hypothesis. Exploratory.",
    citation="Parseval's theorem; after the spectral filters of Tamkin, Jurafsky & Goodman 2020, Language Through a Prism",
    params=FrequencyParams,
    needs=("hidden",),
    range=(0.0, 1.0),
    shape="L C",
    of="layer",
    columns=("dc", *(f"period_{band}" for band in BANDS), *(f"shuffled_{band}" for band in BANDS)),
    compute=compute,
)
