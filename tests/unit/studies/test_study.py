"""Studies of the Python library: what is kept is what analyses give one by one, whatever the chunks, and a killed study goes on."""

from __future__ import annotations

import json
import os
import signal
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import headscope
from headscope import MEASURES, Model
from headscope.errors import InvalidRequest, NotReady, Unknown, Unsupported
from headscope.library.study import read_dataset
from headscope.models.trained_mechanism import SOFTMAX
from headscope.studies import chunk, plan
from headscope.studies.aggregate import Aggregate
from headscope.studies.data.dataset import Row
from headscope.studies.request import Against, StudyRequest
from tests.support.extent import extent
from tests.support.forks import fork, forked
from tests.support.models import tiny_model
from tests.support.variants import variants

from ..test_combinations import vit
from . import slow
from .texts import rows, texts

CHOSEN = ("entropy", "patterns", "special_tokens", "residual_ratio", "leverage", "output_overlap", "mixing_ratio")
COUNT, LONGER = extent(30, 7), extent(36, 18)


@pytest.fixture(scope="module")
def one_by_one(minilm: Model) -> list[Any]:
    """Every input as an analysis of its own."""
    return [headscope.analyze(minilm, text, measures=CHOSEN) for text in texts(COUNT)]


@pytest.fixture(scope="module")
def study(minilm: Model) -> Any:
    """The study of the same inputs."""
    return headscope.study(minilm, texts(COUNT), measures=CHOSEN)


@variants("measure", CHOSEN)
def test_statistics_of_a_study_are_those_of_its_analyses(study: Any, one_by_one: list[Any], measure: str) -> None:
    """Over entries and over inputs, in float64, for every lens."""
    axes = MEASURES[measure].shape.split()
    over = [place for place, axis in enumerate(axes) if axis in "QK"]
    for lens in study.lenses_of(measure):
        values = [one.measures[measure][lens].astype(np.float64) for one in one_by_one]
        if MEASURES[measure].fixed:
            np.testing.assert_allclose(study.fixed(measure, lens), values[0], rtol=1e-6)
            continue
        stat = study.stat(measure, lens)
        each = [np.where(np.isfinite(one), one, np.nan) for one in values]
        flat = [np.moveaxis(one, over, range(-len(over), 0)).reshape(*stat.count.shape, -1) for one in each]
        whole = np.concatenate(flat, -1)
        known = np.isfinite(whole)
        np.testing.assert_array_equal(stat.count, known.sum(-1))
        sums = np.where(known, whole, 0).sum(-1)
        np.testing.assert_allclose(
            stat.mean[stat.count > 0], (sums / known.sum(-1).clip(1))[stat.count > 0], rtol=1e-4, atol=1e-5
        )
        means = np.stack(
            [np.where(np.isfinite(one), one, 0).sum(-1) / np.isfinite(one).sum(-1).clip(1) for one in flat]
        )
        there = np.stack([np.isfinite(one).any(-1) for one in flat])
        np.testing.assert_array_equal(stat.inputs, there.sum(0))
        expected = np.where(there, means, 0).sum(0) / there.sum(0).clip(1)
        np.testing.assert_allclose(stat.input_mean[stat.inputs > 0], expected[stat.inputs > 0], rtol=1e-4, atol=1e-5)


def test_counts_classes_and_examples(study: Any, one_by_one: list[Any]) -> None:
    document = study.document
    assert (document["inputs"], document["failed_count"], document["cut"]) == (COUNT, 0, 0)
    assert document["tokens"] == sum(len(one.tokens) for one in one_by_one)
    place = MEASURES["patterns"].columns.index("class")
    for lens in ("weights", "effective"):
        kinds = np.stack([one.measures["patterns"][lens][..., place] for one in one_by_one])
        expected = np.stack([(kinds == number).sum(0) for number in range(len(MEASURES["patterns"].classes))], -1)
        np.testing.assert_array_equal(study.classes("patterns", lens), expected)
    value, row = study.top("entropy")
    means = np.stack([one.measures["entropy"]["weights"].mean(-1) for one in one_by_one], -1)
    np.testing.assert_allclose(value, -np.sort(-means, -1)[..., : value.shape[-1]], rtol=1e-5)
    assert study.example(int(row[0, 0, 0]))["text"] == texts(COUNT)[int(row[0, 0, 0]) - 1]
    assert study.sample() == list(range(1, COUNT + 1))
    assert all(study.example(number)["text"] == texts(COUNT)[number - 1] for number in study.sample())


