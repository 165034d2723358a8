"""The Python interface: load, analyze, save, open, and errors."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from transformers import BertConfig, BertModel

import headscope
from headscope import Model
from headscope.errors import HeadscopeError, InvalidRequest, ModelUnavailable, Unknown, Unsupported
from tests.support.variants import variants


def test_the_example_of_the_readme(minilm: Model) -> None:
    """Every name of the interface, on the default model."""
    a = headscope.analyze(minilm, "The cat sat.", lenses=("weights", "effective"), measures=("entropy", "null_share"))
    assert (a.model, a.mechanism) == ("minilm", {"name": "softmax"})
    assert [token.text for token in a.tokens] == ["[CLS]", "The", "cat", "sat", ".", "[SEP]"]
    assert a.maps["effective"].shape == (6, 12, 6, 6)
    assert a.maps["effective"].dtype == np.float32
    assert a.measures["entropy"]["weights"].shape == (6, 12, 6)
    assert a.measures["null_share"]["weights"].shape == (6, 12)
    assert a.logits is None
    assert [warning.code for warning in a.warnings] == ["identical-to-weights"]
    assert len(a.id) == 32


def test_same_request_same_id(minilm: Model) -> None:
    """The id depends on the content: on everything except order and repetition of lenses."""
    first = headscope.analyze(minilm, "One text.", lenses=("weights", "effective")).id
    assert headscope.analyze(minilm, "One text.", lenses=("effective", "weights", "weights")).id == first
    assert headscope.analyze(minilm, "One text!").id != first
    assert headscope.analyze(minilm, "One text.", lenses=("weights",)).id != first
    assert headscope.analyze(minilm, "One text.", max_tokens=4).id != first


def test_in_memory_models_are_named_by_their_weights() -> None:
    """Models with equal weights give the same id, with other weights another one."""
    import torch

    from .conftest import TINY

    def id_of(seed: int) -> str:
        torch.manual_seed(seed)
        return headscope.analyze(TINY["gpt2"](), token_ids=[1, 2, 3]).id

    assert id_of(0) == id_of(0) != id_of(1)


@variants("how", ["in place", "by its data", "another tensor", "permuted by its data", "permuted"], crossed=False)
@variants("loaded", [False, True])
def test_a_model_that_is_trained_on(how: str, loaded: bool) -> None:
    """Other weights give another id, and an analysis keeps the one it was made with."""
    import torch

    from .conftest import TINY

    module = TINY["gpt2"]()
    model = headscope.load(module) if loaded else module
    embedding = module.transformer.wte
    weights = embedding.weight
    weights.data.mul_(2**12).round_().div_(2**12)  # so that their sum is exact, in whatever order
    before, same = (headscope.analyze(model, token_ids=[1, 2, 3]) for _ in range(2))
    with torch.no_grad():
        if how == "in place":
            weights.mul_(1.5)
        elif how == "by its data":
            weights.data *= 1.5
        elif how == "permuted":
            weights.copy_(weights.flip(0))
        elif how == "permuted by its data":
            weights.data.copy_(weights.flip(0))
        else:
            embedding.weight = torch.nn.Parameter(weights * 1.5)
    after = headscope.analyze(model, token_ids=[1, 2, 3])
    assert not np.array_equal(before.maps["weights"], after.maps["weights"])
    assert before.id == same.id != after.id


def test_another_default_type(tmp_path: Path) -> None:
    """With a default dtype of float64, maps are still float32, and can be saved."""
    import torch

    from .conftest import TINY

    model = TINY["gpt2"]()
    torch.set_default_dtype(torch.float64)
    try:
        a = headscope.analyze(model, token_ids=[1, 2, 3])
        a.save(tmp_path / "a")
        assert a.maps["effective"].dtype == headscope.open(tmp_path / "a").maps["effective"].dtype == np.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_numbers_in_any_form() -> None:
    """Tensors, arrays, ranges and numpy's own numbers are numbers."""
    import torch

    from .conftest import TINY

    model = headscope.load(TINY["gpt2"]())
    plain = headscope.analyze(model, token_ids=[1, 2, 3], layers=[0, 1], heads=[1], max_tokens=2)
    for ids in (np.array([1, 2, 3]), torch.tensor([1, 2, 3]), (1, 2, 3)):
        some = headscope.analyze(model, token_ids=ids, layers=range(2), heads=np.array([1]), max_tokens=np.int64(2))
        assert some.id == plain.id


