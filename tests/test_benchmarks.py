"""Benchmarks run on their smallest size: what the README reports can be measured again. What the figures are is not tested."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

import pytest
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.score_cases import SLOWEST, TRUTHS
from benchmarks.scores import ATTRIBUTIONS

from headscope import LENSES

ROOT = Path(__file__).parents[1]
NOT_MEASUREMENTS = {"__init__", "__main__", "bare", "common", "browsing", "visitors", "engines", "proof"}
NOT_MEASUREMENTS |= {"scores", "score_cases", "score_check", "score_edges", "score_maps", "score_slow", "score_summary"}
# Lenses that read no causal model, so only reactions score them.
ONLY_ENCODERS = {"effective-published", "jump-map"}


# One of the library, one of studies, one of the page; a command runs a fourth.
RUN = ("batch", "study", "page_peers")


def test_all_are_listed() -> None:
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - NOT_MEASUREMENTS == set(BENCHMARKS)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_measure(name: str) -> None:
    """It loads, and what is measured takes the sizes of the smallest run. That they all run is `make bench ARGS=--smallest`."""
    module = import_module(f"benchmarks.{name}")
    assert module.__doc__
    inspect.signature(module.measure).bind(**module.SMALLEST)


@pytest.mark.parametrize("name", RUN)
def test_smallest_size(name: str) -> None:
    module = import_module(f"benchmarks.{name}")
    rows = module.measure(**module.SMALLEST)
    assert rows
    assert all(row and all(str(value) for value in row.values()) for row in rows)


def test_help() -> None:
    command = [sys.executable, "-m", "benchmarks", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, "page_peers" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "output"), [(["--smallest", "lenses"], 0, "capture_ratio"), (["cost"], 2, "cost")]
)
def test_command(
    arguments: list[str], status: int, output: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, which has imported what most of the start of another one would be."""
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
    with nullcontext() if status == 0 else pytest.raises(SystemExit, match=str(status)):
        main()
    assert output in "".join(capsys.readouterr())


def test_what_other_engines_read_is_equal() -> None:
    """In the record of `make proof`: enough models and engines, and every difference within rounding errors of float32."""
    rows = json.loads((ROOT / "docs" / "measured" / "proof.json").read_text("utf-8")).values()
    assert len({row["model"] for row in rows}) >= 6
    assert len({row["engine"].split()[0] for row in rows}) >= 3
    assert max(row["weights"] for row in rows) <= 1e-5
    assert max(max(row["outputs"], row.get("logits", 0), row.get("contributions", 0)) for row in rows) <= 1e-4
    assert {row["model"] for row in rows if "contributions" in row} >= {"smollm2", "twin-gpt-softmax"}


def test_every_lens_and_attribution_map_is_scored_on_four_kinds_of_truth() -> None:
    """In the record of benchmarks.scores: 100 inputs of each, intervals, baselines, and ranks and entries that slow code finds, too."""
    found = json.loads((ROOT / "docs" / "measured" / "scores.json").read_text("utf-8"))
    truths = [found[kind] for kind in TRUTHS]
    assert all(one["inputs"] >= 100 <= one["check"]["inputs"] for one in truths)
    assert all(one["check"]["different"] <= 1e-5 * one["check"]["ranks"] for one in truths)
    assert all({"uniform", "previous-token", "random-model"} < set(one["lenses"]) for one in truths)
    scored = Counter(lens for one in truths for lens in one["lenses"])
    fewer = {name: scored[name] for name in (*LENSES, *ATTRIBUTIONS) if scored[name] < 4}
    assert set(fewer) <= {*ONLY_ENCODERS, *SLOWEST, "alti-logit"}  # which some lines with needles have not
    assert 0 not in fewer.values()
    for one in truths:
        for row in one["lenses"].values():
            score, low, high = row["best"]["accuracy"]
            assert 0 <= low <= score <= high <= 1
    assert found["faithfulness"]["inputs"] >= 50
    assert found["faithfulness"]["edges"] >= 500 * found["faithfulness"]["inputs"]
    assert set(ATTRIBUTIONS) - set(SLOWEST) < set(found["faithfulness"]["lenses"])
    assert found["faithfulness"]["check"]["difference"] <= 1e-4
