"""GGUF files: the header against hostile bytes, and the converted model against ggml's computation written out in float64."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import headscope
from headscope.errors import CorruptModel, HeadscopeError, StorageFull, Unknown, Unsupported
from headscope.models import loading
from headscope.models.catalog import Catalog
from headscope.models.gguf_files import architecture, convert, header, tokenizer
from headscope.settings import Settings
from tests.support.gguf_files import HEAD_WIDTH, HEADS, LAYERS, SHARED, Type, write

TEXT = "The cat sat on the mat, because 1984 was tired."


def reference(path: Path, ids: list[int], factor: Any = 1.0, size: float = 1.0) -> Any:
    """Logits in float64, straight from the file, with positions divided by `factor`, and queries and keys multiplied by `size`.

    llama rotates neighbouring numbers, qwen the two halves.
    """
    reader = gguf.GGUFReader(path)
    weights = {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}
    neighbours = reader.get_field("general.architecture").contents() == "llama"
    base = reader.get_field(f"{reader.get_field('general.architecture').contents()}.rope.freq_base").contents()
    frequencies = base ** (-np.arange(HEAD_WIDTH // 2) * 2 / HEAD_WIDTH) / weights.get("rope_freqs.weight", factor)
    angles = np.arange(len(ids))[:, None] * frequencies

    def norm(x: Any, name: str) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weights[f"{name}.weight"]

    def linear(x: Any, name: str) -> Any:
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)

    def rotate(x: Any) -> Any:  # [tokens, heads, width]
        cos, sin = size * np.cos(angles)[:, None], size * np.sin(angles)[:, None]
        even = slice(0, None, 2) if neighbours else slice(0, HEAD_WIDTH // 2)
        odd = slice(1, None, 2) if neighbours else slice(HEAD_WIDTH // 2, None)
        turned = np.empty_like(x)
        turned[..., even] = x[..., even] * cos - x[..., odd] * sin
        turned[..., odd] = x[..., even] * sin + x[..., odd] * cos
        return turned

    x = weights["token_embd.weight"][ids]
    for layer in range(LAYERS):
        at = f"blk.{layer}"
        y = norm(x, f"{at}.attn_norm")
        q, k, v = (
            linear(y, f"{at}.attn_{name}").reshape(len(ids), heads, HEAD_WIDTH)
            for name, heads in (("q", HEADS), ("k", SHARED), ("v", SHARED))
        )
        if f"{at}.attn_q_norm.weight" in weights:
            q, k = norm(q, f"{at}.attn_q_norm"), norm(k, f"{at}.attn_k_norm")
        q, k = rotate(q), rotate(k)
        out = np.zeros((len(ids), HEADS, HEAD_WIDTH))
        for head in range(HEADS):
            shared = head // (HEADS // SHARED)
            scores = q[:, head] @ k[:, shared].T / np.sqrt(HEAD_WIDTH)
            scores[np.triu_indices(len(ids), 1)] = -np.inf
            exp = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = exp / exp.sum(-1, keepdims=True) @ v[:, shared]
        x = x + linear(out.reshape(len(ids), -1), f"{at}.attn_output")
        y = norm(x, f"{at}.ffn_norm")
        gate = linear(y, f"{at}.ffn_gate")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(y, f"{at}.ffn_up"), f"{at}.ffn_down")
    return norm(x, "output_norm") @ weights.get("output.weight", weights["token_embd.weight"]).T


def yarn(base: float, factor: float, original: int, fast: float = 32.0, slow: float = 1.0) -> tuple[Any, float]:
    """By what ggml divides positions in each plane, and the size that it gives to queries and keys (ggml_rope_yarn)."""

    def plane(turns: float) -> float:
        return float(HEAD_WIDTH * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(base)))

    start, end = max(0.0, np.floor(plane(fast))), min(HEAD_WIDTH - 1.0, np.ceil(plane(slow)))
    mixed = 1 - np.clip((np.arange(HEAD_WIDTH // 2) - start) / max(0.001, end - start), 0, 1)
    return 1 / ((1 - mixed) / factor + mixed), 1 + 0.1 * float(np.log(factor))


def factors(base: float) -> Any:
    """The factors of Llama 3, as its converter writes them."""
    found = []
    for frequency in base ** (-np.arange(HEAD_WIDTH // 2) * 2 / HEAD_WIDTH):
        wave = 2 * np.pi / frequency
        smooth = (8192 / wave - 1) / 3
        found.append(1.0 if wave < 8192 / 4 else 8.0 if wave > 8192 else 1 / ((1 - smooth) / 8 + smooth))
    return np.array(found)


QUANTISED = {
    "token_embd.weight": Type.Q8_0,
    "attn_q.weight": Type.Q4_1,
    "attn_k.weight": Type.Q4_1,
    "attn_v.weight": Type.Q5_0,
    "output.weight": Type.F16,
    "ffn_up.weight": Type.BF16,
    "ffn_down.weight": Type.Q4_1,
}
LINEAR = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32}
TUNED = YARN | {
    "rope.scaling.yarn_beta_fast": 2.0,
    "rope.scaling.yarn_beta_slow": 0.5,
    "rope.scaling.yarn_ext_factor": 1.0,
}


def in_layers(widths: dict[str, int]) -> dict[str, Any]:
    """Tensors of these widths in both layers."""
    random = np.random.default_rng(5)
    return {f"blk.{layer}.{name}": random.normal(size=width) for layer in (0, 1) for name, width in widths.items()}


ATTENTION_BIASES = in_layers({"attn_q.bias": 64, "attn_k.bias": 32, "attn_v.bias": 32, "attn_output.bias": 64})
FEED_FORWARD_BIASES = in_layers({"ffn_gate.bias": 96, "ffn_up.bias": 96, "ffn_down.bias": 64})
CASES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama, linear": {"settings": LINEAR},
    "llama, as Llama 3": {"tensors": {"rope_freqs.weight": factors(5e5)}, "base": 5e5},
    "llama, a factor alone": {"settings": {"rope.scaling.factor": 4.0}},
    "llama, linear without a factor": {"settings": {"rope.scaling.type": "linear"}},
    "llama, yarn": {"settings": TUNED},
    "llama, biases": {"tensors": ATTENTION_BIASES, "settings": {"expert_count": 0, "attention.causal": True}},
    "llama, more biases": {"tensors": ATTENTION_BIASES | FEED_FORWARD_BIASES},
    "qwen3, biases": {"tensors": ATTENTION_BIASES},
    "qwen2": {},
    "qwen2, yarn": {"settings": YARN},
    "qwen3, yarn": {"settings": {name: value for name, value in YARN.items() if "original" not in name}},
    "qwen3": {},
}
# By what positions are divided, and the size of queries and keys.
SCALED: dict[str, tuple[Any, float]] = {
    "llama, linear": (4.0, 1.0),
    "llama, a factor alone": (4.0, 1.0),
    "llama, yarn": yarn(500.0, 4.0, 32, 2.0, 0.5),
    "qwen2, yarn": yarn(500.0, 4.0, 32),
    "qwen3, yarn": yarn(500.0, 4.0, 128),  # the length of the context
}


def test_converted_models_compute_what_the_files_say(
    tmp_path: Path, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rotations of neighbours and halves, biases, normed queries and keys, tied embeddings, scaled positions, quantised and other types."""
    monkeypatch.setenv("HEADSCOPE_HOME", str(tmp_path / "home"))
    for case, options in CASES.items():
        with subtests.test(case):
            path = write(tmp_path / f"{case}.gguf", case.split(",")[0], types=QUANTISED, **options)
            model = headscope.load(str(path))
            ids = [token.id for token in model.encode(TEXT).tokens]
            with torch.inference_mode():
                found = model.module.double()(torch.tensor([ids])).logits[0].numpy()
            # transformers normalises and rotates in float32 whatever the type of the weights.
            np.testing.assert_allclose(found, reference(path, ids, *SCALED.get(case, (1.0,))), rtol=0, atol=5e-5)