def test_errors_are_there_from_the_start() -> None:
    """headscope.errors can be used before any function was called."""
    command = [sys.executable, "-c", "import headscope; headscope.errors.HeadscopeError"]
    subprocess.run(command, check=True, timeout=60)


def test_a_model_with_its_tokenizer(minilm: Model) -> None:
    """A module and a tokenizer, as two arguments or as a pair, analyse as the loaded model does."""
    expected = headscope.analyze(minilm, "The cat sat.").maps["effective"]
    for model in (headscope.load(minilm.module, minilm.tokenizer), headscope.load((minilm.module, minilm.tokenizer))):
        np.testing.assert_array_equal(headscope.analyze(model, "The cat sat.").maps["effective"], expected)


def test_save_and_open(minilm: Model, tmp_path: Path) -> None:
    """An opened analysis is bitwise equal to the saved one."""
    a = headscope.analyze(
        minilm, "The cat sat on the mat.", "Did it?", measures=("entropy", "null_share", "leverage"), layers=[1, 3]
    )
    a.save(tmp_path / "a.safetensors")
    b = headscope.open(tmp_path / "a.safetensors")
    assert (b.id, b.tokens, b.layers, b.heads, b.warnings) == (a.id, a.tokens, a.layers, a.heads, a.warnings)
    assert list(b.maps) == list(a.maps)
    for lens, maps in a.maps.items():
        np.testing.assert_array_equal(b.maps[lens], maps)
    for name, by_lens in a.measures.items():
        np.testing.assert_array_equal(b.measures[name]["weights"], by_lens["weights"])


def test_copies_are_equal(minilm: Model, tmp_path: Path) -> None:
    """Of an analysis, made or opened, in this process or sent to another one; they have everything that a file has."""
    a = headscope.analyze(minilm, "The cat sat.", predictions=0, measures=("entropy", "leverage"))
    a.save(tmp_path / "a.safetensors")
    opened = headscope.open(tmp_path / "a.safetensors")
    for b in (opened, pickle.loads(pickle.dumps(a)), pickle.loads(pickle.dumps(opened)), copy.deepcopy(a)):
        assert a == b
        assert {a, b} == {a}
        assert (b.id, b.tokens, b.warnings, b.request) == (a.id, a.tokens, a.warnings, a.request)
        for lens, maps in a.maps.items():
            np.testing.assert_array_equal(b.maps[lens], maps)
    assert a != headscope.analyze(minilm, "The dog sat.")
    assert a != 5


def test_open_names_the_kind_of_file(minilm: Model, tmp_path: Path) -> None:
    """A study is opened by Study.open, and what does not exist by neither."""
    headscope.study(minilm, ["The cat sat."], lenses=("weights",), measures=()).save(tmp_path / "study")
    with pytest.raises(InvalidRequest, match=r"is a study. Open it with headscope.Study.open"):
        headscope.open(tmp_path / "study")
    for opens in (headscope.open, headscope.Study.open):
        for path in (tmp_path / "nothing", tmp_path, "a" * 5000):
            with pytest.raises(InvalidRequest, match="no such file"):
                opens(path)


@pytest.mark.parametrize("change", [None, "shapes", "tokens", "map"])
def test_open_refuses_what_is_not_complete(minilm: Model, tmp_path: Path, change: str | None) -> None:
    """A document that is none, one without a part, and another map than it lists."""
    headscope.analyze(minilm, "The cat sat.", lenses=("weights",), measures=()).save(tmp_path / "a")
    with safe_open(tmp_path / "a", "numpy") as file:
        metadata, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    document = json.loads(metadata["headscope"])
    if change == "map":
        arrays["map/weights"] = arrays["map/weights"][:, :6]
    document = None if change is None else {**document, **({} if change == "map" else {change: None})}
    save_file(arrays, tmp_path / "b", {**metadata, "headscope": json.dumps(document)})
    with pytest.raises(InvalidRequest, match="not written by Headscope"):
        headscope.open(tmp_path / "b")


