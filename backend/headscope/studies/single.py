"""An analysis as a study of one input: for files that are made of studies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import NotReady
from ..store.export import Source
from . import sequences
from .aggregate import collected
from .results.summary import StudySummary

ROW = 0
SEED = 0


def summary_of(source: Source, measures: Sequence[str]) -> StudySummary:
    """Some measures of an analysis' weights, and their strongest entries. Raises NotReady where a measure was not computed, Corrupt if the source is."""
    document = source.document
    missing = [name for name in measures if "weights" not in document["measures"].get(name, ())]
    if missing:
        raise NotReady(f"The file needs the measures {', '.join(measures)}. Send the request again with them.")
    measured = {name: {"weights": source.arrays[f"measure/{name}/weights"]} for name in measures}
    texts = [token["text"] for token in document["tokens"]]
    layers = [
        sequences.arrays(0, ROW, texts, source.maps("weights", slice(layer, layer + 1), slice(None)), most=len(texts))
        for layer in range(len(document["layers"]))
    ]
    strongest = {
        name: values if name.endswith("/tokens") else np.concatenate([layer[name] for layer in layers])
        for name, values in layers[0].items()
    }
    request = document["request"]
    variant = {name: document[name] for name in ("layers", "heads", "head_width", "causal")}
    about = {
        "variants": [{"model": request["model"], "mechanism": request["mechanism"], **variant}],
        "dataset": {"name": "one input"},
        "request": {"seed": SEED},
        "inputs": 1,
        "measures": document["measures"],
    }
    return StudySummary(about, collected(0, [measured], np.array([ROW]), SEED) | strongest)
