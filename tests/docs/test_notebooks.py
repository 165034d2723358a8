"""The notebooks of the docs: small, executed, and in the order in which they run. `make notebooks` executes all of them, in a kernel."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[2] / "docs" / "notebooks"
NAMES = ["effects", "first-look", "own-model", "paper-figure"]
MOST_BYTES = 300_000
DECIMAL = re.compile(r"\d+\.\d+(?:e-?\d+)?")


def _cells(name: str) -> list[dict[str, Any]]:
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def _numbers(text: str) -> tuple[str, list[float]]:
    """Return a text without its decimal numbers, whose last digits differ between processors, and these."""
    return DECIMAL.sub("#", text), [float(number) for number in DECIMAL.findall(text)]


def test_there_are_no_others() -> None:
    assert sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_saved_notebook(name: str) -> None:
    """Every cell was run, in order, without an error, and the outputs are small and the same on every machine."""
    path, cells = NOTEBOOKS / f"{name}.ipynb", _cells(name)
    assert path.stat().st_size < MOST_BYTES
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert not re.search(r" at 0x|(?<![\w.])/(?:work|home|root|Users|tmp)/|widget-view", json.dumps(outputs))


def test_first_look_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The quickest one prints what it was saved with."""
    monkeypatch.setenv("HEADSCOPE_HOME", str(tmp_path))
    printed: list[str] = []
    names: dict[str, Any] = {"print": lambda *values: printed.append(" ".join(map(str, values)) + "\n")}
    for cell in _cells("first-look"):
        body = ast.parse("".join(cell["source"])).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), "first-look", "exec"), names)
        value = last and eval(compile(ast.Expression(last.value), "first-look", "eval"), names)
        for output in cell["outputs"]:
            shown = output.get("data", {}).get("text/plain")
            assert shown is None or "".join(shown) == repr(value)
            if output["output_type"] == "stream":
                text, numbers = _numbers("".join(printed))
                saved, expected = _numbers("".join(output["text"]))
                assert (text, numbers) == (saved, pytest.approx(expected, abs=1e-3))
        printed.clear()