@pytest.mark.parametrize("content", [b"", b"not safetensors", b"\x08\0\0\0\0\0\0\0{}      "])
def test_open_refuses_other_files(tmp_path: Path, content: bytes) -> None:
    """One error message, whatever the file contains."""
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(InvalidRequest, match="not written by Headscope"):
        headscope.open(tmp_path / "x")


@variants(
    ("arguments", "error", "code"),
    [
        ({"lenses": ("nope",)}, Unknown, "unknown-lens"),
        ({"measures": ("nope",)}, Unknown, "unknown-measure"),
        ({"mechanism": "nope"}, Unknown, "unknown-mechanism"),
        ({"mechanism": {"name": "nope"}}, Unknown, "unknown-mechanism"),
        ({"layers": [6]}, Unknown, "unknown-layer"),
        ({"heads": [12]}, Unknown, "unknown-head"),
        ({"kind": "cross"}, Unsupported, "unsupported"),
        ({"text": None, "image": "x"}, InvalidRequest, "invalid-image"),
        ({"keep_logits": True}, Unsupported, "unsupported"),
        ({"token_ids": [1]}, InvalidRequest, "invalid-request"),
        ({"text": None}, InvalidRequest, "invalid-request"),
        ({"text": None, "text_pair": "x", "token_ids": [1]}, InvalidRequest, "invalid-request"),
        ({"lenses": (), "measures": ()}, InvalidRequest, "invalid-request"),
        ({"text": 5}, InvalidRequest, "invalid-request"),
        ({"predictions": -1}, InvalidRequest, "invalid-request"),
        ({"predictions": "five"}, InvalidRequest, "invalid-request"),
        ({"max_tokens": "many"}, InvalidRequest, "invalid-request"),
        ({"dtype": "int8"}, InvalidRequest, "invalid-request"),
        *(
            ({"text": None, "token_ids": ids}, InvalidRequest, "invalid-request")
            for ids in ([[101, 102]], ["a"], [None], 5, [101.7, 102])
        ),
        ({"layers": 3}, InvalidRequest, "invalid-request"),
        ({"lenses": None}, InvalidRequest, "invalid-request"),
        ({"lenses": "weights"}, InvalidRequest, "invalid-request"),
        ({"measures": 5}, InvalidRequest, "invalid-request"),
    ],
    ids=str,
)
def test_refusals(minilm: Model, arguments: dict[str, object], error: type[HeadscopeError], code: str) -> None:
    """Every error is a HeadscopeError with a stable code and a message."""
    with pytest.raises(error) as raised:
        headscope.analyze(minilm, **{"text": "A text.", **arguments})
    assert raised.value.code == code
    assert raised.value.detail.endswith(".")


@pytest.mark.parametrize("lens", ["nonsense", "norm"])
def test_finding_through_a_lens_that_was_not_analysed(minilm: Model, lens: str) -> None:
    """It is refused: other numbers would be taken for those of the lens."""
    a = headscope.analyze(minilm, "The cat sat.", lenses=("effective",))
    with pytest.raises(Unknown, match="does not include that lens, but effective"):
        a.find("entropy < 2", lens=lens)
    assert a.find("", lens="weights").of == 72