def test_heads_are_found_and_described(study: Any) -> None:
    found = study.find("vertical and entropy < 1.5 order by entropy limit 3")
    majority = study.classes().argmax(-1)
    for one in found.heads:
        assert majority[one.layer, one.head] == MEASURES["patterns"].classes.index("vertical")
        assert one.values["entropy"] == pytest.approx(
            float(study.stat("entropy").input_mean[one.layer, one.head]), rel=1e-6
        )
    known = study.head(1, 2)
    assert {number["measure"] for number in known["numbers"]} >= {"entropy", "patterns", "special_tokens"}
    assert len(known["neighbours"]) == 5
    assert sum(kind["count"] for kind in known["classes"]) == COUNT
    assert {"heads", "pattern-shares"} <= set(study.tables)
    assert len(study.table("heads").rows) >= 72
    assert study.figure("pattern-shares").data
    with pytest.raises(Unknown, match="layers 0 to 5"):
        study.head(6, 0)


def test_heads_without_special_tokens_are_found(tmp_path: Path) -> None:
    """In whichever order the arrays are: a statistic of special tokens has no counts if no text has any."""
    model = headscope.load(tiny_model(tmp_path / "gpt2", "gpt2"))
    s = headscope.study(model, ["The cat sat.", "It rained."], measures=("entropy", "special_tokens"))
    assert not s.stat("special_tokens").inputs.any()
    for arrays in (dict(s.arrays), dict(reversed(s.arrays.items()))):
        assert len(replace(s, arrays=arrays).find().heads) == s.stat("entropy").inputs.size


def test_neighbours_are_the_heads_of_the_most_similar_maps(minilm: Model) -> None:
    few = texts(5)
    s = headscope.study(minilm, few, lenses=("weights",), measures=())
    flat = [headscope.analyze(minilm, text, lenses=("weights",)).maps["weights"].reshape(72, -1) for text in few]
    units = [one.astype(float) / np.linalg.norm(one.astype(float), axis=1, keepdims=True) for one in flat]
    cosines = np.mean([one @ one.T for one in units], axis=0)
    for layer, head in ((0, 0), (3, 7), (5, 11)):
        at = 12 * layer + head
        order = [i for i in np.argsort(-cosines[at]) if i != at][:5]
        found = s.neighbours(layer, head)
        assert [12 * a + b for a, b, _ in found] == order
        np.testing.assert_allclose([cosine for *_, cosine in found], cosines[at, order], atol=1e-5)


def test_two_variants_are_compared_input_by_input(minilm: Model) -> None:
    few = texts(extent(6, 3))
    s = headscope.study(minilm, few, against_mechanism={"name": "hopfield", "alpha": 0.5}, measures=())
    again = headscope.study(minilm, few, {"mechanism": {"name": "hopfield", "alpha": 0.5}}, measures=())
    assert again.id == s.id
    assert s.comparisons == ["cosine", "js_divergence"]
    for lens in ("weights", "effective"):
        each = []
        for text in few:
            one, other = (
                headscope.analyze(minilm, text, mechanism=name)
                for name in ("softmax", {"name": "hopfield", "alpha": 0.5})
            )
            each.append(headscope.compare(one, other, lens))
        for comparison in each[0]:
            expected = np.mean([one[comparison] for one in each], axis=0)
            np.testing.assert_allclose(s.pair(comparison, lens).input_mean, expected, atol=1e-5)
    value, row = s.top_pair("cosine")
    assert value.shape == row.shape == (6, 12, 5)
    with pytest.raises(Unsupported, match="js_divergence"):
        s.pair("js_divergence", "effective")


