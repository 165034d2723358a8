"""Export for HeadVis: the files that its page reads, and that Neuronpedia's loaders take, as one zip.

config.json, scatter_data.json (six metrics per head), heads/L{layer}H{head}.json (sequences with their strongest entries, histograms, tokens), and the two
empty files that say that there is no server.
"""

from __future__ import annotations

import bisect
import json
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.streams import Chunks, save, zipped
from ...errors import NotReady
from ...figures.studies.figure import means
from ...figures.studies.heads import METRICS, metric
from ...measures.distance import STARTS
from .. import sequences
from .summary import StudySummary

Array = NDArray[Any]
INTERVALS, BARS, TOKENS = 5, 50, 50
# What the metrics, and the order of the inputs, are made of.
MEASURES = ("head_roles", "qk_distance", "entropy", "max_activation")
# What the page says of each metric.
DESCRIPTIONS = {
    "self_attention_score": "Mean attention of a token to itself.",
    "prev_token_score": "Mean attention to the token before.",
    "pattern_entropy": "Mean entropy of a row, in nats.",
    "qk_distance": "Mean distance between query and key, weighted by attention.",
    "qk_distance_variance": "Variance of that distance.",
    "induction_score": "Mean attention to what followed an earlier occurrence of the same token.",
}
_DATE = (1980, 1, 1, 0, 0, 0)


def write(study: StudySummary, path: str | Path, number: int = 0) -> None:
    """Write a variant of a study as a zip. Raises as `stream` does."""
    save(stream(study, number), path)


def stream(study: StudySummary, number: int = 0) -> Chunks:
    """Return a variant of a study as a zip. Raises NotReady for one that lacks the metrics, Unknown for a variant there is not."""

    def write(archive: zipfile.ZipFile) -> Iterator[None]:
        for name, content in files(study, number):
            # The same study gives the same bytes.
            archive.writestr(zipfile.ZipInfo(name, _DATE), json.dumps(content, allow_nan=False), zipfile.ZIP_DEFLATED)
            yield

    return zipped(write)


def files(study: StudySummary, number: int = 0) -> Iterator[tuple[str, Any]]:
    """Name and content of every file. Raises what `stream` raises."""
    one = study.variant(number)
    if not set(MEASURES) <= set(study.document["measures"]):
        raise NotReady("The file needs the six metrics. Send the study again with the figure head-metrics.")
    layers, heads = one["layers"], one["heads"]
    found = {name: metric(study, name, number).mean for name in METRICS}
    yield "config.json", _config(study, one, number)
    yield (
        "scatter_data.json",
        [
            {"layer": layer, "head": head, **{name: _rounded(found[name][i, j]) for name in METRICS}}
            for i, layer in enumerate(layers)
            for j, head in enumerate(heads)
        ],
    )
    yield "server_config.json", {}
    yield "attributions/manifest.json", {}
    texts = [_Text(study, number, row) for row in sequences.kept_rows(study.arrays)]
    for i, layer in enumerate(layers):
        for j, head in enumerate(heads):
            yield f"heads/L{layer}H{head}.json", _head(study, number, (i, j), texts)


