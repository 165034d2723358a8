"""`headscope mcp`: one conversation of a client with the command, over standard input and output, about a small random model."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

import headscope
from headscope.mcp import tools
from headscope.mcp.answers import MOST_CHARACTERS, write_answer
from headscope.mcp.workspace import Workspace
from headscope.studies.results.table_files import ResultTable
from tests.support.compose import ROOT
from tests.support.models import tiny_model
from tests.support.server import environment

TEXT = "The cat sat on the mat. The cat sat on the"
OTHERS = ["A dog sat.", "It rained all day."]
MEAN = {"name": "ablation", "how": "reference"}
# Name of an answer -> the tool, and its arguments, which may need earlier answers.
Call = tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]


def calls(model: str) -> dict[str, Call]:
    """The conversation."""
    return {
        "models": ("list_models", lambda _: {"limit": 2}),
        "measures": ("describe_methods", lambda _: {"kind": "measures"}),
        "battery": ("describe_methods", lambda _: {"kind": "batteries", "name": "induction"}),
        "analysis": ("analyze", lambda _: {"model": model, "text": TEXT, "measures": ["entropy", "head_roles"]}),
        "found": ("find_heads", lambda past: {**of(past), "where": "order by entropy", "limit": 3}),
        "edges": ("read_edges", lambda past: {**of(past, "analysis"), "layer": 1, "head": 2, "k": 3, "limit": 5}),
        "words": ("read_edges", lambda past: {**of(past, "analysis"), "layer": 1, "head": 2, "by_word": True, "query": 1}),
        "scores": ("head_scores", lambda _: {"model": model, "battery": "induction", "prompts": 2}),
        "effect": ("effect", lambda _: {"model": model, "text": TEXT, "method": "ablation", "heads": ["0.1", "1.2"]}),
        "masked": ("effect", lambda _: {"model": "twin-bert-softmax", "text": "The cat sat.", "mask": [2], "method": MEAN, "reference": OTHERS}),
        "written": ("effect", lambda _: {"model": model, "text": TEXT, "method": {"name": "contribution", "writes": 2}}),
        "steps": ("effect", lambda _: {"model": model, "text": TEXT, "method": {"name": "integrated-gradients", "steps": 1}}),
        "cell": ("effect", lambda _: {"model": model, "text": TEXT, "method": {"name": "score", "head": "1.2", "pairs": 2}}),
        "figure": ("figure", lambda past: {**of(past), "figure": "entropy"}),
        "study": ("study", lambda _: {"model": model, "texts": [TEXT, "A dog sat."], "measures": ["entropy"]}),
        "means": ("find_heads", lambda past: {"result": past["study"]["study"], "where": "entropy > 0"}),
        "table": ("table", lambda past: {"study": past["study"]["study"], "table": "heads"}),
        "unknown": ("find_heads", lambda _: {"result": "0"}),
        "query": ("find_heads", lambda past: {**of(past), "where": "entropy <"}),
        "lens": ("find_heads", lambda past: {**of(past), "where": "entropy > 0", "lens": "norm"}),
        "argument": ("analyze", lambda _: {"model": model}),
        "misspelled": ("effect", lambda _: {"model": model, "text": TEXT, "positon": 0}),
        "twice": ("effect", lambda _: {"model": model, "text": TEXT, "method": {"name": "ablation", "heads": ["0.1"]}, "heads": ["1.2"]}),
        "confused": ("read_edges", lambda past: {"analysis": past["study"]["study"], "layer": 0, "head": 0}),
    }  # fmt: skip


def of(past: dict[str, Any], name: str = "result") -> dict[str, str]:
    """The id of the analysis as an argument."""
    return {name: past["analysis"]["analysis"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "small", "gpt2", spread=0.5)


@pytest.fixture(scope="module")
def talk(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The answers by name, texts of errors as they are; "tools" has the tools that the server lists, "progress" what it reported."""
    home = tmp_path_factory.mktemp("home")
    return asyncio.run(converse(str(model), environment(home)))


async def converse(model: str, variables: dict[str, str]) -> dict[str, Any]:
    """Return the answers of one process."""
    process = StdioServerParameters(command=sys.executable, args=["-m", "headscope", "mcp"], env=variables)
    past: dict[str, Any] = {"progress": [], "sizes": []}

    async def note(done: float, total: float | None, message: str | None) -> None:
        past["progress"].append(done)

    async with Client(stdio_client(process)) as client:
        past["tools"] = (await client.list_tools()).tools
        past["instructions"] = client.instructions
        for name, (tool, arguments) in calls(model).items():
            answer = await client.call_tool(tool, arguments(past), progress_callback=note)
            text = answer.content[0].text
            past["sizes"].append(len(text))
            past[name] = text if answer.is_error else json.loads(text)
    return past


def test_tools_describe_themselves_and_their_arguments(talk: dict[str, Any]) -> None:
    """Every tool is described, and every argument that is not obvious; every answer can be limited; the server says how to begin."""
    assert {tool for tool, _ in calls("").values()} == {tool.name for tool in talk["tools"]}
    for tool in talk["tools"]:
        assert tool.description
        assert "limit" in tool.input_schema["properties"]
        assert "context" not in tool.input_schema["properties"]
    page = (ROOT / "docs" / "how-to" / "agents.md").read_text("utf-8")
    assert [tool.name for tool in talk["tools"]] == re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    named = re.findall(r"call (\w+)", talk["instructions"])
    assert set(named) <= {tool.name for tool in talk["tools"]}
    assert named


def test_answers_are_small(talk: dict[str, Any]) -> None:
    assert max(talk["sizes"]) <= MOST_CHARACTERS