def test_models_of_other_shapes_are_not_compared_and_say_why(minilm: Model) -> None:
    torch.manual_seed(0)
    config = slow.plain(minilm).config
    config.num_hidden_layers = 2
    from transformers import BertModel

    small = headscope.load(BertModel(config), minilm.tokenizer)
    s = headscope.study(minilm, texts(3), small, measures=("entropy",), lenses=("weights",))
    assert [len(one["layers"]) for one in s.variants] == [6, 2]
    assert s.stat("entropy", variant=1).mean.shape == (2, 12)
    with pytest.raises(Unsupported, match="different numbers of layers or heads"):
        s.pair("cosine")


def test_five_numbers_against_the_slow_way(minilm: Model) -> None:
    other, inputs = slow.tuned(minilm), [(text, None) for text in texts(extent(14, 3))]
    inputs += [(text, pair) for text, pair in zip(*(texts(extent(6, 2), seed=seed) for seed in (1, 2)), strict=True)]
    found = slow.differences(slow.studied(minilm, other, inputs), slow.slowly(minilm, other, inputs))
    assert all(apart <= slow.ATOL for apart in found.values()), found


def test_inputs_that_fail_are_named_and_the_others_go_on(minilm: Model) -> None:
    given = ["The cat sat.", "word " * 600, "It rained.", "a\0b", ""]
    s = headscope.study(minilm, given, measures=("entropy",), lenses=("weights",))
    assert s.inputs == 2
    assert [(one["row"], one["code"]) for one in s.failed] == [
        (2, "too-many-tokens"),
        (4, "invalid-text"),
        (5, "invalid-text"),
    ]
    cut = headscope.study(minilm, given[:3], measures=("entropy",), lenses=("weights",), max_tokens=20)
    assert (cut.inputs, cut.document["cut"], cut.document["failed_count"]) == (3, 1, 0)
    with pytest.raises(InvalidRequest, match="None of the inputs could be analysed"):
        headscope.study(minilm, ["word " * 600], measures=("entropy",))


def test_what_the_weights_alone_say_is_kept_when_the_first_input_fails(minilm: Model) -> None:
    """Parts of speech of the input that failed are not those of the one that stands for all."""
    given = [{"text": "a\0b", "pos": ["X"]}, {"text": "The cat sat.", "pos": ["DET", "NOUN", "VERB", "PUNCT"]}]
    s = headscope.study(minilm, given, measures=("output_overlap",))
    assert [one["row"] for one in s.failed] == [1]
    alone = headscope.analyze(minilm, "The cat sat.", measures=("output_overlap",)).measures["output_overlap"]
    np.testing.assert_allclose(s.fixed("output_overlap", "weights"), alone["weights"])


def test_refusals(minilm: Model, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="read texts"):
        headscope.study(headscope.load(vit()), texts(2))
    with pytest.raises(Unsupported):
        headscope.study(minilm, texts(2), kind="cross")
    with pytest.raises(InvalidRequest, match="does not exist"):
        headscope.study(minilm, tmp_path / "nothing.jsonl")
    with pytest.raises(InvalidRequest, match="Input 2 is not a text"):
        headscope.study(minilm, ["The cat sat.", 5])
    with pytest.raises(InvalidRequest, match="a list of texts"):
        headscope.study(minilm, 5)
    with pytest.raises(InvalidRequest, match="a model, a mechanism, or both"):
        headscope.study(minilm, ["A text."], {"mechanisms": "hopfield"})
    with pytest.raises(InvalidRequest, match="Both variants are the same"):
        headscope.study(minilm, texts(2), minilm)
    with pytest.raises(InvalidRequest, match="compares two variants"):
        headscope.study(minilm, texts(2), figures=("tuning",))
    with pytest.raises(InvalidRequest):
        headscope.study(minilm, [])
    with pytest.raises(Unknown, match="Unknown study figure"):
        headscope.study(minilm, texts(2), figures=["nothing"])
    with pytest.raises(NotReady, match="entropy"):
        headscope.study(minilm, texts(2), measures=("patterns",)).stat("entropy")


