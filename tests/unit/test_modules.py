"""What a model may be: compiled, never loaded, without a tokenizer or a processor. It is analysed, or refused with the reason, and never guessed at."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import ByT5Tokenizer, ViTConfig, ViTForImageClassification, ViTImageProcessor, ViTModel

import headscope
from headscope.errors import ModelNotExact, UnsafeModel, Unsupported
from headscope.models import support
from tests.support.models import tiny_model, wordpiece

from .conftest import TINY, eager

IDS = [5, 17, 5, 42, 9, 23, 77, 12]


def made(family: str = "llama") -> Any:
    torch.manual_seed(0)
    return TINY[family]().eval()


# -- tokenizers, processors -----------------------------------------------------------------------------------------------------------


def test_a_folder_without_tokenizer_files_has_no_tokenizer(tmp_path: Path) -> None:
    """As docs/how-to/models.md saves it: tokens are ids, texts are refused with what to do, and so are measures of kinds of tokens."""
    made("bert").save_pretrained(tmp_path)
    model = headscope.load(tmp_path)
    a = headscope.analyze(model, token_ids=[1, 17, 5, 2], measures=("entropy", "patterns"))
    assert [(token.text, token.kind) for token in a.tokens] == [(id_, "word") for id_ in ("1", "17", "5", "2")]
    (warned,) = [warning.message for warning in a.warnings if warning.code == "unknown-kinds"]
    assert warned.endswith("Every token counts as an ordinary word in patterns.")
    with pytest.raises(Unsupported, match="no complete tokenizer, so it takes no text"):
        headscope.analyze(model, "a text")
    for name in ("special_tokens", "token_types", "special_broadcast", "token_norms", "connections"):
        with pytest.raises(Unsupported, match="The model has no tokenizer, so it is unknown which tokens"):
            headscope.analyze(model, token_ids=IDS, measures=(name,))


@pytest.mark.parametrize("missing", ["merges.txt", "vocab.json", "tokenizer_config.json"])
def test_a_tokenizer_with_a_file_missing(tmp_path: Path, missing: str) -> None:
    """Merges without a vocabulary, or a vocabulary without merges, is no tokenizer; the configuration alone may be missing."""
    folder = tiny_model(tmp_path / "gpt2", "gpt2")
    whole = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(whole["vocab"]))
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in whole["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "tokenizer_class": "GPT2Tokenizer"}))
    (folder / missing).unlink()
    if missing == "tokenizer_config.json":
        assert len(headscope.load(folder).encode("The cat sat").tokens) > 1
    else:
        with pytest.raises(Unsupported, match=r"no complete tokenizer|cannot be converted to one"):
            headscope.load(folder).encode("The cat sat")


def test_a_slow_tokenizer_without_files_is_called_slow(tmp_path: Path) -> None:
    """ByT5's needs no vocabulary, so nothing of it is missing."""
    tiny_model(tmp_path, "t5")
    for path in tmp_path.glob("token*"):
        path.unlink()
    ByT5Tokenizer().save_pretrained(tmp_path)
    with pytest.raises(Unsupported, match="gives no exact character offsets"):
        headscope.load(tmp_path).encode("The cat sat")


