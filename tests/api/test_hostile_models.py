"""Damaged models, and models that try to run code or to leave their folder: each is rejected with its own code, and every other model works."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import headscope
from headscope.errors import HeadscopeError
from headscope.models import facts, safety
from tests.support.extent import extent
from tests.support.models import tiny_model
from tests.support.server import Server
from tests.support.variants import variants

WEIGHTS = "model.safetensors"


def change(name: str, **keys: Any) -> Callable[[Path], None]:
    """Return a mutation that sets keys of a JSON file of the model."""

    def apply(folder: Path) -> None:
        document = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**document, **keys}))

    return apply


def config(**keys: Any) -> Callable[[Path], None]:
    """Return a mutation that sets keys of config.json."""
    return change("config.json", **keys)


def cut(name: str, keep: float) -> Callable[[Path], None]:
    """Return a mutation that truncates a file to this share."""

    def apply(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * keep)])

    return apply


def put(name: str, data: bytes) -> Callable[[Path], None]:
    """Return a mutation that replaces a file."""
    return lambda folder: (folder / name).write_bytes(data) and None


def pickle_only(folder: Path) -> None:
    """Replace the weights by a pickle that writes a file when it is loaded."""
    (folder / WEIGHTS).unlink()
    command = f"touch {folder.parent.parent / 'canary'}".encode()
    (folder / "pytorch_model.bin").write_bytes(b"cposix\nsystem\n(S'" + command + b"'\ntR.")


def python_module(folder: Path) -> None:
    """Add custom code for configuration, model and tokenizer."""
    canary = folder.parent.parent / "canary"
    (folder / "evil.py").write_text(f"import pathlib; pathlib.Path({str(canary)!r}).touch()\n")
    auto = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model", "AutoModelForCausalLM": "evil.Model"}
    config(auto_map=auto)(folder)


def tokenizer_module(folder: Path) -> None:
    """Add custom code for the tokenizer only."""
    python_module(folder)
    config(auto_map=None)(folder)
    change("tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Tokenizer", None]})(folder)


def sharded(index: dict[str, str]) -> Callable[[Path], None]:
    """Return a mutation that writes an index of weight files."""

    def apply(folder: Path) -> None:
        (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))

    return apply


def header(change_header: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Return a mutation that changes the header of the weights and keeps their bytes."""

    def apply(folder: Path) -> None:
        data = (folder / WEIGHTS).read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        document = json.loads(data[8 : 8 + length])
        text = json.dumps(change_header(document) or document).encode()
        (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])

    return apply


