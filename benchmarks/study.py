"""Inputs per second of a study, next to the model's plain forward pass over the same batches.

MiniLM, and SmolLM2 where it is installed, on the CPU, sentences in batches of equal length, without padding. The plain pass is the model's own forward pass (SDPA) on
token ids, without output_attentions. `analyses` tokenizes, runs the model, reads weights and effective attention of every head, and computes entropy, patterns and
attention to special tokens. `from file` is the whole study of the same sentences, from a file of lines to aggregates with intervals. A ratio is the time of the plain
pass over that of the analyses, or the study, of the same repeat: with one thread, as in one of several workers, and with all threads. As in a worker, the garbage
collector ignores objects that existed before. Sentences are those of SST-2 if its file is next to the repository, else random words.
"""

from __future__ import annotations

import gc
import tempfile
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
from headscope.models.catalog import Catalog
from headscope.settings import Settings

from .common import Spread, interleaved, ratios

SST2 = Path(__file__).resolve().parents[2] / "shared" / "data" / "sst2" / "train.tsv"
COUNT, DECODER_COUNT, LARGEST, REPEATS = 2_000, 64, 64, 3
MEASURES = ["entropy", "patterns", "special_tokens"]
STUDIED = ("analyses", "from file")
SMALLEST: dict[str, Any] = {"count": 4, "decoder_count": 0, "repeats": 1}


def measure(count: int = COUNT, decoder_count: int = DECODER_COUNT, repeats: int = REPEATS) -> list[dict[str, Any]]:
    """Return one row per model and number of threads: inputs per second, and ratios to the plain pass. No `decoder_count`: without SmolLM2."""
    rows = _rows("minilm", "minilm", count, repeats)
    folder = Catalog(Settings()).installed("smollm2")
    if decoder_count and folder.is_dir():
        rows += _rows("smollm2", folder, decoder_count, repeats)
    return rows


def _rows(name: str, source: str | Path, count: int, repeats: int) -> list[dict[str, Any]]:
    model, every, rows = headscope.load(source), torch.get_num_threads(), list[dict[str, Any]]()
    texts = sentences(model, count)
    batches = _batches(model, texts)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sentences.txt"
        file.write_text("".join(f"{text}\n" for text in texts), "utf-8")
        candidates: dict[str, Callable[[], object]] = {
            "plain": _plain(model, batches),
            "analyses": _analyses(model, batches),
            "from file": lambda: headscope.study(model, file, measures=MEASURES),
        }
        gc.collect()
        gc.freeze()
        for threads in sorted({1, every}):
            torch.set_num_threads(threads)
            seconds = interleaved(candidates, repeats, 1)
            rates = {one: Spread.of([count / spent for spent in taken]).text() for one, taken in seconds.items()}
            rows.append(
                {"model": name, "inputs": count, "batches": len(batches), "threads": threads}
                | {f"{one}, inputs/s": rate for one, rate in rates.items()}
                | {f"{one}, ratio": ratios(seconds["plain"], seconds[one]).text(1, 2) for one in STUDIED}
            )
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


def _plain(model: headscope.Model, batches: list[Any]) -> Callable[[], None]:
    inputs = [torch.tensor([ids for _, ids in batch]) for batch in batches]

    def work() -> None:
        model.module.set_attn_implementation("sdpa")
        with torch.inference_mode():
            for ids in inputs:
                model.module(input_ids=ids, attention_mask=torch.ones_like(ids))

    return work


def _analyses(model: headscope.Model, batches: list[Any]) -> Callable[[], None]:
    request = AnalysisRequest(model=model.name, text="-", measures=MEASURES, maps=False)

    def asked(sentence: str) -> AnalysisTask:
        return AnalysisTask(request.model_copy(update={"text": sentence}), MemorySink(), tiles=False)

    def work() -> None:
        for batch in batches:
            outcomes = run_many(model, [asked(sentence) for sentence, _ in batch])
            if not all(isinstance(outcome, Result) for outcome in outcomes):
                raise RuntimeError("an analysis failed")

    return work
