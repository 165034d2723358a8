"""Models and texts that commands refuse: one line on standard error, and exit status 1."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from headscope.cli.options import read_text
from headscope.errors import InvalidText
from tests.support.commands import run
from tests.support.server import environment

from .test_commands import process, refusal


@pytest.mark.parametrize("name", ["no-such-model", "../bert"])
def test_unknown_model(tmp_path: Path, name: str) -> None:
    """One line, and exit status 1."""
    ended = process(tmp_path / "home", "analyze", "The cat sat.", "-m", name)  # which reads HF_HOME when it starts
    refusal(ended, "unknown-model" if name == "no-such-model" else "invalid-request")


@pytest.mark.parametrize("command", ["analyze", "effect"])
def test_model_that_is_not_installed(tmp_path: Path, command: str) -> None:
    """The line names the command that installs it."""
    ended = run(tmp_path / "home", command, "The cat sat.", "-m", "smollm2")
    assert "headscope models install smollm2" in refusal(ended, "model-unavailable")


@pytest.mark.parametrize("command", ["analyze", "effect"])
def test_standard_input_that_is_no_text(tmp_path: Path, command: str) -> None:
    assert "not valid UTF-8" in refusal(run(tmp_path / "home", command, "-", text=b"caf\xff"), "invalid-text")


def test_standard_input_of_the_c_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python lets any bytes pass there, as lone surrogates."""
    given = io.TextIOWrapper(io.BytesIO(b"caf\xff"), encoding="utf-8", errors="surrogateescape")
    monkeypatch.setattr("sys.stdin", given)
    with pytest.raises(InvalidText, match="not valid UTF-8"):
        read_text("-")


def test_bad_text_and_bad_place(models: Path, tmp_path: Path) -> None:
    """An empty text, and a file that cannot be written, are reported in one line."""
    refusal(run(tmp_path / "home", "analyze", "  ", "-m", "bert", models=models), "invalid-text")
    (tmp_path / "file").touch()
    nowhere = str(tmp_path / "file" / "cat.safetensors")
    refusal(run(tmp_path / "home", "analyze", "Cat.", "-m", "bert", "-o", nowhere, models=models), "internal")


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    """One line, and no other at exit, where Python would write the rest of it again."""
    command = [sys.executable, "-m", "headscope", "lenses"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment(tmp_path), check=False
        )
    assert (ended.returncode, ended.stderr) == (1, "headscope: No space left on device.\n")
