"""Inputs per second of the analyses inside a study, next to the model's plain forward pass over the same batches.

MiniLM on the CPU, sentences in batches of equal length, without padding. `sdpa` and `eager` are the model's own forward pass on token ids, without output_attentions.
`analyses` tokenizes, runs the model, reads weights and effective attention of every head, and computes entropy, patterns and attention to special tokens. The ratio is the
time of the plain pass over that of the analyses of the same repeat: with one thread, as in one of several workers, and with all threads. As in a worker, the garbage
collector ignores objects that existed before. Sentences are those of SST-2 if its file is next to the repository, else random words.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import headscope
from headscope.analysis.pipeline import AnalysisTask, run_many
from headscope.analysis.request import AnalysisRequest
from headscope.analysis.result import MemorySink, Result

from .common import Spread, interleaved, ratios

SST2 = Path(__file__).resolve().parents[2] / "shared" / "data" / "sst2" / "train.tsv"
COUNT, LARGEST, REPEATS = 2_000, 64, 3
MEASURES = ["entropy", "patterns", "special_tokens"]
PLAIN = ("sdpa", "eager")
SMALLEST: dict[str, Any] = {"count": 4, "repeats": 1}


def measure(count: int = COUNT, repeats: int = REPEATS) -> list[dict[str, Any]]:
    """Return one row per number of threads and plain pass: inputs per second, and the ratio of the two."""
    model = headscope.load("minilm")
    batches = _batches(model, sentences(model, count))
    candidates: dict[str, Callable[[], None]] = {name: _plain(model, batches, name) for name in PLAIN}
    candidates["analyses"] = _analyses(model, batches)
    gc.collect()
    gc.freeze()
    rows, every = list[dict[str, Any]](), torch.get_num_threads()
    for threads in sorted({1, every}):
        torch.set_num_threads(threads)
        seconds = interleaved(candidates, repeats, 1)
        rates = {name: Spread.of([count / one for one in taken]).text() for name, taken in seconds.items()}
        rows += [
            {
                "inputs": count,
                "batches": len(batches),
                "threads": threads,
                "plain pass": name,
                "plain, inputs/s": rates[name],
                "analyses, inputs/s": rates["analyses"],
                "ratio": ratios(seconds[name], seconds["analyses"]).text(1, 2),
            }
            for name in PLAIN
        ]
    torch.set_num_threads(every)
    return rows


def sentences(model: headscope.Model, count: int) -> list[str]:
    if SST2.exists():
        return [line.split("\t")[0] for line in SST2.read_text("utf-8").splitlines()[:count]]
    draw = np.random.default_rng(0)
    words = sorted(word for word in model.tokenizer.get_vocab() if word.isascii() and word.isalpha())
    return [" ".join(draw.choice(words, length)) for length in draw.integers(4, 40, count)]


def _batches(model: headscope.Model, sentences: list[str]) -> list[list[tuple[str, list[int]]]]:
    """Return batches of sentences with their token ids, of equal length in each batch."""
    by_length: dict[int, list[tuple[str, list[int]]]] = defaultdict(list)
    for sentence in sentences:
        ids = [token.id for token in model.encode(sentence).tokens]
        by_length[len(ids)].append((sentence, ids))
    return [
        group[low : low + LARGEST] for _, group in sorted(by_length.items()) for low in range(0, len(group), LARGEST)
    ]


def _plain(model: headscope.Model, batches: list[Any], implementation: str) -> Callable[[], None]:
    inputs = [torch.tensor([ids for _, ids in batch]) for batch in batches]

    def work() -> None:
        model.module.set_attn_implementation(implementation)
        with torch.inference_mode():
            for ids in inputs:
                model.module(input_ids=ids, attention_mask=torch.ones_like(ids))

    return work


def _analyses(model: headscope.Model, batches: list[Any]) -> Callable[[], None]:
    request = AnalysisRequest(model="minilm", text="-", measures=MEASURES, maps=False)

    def asked(sentence: str) -> AnalysisTask:
        return AnalysisTask(request.model_copy(update={"text": sentence}), MemorySink(), tiles=False)

    def work() -> None:
        for batch in batches:
            outcomes = run_many(model, [asked(sentence) for sentence, _ in batch])
            if not all(isinstance(outcome, Result) for outcome in outcomes):
                raise RuntimeError("an analysis failed")

    return work