def test_weights_are_those_that_the_format_defines(tmp_path: Path) -> None:
    """Blocks of Q4_1 and Q8_0, decoded number by number; other tensors keep their bytes."""
    path = write(tmp_path / "m.gguf", types=QUANTISED)
    convert.convert(path, tmp_path / "m")
    weights = {name: tensor.numpy() for name, tensor in headscope.load(tmp_path / "m").module.state_dict().items()}
    found, data = header.read(path), path.read_bytes()
    assert found.quantisation == "Q8_0, Q4_1, Q5_0"
    assert header.read(path).tensors == header.read_whole(path).tensors
    for name, ours in (("token_embd.weight", "embed_tokens"), ("blk.1.ffn_down.weight", "layers.1.mlp.down_proj")):
        tensor = found.tensors[name]
        expected = []
        for at in range(tensor.start, tensor.start + tensor.size, tensor.type.size):
            block = data[at : at + tensor.type.size]
            if tensor.type.name == "Q8_0":
                scale, *codes = struct.unpack("<e32b", block)
                expected += [np.float32(scale) * np.float32(code) for code in codes]
            else:
                scale, least, *pairs = struct.unpack("<ee16B", block)
                codes = [pair & 15 for pair in pairs] + [pair >> 4 for pair in pairs]
                expected += [np.float32(scale) * np.float32(code) + np.float32(least) for code in codes]
        np.testing.assert_array_equal(weights[f"model.{ours}.weight"].ravel(), np.array(expected, np.float32))
    exact = np.frombuffer(data, "<f2", 4, found.tensors["output.weight"].start)
    np.testing.assert_array_equal(weights["lm_head.weight"].ravel()[:4], exact.astype(np.float32))