def test_an_image_without_a_processor_is_prepared_with_a_warning() -> None:
    """Sizes and values that Headscope chose itself are reported; with a processor nothing is."""
    config = ViTConfig(
        image_size=16, patch_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    picture = np.zeros((16, 16, 3), np.uint8)
    for processor, codes in ((None, ["no-image-processor"]), (ViTImageProcessor(size={"height": 16, "width": 16}), [])):
        a = headscope.analyze(headscope.load(ViTModel(config), processor), image=picture, lenses=("weights",))
        assert [warning.code for warning in a.warnings] == codes


@pytest.mark.parametrize("options", [{"image_mean": [0.13], "image_std": [0.31]}, {"do_convert_rgb": True}])
def test_a_model_of_grey_images(options: dict[str, Any]) -> None:
    """One channel: the pixels are those that the processor makes of the grey picture, and the maps those of eager attention on them."""
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    module = ViTForImageClassification(ViTConfig(image_size=28, patch_size=7, num_channels=1, **shape))
    model = headscope.load(module, ViTImageProcessor(size={"height": 28, "width": 28}, **options))
    picture = np.random.default_rng(0).integers(0, 256, (28, 28), np.uint8)
    a = headscope.analyze(model, image=picture, lenses=("weights",))
    mean, spread = options.get("image_mean", [0.5])[0], options.get("image_std", [0.5])[0]
    pixels = (torch.from_numpy(picture).float() / 255 - mean) / spread
    attentions = eager(model, {"pixel_values": pixels[None, None]}).attentions
    np.testing.assert_allclose(a.maps["weights"], np.stack([one[0].numpy() for one in attentions]), atol=1e-5)
    assert np.abs(a.picture.astype(int) - picture[..., None]).max() <= 1


def test_a_processor_of_colours_for_a_model_of_grey_images() -> None:
    """Means that differ between colours can't be applied to one channel."""
    config = ViTConfig(
        image_size=16, patch_size=8, num_channels=1, hidden_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    processor = ViTImageProcessor(size={"height": 16, "width": 16}, image_mean=[0.4, 0.5, 0.6])
    with pytest.raises(Unsupported, match="normalises three colours differently"):
        headscope.load(ViTModel(config), processor).encode(image=np.zeros((16, 16), np.uint8))


# -- modules ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when it compiles for the first time
@pytest.mark.parametrize("compiling", ["torch.compile", "module.compile"])
def test_a_compiled_model(compiling: str) -> None:
    """Analysed as the model inside, uncompiled; it stays compiled."""
    module, expected = made(), headscope.analyze(headscope.load(made()), token_ids=IDS).maps["weights"]
    if compiling == "torch.compile":
        given = torch.compile(module)
    else:
        module.compile()
        given = module
    call = module._compiled_call_impl
    np.testing.assert_array_equal(headscope.analyze(headscope.load(given), token_ids=IDS).maps["weights"], expected)
    assert module._compiled_call_impl is call


def compiled_in_part() -> Any:
    module = made()
    module.model.layers[0] = torch.compile(module.model.layers[0])
    return module


def on_meta() -> Any:
    with torch.device("meta"):
        return made()


def eight_bits() -> Any:
    module = made()
    module.lm_head.weight = torch.nn.Parameter(module.lm_head.weight.to(torch.int8), requires_grad=False)
    return module


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (compiled_in_part, "Parts of this model are compiled"),
        (on_meta, "weights were never loaded"),
        (eight_bits, "weights of a type that they cannot compute with"),
    ],
)
def test_modules_that_are_refused(make: Callable[[], Any], reason: str) -> None:
    """When they are loaded, in one sentence that is true."""
    with pytest.raises(Unsupported, match=reason):
        headscope.load(make())


@pytest.mark.parametrize("method", ["gptq", "mxfp4", None, ["bitsandbytes"]])
def test_a_folder_that_is_quantised_in_another_way(tmp_path: Path, method: Any) -> None:
    """Is called that, and not damaged."""
    folder = tiny_model(tmp_path / "llama", "llama")
    change(folder, quantization_config={"quant_method": method, "bits": 4})
    with pytest.raises(Unsupported, match="quantised in another way than those that Headscope loads"):
        headscope.load(folder)


