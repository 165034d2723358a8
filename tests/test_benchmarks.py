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
from benchmarks import record
from benchmarks.__main__ import BENCHMARKS, judge, main
from benchmarks.common import Spread
from benchmarks.score_cases import SLOWEST, TRUTHS
from benchmarks.scores import ATTRIBUTIONS

from headscope import LENSES
from tests.support.extent import mostly_long
from tests.support.variants import variants

ROOT = Path(__file__).parents[1]
NOT_MEASUREMENTS = {"__init__", "__main__", "bare", "common", "record", "browsing", "visitors", "engines", "proof"}
NOT_MEASUREMENTS |= {"scores", "score_cases", "score_check", "score_edges", "score_maps", "score_slow", "score_summary"}
# Lenses that read no causal model, so only reactions score them.
ONLY_ENCODERS = {"effective-published", "jump-map"}


# One of the library, one of studies, one of the page; a command runs a fourth.
RUN = ("batch", "study", "page_peers")


def test_all_are_listed() -> None:
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - NOT_MEASUREMENTS == set(BENCHMARKS)


@variants("name", BENCHMARKS)
def test_measure(name: str) -> None:
    """It loads, and what is measured takes the sizes of the smallest run. That they all run is `make bench ARGS=--smallest`."""
    module = import_module(f"benchmarks.{name}")
    assert module.__doc__
    inspect.signature(module.measure).bind(**module.SMALLEST)


@pytest.mark.parametrize("name", mostly_long(RUN, "study"))
def test_smallest_size(name: str) -> None:
    module = import_module(f"benchmarks.{name}")
    rows = module.measure(**module.SMALLEST)
    assert rows
    assert all(row and all(str(value) for value in row.values()) for row in rows)


@pytest.mark.long
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


HERE = {"cpu": "A", "cores": 2}


def ratios(name: str, row: dict[str, object]) -> record.Ratios:
    return record.read_ratios(name, [row])


def test_what_goes_on_record(tmp_path: Path) -> None:
    """Ratios are named after their benchmark, row and column; other columns and the row in ms are not ratios."""
    row = {"input": "random", "tokens": 128, "plain_ms": "5 (4-6)", "analysis_ratio": "1.31 (1.20-1.50)"}
    found = ratios("lenses", row)
    assert found == {"lenses: random, 128, analysis_ratio": Spread(1.31, 1.2, 1.5)}
    assert ratios("targets", {"method": "plain pass, ms", "bert-base 128": "5 (4-6)"}) == {}
    record.append(HERE, found, tmp_path / "record", commit="abc")
    record.append(HERE, found, tmp_path / "record", commit="abd")
    assert [run["commit"] for run in record.load(tmp_path / "record")] == ["abc", "abd"]
    assert record.load(tmp_path / "none") == []


def test_goals_go_on_record(tmp_path: Path) -> None:
    """Each run has the goals of its ratios, and those it misses: a lower ratio is better, but that of speeds is not."""
    slow = ratios("targets", {"method": "lens effective", "bert-base 128": "1.20 (1.10-1.30)"})
    fast = ratios("study", {"inputs": 500, "ratio": "0.90 (0.80-0.95)"})
    record.append(HERE, {**slow, **fast, **ratios("memory", {"ratio": "0.5 (0.4-0.6)"})}, tmp_path / "record")
    (run,) = record.load(tmp_path / "record")
    assert run["goals"] == {"targets: lens effective, bert-base 128": 1.12, "study: 500, ratio": 0.85}
    assert run["missed"] == list(slow)
    assert {pattern.partition(":")[0] for pattern in record.GOALS} <= set(record.TRACKED)


@pytest.mark.parametrize("values", [[1.5, 1.25, 2.0], [-5.0, -23.0, 50.0]])
def test_a_formatted_spread_can_be_read(values: list[float]) -> None:
    assert Spread.read(Spread.of(values).text(digits=2)) == Spread.of(values)
    assert Spread.read("smollm2") is None