def _config(study: StudySummary, one: dict[str, Any], number: int) -> dict[str, Any]:
    layers, heads = one["layers"], one["heads"]
    plain = {"format": "default"}
    return {
        "model_name": one["model"],
        "dataset_name": study.document["dataset"]["name"],
        "heads": [[layer, head] for layer in layers for head in heads],
        "n_layers": len(layers),
        "n_heads": len(heads),
        "n_intervals": INTERVALS,
        "metrics": list(METRICS),
        "metric_descriptions": DESCRIPTIONS,
        "head_data_pattern": "L{layer}H{head}.json",
        "has_umap": False,
        "umap_heads": [],
        "custom_plots": [
            {"key": "qk_distance_histogram", "label": "Distance"},
            {"key": "histogram", "label": "Largest weight of each input"},
        ],
        "custom_tables": [
            {"key": "top_query_tokens", "label": "Tokens that attend most"},
            {"key": "top_key_tokens", "label": "Tokens attended to most"},
        ],
        "statistics_display": {
            "n_samples": {"label": "Inputs shown", **plain},
            "mean_max_activation": {"label": "Mean of the largest weight", **plain},
        },
        "pipeline_config": {
            "tool": "headscope",
            "mechanism": one["mechanism"],
            "variant": number,
            "actual_sequences_processed": study.inputs,
            "num_hidden_layers": len(layers),
            "num_attention_heads": len(heads),
            "sparse_topk_per_row": sequences.TOP,
            "sparse_threshold": sequences.LEAST,
            "n_intervals": INTERVALS,
            "sample_seed": study.document["request"]["seed"],
        },
    }


class _Text:
    """An input of the study: its tokens, and the strongest entries of every head."""

    def __init__(self, study: StudySummary, number: int, row: int) -> None:
        prefix = f"sparse/{number}/{row}"
        self.row = row
        self.tokens: list[str] = json.loads(study.arrays[f"{prefix}/tokens"].tobytes())
        self._keys, self._values = study.arrays[f"{prefix}/key"], study.arrays[f"{prefix}/value"]

    def entries(self, place: tuple[int, int]) -> tuple[Array, Array, Array]:
        """Queries, keys and weights of a head, in order."""
        values = self._values[place]
        queries = np.broadcast_to(np.arange(len(values))[:, None], values.shape)
        kept = values > 0
        return queries[kept], self._keys[place][kept].astype(int), values[kept] / sequences.SCALE


def _head(study: StudySummary, number: int, place: tuple[int, int], texts: Sequence[_Text]) -> dict[str, Any]:
    largest = study.stat("max_activation", "weights", number)
    bounds = [float(largest.quantile(part / INTERVALS)[place]) for part in range(1, INTERVALS)]
    shares = means(study, "qk_distance", "weights", number).mean[place][2:]
    counts = largest.histogram[place].reshape(BARS, -1).sum(-1)
    shown = [_sequence(text, place, bounds) for text in texts]
    return {
        "sequences": shown,
        "qk_distance_histogram": {
            "bin_edges": [*STARTS, 2 * STARTS[-1]],
            "bin_values": [_rounded(share) for share in shares],
        },
        "top_query_tokens": _tokens(texts, place, 0),
        "top_key_tokens": _tokens(texts, place, 1),
        "histogram": {
            "bin_edges": [round(edge / BARS, 4) for edge in range(BARS + 1)],
            "bin_values": counts.tolist(),
        },
        "statistics": {"n_samples": len(shown), "mean_max_activation": _rounded(largest.input_mean[place])},
    }


def _sequence(text: _Text, place: tuple[int, int], bounds: Sequence[float]) -> dict[str, Any]:
    queries, keys, values = text.entries(place)
    inner = values[(queries > 0) & (keys > 0)]
    most = float(inner.max(initial=0.0))
    return {
        "sequence_id": text.row,
        "interval": 1 + bisect.bisect_right(bounds, most),
        "tokens": text.tokens,
        "attention_indices": (queries * len(text.tokens) + keys).tolist(),
        "attention_values": [_rounded(value) for value in values],
        "seq_len": len(text.tokens),
        "max_activation": _rounded(most),
    }


def _tokens(texts: Sequence[_Text], place: tuple[int, int], side: int) -> list[dict[str, Any]]:
    """Tokens of the inputs shown, by the attention that they give (side 0) or get (side 1)."""
    weights = Counter[str]()
    for text in texts:
        entries = text.entries(place)
        for at, value in zip(entries[side].tolist(), entries[2].tolist(), strict=True):
            weights[text.tokens[at]] += value
    return [{"token": token, "weight": _rounded(weight)} for token, weight in weights.most_common(TOKENS)]


def _rounded(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None