def test_types_are_those_of_the_gguf_package() -> None:
    for number, known in header.TYPES.items():
        theirs = gguf.GGMLQuantizationType(number)
        assert (known.name, (known.block, known.size)) == (theirs.name, gguf.GGML_QUANT_SIZES[theirs])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a small file."""
    return write(tmp_path_factory.mktemp("gguf") / "plain.gguf", types=QUANTISED).read_bytes()


def check(folder: Path, data: bytes) -> None:
    """Do everything with these bytes that is done before weights are read."""
    path = folder / "hostile.gguf"
    path.write_bytes(data)
    architecture.to_config(path, header.read(path))
    tokenizer.to_files(header.read_whole(path))


HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "another format": lambda data: b"PK\3\4" + data[4:],
    "empty": lambda data: b"",
    "only a magic number": lambda data: data[:4],
    "cut in the header": lambda data: data[:3000],
    "cut in the weights": lambda data: data[:-40],
    "as many tensors as atoms": lambda data: data[:8] + struct.pack("<Q", 2**63) + data[16:],
    "as many settings as atoms": lambda data: data[:16] + struct.pack("<Q", 2**63) + data[24:],
    "a name longer than the file": lambda data: data[:24] + struct.pack("<Q", 2**62) + data[32:],
    "one tensor less": lambda data: data[:8] + struct.pack("<Q", 3) + data[16:],
    "tensors on top of each other": lambda data: moved(data, "blk.1.ffn_up.weight", 0),
    "a tensor behind the end": lambda data: moved(data, "blk.1.ffn_up.weight", 2**40),
    "two tensors of one name": lambda data: data.replace(b"blk.1.ffn_norm", b"blk.0.ffn_norm"),
    "an array of arrays": lambda data: data.replace(
        b"tokenizer.ggml.tokens\x09\0\0\0\x08", b"tokenizer.ggml.tokens\x09\0\0\0\x09"
    ),
    "more tokens than the file has bytes": lambda data: data.replace(
        b"tokenizer.ggml.merges\x09\0\0\0\x08\0\0\0", b"tokenizer.ggml.merges\x09\0\0\0\x08\0\0\xff"
    ),
}


def moved(data: bytes, name: str, start: int) -> bytes:
    """Change where a matrix begins."""
    at = data.index(name.encode()) + len(name) + 4 + 16 + 4
    return data[:at] + struct.pack("<Q", start) + data[at + 8 :]


def test_hostile_files_are_rejected(plain: bytes, tmp_path: Path, subtests: pytest.Subtests) -> None:
    check(tmp_path, plain)
    for case, change in HOSTILE.items():
        with subtests.test(case):
            data = change(plain)
            assert data != plain
            with pytest.raises(CorruptModel) as caught:
                check(tmp_path, data)
            assert len(caught.value.detail) < 150


@given(at=st.integers(0, 12_000), byte=st.integers(0, 255))
def test_any_changed_byte_is_harmless(
    plain: bytes, tmp_path_factory: pytest.TempPathFactory, at: int, byte: int
) -> None:
    """A file with one other byte is read, or rejected with our own error."""
    data = bytearray(plain)
    data[at] = byte
    with suppress(HeadscopeError):
        check(tmp_path_factory.getbasetemp(), bytes(data))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an architecture": ({"architecture": "gemma"}, "architectures llama, qwen2, qwen3"),
    "words": ({"pre": "deepseek-llm"}, "splits texts into words"),
    "SentencePiece": ({"model": "llama"}, "byte-level BPE"),
    "experts": ({"settings": {"expert_count": 8}}, "experts"),
    "a sliding window": ({"settings": {"attention.sliding_window": 64}}, "sliding window"),
    "heads by layer": ({"settings": {"attention.key_length": [16, 16]}}, "layers that differ"),
    "narrower values": ({"settings": {"attention.key_length": 16, "attention.value_length": 8}}, "narrower"),
    "partial rotation": ({"settings": {"rope.dimension_count": 8}}, "narrower"),
    "longrope": ({"settings": {"rope.scaling.type": "longrope", "rope.scaling.factor": 4.0}}, "linear, yarn"),
    "an attention factor": ({"settings": YARN | {"rope.scaling.attn_factor": 1.5}}, "factor of its own"),
    "two scalings": ({"settings": LINEAR, "tensors": {"rope_freqs.weight": factors(500.0)}}, "linear, yarn"),
    "factors": ({"tensors": {"rope_freqs.weight": np.arange(1.0, 9.0)}}, "factors other than"),
    "a tensor": ({"tensors": {"blk.0.attn_sinks.weight": np.ones(4)}}, "tensors that its architecture"),
    "a tensor of no layer": ({"tensors": {"blk.5.attn_q.weight": np.ones((64, 64))}}, "tensors that its architecture"),
    "norms of queries": ({"tensors": in_layers({"attn_q_norm.weight": 16})}, "tensors that its architecture"),
    "a bias of one projection": ({"tensors": in_layers({"attn_output.bias": 64})}, "biases in projections"),
    "biases that the class lacks": (
        {"architecture": "qwen2", "tensors": in_layers({"ffn_gate.bias": 96, "ffn_up.bias": 96, "ffn_down.bias": 64})},
        "biases in projections",
    ),
    "a bias of a norm": ({"tensors": in_layers({"attn_norm.bias": 64})}, "biases in projections"),
    "biases of one layer": (
        {"tensors": ATTENTION_BIASES | {"blk.1.ffn_up.bias": np.ones(96)}},
        "biases in projections",
    ),
    "no causal mask": ({"settings": {"attention.causal": False}}, "settings that Headscope does not know"),
    "a part": ({"values": {"split.count": 2}}, "Join its parts"),
    "a type": (
        {"types": {"blk.0.ffn_norm.weight": Type.TQ1_0}, "tensors": {"blk.0.ffn_norm.weight": np.ones(256)}},
        "of a type that",
    ),
}


def test_what_cannot_be_read_right_is_refused_with_the_reason(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for case, (options, reason) in REFUSED.items():
        with subtests.test(case):
            path = write(tmp_path / "m.gguf", **options)
            with pytest.raises(Unsupported, match=reason):
                check(tmp_path, path.read_bytes())


def pieces(pre: str, text: str) -> list[str]:
    """What a tokenizer with a way to split texts merges, before it merges."""
    vocabulary = {
        char: number for number, char in enumerate(sorted(tokenizer.tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    }
    found = tokenizer._bpe(vocabulary, [], tokenizer.SPLITS[pre])
    return [text[slice(*span)] for _, span in found.pre_tokenizer.pre_tokenize_str(text)]


def test_texts_are_split_as_in_training() -> None:
    """Digits one by one, in threes, or in one run; the words around them stay whole."""
    assert pieces("smollm", "in 12345 cats' x") == ["in", " ", "1", "2", "3", "4", "5", " cats", "'", " x"]
    assert pieces("gpt-2", "in 12345 cats' x") == ["in", " 12345", " cats", "'", " x"]
    assert pieces("llama-bpe", "in 12345 cats' x") == ["in", " ", "123", "45", " cats", "'", " x"]
    assert pieces("qwen2", "in 12345 cats' x") == ["in", " ", "1", "2", "3", "4", "5", " cats", "'", " x"]


def test_special_tokens_frame_a_text_where_the_file_says_so(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    for pre, first in (("gpt-2", "The"), ("llama-bpe", "<|im_start|>")):
        path = write(tmp_path / f"{pre}.gguf", pre=pre)
        model = loading.load(Catalog(settings).locate_path(path))
        tokens = model.encode("The <|im_end|>").tokens
        assert tokens[0].text == first
        assert [token.kind == "special" for token in tokens] == [first != "The", *[False] * (len(tokens) - 1)]


def test_files_in_a_model_folder_are_offered(tmp_path: Path) -> None:
    """A file is listed with its facts and licence, converted once, and keyed by its content; a link that leaves the folder is unknown."""
    models = tmp_path / "models"
    models.mkdir()
    path = write(models / "tiny-Q4_1.gguf", types=QUANTISED)
    (models / "away.gguf").symlink_to(write(tmp_path / "away.gguf"))
    write(models / "odd.gguf", architecture="gemma")
    catalog = Catalog(Settings(home=tmp_path / "home", model_dirs=(models,), hub="off"))
    card = catalog.describe("tiny-Q4_1")
    expected = {"local": True, "available": True, "layers": LAYERS, "heads": HEADS, "license": "mit", "kind": "decoder"}
    assert expected.items() <= card.items()
    assert (card["quantisation"], card["bytes"]) == ("Q8_0, Q4_1, Q5_0", path.stat().st_size)
    assert "architectures" in catalog.describe("odd")["reason"]
    assert "away" not in catalog.names()
    with pytest.raises(Unknown):
        catalog.locate("away")
    located = catalog.locate("tiny-Q4_1")
    model = loading.load(located)
    a = headscope.analyze(model, TEXT, lenses=["weights", "alti"], measures=["qk_distance"])
    assert a.warnings[0].code == "dequantised"
    assert model.digest == located.digest()
    (folder,) = (tmp_path / "home" / "gguf").iterdir()
    before = (folder / "model.safetensors").stat().st_ino
    path.rename(models / "renamed.gguf")
    loading.load(catalog.locate("renamed"))
    assert [(found / "model.safetensors").stat().st_ino for found in (tmp_path / "home" / "gguf").iterdir()] == [before]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.gguf")
    monkeypatch.setattr("shutil.disk_usage", lambda place: type("Usage", (), {"free": 1024}))
    with pytest.raises(StorageFull, match="MiB"):
        convert.convert(path, tmp_path / "home" / "m")
    assert list((tmp_path / "home").iterdir()) == []
