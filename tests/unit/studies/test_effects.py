"""Studies of effects: what is kept is what `headscope.effect` gives input by input, with the target of each row, and a head's share of inputs that it helps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import T5Config, T5ForConditionalGeneration

import headscope
from headscope import Model
from headscope.analysis.effect_methods import replacement
from headscope.effects.quantities import JUDGES
from headscope.errors import InvalidRequest, NotReady, Unknown, Unsupported
from headscope.studies import plan
from headscope.studies.quantities import QUANTITIES

from .test_study import same

METHODS: list[Any] = ["contribution", {"name": "ablation", "heads": ["0.3", "5.1"]}, "patching"]
ROWS: list[dict[str, Any]] = [
    {"text": "The cat sat on the", "against": "The dog sat on the"},
    {"text": "It rained all day.", "target": " the", "against": "It rained all day,"},
    {"text": "Ann met Bob and", "target": " he", "minus": " she", "against": "Ann met Bob or"},
    {"text": "What is not a token", "target": " no such token", "against": "What is not a token"},
    {"text": "Of another length", "against": "Of another length, by far"},
    {"text": "Nothing to compare with"},
    {"text": "A target is missing", "minus": " the", "against": "A target is missing"},
]
READ = 3  # rows that can be judged


@pytest.fixture(scope="module")
def model() -> Model:
    return headscope.load("twin-gpt-softmax")


@pytest.fixture(scope="module")
def study(model: Model) -> Any:
    return headscope.study(model, ROWS, effects=METHODS, lenses=(), measures=())


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method if isinstance(method, str) else method["name"])
def test_effects_of_a_study_are_those_of_its_inputs(model: Model, study: Any, method: Any) -> None:
    """One by one: means, shares of inputs with a positive effect, and the largest; heads that a method leaves out stay undefined."""
    name = method if isinstance(method, str) else method["name"]
    found = []
    for row in ROWS[:READ]:
        target = (row["target"], row["minus"]) if "minus" in row else row.get("target")
        against = row["against"] if name == "patching" else None
        found.append(headscope.effect(model, row["text"], target=target, against=against, method=method).effects)
    values = np.stack(found).astype(float)  # [I, L, H]
    stat = study.stat(name)
    np.testing.assert_allclose(stat.input_mean[..., 0], values.mean(0), atol=1e-6)
    shares = np.where(np.isnan(values).any(0), np.nan, (values > 0).mean(0))
    np.testing.assert_allclose(stat.input_mean[..., 1], shares)
    assert (stat.inputs[np.isfinite(shares)] == READ).all()
    best, row = study.top(name)
    np.testing.assert_allclose(best[..., 0, 0], values.max(0), atol=1e-6)
    defined = np.isfinite(shares)
    np.testing.assert_array_equal(row[..., 0, 0][defined], values.argmax(0)[defined] + 1)
    low, high = stat.interval()
    assert (low[defined] <= stat.input_mean[defined]).all()
    assert (stat.input_mean[defined] <= high[defined]).all()


def test_rows_that_cannot_be_judged_are_named(study: Any) -> None:
    said = {one["row"]: one["detail"] for one in study.failed}
    assert (study.inputs, study.document["failed_count"]) == (READ, len(ROWS) - READ)
    for row, part in {4: "tokens in this model", 5: "same number of tokens", 6: "against", 7: "no target"}.items():
        assert part in said[row]


def test_heads_tables_and_the_figure_show_them(study: Any) -> None:
    numbers = {(one["measure"], one["column"]): one for one in study.head(5, 1)["numbers"]}
    assert numbers["contribution", "effect"]["unit"] == "logits"
    assert numbers["contribution", "raises"]["unit"] == "1"
    assert numbers["contribution", "effect"]["mean"] == pytest.approx(study.stat("contribution").mean[5, 1, 0])
    heads, drawn = study.table("heads"), study.table("effects")
    (row,) = [row for row in heads.rows if row[2:4] == [5, 1]]
    shown = dict(zip(heads.columns, row, strict=True))
    of_method = [dict(zip(drawn.columns, row, strict=True)) for row in drawn.rows if row[0] == "patching"]
    assert len(of_method) == 48
    (same_head,) = [row for row in of_method if (row["layer"], row["head"]) == (5, 1)]
    for ours, theirs in {"effect": "effect", "low": "effect_low", "high": "effect_high", "raises": "raises"}.items():
        assert same_head[ours] == pytest.approx(shown[f"patching_{theirs}/weights"])
    sentence = study.figure("effects").layout.meta["sentence"]
    strongest = np.unravel_index(np.abs(study.stat("contribution").input_mean[..., 0]).argmax(), (6, 8))
    assert f"Direct contribution: {strongest[0]}.{strongest[1]} " in sentence


def test_a_file_names_targets_by_columns_and_chunks_merge_to_the_same_numbers(
    model: Model, study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.jsonl"
    given = [{{"target": "good", "minus": "bad"}.get(key, key): value for key, value in row.items()} for row in ROWS]
    path.write_text("".join(json.dumps({"against": "-", **row}) + "\n" for row in given), "utf-8")
    columns = {"text": "text", "target": "good", "minus": "bad", "against": "against"}
    monkeypatch.setattr(plan, "INPUTS", 2)
    asked: dict[str, Any] = {"effects": METHODS, "lenses": (), "measures": (), "columns": columns}
    found = headscope.study(model, path, **asked, checkpoint=tmp_path / "chunks")
    for name in study.document["measures"]:
        np.testing.assert_allclose(found.stat(name).input_mean, study.stat(name).input_mean, rtol=1e-12)
        np.testing.assert_allclose(found.stat(name).interval()[0], study.stat(name).interval()[0], rtol=1e-9)
    chunks = sorted((tmp_path / "chunks").iterdir())
    assert len(chunks) == 4
    chunks[1].unlink()
    same(headscope.study(model, path, **asked, checkpoint=tmp_path / "chunks"), found)


def test_target_of_all_inputs_and_the_usual_method(model: Model) -> None:
    """A target counts for rows without one; a figure of effects needs some method; other requests have other ids."""
    texts = ["The cat sat on the", "It rained all"]
    asked: dict[str, Any] = {"lenses": (), "measures": (), "figures": ("effects",)}
    s = headscope.study(model, texts, target=(" day", " the"), position=-2, **asked)
    each = [headscope.effect(model, text, target=(" day", " the"), position=-2).effects for text in texts]
    np.testing.assert_allclose(s.stat("contribution").input_mean[..., 0], np.mean(each, 0), atol=1e-6)
    assert s.document["lenses"] == ["weights"]
    assert s.id != headscope.study(model, texts, **asked).id


def test_mean_over_reference_texts(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each input as on its own, and the texts are read once for all of them; the texts are part of the id."""
    rows = [row for row in ROWS[:READ] if "target" in row]
    method, reference = {"name": "ablation", "how": "reference"}, ["Rivers run into the sea.", [5, 6, 7]]
    asked: dict[str, Any] = {"effects": [method], "lenses": (), "measures": ()}
    each = [
        headscope.effect(
            model, row["text"], target=(row["target"], row["minus"]) if "minus" in row else row["target"], method=method, reference=reference
        ).effects
        for row in rows
    ]  # fmt: skip
    reads: list[int] = []
    read_once = replacement._means_of
    monkeypatch.setattr(replacement, "_means_of", lambda judged: reads.append(1) or read_once(judged))
    s = headscope.study(model, rows, reference=reference, **asked)
    np.testing.assert_allclose(s.stat("ablation").input_mean[..., 0], np.mean(each, 0), atol=1e-6)
    assert (len(rows) > 1, len(reads)) == (True, 1)
    assert s.document["request"]["reference"] == reference
    assert s.id != headscope.study(model, rows, reference=reference[:1], **asked).id