@variants(
    ("given", "said"),
    [
        ({"dtype": "nonsense"}, "dtype must be one of float32"),
        ({"device": "nonsense"}, "device must be the name"),
        ({"device": 0.5}, "device must be the name"),
    ],
    ids=str,
)
def test_loading_as_nothing_that_exists(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        headscope.load("minilm", **given)


def test_a_model_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names the command that installs it."""
    monkeypatch.setenv("HEADSCOPE_HOME", str(tmp_path))
    with pytest.raises(ModelUnavailable, match="headscope models install smollm2"):
        headscope.load("smollm2")


@variants("target", [-1, 1.5, True, np.array([5, 6]), ("cat", None), [[5]]], ids=str)
def test_targets_that_name_nothing(minilm: Model, target: Any) -> None:
    """One sentence, of an effect and of a study."""
    for judged in (
        lambda: headscope.effect(minilm, "A text.", target=target),
        lambda: headscope.study(minilm, ["A text."], effects=["ablation"], target=target),
    ):
        with pytest.raises(InvalidRequest, match="target is a token or class"):
            judged()


@variants(
    ("given", "said"),
    [
        ({"head": 5}, "A head is given as"),
        ({"head": (0, 1, 2)}, "A head is given as"),
        ({"heads": (0, 1)}, "A head is given as"),
        ({"heads": "0.1"}, "heads is a list"),
        ({"heads": 5}, "heads is a list"),
    ],
    ids=str,
)
def test_heads_to_show_that_are_none(minilm: Model, given: dict[str, Any], said: str) -> None:
    a = headscope.analyze(minilm, "A text.", layers=[0])
    with pytest.raises(InvalidRequest, match=said):
        headscope.show(a, widget=False, **given)
    headscope.show(a, np.array([0, 1]), heads=np.array([[0, 1], [0, 2]]), widget=False)


def test_showing_what_cannot_be_shown(minilm: Model, tmp_path: Path) -> None:
    """An analysis without maps, in every way; a site of no list; a theme that figures do not have."""
    a = headscope.analyze(minilm, "A text.", maps=False)
    shows = [lambda kind=kind: headscope.show(a, widget=kind) for kind in (None, True, False)]
    for shown in (*shows, lambda: headscope.export_site(tmp_path, [a])):
        with pytest.raises(InvalidRequest, match="without maps cannot be shown"):
            shown()
    for analyses in (a, "a.safetensors", 5):
        with pytest.raises(InvalidRequest, match="Pass a list of analyses"):
            headscope.export_site(tmp_path, analyses)
    with pytest.raises(InvalidRequest, match="An analysis is the result"):
        headscope.export_site(tmp_path, [5])
    with pytest.raises(InvalidRequest, match="theme is light or dark"):
        a.figure("entropy", theme="blue")


def test_arguments_of_the_wrong_kind(minilm: Model, subtests: pytest.Subtests) -> None:
    """Every method rejects them with a sentence that says what it takes."""
    a, s = headscope.analyze(minilm, "The cat."), headscope.study(minilm, ["The cat."], measures=("entropy",))
    refused: list[tuple[str, Callable[[Any], Any], Sequence[Any]]] = [
        ('Groups are "word"', a.by, (5, None, [1, 2], [[1, 1.5]], [[[1]]], "words", np.array(["word", "word"]))),
        ("A query is a text", a.find, (5, None)),
        ("A query or sentence is a text", a.ask, (5, None)),
        ("does not include that lens, but", lambda lens: a.find(lens=lens), ("none", 5, ["weights"])),
        ("Unknown figure. Available", a.figure, ("none", 5, ["entropy"])),
        ("The study has variants 0 to 0", lambda variant: s.stat("entropy", variant=variant), ("first", None, 1, 0.5)),
        ("There is no such file", headscope.open, (5, None, a)),
        ("An analysis is the result", headscope.show, (5, "a.safetensors")),
        ("An analysis is the result", lambda b: headscope.compare(a, b), (5, "a.safetensors")),
        ("There is no such lens", lambda lens: headscope.compare(a, a, lens), ("none", 5, ["weights"])),
        ("labels must be a list", lambda labels: headscope.analyze(minilm, "A", labels=labels), (5, "NN")),
        ("batteries must be a list", lambda names: headscope.head_scores(minilm, names), (5, "induction")),
        ("dtype is float32 or float64", lambda dtype: headscope.effect(minilm, "A", dtype=dtype), ("bfloat16", [])),
        ("max_tokens must be", lambda most: headscope.effect(minilm, "A", max_tokens=most), ("many", 0, -1)),
        ("mechanism: ", lambda name: headscope.study(minilm, ["A"], against_mechanism=name), (5,)),
        ("Pass a PreTrainedModel", lambda model: headscope.attend_by(model, "softmax"), (minilm, 5)),
        ("special_ids must be", lambda ids: headscope.attend_by(minilm.module, "softmax", special_ids=ids), (5, "a")),
    ]
    for said, call, values in refused:
        for value in values:
            with subtests.test(said=said, value=value), pytest.raises(HeadscopeError, match=said):
                call(value)


@pytest.mark.parametrize("model", [5, None, ("minilm",), ["minilm"], 0.5], ids=str)
def test_what_is_no_model(model: object) -> None:
    """Neither a name nor a module."""
    with pytest.raises(InvalidRequest, match="A model is a name, a folder"):
        headscope.load(model)


def test_no_room_for_padding() -> None:
    """A model with too few positions to pad the input as requested."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 8}
    model = headscope.load(BertModel(BertConfig(vocab_size=99, max_position_embeddings=64, **sizes)))
    with pytest.raises(InvalidRequest, match="Set pad_to to 64 or less"):
        headscope.analyze(model, token_ids=[1, 2, 3], lenses=["effective-published"])
    a = headscope.analyze(model, token_ids=[1, 2, 3], lenses=[{"name": "effective-published", "pad_to": 64}])
    assert a.maps["effective-published"].shape == (1, 4, 3, 3)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("no-such-model", "unknown-model"),
        ("../etc", "invalid-request"),
        ("a/b/c", "invalid-request"),
        ("", "invalid-request"),
    ],
)
def test_unknown_models(name: str, code: str) -> None:
    """Invalid names and unknown names have different errors."""
    with pytest.raises(HeadscopeError) as raised:
        headscope.load(name)
    assert raised.value.code == code


