"""Export for HeadVis: a zip of the files that its page and Neuronpedia's loaders read.

config.json, scatter_data.json (six metrics per head), heads/L{layer}H{head}.json (sequences with their strongest entries, histograms, tokens), and two
empty files that tell the page that there is no server.
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

from ...core.arrays import Array
from ...core.streams import Chunks, save, zip_stream
from ...errors import NotReady
from ...measures.distance import STARTS
from ...store.export import Source
from .. import kept_maps
from ..aggregate import collect
from .summary import METRICS, StudySummary, metric

INTERVALS, BARS, TOKENS = 5, 50, 50
# The measures that the metrics and the intervals of inputs are computed from.
MEASURES = ("head_roles", "qk_distance", "entropy", "max_activation")
# Descriptions of the metrics on the page.
DESCRIPTIONS = {
    "self_attention_score": "Mean attention of a token to itself.",
    "prev_token_score": "Mean attention to the token before.",
    "pattern_entropy": "Mean entropy of a row, in nats.",
    "qk_distance": "Mean distance between query and key, weighted by attention.",
    "qk_distance_variance": "Variance of that distance.",
    "induction_score": "Mean attention to what followed an earlier occurrence of the same token.",
}
# Number and seed of the one input when an analysis is exported as a study.
ROW = SEED = 0
_DATE = (1980, 1, 1, 0, 0, 0)


def write(study: StudySummary, path: str | Path, variant: int = 0) -> None:
    """Write a variant of a study as a zip. Raises what `stream` raises."""
    save(stream(study, variant), path)


def stream(study: StudySummary, variant: int = 0) -> Chunks:
    """Stream a variant of a study as a zip. Raises NotReady if it lacks the metrics, Unknown for a missing variant."""

    def write(archive: zipfile.ZipFile) -> Iterator[None]:
        for name, content in files(study, variant):
            # A fixed date: the same study gives the same bytes.
            archive.writestr(zipfile.ZipInfo(name, _DATE), json.dumps(content, allow_nan=False), zipfile.ZIP_DEFLATED)
            yield

    return zip_stream(write)


def files(study: StudySummary, variant: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the name and content of every file. Raises what `stream` raises."""
    described = study.variant(variant)
    if not set(MEASURES) <= set(study.document["measures"]):
        raise NotReady("This file needs the six metrics. Run the study again with the figure head-metrics.")
    layers, heads = described["layers"], described["heads"]
    metrics = {name: metric(study, name, variant).mean for name in METRICS}
    yield "config.json", _config(study, described, variant)
    yield (
        "scatter_data.json",
        [
            {"layer": layer, "head": head, **{name: _rounded(metrics[name][i, j]) for name in METRICS}}
            for i, layer in enumerate(layers)
            for j, head in enumerate(heads)
        ],
    )
    yield "server_config.json", {}
    yield "attributions/manifest.json", {}
    texts = [_SparseText(study, variant, row) for row in kept_maps.sparse_rows(study.arrays)]
    for i, layer in enumerate(layers):
        for j, head in enumerate(heads):
            yield f"heads/L{layer}H{head}.json", _head(study, variant, (i, j), texts)


def summary_of_analysis(source: Source) -> StudySummary:
    """Return an analysis as a study of one input. Raises NotReady if a measure was not computed, Corrupt if the source is damaged."""
    document = source.document
    if any("weights" not in document["measures"].get(name, ()) for name in MEASURES):
        raise NotReady(f"This file needs the measures {', '.join(MEASURES)}. Send the request again with them.")
    measured = {name: {"weights": source.arrays[f"measure/{name}/weights"]} for name in MEASURES}
    texts = [token["text"] for token in document["tokens"]]
    request = document["request"]
    shape = {name: document[name] for name in ("layers", "heads", "head_width", "causal")}
    described = {
        "variants": [{"model": request["model"], "mechanism": request["mechanism"], **shape}],
        "dataset": {"name": "one input"},
        "request": {"seed": SEED},
        "inputs": 1,
        "measures": document["measures"],
    }
    return StudySummary(described, collect(0, [measured], np.array([ROW]), SEED) | _strongest(source, texts))


def _strongest(source: Source, texts: Sequence[str]) -> dict[str, Array]:
    """Return the strongest entries of an analysis, as kept_maps.sparse_arrays does, with one part of its maps in memory at a time."""
    shape = source.document["shapes"]["weights"]
    if shape[-1] != len(texts):
        return {}
    found = [kept_maps.strongest(part.values) for part in source.parts("weights")]
    keys, values = (
        np.concatenate([rows.reshape(-1, rows.shape[-1]) for rows in side]).reshape(*shape[:3], -1)
        for side in zip(*found, strict=True)
    )
    return kept_maps.name_sparse(0, ROW, texts, keys, values)


def _config(study: StudySummary, described: dict[str, Any], variant: int) -> dict[str, Any]:
    layers, heads = described["layers"], described["heads"]
    plain = {"format": "default"}
    return {
        "model_name": described["model"],
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
            "mechanism": described["mechanism"],
            "variant": variant,
            "actual_sequences_processed": study.inputs,
            "num_hidden_layers": len(layers),
            "num_attention_heads": len(heads),
            "sparse_topk_per_row": kept_maps.TOP,
            "sparse_threshold": kept_maps.MIN_WEIGHT,
            "n_intervals": INTERVALS,
            "sample_seed": study.document["request"]["seed"],
        },
    }


class _SparseText:
    """An input of the study: its tokens, and the strongest entries of every head."""

    def __init__(self, study: StudySummary, variant: int, row: int) -> None:
        prefix = f"sparse/{variant}/{row}"
        self.row = row
        self.tokens: list[str] = json.loads(study.arrays[f"{prefix}/tokens"].tobytes())
        self._keys, self._values = study.arrays[f"{prefix}/key"], study.arrays[f"{prefix}/value"]

    def entries(self, place: tuple[int, int]) -> tuple[Array, Array, Array]:
        """Return queries, keys and weights of a head's entries, in order."""
        values = self._values[place]  # [Q, TOP]
        queries = np.broadcast_to(np.arange(len(values))[:, None], values.shape)
        kept = values > 0
        return queries[kept], self._keys[place][kept].astype(int), values[kept] / kept_maps.SCALE


def _head(study: StudySummary, variant: int, place: tuple[int, int], texts: Sequence[_SparseText]) -> dict[str, Any]:
    largest = study.stat("max_activation", "weights", variant)
    bounds = [float(largest.quantile(part / INTERVALS)[place]) for part in range(1, INTERVALS)]
    shares = study.stat("qk_distance", "weights", variant).means.mean[place][2:]
    counts = largest.histogram[place].reshape(BARS, -1).sum(-1)
    sequences = [_sequence(text, place, bounds) for text in texts]
    return {
        "sequences": sequences,
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
        "statistics": {"n_samples": len(sequences), "mean_max_activation": _rounded(largest.input_mean[place])},
    }


def _sequence(text: _SparseText, place: tuple[int, int], bounds: Sequence[float]) -> dict[str, Any]:
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


def _tokens(texts: Sequence[_SparseText], place: tuple[int, int], side: int) -> list[dict[str, Any]]:
    """Return tokens ranked by the attention that they give (side 0) or receive (side 1)."""
    weights = Counter[str]()
    for text in texts:
        entries = text.entries(place)
        for at, value in zip(entries[side].tolist(), entries[2].tolist(), strict=True):
            weights[text.tokens[at]] += value
    return [{"token": token, "weight": _rounded(weight)} for token, weight in weights.most_common(TOKENS)]


def _rounded(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None