def test_refusals(model: Model, minilm: Model) -> None:
    """Before an input is read: what no input allows."""
    with pytest.raises(Unsupported, match="no head that predicts"):
        headscope.study(minilm, ["A text."], effects=["contribution"])
    with pytest.raises(Unsupported, match="softmax"):
        headscope.study(model, ["A text."], effects=["contribution"], mechanism="hopfield")
    config = T5Config(vocab_size=60, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0)
    with pytest.raises(Unsupported, match="kind"):
        headscope.study(
            headscope.load(T5ForConditionalGeneration(config)), ["A text."], effects=["ablation"], measures=()
        )
    with pytest.raises(Unknown, match="no such effect") as unknown:
        headscope.study(model, ["A text."], effects=["score"])
    assert unknown.value.pointer == "/effects"
    by_reference = {"name": "ablation", "how": "reference"}
    for given in ({"effects": [by_reference]}, {"effects": ["ablation"], "reference": ["A reference."]}):
        with pytest.raises(InvalidRequest, match="reference") as refused:
            headscope.study(model, ["A text."], **given)
        assert refused.value.pointer == "/reference"
    with pytest.raises(InvalidRequest, match="twice"):
        headscope.study(model, ["A text."], effects=["ablation", {"name": "ablation", "how": "zero"}])
    with pytest.raises(InvalidRequest, match="Only effects have a target"):
        headscope.study(model, ["A text."], target=" the")
    with pytest.raises(InvalidRequest, match="a pair") as refused:
        headscope.study(model, ["A text."], effects=["contribution"], target=[" a", " b", " c"])
    assert refused.value.pointer == "/target"
    for row in ({"target": [5]}, {"target": " a", "minus": 0.5}, {"target": -1}, {"target": 10**9}, {"against": 5}):
        with pytest.raises(InvalidRequest, match="input 1"):
            headscope.study(model, [{"text": "A text.", **row}], effects=["contribution"])
    with pytest.raises(NotReady, match="needs effects"):
        headscope.study(model, ["A text."], lenses=("weights",), measures=()).figure("effects")


def test_measures_effects_and_scores_have_different_names() -> None:
    assert len(QUANTITIES) == len(headscope.MEASURES) + len(JUDGES) + 1
