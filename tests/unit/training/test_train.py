"""The training program: models learn, stopped runs resume, and the saved twin is the evaluated one."""

from __future__ import annotations

import csv
import dataclasses
import fcntl
import json
import lzma
import math
import os
import signal
import types

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

import headscope
from models import data, evaluate, tasks, train, twin
from models.data import IGNORED, TAGS
from models.objectives import CLASSES, logits, loss
from models.train import EVERY, Recipe, Run
from tests.support.extent import mostly_long

from .small import HOPFIELD, JUMP, SHAPE, ids, module_of, source_of, texts, tokenizer

OBJECTIVES = list(CLASSES)


def recipe(objective="causal-lm", **more):
    return Recipe(objective, {"name": "softmax"}, **{"steps": 8, "warmup": 2, "bf16": False, **more})


def fresh(objective="causal-lm", mechanism="softmax", dropout=0.0):
    module = module_of(objective)
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = dropout
    headscope.attend_by(module, mechanism)
    return module


def learned(run):
    return {name: parameter.detach().clone() for name, parameter in run.module.named_parameters()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def curve(folder):
    with (folder / "curve.csv").open(newline="") as file:
        return list(csv.DictReader(file))


class Stopping:
    """A source that signals the process to stop during a batch."""

    def __init__(self, source, at):
        self._source, self._at = source, at

    def batch(self, step):
        if step == self._at:
            os.kill(os.getpid(), signal.SIGTERM)
        return self._source.batch(step)


@pytest.mark.parametrize(("mechanism", "dropout"), mostly_long([("softmax", 0.2), (HOPFIELD, 0.0)], ("softmax", 0.2)))
def test_a_run_that_was_stopped_ends_with_the_same_weights(tmp_path, mechanism, dropout):
    source = source_of("masked-lm")
    whole = Run(recipe("masked-lm"), fresh("masked-lm", mechanism, dropout), tmp_path / "whole")
    assert whole.train(source)
    first = Run(recipe("masked-lm"), fresh("masked-lm", mechanism, dropout), tmp_path / "parts")
    before = signal.signal(signal.SIGTERM, first.stop)
    try:
        assert not first.train(Stopping(source, 4))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert first.progress.step == 5
    assert not same(learned(first), learned(whole))
    second = Run(recipe("masked-lm"), fresh("masked-lm", mechanism, dropout), tmp_path / "parts")
    assert second.progress == first.progress
    assert second.train(source)
    assert same(learned(second), learned(whole))
    assert second.progress == whole.progress


def test_seeds_decide(tmp_path):
    runs = [Run(recipe(seed=seed, steps=3), fresh(), tmp_path / str(place)) for place, seed in enumerate((0, 0, 1))]
    for run in runs:
        run.train(source_of("causal-lm", run.recipe.seed))
    assert same(learned(runs[0]), learned(runs[1]))
    assert not same(learned(runs[0]), learned(runs[2]))


@pytest.mark.parametrize("objective", mostly_long(OBJECTIVES, "words"))
def test_every_objective_learns_a_batch_by_heart(tmp_path, objective):
    batch = source_of(objective).batch(0)
    module = fresh(objective, HOPFIELD) if objective != "words" else module_of("words", labels=TAGS)
    before = loss(objective, module, batch).item()
    run = Run(recipe(objective, steps=40, rate=3e-3), module, tmp_path)
    run.train(types.SimpleNamespace(batch=lambda step: batch))
    assert loss(objective, module, batch).item() < 0.7 * before
    assert run.progress.tokens == 40 * batch.tokens


def test_learning_beats_the_frequencies_of_tokens(tmp_path, capsys):
    """On text that it has not seen, with the arithmetic that twins are trained in."""
    split = len(ids()) * 9 // 10
    source = data.Text(ids()[:split], 0, None, pieces=8, positions=64, size=400)
    held_out = list(data.Text(ids()[split:], 0, None, pieces=8, positions=64, size=400).held_out())
    module = fresh()
    run = Run(recipe(steps=150, rate=6e-3, warmup=20, bf16=train.has_bf16("cpu")), module, tmp_path)
    assert run.train(source)
    counts = torch.from_numpy(np.bincount(ids()[:split], minlength=400))
    trivial = evaluate.majority(counts, held_out).figures["loss"]
    found = evaluate.score("causal-lm", module, held_out).figures["loss"]
    assert found < trivial - 0.05
    rows = curve(tmp_path)
    assert [int(row["step"]) for row in rows] == list(range(EVERY, 151, EVERY))
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    assert capsys.readouterr().out.count("tokens/s") == len(rows)


def test_rows_of_the_curve_that_come_again_are_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "EVERY", 2)
    source = source_of("causal-lm")
    run = Run(recipe(steps=4), fresh(), tmp_path)
    run.train(source, until=2)
    with (tmp_path / "curve.csv").open("a") as file:
        file.write("4,1,1.0\n")  # written, and then the process died before the next checkpoint
    again = Run(recipe(steps=4), fresh(), tmp_path)
    again.train(source)
    steps = [int(row["step"]) for row in curve(tmp_path)]
    assert steps == [2, 4]