def some_tensor(header_: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of one tensor in a header."""
    return next(entry for name, entry in header_.items() if name != "__metadata__")


def without_tensor(folder: Path) -> None:
    """Remove one weight."""
    tensors = load_file(folder / WEIGHTS)
    del tensors["encoder.layer.1.attention.self.value.weight"]
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def nan_weights(folder: Path) -> None:
    """Replace the weights by ones that compute NaN."""
    tensors = load_file(folder / WEIGHTS)
    tensors["encoder.layer.1.attention.self.query.weight"][:] = np.nan
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


UNSAFE = {
    "auto-map": python_module,
    "auto-map-of-the-tokenizer": tokenizer_module,
    "attention-internal": config(_attn_implementation_internal="org/kernel"),
    "attention-kernel": config(_attn_implementation="kernels-community/flash-attn"),
    "attention-nested": config(text_config={"sub": [{"_attn_implementation_internal": "org/kernel"}]}),
    "attention-kernel-of-a-part": config(_attn_implementation={"text_config": "org/kernel"}),
    "attention-by-its-plain-name": config(attn_implementation="org/kernel"),
    "experts": config(_experts_implementation="org/kernel"),
    "kernels": config(kernels={"Attention": "org/kernel"}),
    "kernel-config": config(kernel_config={"kernel_mapping": {}, "use": True}),
    "trust-remote-code": config(trust_remote_code=True),
    "trust-remote-code-nested": config(vision_config={"trust_remote_code": True}),
    "trust-remote-code-truthy": config(trust_remote_code="yes"),
    "custom-pipelines": config(custom_pipelines={"x": {"impl": "evil.Pipeline"}}),
    "code-revision": config(code_revision="main"),
    "custom-generate": change("tokenizer_config.json", custom_generate="org/x"),
    "model-type-unknown": config(model_type="evil-arch"),
    "model-type-path": config(model_type="../../evil"),
    "model-type-number": config(model_type=5),
    "model-type-list": config(model_type=["bert"]),
    "architectures-number": config(architectures=5),
    "layers-negative": config(num_hidden_layers=-1),
    "layers-zero": config(num_hidden_layers=0),
    "layers-20000": config(num_hidden_layers=20_000),
    "layers-beyond-64-bits": config(num_hidden_layers=2**70),
    "layers-text": config(num_hidden_layers="2"),
    "layers-float": config(num_hidden_layers=2.0),
    "layers-true": config(num_hidden_layers=True),
    "layers-null": config(num_hidden_layers=None),
    "heads-zero": config(num_attention_heads=0),
    "heads-huge": config(num_attention_heads=10**9),
    "heads-more-than-width": config(num_attention_heads=64),
    "width-huge": config(hidden_size=10**12),
    "head-width-negative": config(head_dim=-8),
    "vocabulary-huge": config(vocab_size=10**12),
    "index-outside": sharded({"a": "../bert/model.safetensors"}),
    "index-absolute": sharded({"a": "/etc/passwd"}),
    "index-of-a-pickle": sharded({"a": "pytorch_model.bin"}),
}
CORRUPT = {
    "config-no-json": put("config.json", b"{"),
    "config-a-list": put("config.json", b"[]"),
    "config-not-utf8": put("config.json", b'{"a": "\xff"}'),
    "config-nested": put("config.json", b"[" * 100_000),
    "config-huge": put("config.json", b'{"a": "' + b" " * 5_000_000 + b'"}'),
    "weights-missing": lambda folder: (folder / WEIGHTS).unlink(),
    "weights-empty": put(WEIGHTS, b""),
    "weights-header-only": put(WEIGHTS, struct.pack("<Q", 2) + b"{}"),
    "weights-cut": cut(WEIGHTS, 0.7),
    "weights-cut-in-the-header": cut(WEIGHTS, 0.01),
    "weights-longer": lambda folder: put(WEIGHTS, (folder / WEIGHTS).read_bytes() + b"\0")(folder),
    "weights-garbage": put(WEIGHTS, os.urandom(5000)),
    "weights-header-length-huge": put(WEIGHTS, struct.pack("<Q", 2**63) + b"{}"),
    "weights-header-nested": put(WEIGHTS, struct.pack("<Q", 100_000) + b"[" * 100_000),
    "header-overlap": header(lambda h: some_tensor(h).update(data_offsets=[0, 64])),
    "header-backwards": header(lambda h: some_tensor(h).update(data_offsets=[64, 0])),
    "header-negative": header(lambda h: some_tensor(h).update(data_offsets=[-8, 8])),
    "header-no-offsets": header(lambda h: some_tensor(h).pop("data_offsets")),
    "header-type-unknown": header(lambda h: some_tensor(h).update(dtype="F31")),
    "header-shape-wrong": header(lambda h: some_tensor(h).update(shape=[1, 2, 3])),
    "header-shape-huge": header(lambda h: some_tensor(h).update(shape=[2**62, 2**62])),
    "header-a-list": header(lambda h: [h]),
    "weights-of-another-shape": config(hidden_size=64),
    "vocabulary-of-another-size": config(vocab_size=5_000_000),
    "one-tensor-missing": without_tensor,
    "index-empty": sharded({}),
    "index-shard-missing": sharded({"a": "model-00001-of-00002.safetensors"}),
    "index-a-list": put(f"{WEIGHTS}.index.json", b"[]"),
    "tokenizer-no-json": put("tokenizer.json", b"{"),
    "tokenizer-of-no-kind": put("tokenizer.json", b'{"version": "1.0", "model": {"type": "Evil"}}'),
    "tokenizer-cut": cut("tokenizer.json", 0.5),
    "weights-a-folder": lambda folder: ((folder / WEIGHTS).unlink(), (folder / WEIGHTS).mkdir()),
    "weights-a-pipe": lambda folder: ((folder / WEIGHTS).unlink(), os.mkfifo(folder / WEIGHTS)),
    "another-pipe": lambda folder: os.mkfifo(folder / "x.safetensors"),
}
OTHER: dict[str, tuple[Callable[[Path], Any], str]] = {
    "pickle-only": (pickle_only, "unsafe-weights"),
    "nan": (nan_weights, "non-finite"),
    "quantised": (config(quantization_config={"quant_method": "gptq", "bits": 4}), "unsupported"),
    "quantised-in-name": (
        config(quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}),
        "model-corrupt",
    ),
    "vision-without-patches": (config(model_type="vit", architectures=["ViTModel"]), "unsafe-model"),
    "vision-in-windows": (config(model_type="swin", architectures=["SwinModel"]), "unsupported"),
    "audio": (config(model_type="wav2vec2", architectures=["Wav2Vec2Model"]), "unsupported"),
}
HOSTILE = {
    **{name: (apply, "unsafe-model") for name, apply in UNSAFE.items()},
    **{name: (apply, "model-corrupt") for name, apply in CORRUPT.items()},
    **OTHER,
}


def link_out(models: Path) -> None:
    """Add folders and files that are links; those that leave the model folder are not offered."""
    outside = models.parent / "outside"
    shutil.copytree(models / "bert", outside)
    (models / "linked-folder").symlink_to(outside)
    for name, target in (
        ("linked-weights", WEIGHTS),
        ("linked-config", "config.json"),
        ("linked-tokenizer", "tokenizer.json"),
    ):
        shutil.copytree(models / "bert", models / name)
        (models / name / target).unlink()
        (models / name / target).symlink_to(outside / target)
    shutil.copytree(models / "bert", models / "linked-nowhere")
    (models / "linked-nowhere" / "x.safetensors").symlink_to(models.parent / "nowhere")
    (models / "linked-inside").symlink_to(models / "bert")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose model folder contains one valid model and every invalid one."""
    top = tmp_path_factory.mktemp("hostile")
    models = top / "models"
    good = tiny_model(models / "bert")
    for name, (apply, _) in HOSTILE.items():
        shutil.copytree(good, models / name)
        apply(models / name)
    link_out(models)
    with Server(top / "home", models) as server:
        yield server


def outcome(server: Server, model: str) -> str:
    """Return how an analysis with this model ends: done, or the code of the error."""
    answer = server.post({"model": model, "text": "The cat sat."})
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        return str(answer.json()["code"])
    document = server.ended(answer.json()["id"])
    return str(document["error"]["code"] if document["error"] else document["status"])


# The library does not read files that are no part of the model.
ONLY_SERVED = {*OTHER, "another-pipe"}
# In `make test`, the others are refused by the library only.
SERVED = {*ONLY_SERVED, *extent(HOSTILE, [*HOSTILE][::5])}


@variants(("name", "code"), [(name, HOSTILE[name][1]) for name in HOSTILE if name in SERVED])
def test_hostile_model(hostile: Server, name: str, code: str) -> None:
    """An invalid model is rejected with its code, its description is available, and no code ran."""
    assert outcome(hostile, name) == code
    assert hostile.get(f"/models/{name}").status_code == 200
    assert not (hostile.home.parent / "canary").exists()


@variants(("name", "code"), [(name, code) for name, (_, code) in HOSTILE.items() if name not in ONLY_SERVED])
def test_the_library_refuses_it(hostile: Server, name: str, code: str) -> None:
    """With the same code, and no code ran."""
    folder = hostile.home.parent / "models" / name
    assert refusal(lambda: headscope.analyze(headscope.load(folder), "The cat sat.")) == code
    assert not (hostile.home.parent / "canary").exists()


@variants(
    "name",
    ["linked-folder", "linked-weights", "linked-config", "linked-tokenizer", "linked-nowhere", "outside", "../outside"],
)
def test_links_do_not_lead_out(hostile: Server, name: str) -> None:
    """Files outside the model folder cannot be reached through it."""
    assert outcome(hostile, name) in ("unknown-model", "invalid-request")
    assert name not in [card["name"] for card in hostile.get("/models", params={"limit": 1000}).json()["items"]]


def test_good_models_go_on(hostile: Server) -> None:
    """The valid model, and a link to it inside the folder, can be analysed; the list of models is complete."""
    assert outcome(hostile, "bert") == outcome(hostile, "linked-inside") == "done"
    names = {card["name"] for card in hostile.get("/models", params={"limit": 1000}).json()["items"]}
    assert set(HOSTILE) <= names
    assert hostile.metric("worker_losses_total") == 0


def test_rewritten_model_is_another_model(hostile: Server) -> None:
    """New weights have a new id and new numbers; the old result is still readable under its old id."""
    server, models = hostile, hostile.home.parent / "models"
    tiny_model(models / "m", seed=1)
    first = server.analyse(model="m", text="The cat sat.")
    before = server.get(f"/analyses/{first['id']}/maps/weights", params={"format": "json"}).json()
    tiny_model(models / "m", seed=2)
    second = server.analyse(model="m", text="The cat sat.")
    after = server.get(f"/analyses/{second['id']}/maps/weights", params={"format": "json"}).json()
    assert first["id"] != second["id"]
    assert before != after
    assert server.get(f"/analyses/{first['id']}/maps/weights", params={"format": "json"}).json() == before


def test_rewritten_tokenizer_counts(hostile: Server) -> None:
    """The tokens of a submitted text are counted with the tokenizer that is on disk now."""
    server, models = hostile, hostile.home.parent / "models"
    text = "z" * 300  # one unknown word to the one, 300 bytes to the other
    folder = tiny_model(models / "t", "bert", positions=256)
    assert server.post({"model": "t", "text": text}).status_code == 202
    shutil.rmtree(folder)
    tiny_model(models / "t", "gpt2", positions=256)
    answer = server.post({"model": "t", "text": text})
    assert (answer.status_code, answer.json()["code"]) == (422, "too-many-tokens")


def test_weights_damaged_after_loading(hostile: Server) -> None:
    """A loaded model is not used once its files have changed: damage is detected, and a repaired model is loaded again."""
    server, models = hostile, hostile.home.parent / "models"
    weights = tiny_model(models / "d") / WEIGHTS
    data = weights.read_bytes()
    assert outcome(server, "d") == "done"
    weights.write_bytes(data[:-100])
    assert outcome(server, "d") == "model-corrupt"
    weights.write_bytes(data)
    assert outcome(server, "d") == "done"


def test_removed_model(hostile: Server) -> None:
    """The results of a removed model stay; new requests are unknown-model."""
    server, models = hostile, hostile.home.parent / "models"
    folder = tiny_model(models / "r")
    id_ = server.analyse(model="r", text="The cat sat.")["id"]
    shutil.rmtree(folder)
    assert outcome(server, "r") == "unknown-model"
    assert server.get(f"/analyses/{id_}/maps/weights").status_code == 200


def refusal(call: Callable[[], object]) -> str | None:
    """Return the code of the HeadscopeError that is raised, or None; other errors pass through."""
    try:
        call()
    except HeadscopeError as error:
        return error.code
    return None


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model whose weights are mutated."""
    return tiny_model(tmp_path_factory.mktemp("mutated") / "bert", layers=1)


@settings(
    max_examples=extent(300, 75),
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(place=st.integers(0, 20_000), byte=st.integers(0, 255), keep=st.floats(0.0, 1.0))
def test_mutated_weight_files_never_surprise(weights: Path, place: int, byte: int, keep: float) -> None:
    """For any truncation and any changed byte of the header, the check passes or raises model-corrupt, nothing else."""
    path = weights / WEIGHTS
    data = path.read_bytes()
    changed = bytearray(data[: int(len(data) * max(keep, 0.1))] if keep < 0.5 else data)
    changed[min(place, len(changed) - 1)] = byte
    path.write_bytes(changed)
    try:
        assert refusal(lambda: safety.check(weights)) in (None, "model-corrupt")
    finally:
        path.write_bytes(data)


CONFIGS = st.dictionaries(
    st.sampled_from([*facts.LAYERS, *facts.HEADS, *facts.WIDTH, *facts.POSITIONS, "model_type", "architectures", "head_dim", "vocab_size"]),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers() | st.text(max_size=3), max_size=2),
)  # fmt: skip


@settings(max_examples=extent(500, 125), derandomize=True, deadline=None)
@given(CONFIGS)
def test_random_configurations(document: dict[str, Any]) -> None:
    """Any config.json gives usable numbers or a HeadscopeError."""
    code = refusal(lambda: facts.read(document))
    assert code in (None, "unsafe-model")
    if code is None:
        read = facts.read(document)
        assert min(read.layers, read.heads, read.head_width) >= 1
        assert read.max_tokens is None or read.max_tokens >= 1
