"""A lens that is registered takes part everywhere: in the API, on the page, in the docs, in queries, and in every measure that accepts its properties."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fastapi import FastAPI
from starlette.testclient import TestClient

from headscope.api.routes import declarations
from headscope.core.attention import Reading
from headscope.lenses import LENSES
from headscope.lenses.base import Lens
from headscope.measures import MEASURES
from headscope.query.terms import resolve
from tests.support.forks import forked

from .measures.heads import head_layer, rows, sentence

ROOT = Path(__file__).parents[2]

SQUARED = """
from headscope.core.attention import Reading
from headscope.lenses import LENSES
from headscope.lenses.base import Lens

def read(layer, params):
    squares = layer.weights.square()
    return Reading(squares / squares.sum(-1, keepdim=True))

LENSES["squared"] = Lens(
    name="squared", title="Squared weights", doc="The weights squared.", not_="Not attention.", citation="this test",
    range=(0.0, 1.0), distribution=True, read=read,
)
"""


@pytest.fixture(params=["distribution", "signed"])
def lens(request: pytest.FixtureRequest) -> Iterator[Lens]:
    """A lens with other properties each time, registered for one test."""
    exec(SQUARED, {})
    if request.param == "signed":
        declared = {**vars(LENSES["squared"]), "distribution": False, "signed": True}
        declared["read"] = lambda layer, params: Reading(layer.weights - layer.weights.mean(-1, keepdim=True), True)
        LENSES["squared"] = Lens(**declared)
    yield LENSES["squared"]
    del LENSES["squared"]


def accepting(name: str) -> set[str]:
    """Names of the measures that accept a lens."""
    return {measure.name for measure in MEASURES.values() if name in measure.lenses}


def test_measures_accept_it_by_its_properties(lens: Lens) -> None:
    """Those that accept the lens of the same properties, and no other."""
    assert accepting(lens.name) == accepting("effective" if lens.signed else "max-entropy")
    assert ("entropy" in accepting(lens.name)) == lens.distribution
    assert ("negative_share" in accepting(lens.name)) == lens.signed


def test_measures_compute_it(lens: Lens) -> None:
    """Each of them gives numbers of its declared shape."""
    tokens = sentence("[CLS] the cat ##s saw a dog . [SEP]")
    layer = head_layer(rows(0, 3, torch.ones(len(tokens), len(tokens), dtype=torch.bool).numpy()), tokens)
    readings = {"weights": Reading(layer.weights), lens.name: lens.read(layer, lens.params())}
    for name in accepting(lens.name):
        measure = MEASURES[name]
        values = measure.compute(layer, lens.name, readings, measure.params())
        sizes = {"H": 3, "Q": len(tokens), "K": len(tokens), "C": len(measure.columns)}
        assert values.shape == tuple(sizes[axis] for axis in measure.shape.split()[1:]), name
        assert not values.isnan().all(), name


def test_the_interface_lists_it(lens: Lens) -> None:
    """GET /lenses has it, and GET /measures names it where it is accepted: the page draws its controls from these two."""
    app = FastAPI()
    app.include_router(declarations.router)
    with TestClient(app) as client:
        lenses = {item["name"]: item for item in client.get("/lenses").json()["items"]}
        measures = client.get("/measures").json()["items"]
    assert lenses[lens.name]["title"] == "Squared weights"
    assert lenses[lens.name]["signed"] == lens.signed
    assert {item["name"] for item in measures if lens.name in item["lenses"]} == accepting(lens.name)


def test_the_docs_list_it(lens: Lens) -> None:
    """The generated tables have it: the overview, its own, and those of the measures that accept it."""
    spec = importlib.util.spec_from_file_location("docs_declared", ROOT / "docs" / "declared.py")
    assert spec is not None
    assert spec.loader is not None
    declared = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(declared)
    assert "| The weights squared. |" in declared.overview("lens")
    assert "| what it is not | Not attention. |" in declared.declaration("lens/squared")
    for name in MEASURES:
        assert ("`squared`" in declared.declaration(f"measure/{name}")) == (name in accepting("squared"))


def test_queries_know_it(lens: Lens) -> None:
    """A measure can be named for it."""
    assert resolve("participation_ratio@squared", 0).lens == "squared"


def run_anew(code: str) -> None:
    """Run code that imports Headscope, of which nothing is imported yet."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "headscope"]:
        del sys.modules[name]
    torch.set_num_threads(1)  # those of the process that was forked are not there
    exec(code, {})


def test_an_analysis_reads_it() -> None:
    """Registered before the requests are built, as a file in the package is, it can be asked for, and the measures that accept it are computed for it.

    They are not for effective attention, which is read for another measure only.
    """
    code = f"""{SQUARED}
import headscope
from headscope.measures import MEASURES

a = headscope.analyze(headscope.load("minilm"), "The cat sat.", lenses=["squared"], measures=["entropy", "patterns", "negative_share"])
assert a.maps["squared"].shape == (6, 12, 6, 6)
assert {{name: set(found) for name, found in a.measures.items()}} == {{
    "entropy": {{"weights", "squared"}}, "patterns": {{"weights", "squared"}}, "negative_share": {{"effective"}},
}}
assert (a.measures["entropy"]["squared"] <= a.measures["entropy"]["weights"] + 1e-5).all()
"""
    forked(run_anew, (code,))