def test_the_learning_rate_rises_and_falls():
    rates = [recipe(steps=100, warmup=10, rate=1.0).rate_at(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(rates[9], rel=0.03)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] < 0.001


@pytest.mark.parametrize(
    ("objective", "mechanism"),
    mostly_long(
        [("masked-lm", HOPFIELD), ("causal-lm", HOPFIELD), ("words", JUMP), ("images", HOPFIELD)],
        ("images", HOPFIELD),
    ),
)
def test_what_is_shipped_is_what_was_measured(tmp_path, monkeypatch, objective, mechanism):
    """Through headscope.load, in float32, to 1e-4."""
    monkeypatch.setattr(tasks, "running", lambda objective, tokenizer, texts: source_of(objective).held_out())
    module = module_of(objective, labels=TAGS if objective == "words" else list("0123456789"))
    headscope.attend_by(module, mechanism)
    own = None if objective == "images" else tokenizer()
    twin.round_weights(module)
    measured = evaluate.score(objective, module, tasks.sample(objective, own)).figures
    twin.save(tmp_path / "x", module, mechanism, own)
    (tmp_path / "x" / "evaluation.json").write_text(json.dumps({"sample": measured}))
    now, then = evaluate.remeasure(tmp_path / "x")
    assert now == pytest.approx(then, abs=1e-4)
    tensors = load_file(tmp_path / "x" / "model.safetensors")
    assert {one.dtype for one in tensors.values()} == {torch.float16}
    plain = headscope.load(tmp_path / "x").module
    assert evaluate.score(objective, plain, tasks.sample(objective, own)).figures["loss"] != pytest.approx(
        then, abs=1e-6
    )


def test_a_twin_warns_who_loads_it_without_headscope(tmp_path, caplog):
    for mechanism in ("softmax", "hopfield"):
        module = module_of("masked-lm")
        twin.save(tmp_path / mechanism, module, {"name": mechanism}, tokenizer())
        caplog.clear()
        transformers.utils.logging.set_verbosity_warning()
        transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / mechanism)
        assert ("load_it_with_headscope" in caplog.text) == (mechanism == "hopfield")
    config = json.loads((tmp_path / "hopfield" / "config.json").read_text())
    assert config["headscope"] == {"mechanism": {"name": "hopfield"}}
    assert "headscope" not in json.loads((tmp_path / "softmax" / "config.json").read_text())
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path / "hopfield")
    assert loaded.convert_ids_to_tokens(loaded("It sat.")["input_ids"])[:: len(loaded("It sat.")["input_ids"]) - 1] == [
        "[CLS]",
        "[SEP]",
    ]