@variants(
    ("fields", "said"),
    [
        ({"label": True}, "label of input 2"),
        ({"label": {"a": 1}}, "label of input 2"),
        ({"pos": 5}, "tags of input 2"),
        ({"pos": "DET NOUN"}, "tags of input 2"),
        ({"labels": [1, 2]}, "tags of input 2"),
        ({"target": True}, "target of input 2"),
        ({"minus": -1}, "target of input 2"),
        ({"number": "x"}, "number of input 2"),
        ({"against": 5}, "input 2 is compared with"),
        ({"text": "half \ud800"}, "input 2 contains half of a surrogate pair"),
        ({"labels": ["\ud800"]}, "input 2 contains half of a surrogate pair"),
        ({"colour": "red"}, "Input 2 is not a text"),
    ],
    ids=str,
)
def test_inputs_of_the_wrong_type(fields: dict[str, Any], said: str) -> None:
    """One sentence with the number of the input, before anything runs."""
    with pytest.raises(InvalidRequest, match=said):
        read_dataset(["A text.", {"text": "The cat.", **fields}], None, "skip")


def test_inputs_with_numbers_of_numpy() -> None:
    """They are Python's own, and labels are texts, as those of a file."""
    given = {"number": np.int64(7), "label": np.int64(1), "target": np.int32(3), "labels": np.array(["a", "b"])}
    found = read_dataset([{"text": "a b", **given}, {"text": "c", "label": 0.5}], None, "skip")
    assert list(found.rows) == [Row(7, "a b", label="1", target=3, labels=("a", "b")), Row(2, "c", label="0.5")]


def test_tables_are_passed_row_by_row() -> None:
    """Their columns are no inputs."""
    for table in ({"text": ["A text."], "label": ["x"]}, SimpleNamespace(columns=["text"])):
        with pytest.raises(InvalidRequest, match=r'to_dict\("records"\)'):
            read_dataset(table, None, "skip")


def test_a_file_with_labels_gives_what_the_mappings_give(minilm: Model, tmp_path: Path) -> None:
    listed = [{"text": text, "label": place % 2} for place, text in enumerate(texts(8))]
    path = tmp_path / "few.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in listed), "utf-8")
    of_file, of_list = (headscope.study(minilm, data, measures=("entropy",)) for data in (path, listed))
    same(of_file, of_list)
    assert of_file.example(2)["label"] == "1"
    assert of_file.document["dataset"]["chosen"]["text"] == "text"
    assert len(headscope.study(minilm, path, measures=("entropy",), limit=3, seed=1).sample()) == 3


def test_saved_and_opened(study: Any, tmp_path: Path) -> None:
    study.save(tmp_path / "study.safetensors")
    opened = headscope.Study.open(tmp_path / "study.safetensors")
    assert opened.id == study.id
    assert (opened, hash(opened), opened.document) == (study, hash(study), study.document)
    same(opened, study)
    with pytest.raises(InvalidRequest):
        headscope.Study.open(Path(__file__))


def same(one: Any, other: Any) -> None:
    """Every array, to the last digit."""
    assert one.arrays.keys() == other.arrays.keys()
    for name, values in one.arrays.items():
        np.testing.assert_array_equal(values, other.arrays[name], err_msg=name)


