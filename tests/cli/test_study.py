"""headscope study: figures and tables of a file, reports of skipped rows, and resuming after a kill."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
import torch

from headscope.errors import FigureNotDrawn
from tests.support import commands
from tests.support.forks import fork
from tests.support.models import tiny_model
from tests.support.studies import lines


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model") / "bert")


def run(folder: Path, model: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, with its own data directory there."""
    with contextlib.chdir(folder):
        return commands.run(folder / "home", "study", *map(str, arguments), "--model", str(model))


def test_figures_and_tables_of_a_file(tmp_path: Path, model: Path) -> None:
    """In the requested formats; guessed columns and skipped rows are reported."""
    (tmp_path / "cats.jsonl").write_text(lines(12) + "no json\n")
    asked = (
        "--figure",
        "entropy:lens=weights",
        "--table",
        "heads",
        "--format",
        "csv",
        "--format",
        "latex",
        "--out",
        "made",
    )
    done = run(tmp_path, model, "cats.jsonl", *asked)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "made").iterdir()} == {"entropy.csv", "heads.csv", "heads.tex"}
    assert "12 inputs of cats.jsonl" in done.stdout
    assert "columns: text is sentence, label is label" in done.stdout
    assert "1 rows cannot be used\n  row 13: " in done.stdout
    with (tmp_path / "made" / "heads.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["layer"], row["head"]) for row in rows] == [(str(i), str(j)) for i in range(2) for j in range(4)]


def test_without_anything_asked_it_prints_every_head(tmp_path: Path, model: Path) -> None:
    """One line per head; as JSON, the whole document."""
    (tmp_path / "cats.txt").write_text("The cat sat.\nA mat.\n")
    done = run(tmp_path, model, "cats.txt", "--measure", "entropy", "--lens", "weights")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[-8:]] == [
        f"{i}.{j}" for i in range(2) for j in range(4)
    ]
    document = json.loads(run(tmp_path, model, "cats.txt", "--measure", "entropy", "--json").stdout)
    assert (document["inputs"], document["measures"].keys()) == (2, {"entropy"})


def test_effects_of_heads(tmp_path: Path) -> None:
    """With a target by columns or by options; one line per head with the mean effect and the share of inputs, and, with reference texts, as a figure's table."""
    (tmp_path / "verbs.tsv").write_text("text\tgood\tbad\nThe keys to the old cabinet\t are\t is\nThe cat\t is\t are\n")
    asked = ("verbs.tsv", "--effect", "contribution", "--effect", "attribution-patching:of=zero")
    columns = ("--column", "target=good", "--column", "minus=bad")
    done = run(tmp_path, Path("twin-gpt-softmax"), *asked, *columns)
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()[-49:]
    assert head.split() == [
        "head",
        *(f"{m}.{c}" for m in ("contribution", "attribution-patching") for c in ("effect", "raises")),
    ]
    assert len(rows) == 48
    (tmp_path / "reference.txt").write_text("Rivers run into the sea.\n")
    asked = ("verbs.tsv", "--effect", "ablation:how=reference", "--reference", "reference.txt")
    drawn = run(tmp_path, Path("twin-gpt-softmax"), *asked, "--target", " is", "--minus", " are", "--table", "effects")
    assert drawn.returncode == 0, drawn.stderr
    with (tmp_path / "effects.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 48


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing.tsv",), "This file does not exist"),
        (("cats.txt", "--figure", "smile"), "There is no such figure"),
        (("cats.txt", "--figure", "entropy:joy=1"), "parameters of figure entropy are not valid"),
        (("cats.txt", "--format", "pdf"), "--format is for figures and tables"),
        (("cats.txt", "--figure", "entropy", "--format", "parquet"), "Figures have the formats"),
        (("cats.txt", "--table", "heads", "--format", "svg"), "Tables have the formats"),
        (("cats.txt", "--table", "smile"), "Invalid value for '--table'"),
        (("cats.txt", "--column", "text=nothing"), "invalid-request"),
        (("cats.txt", "--effect", "score:head=1.0"), "There is no such method"),
        (("cats.txt", "--effect", "contribution", "--minus", " a"), "--minus needs a --target"),
        (("cats.txt", "--effect", "contribution"), "no head that predicts"),
        (("cats.txt", "--effect", "ablation", "--reference", "cats.txt"), "reads reference texts"),
    ],
)
def test_mistakes(tmp_path: Path, model: Path, arguments: tuple[str, ...], said: str) -> None:
    """One line each, and an exit status other than 0."""
    (tmp_path / "cats.txt").write_text("The cat sat.\n")
    done = run(tmp_path, model, *arguments)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_results_are_kept_until_they_are_written(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a picture that cannot be drawn nor a folder that cannot be made costs the results; --save makes its folder."""

    async def fails(*_: object) -> bytes:
        raise FigureNotDrawn("The server has no browser.")

    monkeypatch.setattr("headscope.cli.study.render", fails)
    (tmp_path / "cats.txt").write_text("The cat sat.\nA mat.\n")
    kept, asked = tmp_path / "home" / "studies", ("cats.txt", "--lens", "weights", "--figure", "entropy:lens=weights")
    undrawn = run(tmp_path, model, *asked)
    assert (undrawn.returncode, "server" in undrawn.stderr) == (1, False)
    assert "The results are kept" in undrawn.stderr
    done = list(kept.rglob("*.safetensors"))
    assert done
    unwritten = run(tmp_path, model, *asked, "--format", "csv", "--out", "cats.txt/made")
    assert "could not be written" in unwritten.stderr
    assert list(kept.rglob("*.safetensors")) == done
    written = run(tmp_path, model, *asked, "--format", "csv", "--save", "made/study.safetensors")
    assert written.returncode == 0, written.stderr
    assert (tmp_path / "made" / "study.safetensors").is_file()
    assert not list(kept.iterdir())


def killed_run(folder: Path, model: Path, *arguments: str | Path) -> None:
    """The command, killed in its first forward pass after a chunk is done."""

    def kill(*_: object) -> None:
        if list((folder / "home" / "studies").rglob("*.safetensors")):
            os.kill(os.getpid(), signal.SIGKILL)

    torch.nn.modules.module.register_module_forward_pre_hook(kill)
    run(folder, model, *arguments)


def test_it_goes_on_after_a_kill(tmp_path: Path, model: Path) -> None:
    """The same command, started again, gives the same numbers as one that was never interrupted."""
    data = tmp_path / "cats.jsonl"
    data.write_text(lines(700))
    asked = (data, "--measure", "entropy", "--lens", "weights", "--table", "heads")
    (tmp_path / "whole").mkdir()
    assert run(tmp_path / "whole", model, *asked).returncode == 0
    killed = tmp_path / "killed"
    killed.mkdir()
    first = fork(killed_run, killed, model, *asked)
    first.join(120)
    assert first.exitcode == -signal.SIGKILL
    kept = killed / "home" / "studies"
    assert list(kept.rglob("*.safetensors"))
    assert not (killed / "heads.csv").exists()
    assert run(killed, model, *asked).returncode == 0
    assert (killed / "heads.csv").read_bytes() == (tmp_path / "whole" / "heads.csv").read_bytes()
    assert not list(kept.iterdir())