def test_methods_are_the_declared_ones(talk: dict[str, Any]) -> None:
    assert [each["name"] for each in talk["measures"]["measures"]] == list(headscope.MEASURES)
    assert talk["battery"]["doc"] == headscope.BATTERIES["induction"].doc
    assert len(talk["models"]["models"]) == 2
    assert talk["models"]["left_out"][0].startswith("models: the first 2 of ")


def test_heads_and_edges_are_those_of_the_library(talk: dict[str, Any], model: Path) -> None:
    a = headscope.analyze(str(model), TEXT, measures=["entropy", "head_roles"])
    assert (talk["analysis"]["analysis"], talk["analysis"]["tokens"]) == (a.id, [token.text for token in a.tokens])
    best = a.find("order by entropy").heads[:3]
    assert [found["head"] for found in talk["found"]["heads"]] == [f"{head.layer}.{head.head}" for head in best]
    assert talk["found"]["left_out"] == ["heads: the first 3 of 8 are shown."]
    grid = a.maps["weights"][1, 2]
    for edge in talk["edges"]["edges"]:
        assert edge["weight"] == pytest.approx(grid[edge["query"], edge["key"]], rel=1e-4)
        assert edge["from"] == a.tokens[edge["query"]].text
    assert talk["edges"]["edges"][0]["weight"] == pytest.approx(grid.max(), rel=1e-4)
    assert talk["edges"]["left_out"] == [f"edges: the first 5 of {3 * len(grid) - 3} are shown."]
    row = a.by("word").maps["weights"][1, 2, 1]
    (edge,) = talk["words"]["edges"]
    assert (edge["query"], edge["key"]) == (1, row.argmax())
    assert edge["weight"] == pytest.approx(row.max(), rel=1e-4)


def test_scores_and_effects_are_those_of_the_library(talk: dict[str, Any], model: Path) -> None:
    scores = headscope.head_scores(str(model), ["induction"], prompts=2).top("induction", 10)
    assert [found["head"] for found in talk["scores"]["heads"]] == [head for head, _, _ in scores]
    e = headscope.effect(str(model), TEXT, method={"name": "ablation", "heads": ["0.1", "1.2"]})
    assert {found["head"]: found["effect"] for found in talk["effect"]["heads"]} == pytest.approx(
        dict(e.top()), rel=1e-4
    )
    assert e.together is not None
    assert talk["effect"]["together"]["effect"] == pytest.approx(e.together.effect, rel=1e-4)
    e = headscope.effect("twin-bert-softmax", "The cat sat.", mask=[2], method=MEAN, reference=OTHERS)
    assert talk["masked"]["target"]["position"] == 2
    assert talk["masked"]["heads"][0]["effect"] == pytest.approx(e.top(1)[0][1], rel=1e-3)


def test_effects_come_with_all_that_their_method_gives(talk: dict[str, Any], model: Path) -> None:
    e = headscope.effect(str(model), TEXT, method={"name": "contribution", "writes": 2})
    assert e.writes
    (name, _), *_ = e.top(1)
    layer, head = map(int, name.split("."))
    assert talk["written"]["heads"][0]["writes"][0]["text"] == e.writes[layer][head][0].text
    np.testing.assert_allclose(talk["written"]["parts"]["embedding"], e.parts["embedding"], rtol=1e-3, atol=1e-4)
    e = headscope.effect(str(model), TEXT, method={"name": "integrated-gradients", "steps": 1})
    assert e.completeness_error is not None
    np.testing.assert_allclose(talk["steps"]["completeness_error"], e.completeness_error, rtol=1e-3, atol=1e-5)
    e = headscope.effect(str(model), TEXT, method={"name": "score", "head": "1.2", "pairs": 2})
    assert e.score is not None
    assert talk["cell"]["score"]["key"] == e.score.key
    assert len(talk["cell"]["score"]["pairs"]) == 2


def test_studies_and_figures_have_numbers(talk: dict[str, Any]) -> None:
    assert (talk["study"]["inputs"], talk["means"]["searched"]) == (2, 8)
    assert {found["head"] for found in talk["means"]["heads"]} == {
        f"{layer}.{head}" for layer in (0, 1) for head in range(4)
    }
    assert len(talk["table"]["rows"]) == 8
    assert talk["figure"]["sentence"]
    assert len(talk["figure"]["rows"]) >= 2


def test_wide_tables_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of hundreds of columns the first ones are shown, and the answer says so."""
    names = [f"{'a measure and one of its columns through a lens':.<70}{number}" for number in range(600)]
    wide = ResultTable("heads", "All heads", names, [[0.012345] * 600] * 3)
    monkeypatch.setattr(tools, "build_table", lambda study, name: wide)
    monkeypatch.setattr(Workspace, "study", lambda self, id_: None)
    answer = json.loads(write_answer(tools.Tools().table("id", "heads"), 30))
    assert list(answer["rows"][0]) == names[: tools.MOST_COLUMNS]
    assert answer["left_out"][0].startswith(f"columns: the first {tools.MOST_COLUMNS} of 600 are shown.")


def test_progress_is_reported(talk: dict[str, Any]) -> None:
    assert talk["progress"]
    assert np.all((np.array(talk["progress"]) >= 0) & (np.array(talk["progress"]) <= 1))


def test_errors_say_what_to_change(talk: dict[str, Any]) -> None:
    assert talk["unknown"].endswith("Make it again. [unknown-analysis]")
    assert "[invalid-query]" in talk["query"]
    assert talk["lens"].endswith("[unknown-lens]")
    assert "text" in talk["argument"]
    assert "positon" in talk["misspelled"]
    assert talk["twice"].endswith("[invalid-request]")
    assert "Analyse one of its texts" in talk["confused"]