def test_chunks_merge_to_the_same_floats_whoever_made_them(minilm: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts made in another order, and read back from bytes, give one pass' arrays to the last digit; rows of a chunk are of like length."""
    monkeypatch.setattr(plan, "INPUTS", extent(8, 3))
    request = StudyRequest(
        dataset="x", model="minilm", against=Against(mechanism="hopfield"), measures=["entropy", "patterns"]
    ).settled([SOFTMAX, SOFTMAX])
    planned = plan.ChunkPlan(rows(COUNT), minilm.tokenizer)
    chunks = [*planned]
    assert (planned.inputs, len(planned)) == (COUNT, len(chunks))
    assert planned.longest == max(plan.count_tokens(minilm.tokenizer, rows(COUNT)))
    assert sorted(row.number for one in chunks for row in one.rows) == list(range(1, COUNT + 1))
    assert chunks == [*plan.ChunkPlan(rows(COUNT)[::-1], minilm.tokenizer)]
    models = [minilm, minilm]
    in_order = [chunk.run(models, one.rows, request) for one in chunks]
    backwards = [chunk.run(models, plan.Chunk(one.data).rows, request) for one in chunks[::-1]][::-1]
    first, second = in_order[0], backwards[0]
    for one, other in zip(in_order[1:], backwards[1:], strict=True):
        first, second = first.merge(one), second.merge(other)
    same(first, second)
    assert first.document["inputs"] == COUNT
    # A chunk without any input that came through changes nothing.
    empty = chunk.run(models, [Row(99, "word " * 600)], request)
    same(Aggregate(first.merge(empty).document, first.merge(empty).arrays), first)
    assert empty.merge(first).document["failed_count"] == 1
    same(empty.merge(first), first)


def test_times_are_summed_before_they_are_rounded() -> None:
    """A lens that takes 0.04 ms of each of two inputs takes 0.1 ms, whatever their chunks."""
    request = StudyRequest(dataset="given", model="any", lenses=["weights"], measures=[])
    names = ("tokens", "cut", "failed_count", "unaligned")
    counted = {**dict.fromkeys(names, 0), "inputs": 1, "seed": 0, "failed": [], "timing_ms": [{"lens/weights": 0.04}]}
    one = Aggregate(
        counted,
        {"sample/row": np.array([1]), "example/row": np.empty(0, int), "example/json": np.frombuffer(b"[]", np.uint8)},
    )
    assert one.merge(one).summary(request, {}).document["timing_ms"] == [{"lens/weights": 0.1}]


def test_a_plan_holds_no_texts() -> None:
    """Of rows of 45 MB, or of 22 MB in `make test`, less than 16 MB are in memory at a time, while they are planned and while they are read."""
    count = extent(20_000, 10_000)

    def long() -> Iterator[Row]:
        for number in range(count):
            yield Row(number, f"{number} " * 400)

    tracemalloc.start()
    planned = plan.ChunkPlan(long(), None)
    read = sum(len(one) for one in planned)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert read == planned.inputs == count
    assert most < 16e6


def study_of_chunks(model: Model, chunks: Path, path: Path) -> None:
    """Save a study whose finished chunks are kept in a folder."""
    headscope.study(model, texts(LONGER), measures=("entropy", "patterns"), checkpoint=chunks).save(path)


def killed_study(model: Model, chunks: Path, path: Path) -> None:
    """The same, killed in the first forward pass after two chunks' ends."""

    def kill(*_: object) -> None:
        if len(list(chunks.glob("*.safetensors"))) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    model.module.get_input_embeddings().register_forward_pre_hook(kill)
    study_of_chunks(model, chunks, path)


def test_a_killed_study_goes_on_and_gives_the_same_digits(
    minilm: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL between two chunks' ends; afterwards no finished chunk is run again and every array is that of an undisturbed run."""
    monkeypatch.setattr(plan, "INPUTS", 6)
    folder, path = tmp_path / "chunks", tmp_path / "study.safetensors"
    killed = fork(killed_study, minilm, folder, path)
    killed.join(200)
    assert killed.exitcode == -signal.SIGKILL
    done = {file: file.stat().st_mtime_ns for file in folder.glob("*.safetensors")}
    assert len(done) == 2
    forked(study_of_chunks, (minilm, folder, path))
    assert all(file.stat().st_mtime_ns == at for file, at in done.items())
    assert len(list(folder.glob("*.safetensors"))) == LONGER // 6
    undisturbed = headscope.study(minilm, texts(LONGER), measures=("entropy", "patterns"))
    resumed = headscope.Study.open(path)
    assert resumed.id == undisturbed.id
    same(resumed, undisturbed)
    assert resumed.inputs == LONGER
