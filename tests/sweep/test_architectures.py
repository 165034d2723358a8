"""Architectures of transformers: what Headscope shows is what the model computes, or it refuses; and the tables that ship say so. All of them: `make sweep`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from headscope.models.support import READ
from tests.support.extent import extent

from .pictured_types import PICTURED
from .run import faults, sweep
from .table import FAMILIES, families, recorded

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
VERSION, RECORDED = recorded()
SHOWN = PICTURED[:: extent(1, 15)]


def parts(verdict: dict[str, Any]) -> set[str]:
    """What a verdict consists of: its result or refusal, and each missing capability; in `make long` also of which kind of attention, and why."""
    missing = (
        (extent(kind, ""), need, extent(reason, ""))
        for kind, lacking in verdict.get("lacks", {}).items()
        for need, reason in lacking.items()
    )
    left_out = extent(("class", "image", "lacks"), ("class", "image", "lacks", "reason", "left_out"))
    others = (item for item in verdict.items() if item[0] not in left_out)
    return {json.dumps(part) for part in (*missing, *others)}


def chosen() -> list[str]:
    """Few model types that have every part of every recorded verdict."""
    known = {name: parts(verdict) for name, verdict in sorted(RECORDED.items()) if name in CONFIG_MAPPING}
    missing, types = set[str]().union(*known.values()), []
    while missing:
        types.append(max(known, key=lambda name: len(known[name] & missing)))
        missing -= known[types[-1]]
    return sorted(types)


@pytest.fixture(scope="module")
def swept() -> dict[str, dict[str, Any]]:
    """Their verdicts, and what becomes of an image beside a text in every family that can be built, or in some of them."""
    return sweep(chosen(), workers=1, pictured=SHOWN)


def test_nothing_is_wrong(swept: dict[str, dict[str, Any]]) -> None:
    """Maps, outputs and what was found around attention are those of the model's own eager pass, and every refusal is an error of Headscope's own."""
    assert faults(swept) == {}
    assert {"equal", "fallback", "refused"} <= {verdict.get("result") for verdict in swept.values()}


def test_record_is_fresh(swept: dict[str, dict[str, Any]]) -> None:
    """Verdicts are those recorded (else: python -m tests.sweep --write)."""
    known = {
        name: {key: value for key, value in RECORDED[name].items() if key in verdict} for name, verdict in swept.items()
    }
    assert {name: verdict for name, verdict in swept.items() if verdict != known[name]} == {}
    pictured = Counter(verdict.get("image") for verdict in swept.values())
    assert pictured["equal"] >= extent(39, 3)
    assert {said for said in pictured if said} <= {*READ}


def test_record_is_of_the_version_that_is_installed() -> None:
    """What `make` installs is what was swept over."""
    assert f"transformers=={VERSION}" in CONSTRAINTS.read_text("utf-8").splitlines()


def test_server_knows_what_is_recorded() -> None:
    """The table that the server reads follows from the record."""
    assert FAMILIES.read_text("utf-8") == families(RECORDED, VERSION)