def change(folder: Path, **values: Any) -> None:
    """Change entries of the folder's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    "values",
    [
        {"_attn_implementation": "sdpa"},
        {"attn_implementation": "flash_attention_2", "_attn_implementation_autoset": True},
        {"_attn_implementation": {"": "eager", "text_config": "flex_attention"}, "_experts_implementation": None},
    ],
)
def test_an_ordinary_implementation_in_the_configuration(tmp_path: Path, values: dict[str, Any]) -> None:
    """Such as training scripts leave behind: nothing to refuse, and nothing that transformers gets to see."""
    folder = tiny_model(tmp_path / "llama", "llama")
    expected = headscope.analyze(headscope.load(folder), token_ids=IDS).maps["weights"]
    change(folder, **values)
    model = headscope.load(folder)
    assert model.module.config._attn_implementation == "eager"
    np.testing.assert_array_equal(headscope.analyze(model, token_ids=IDS).maps["weights"], expected)


@pytest.mark.parametrize(
    "values",
    [
        {"_attn_implementation": "org/kernel"},
        {"_attn_implementation_internal": "sdpa"},
        {"attn_implementation": {"text_config": "org/kernel@v1:attend"}},
        {"_experts_implementation": "paged|org/kernel"},
    ],
)
def test_a_kernel_in_the_configuration(tmp_path: Path, values: dict[str, Any]) -> None:
    """Which transformers would fetch and run, is refused for that reason."""
    folder = tiny_model(tmp_path / "llama", "llama")
    change(folder, **values)
    with pytest.raises(UnsafeModel, match="names an attention or expert kernel to download and run"):
        headscope.load(folder)


# -- the table of architectures ---------------------------------------------------------------------------------------------------------


def test_the_table_holds_for_its_version_of_transformers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """With another version nothing is refused on the word of the table: models are examined when they are loaded."""
    known = headscope.load("minilm").facts
    bloom = known.__class__("bloom", "decoder", 2, 4, 8, 512, predicts="next-token")
    assert "capture" in support.find_missing(bloom, "self")
    monkeypatch.setattr(support, "version", lambda package: "99.0.0")
    support._families.cache_clear()
    try:
        assert support.find_missing(bloom, "self") == {
            need: reason for need, reason in support.CAUSAL.items() if need in support.CAPABILITIES
        }
    finally:
        monkeypatch.undo()
        support._families.cache_clear()


@pytest.mark.parametrize("known", ["bert", "not-in-the-table"])
@pytest.mark.parametrize("truthful", [True, False])
def test_loading_never_trusts_the_table(monkeypatch: pytest.MonkeyPatch, known: str, truthful: bool) -> None:
    """A model is captured if and only if it proves equal, regardless of the table."""
    monkeypatch.setattr(support, "_families", lambda: {known: {"result": "refused", "lacks": {"capture": "no"}}})
    module = made("bert")
    module.config.model_type = known
    if not truthful:
        for layer in module.bert.encoder.layer:
            attend = layer.attention.self
            attend.register_forward_pre_hook(
                lambda part, args: setattr(part, "scaling", 0.5 if part.config._attn_implementation == "eager" else 0.1)
            )
    sites = headscope.capture.examine(headscope.load(module))
    assert sites.captured == truthful


def test_prophetnet_returns_no_weights() -> None:
    """Its encoder's attentions are logits, and its cross-attentions those of all streams: each is refused for that reason, and not called missing."""
    from transformers import ProphetNetConfig, ProphetNetForConditionalGeneration

    torch.manual_seed(0)
    shape = {"vocab_size": 60, "hidden_size": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "ngram": 2}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1, "num_encoder_attention_heads": 2}
    config = ProphetNetConfig(**shape, **layers, num_decoder_attention_heads=2, max_position_embeddings=64)
    model = headscope.load(ProphetNetForConditionalGeneration(config))
    reasons: dict[Any, str] = {
        "encoder": "are not weights: entries are negative, or rows sum to more than 1",
        "cross": "does not return an attention weight for every pair of tokens",
    }
    for kind, reason in reasons.items():
        with pytest.raises(ModelNotExact, match=reason):
            headscope.analyze(model, token_ids=IDS, target_ids=[5, 6], kind=kind, lenses=("weights",))


def test_a_tokenizer_beside_a_module() -> None:
    """Given in memory it takes part, and nothing is refused."""
    a = headscope.analyze(headscope.load(made("bert"), wordpiece()), token_ids=IDS, measures=("special_tokens",))
    assert not [warning for warning in a.warnings if warning.code == "unknown-kinds"]