def test_vectors_that_were_learned_are_the_mechanism(tmp_path):
    module = module_of("sentences", labels=["negative", "positive"])
    vectors = headscope.learn_pasta(module, (data.CLS, data.SEP))
    with torch.no_grad():
        vectors.normal_(generator=torch.Generator().manual_seed(0))
    twin.round_weights(module)
    batches = list(source_of("sentences").held_out())
    measured = evaluate.score("sentences", module, batches).figures
    twin.save(tmp_path / "x", module, {"name": "pasta", "vectors": vectors.tolist()}, tokenizer())
    objective, model = evaluate.load(tmp_path / "x")
    assert evaluate.score(objective, model.module, batches).figures["loss"] == pytest.approx(measured["loss"], abs=1e-5)
    a = headscope.analyze(
        model, texts()[0][:40], mechanism=model.module.config.headscope["mechanism"], lenses=("weights",), measures=()
    )
    assert a.tokens[0].kind == a.tokens[-1].kind == "special"


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs the command line on a small data folder, with a small model -> what it printed, or what it ended with."""
    text = tmp_path / "data" / "english_text"
    text.mkdir(parents=True)
    for split, documents in (("train", texts()[1:]), ("test", texts()[:1])):
        with lzma.open(text / f"{split}.txt.xz", "wt", encoding="utf-8") as file:
            file.write("\n\n".join(documents) + "\n")
    monkeypatch.setattr(train, "Shape", lambda: dataclasses.replace(SHAPE, vocabulary=8_192))
    folders = [f"--{name}={tmp_path / name}" for name in ("data", "work", "out")]

    def run(*words):
        monkeypatch.setattr("sys.argv", ["train", *words, *folders])
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            train.main()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    return run


def test_the_command_trains_a_twin_once(tmp_path, command, capsys):
    asked = ("x", "--objective=masked-lm", "--steps=3", "--threads=1", '--mechanism={"name": "hopfield", "alpha": 0.5}')
    command(*asked)
    out = tmp_path / "out" / "x"
    names = ["README.md", "config.json", "curve.csv", "evaluation.json", "model.safetensors", "tokenizer.json"]
    assert {*names} <= {path.name for path in out.iterdir()}
    figures = json.loads((out / "evaluation.json").read_text())
    assert figures["recipe"]["tokens"] == 16 * (16 * 17 + 2 * 129 + 2 * 129)
    assert figures["held_out"]["bits_per_byte"] > 0
    assert figures["baseline"]["labels"] == figures["held_out"]["labels"]
    assert figures["sample"]["loss"] == pytest.approx(evaluate.remeasure(out)[0], abs=1e-4)
    assert "Hopfield attention" in (out / "README.md").read_text()
    capsys.readouterr()
    command(*asked)
    assert "exists already" in capsys.readouterr().out


def test_the_command_says_what_is_missing(tmp_path, command, capsys):
    with pytest.raises(SystemExit, match="Train it first"):
        command("y", "--objective=sentences", "--steps=1", f"--start={tmp_path / 'none'}")
    with pytest.raises(SystemExit, match="--data"):
        command("y", "--objective=images", "--steps=1")
    (tmp_path / "work" / "y").mkdir(parents=True, exist_ok=True)
    with (tmp_path / "work" / "y" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command("y", "--objective=masked-lm", "--steps=1")
    assert "by another process" in capsys.readouterr().out


# -- data -------------------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_batch_is_told_by_seed_and_step(objective):
    one, other = source_of(objective), source_of(objective)
    order = [3, 0, 7]
    batches = {step: one.batch(step) for step in order}
    for step in sorted(order):
        batch = other.batch(step)
        assert torch.equal(batch.labels, batches[step].labels)
        assert all(torch.equal(tensor, batches[step].inputs[name]) for name, tensor in batch.inputs.items())
    assert not torch.equal(
        next(iter(one.batch(0).inputs.values())), next(iter(source_of(objective, 1).batch(0).inputs.values()))
    )


def test_an_epoch_shows_everything_once():
    order = data.Order(10, 3, seed=0)
    first, second = ([int(item) for step in steps for item in order.at(step)] for steps in ((0, 1, 2), (3, 4, 5)))
    assert len(set(first)) == len(set(second)) == 9
    assert first != second
    with pytest.raises(data.MissingData, match="too little"):
        data.Order(2, 3, seed=0)


def test_masked_text():
    pieces = torch.randint(5, 400, (64, 62), generator=torch.Generator().manual_seed(0))
    batch = data.masked_batch(pieces, 0.2, 400, (0, 0))
    inputs, known = batch.inputs["input_ids"][:, 1:-1], batch.labels[:, 1:-1] != IGNORED
    assert (batch.inputs["input_ids"][:, 0] == data.CLS).all()
    assert (batch.inputs["input_ids"][:, -1] == data.SEP).all()
    assert (batch.labels[:, [0, -1]] == IGNORED).all()
    assert torch.equal(batch.labels[:, 1:-1][known], pieces[known])
    assert torch.equal(inputs[~known], pieces[~known])
    assert (known.sum(-1) == 12).all()
    shares = [
        (inputs[known] == data.MASK).float().mean(),
        (inputs[known] == pieces[known]).float().mean(),
    ]
    assert [round(share.item(), 1) for share in shares] == [0.8, 0.1]


def test_a_run_that_tells_tokens_from_both_sides_begins_with_short_pieces():
    """After the course, and in held-out text at once, pieces are as long as those of a model that reads on."""
    source = data.Text(ids(), 0, 0.2, steps=100, pieces=8, positions=64, size=400)
    shapes = [tuple(source.batch(step).inputs["input_ids"].shape) for step in (0, 19, 20, 29, 30, 31)]
    assert shapes == [(128, 5), (128, 5), (32, 17), (32, 17), (16, 33), (8, 64)]
    assert next(source.held_out()).inputs["input_ids"].shape == (8, 64)
    others = data.Text(ids(), 0, None, steps=100, pieces=8, positions=64, size=400)
    assert [tuple(others.batch(step).inputs["input_ids"].shape) for step in (0, 3)] == [(16, 32), (8, 64)]


def test_text_is_cut_in_two_on_three_steps_of_four():
    shapes = [tuple(source_of("causal-lm").batch(step).inputs["input_ids"].shape) for step in range(4)]
    assert shapes == [(16, 32)] * 3 + [(8, 64)]
    batch = source_of("causal-lm").batch(0)
    assert torch.equal(batch.labels[:, :-1], batch.inputs["input_ids"][:, 1:])
    assert (batch.labels[:, -1] == IGNORED).all()


def test_tags_of_words(tmp_path):
    path = tmp_path / "x.conll"
    path.write_text(
        "-DOCSTART- O\n\nAda I-PER\nLovelace I-PER\nof I-MISC\nIBM\tB-corporation\r\nParis\tI-location\n\t\na O\n"
    )
    (words, tags), last = data.read_tagged(path)
    assert words == ["Ada", "Lovelace", "of", "IBM", "Paris"]
    assert [TAGS[tag] for tag in tags] == ["B-person", "I-person", "O", "B-organisation", "B-location"]
    assert last == (["a"], [0])
    row = data.Rows([(words, tags)], tokenizer(), 0).held_out().__next__()
    assert [TAGS[label] for label in row.labels[0].tolist() if label != IGNORED] == [TAGS[tag] for tag in tags]


def test_entities_are_compared_as_a_whole():
    tags = [TAGS.index(tag) for tag in ("B-person", "I-person", "O", "B-location", "B-location", "I-person")]
    found = evaluate.spans(torch.tensor([[IGNORED, *tags, IGNORED]]))
    assert found == {(0, 0, 1, "person"), (0, 3, 3, "location"), (0, 4, 4, "location"), (0, 5, 5, "person")}


def test_texts_of_reviews_are_those_of_their_split_only(tmp_path):
    for split, word in (("train", "good"), ("test", "bad")):
        for name, text in (
            (f"sst2/{split}.tsv", f"a {word} film\t1\n"),
            (
                f"ud_ewt/en_ewt-ud-{split}.conllu",
                f"# newdoc id = reviews-1\n# text = {word} service\n# newdoc id = email-1\n# text = hello\n",
            ),
        ):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
    assert data.review_texts(tmp_path, "train") == ["a good film", "good service"]
    assert data.review_texts(tmp_path, "test") == ["a bad film", "bad service"]


def test_images_are_shifted_and_mirrored_and_held_out_as_they_are():
    pixels = torch.randint(256, (16, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    images = data.Images(pixels, torch.arange(16), 0, count=16)
    assert torch.equal(next(images.held_out()).inputs["pixel_values"], pixels.float() / 127.5 - 1)
    batch = images.batch(0)
    for picture, label in zip(batch.inputs["pixel_values"], batch.labels, strict=True):
        wide = torch.nn.functional.pad(pixels[label].float() / 127.5 - 1, [4] * 4, value=-1)
        cuts = [wide[:, y : y + 32, x : x + 32] for y in range(9) for x in range(9)]
        assert any(
            torch.allclose(picture, one, atol=1e-6) or torch.allclose(picture, one.flip(-1), atol=1e-6) for one in cuts
        )


def test_missing_data_is_said(tmp_path):
    with pytest.raises(data.MissingData, match="--data"):
        data.documents(tmp_path, "train")
    with pytest.raises(data.MissingData, match="--data"):
        data.cifar10(tmp_path)


def test_figures_of_no_model():
    batches = list(source_of("causal-lm").held_out())
    wanted = torch.cat([batch.labels[batch.labels != IGNORED] for batch in batches])
    counts = wanted.bincount(minlength=400)
    found = evaluate.majority(counts - 1, batches, torch.ones(400, dtype=torch.long)).figures
    shares = counts[counts > 0].double() / counts.sum()
    entropy = -(shares * shares.log()).sum().item()
    assert found["loss"] == pytest.approx(entropy, abs=1e-4)
    assert found["bits_per_byte"] == pytest.approx(entropy / math.log(2), abs=1e-4)
    assert found["accuracy"] == pytest.approx(shares.max().item())
    assert logits("causal-lm", module_of("causal-lm"), batches[0]).shape[1] == 400
