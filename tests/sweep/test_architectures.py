"""Every architecture of transformers: what Headscope shows is what the model computes, or it refuses; and the tables that ship say so."""

from __future__ import annotations

import pytest
import transformers

from .run import sweep
from .table import FAMILIES, families, recorded

LEAST_EQUAL = 150
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def swept():
    """A verdict for every model type."""
    return sweep()


def test_nothing_is_silently_wrong(swept):
    """Maps, outputs and what was found around attention are those of the model's own eager pass, on inputs of several lengths."""
    assert {name: verdict["wrong"] for name, verdict in swept.items() if "wrong" in verdict} == {}


def test_every_refusal_is_one_of_ours(swept):
    """No architecture raises anything that is not an error of Headscope's own."""
    assert {name: verdict["crashed"] for name, verdict in swept.items() if "crashed" in verdict} == {}


def test_most_architectures_are_exact(swept):
    assert sum(verdict.get("result") == "equal" for verdict in swept.values()) >= LEAST_EQUAL


def test_record_is_fresh(swept):
    """Verdicts are those recorded (else: python -m tests.sweep). Another version of transformers may have other types, but not other verdicts."""
    version, known = recorded()
    both = {name: verdict for name, verdict in swept.items() if name in known}
    assert {name: verdict for name, verdict in both.items() if verdict != known[name]} == {}
    if version == transformers.__version__:
        assert set(known) == set(swept)


def test_server_knows_what_is_recorded():
    """The table that the server reads follows from the record."""
    version, found = recorded()
    assert FAMILIES.read_text("utf-8") == families(found, version)
