"""The warnings that come with a result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.attention import ResultWarning
from ..core.declarations import Declaration
from ..lenses import LENSES
from ..lenses.base import ILL_CONDITIONED
from ..mechanisms import MECHANISMS
from ..models.trained_mechanism import SOFTMAX
from .result import Result

# Measures that treat special tokens differently, but are also correct without them.
BY_KIND = ("frequency", "patterns", "sink")
# Capabilities of methods that read the matrices of projections.
MATRICES = {"projection", "bilinear", "unembedding"}


def find_warnings(
    result: Result,
    missing: dict[str, str],
    trained: Mapping[str, Any] = SOFTMAX,
    quantisation: str | None = None,
    quantised_by: str = "",
    rounding: float = 0.0,
) -> Iterator[ResultWarning]:
    """Yield the warnings about a result: its mechanism, each requested lens (identical to the weights, dependent or ill-conditioned values, empty rows), and the weights.

    `trained` is the mechanism that the model was trained with. For a model trained with softmax, another mechanism is obviously a what-if and needs no warning.
    `quantisation` has the types from which its weights were dequantised, `quantised_by` the packages that compute with quantised weights, and `rounding` by how much
    the outputs of its quantised projections differ from those of their matrices.
    """
    yield from _of_weights(result, quantisation, quantised_by, rounding)
    chosen = result.request.mechanism.model_dump()
    if trained["name"] != "softmax" and chosen != trained:
        same = "other parameters of " if chosen["name"] == trained["name"] else ""
        yield ResultWarning(
            "trained-otherwise",
            f"This is a what-if: the model was trained with {same}the mechanism {MECHANISMS[trained['name']].title}.",
        )
    for lens, notes in result.notes.items():
        if lens in result.shapes:
            if "identical" in notes:
                yield from _of_projection(lens, notes, result)
            if "undefined" in notes and notes["undefined"].any():
                rows = int(notes["undefined"].sum())
                why = LENSES[lens].undefined
                yield ResultWarning(
                    "undefined-rows", f"{rows} rows have no reading and are left empty: {why} there.", lens
                )
    if "capture" in missing:
        yield ResultWarning(
            "weights-only", f"These are the weights that the model itself returns. {missing['capture']}", "weights"
        )
    if "distribution" in missing:
        yield ResultWarning(
            "sink", f"{missing['distribution']} The rest of each row went to the sink, which is not a token.", "weights"
        )
    by_kind = [name for name in result.request.measure_names if name in BY_KIND]
    if "kinds" in missing and by_kind:
        yield ResultWarning(
            "unknown-kinds", f"{missing['kinds']} Every token counts as an ordinary word in {' and '.join(by_kind)}."
        )
    if "equal-heads" in missing and any(LENSES[lens].of == "heads" for lens in result.shapes):
        yield ResultWarning(
            "fewer-heads", "Some layers have fewer heads than others; the heads that do not exist are left empty."
        )


def _of_weights(
    result: Result, quantisation: str | None, quantised_by: str, rounding: float
) -> Iterator[ResultWarning]:
    """Yield the warnings about weights that are, or were, quantised."""
    if quantisation is not None:
        yield ResultWarning(
            "dequantised",
            f"The model's weights were dequantised from {quantisation}, so they differ a little from the original ones.",
        )
    if quantised_by:
        yield ResultWarning(
            "quantised",
            f"The model's weights are quantised ({quantised_by}), so this is the attention of the quantised model, which differs from that of the original.",
        )
    reading = [method.title for method in result.request.methods if _reads_matrices(method)]
    if rounding and reading:
        yield ResultWarning(
            "rounded-projection",
            "The model's quantised layers round what they compute with. The matrices of its projections, which methods read instead, give the same outputs "
            f"to within {100 * rounding:.2g} % of the largest number. This concerns: {', '.join(reading)}.",
        )


def _reads_matrices(method: Declaration) -> bool:
    """Return whether a method, or a lens that it reads, needs the matrix of a projection."""
    reads = [LENSES[name].needs for name in getattr(method, "reads", ())]
    return bool(MATRICES & {need for listed in (method.needs, *reads) for need in listed})


def _of_projection(lens: str, notes: dict[str, Array], result: Result) -> Iterator[ResultWarning]:
    n, seen = len(result.key_tokens), int(result.keys.max())
    # Of heads that do not exist, numbers that are not whole are NaN, and all others 0.
    there = ~np.isnan(notes["condition"]) if "condition" in notes else np.ones_like(notes["identical"], bool)
    identical, width, count = notes["identical"].astype(bool), result.head_width + LENSES[lens].beyond, there.sum()
    if identical[there].all():
        tokens = f"{n} tokens" if seen == n else f"the {seen} tokens that a query sees at most"
        yield ResultWarning(
            "identical-to-weights",
            f"Identical to the weights: {tokens} fit into the head's {width} dimensions.",
            lens,
        )
    elif identical[there].any():
        yield ResultWarning(
            "identical-to-weights", f"Identical to the weights in {identical[there].sum()} of {count} heads.", lens
        )
    if "rank" not in notes:
        return
    deficient = int((notes["rank"][there] < min(n, width)).sum())
    if deficient:
        yield ResultWarning(
            "rank-deficient",
            f"The values of {deficient} of {count} heads are linearly dependent, so their null space is larger.",
            lens,
        )
    delicate = int((notes["condition"] > ILL_CONDITIONED).sum())
    if delicate:
        yield ResultWarning(
            "ill-conditioned",
            f"The values of {delicate} of {count} heads are nearly dependent; there the map depends on small differences.",
            lens,
        )
