"""The twins that come with the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

import headscope
from models import evaluate, needles
from tests.support.extent import extent, mostly_long

TWINS = Path(evaluate.__file__).parent / "twins"
SHIPPED = sorted(path.parent for path in TWINS.glob("*/evaluation.json"))


@pytest.mark.parametrize("folder", mostly_long(SHIPPED, *SHIPPED[::5]), ids=[folder.name for folder in SHIPPED])
def test_they_are_worth_what_they_were_when_training_ended(folder):
    """Loaded by Headscope, in float32 from the float16 that is shipped."""
    now, then = evaluate.remeasure(folder)
    assert now == pytest.approx(then, abs=evaluate.TOLERANCE)


def test_there_are_some_and_they_are_small():
    """No file above 20 MB, no more than 120 MB together."""
    sizes = [path.stat().st_size for path in TWINS.rglob("*.safetensors")]
    assert sizes
    assert max(sizes) < 20e6
    assert sum(sizes) < 120e6


def test_needles_are_found():
    """In lines that the model has never seen."""
    assert needles.accuracy(headscope.load(needles.FOLDER).module, seed=2, count=extent(200, 80)) > 0.98