@variants(
    ("name", "row", "medians", "worse"),
    [
        ("memory", {"tokens": 16, "ratio": "1.30 (1.21-1.40)"}, (1.0, 1.1, 1.2), True),
        ("memory", {"tokens": 16, "ratio": "1.30 (1.20-1.40)"}, (1.0, 1.1, 1.2), False),  # its best repeat is as good
        ("memory", {"tokens": 16, "ratio": "1.30 (1.21-1.40)"}, (1.0, 1.1), False),  # too few
        ("memory", {"tokens": 16, "ratio": "0.50 (0.40-0.60)"}, (1.0, 1.1, 1.2), False),
        ("study", {"threads": 1, "ratio": "0.50 (0.40-0.60)"}, (0.7, 0.8, 0.9), True),  # of speeds: higher is better
        ("study", {"threads": 1, "ratio": "0.50 (0.40-0.70)"}, (0.7, 0.8, 0.9), False),
        ("study", {"threads": 1, "ratio": "1.00 (0.95-1.05)"}, (0.7, 0.8, 0.9), False),
        ("memory", {"tokens": 16, "ratio": "1.30 (1.21-1.40)"}, (1.3, *(1.2,) * 10), True),  # the first one is too old
        ("waiting", {"what": "a page", "times_reference": "1.30 (1.21-1.40)"}, (1.0, 1.1, 1.2), True),
        ("waiting", {"what": "a page", "of_goal": "1.30 (1.21-1.40)"}, (1.0, 1.1, 1.2), False),  # of a slower machine
    ],
)
def test_a_ratio_beside_the_record(name: str, row: dict[str, object], medians: tuple[float, ...], worse: bool) -> None:
    """It is worse if even its best repeat is worse than each of the last ten medians of the same machine, of three at least."""
    now = ratios(name, row)
    (key,) = now
    runs = [{"machine": HERE, "ratios": {key: [median, 0, 0]}} for median in medians]
    elsewhere = {"machine": {"cpu": "B", "cores": 2}, "ratios": {key: [9.0 if worse else 0.0, 0, 0]}}
    (found,) = record.compare(HERE, now, [*runs, elsewhere])
    assert (found.earlier, found.worse) == (list(medians[-record.LATEST :]), worse)


def test_a_run_with_a_worse_ratio_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is a sentence that names the ratio, after a table of all; without ratios there is neither."""
    row = {"tokens": 16, "ratio": "1.30 (1.21-1.40)"}
    runs = [{"machine": HERE, "ratios": {"memory: 16, ratio": [median, 1.0, 1.2]}} for median in (1.0, 1.1, 1.2)]
    monkeypatch.setattr(record, "load", lambda: runs)
    assert judge({"machine": HERE, "memory": [row]}, keep=False) == (
        "Worse than every earlier result on record: memory: 16, ratio."
    )
    assert "| memory: 16, ratio | 1.30 (1.21-1.40) | 1 to 1.2 | 3 | yes |" in capsys.readouterr().out
    assert judge({"machine": HERE, "find": [row]}, keep=False) is None
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", record.QUICK)
def test_quick_sizes(name: str) -> None:
    """--quick gives each benchmark arguments that it takes."""
    inspect.signature(import_module(f"benchmarks.{name}").measure).bind(**record.QUICK[name])


def test_what_other_engines_read_is_equal() -> None:
    """In the record of `make proof`: enough models and engines, and every difference within rounding errors of float32."""
    rows = json.loads((ROOT / "docs" / "measured" / "proof.json").read_text("utf-8")).values()
    assert len({row["model"] for row in rows}) >= 6
    assert {row["engine"].split()[0] for row in rows} == {"TransformerLens", "nnsight", "interp-engine", "inseq"}
    assert max(row["weights"] for row in rows) <= 1e-5
    assert all("outputs" in row or row["engine"].startswith("inseq") for row in rows)
    assert max(row.get(part, 0) for row in rows for part in ("outputs", "logits", "contributions")) <= 1e-4
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