def test_without_maps(minilm: Model) -> None:
    """maps=False keeps thumbnails and measures only, and they are the same."""
    kept = headscope.analyze(minilm, "The cat sat on the mat.", measures=("entropy",))
    light = headscope.analyze(minilm, "The cat sat on the mat.", measures=("entropy",), maps=False)
    assert light.maps == {}
    np.testing.assert_array_equal(light.tiles["effective"]["tiles"], kept.tiles["effective"]["tiles"])
    np.testing.assert_array_equal(light.measures["entropy"]["weights"], kept.measures["entropy"]["weights"])


def test_public_names() -> None:
    """The interface is exactly this."""
    assert sorted(headscope.__all__) == sorted(dir(headscope))
    assert set(headscope.__all__) == {
        "BATTERIES",
        "COMPARISONS",
        "EFFECTS",
        "FIGURES",
        "LENSES",
        "MEASURES",
        "MECHANISMS",
        "STUDY_FIGURES",
        "Analysis",
        "Effect",
        "HeadScores",
        "Model",
        "Study",
        "__version__",
        "analyze",
        "attend_by",
        "compare",
        "effect",
        "errors",
        "export_site",
        "from_attentions",
        "head_scores",
        "learn_pasta",
        "load",
        "open",
        "show",
        "study",
        "watch_training",
    }
    assert all(getattr(headscope, name) is not None for name in headscope.__all__)


LITTLE_MEMORY = """
import resource, sys
import subprocess
import sys
from pathlib import Path
import headscope
from headscope.errors import HeadscopeError

headscope.load(sys.argv[1])  # and with it all that has to be imported
for megabytes in (1, 80):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 2**20, resource.RLIM_INFINITY))
    try:
        headscope.load(sys.argv[1])
    except HeadscopeError as error:
        print(error.code)
"""


@pytest.mark.long
def test_a_model_without_room(tmp_path: Path) -> None:
    """Too little memory is not the model's fault: neither for its file, nor for the weights beside it."""
    wide = BertConfig(vocab_size=9, hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=2**17)
    BertModel(wide).save_pretrained(tmp_path)
    command = [sys.executable, "-c", LITTLE_MEMORY, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout.split(), done.returncode) == (["out-of-memory"] * 2, 0), done.stderr
