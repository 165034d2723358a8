"""Facts from configurations, for every family in transformers."""

from __future__ import annotations

from typing import Any

import pytest
import transformers

from headscope.errors import HeadscopeError, UnsafeModel, Unsupported
from headscope.models import facts, families
from headscope.models.facts import Tower
from tests.support.variants import variants

from ..support.families import defaults, parts, table

BASE = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 128}


def read(family: str, **more: Any) -> facts.Facts:
    return facts.read({"model_type": family, **BASE, **more})


def test_the_table_of_families_is_that_of_transformers() -> None:
    """As far as the transformers installed knows them (else: python -m tests.support.families)."""
    made = table()
    known = set().union(*made.values())
    for name, members in made.items():
        assert members == getattr(families, name) & known, name


def test_the_table_of_defaults_is_that_of_transformers() -> None:
    """As far as the transformers installed knows them (else: python -m tests.support.families)."""
    every, kept = parts(), facts._defaults()
    some = every[::25]  # the class of each is in a module of its own
    assert {name: kept[name] for name in some if name in kept} == defaults(some)
    assert len(every) >= len(kept) > 0.9 * len(every)


@variants(
    ("config", "kind"),
    [
        ({"model_type": "bert"}, "encoder"),
        ({"model_type": "bert", "architectures": ["BertLMHeadModel"]}, "encoder"),
        ({"model_type": "bert", "architectures": ["BertLMHeadModel"], "is_decoder": True}, "decoder"),
        ({"model_type": "gpt2"}, "decoder"),
        ({"model_type": "olmo2"}, "decoder"),
        ({"model_type": "xlnet", "architectures": ["XLNetLMHeadModel"]}, "encoder"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "encoder"),
        ({"model_type": "llama", "is_causal": False}, "encoder"),
        ({"model_type": "newfamily", "architectures": ["NewForCausalLM"]}, "decoder"),
        ({"model_type": "newfamily", "architectures": ["NewModel"]}, "encoder"),
        ({"model_type": "newfamily", "is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "t5"}, "encoder-decoder"),
        ({"model_type": "t5", "architectures": ["T5EncoderModel"]}, "encoder"),
        ({"model_type": "bart", "is_encoder_decoder": False, "is_decoder": True}, "decoder"),
        ({"model_type": "clip_text_model"}, "decoder"),
        ({"model_type": "vit", "image_size": 32, "patch_size": 8}, "vision"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(str(v) for v in value.values()),
)
def test_kinds(config: dict[str, Any], kind: str) -> None:
    """From the family, and from what the configuration says against it."""
    assert facts.read({**BASE, **config}).kind == kind


def test_towers_of_an_encoder_decoder() -> None:
    """Names of the stacks win over names of both; the cross-attention is the decoder's."""
    bart = facts.read(transformers.BartConfig(encoder_layers=2, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=8, d_model=64).to_dict())  # fmt: skip
    assert bart.tower("self") == bart.tower("encoder") == Tower(2, 4, 16, 1024)
    assert bart.tower("decoder") == bart.tower("cross") == Tower(3, 8, 8, 1024)
    assert (bart.layers, bart.heads, bart.head_width) == (2, 4, 16)
    t5 = facts.read(
        transformers.T5Config(d_model=64, d_kv=5, num_layers=2, num_decoder_layers=4, num_heads=3).to_dict()
    )
    assert t5.towers["encoder"] == Tower(2, 3, 5, None)
    assert t5.towers["decoder"].layers == 4
    whisper = facts.read(transformers.WhisperConfig().to_dict())
    assert (whisper.tower("encoder").max_tokens, whisper.tower("decoder").max_tokens) == (1500, 448)
    with pytest.raises(Unsupported):
        read("gpt2").tower("cross")


def test_widths_are_those_of_the_values() -> None:
    """They need not be those of queries and keys, nor the model's width over its heads."""
    assert read("llama").head_width == 16
    assert read("llama", head_dim=24).head_width == 24
    assert read("deepseek_v3", qk_nope_head_dim=32, v_head_dim=20).head_width == 20


def test_positions_after_the_padding() -> None:
    """RoBERTa's first usable position is the one after its padding id."""
    assert read("roberta").max_tokens == 126
    assert read("roberta", pad_token_id=0).max_tokens == 127
    assert read("bert").max_tokens == 128


def test_nested_configurations() -> None:
    """Of a model that pairs images with texts the image tower, of one that reads both the text tower."""
    clip = facts.read(transformers.CLIPConfig().to_dict())
    assert (clip.kind, clip.family, clip.max_tokens) == ("vision", "clip_vision_model", 50)
    llava = facts.read({"model_type": "llava", "text_config": {"model_type": "llama", **BASE}, "vision_config": {}})
    assert (llava.kind, llava.layers) == ("decoder", 3)
    unnamed = facts.read({"model_type": "llava", "text_config": {**BASE}, "vision_config": {}})
    assert unnamed.kind == "decoder"


LLAMA = {"model_type": "llama", "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "vocab_size": 32064}
GEMMA = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34}


@variants(
    ("config", "tower"),
    [
        ({"model_type": "siglip", "text_config": {}, "vision_config": {}}, Tower(12, 12, 64, 196)),
        ({"model_type": "gemma3", "text_config": GEMMA, "vision_config": {}}, Tower(34, 8, 256, 131072)),
        ({"model_type": "llava", "text_config": LLAMA, "vision_config": {}}, Tower(32, 32, 128, 4096)),
        ({"model_type": "llava", "text_config": {**LLAMA, "hidden_size": 2048}}, Tower(32, 32, 64, 4096)),
        ({"model_type": "llava", "text_config": {"model_type": "falcon", "n_layer": 2}}, Tower(2, 71, 64, 2048)),
    ],
)
def test_parts_that_omit_what_is_as_in_their_class(config: dict[str, Any], tower: Tower) -> None:
    """As older versions of transformers wrote them: the files of SigLIP, Gemma 3 and LLaVA on the hub are such. A number has one value under all its names."""
    assert facts.read(config).tower("self") == tower


def test_a_part_of_an_unknown_type_omits_nothing() -> None:
    """Its numbers cannot be guessed."""
    with pytest.raises(UnsafeModel):
        facts.read({"model_type": "llava", "text_config": {"model_type": "newfamily"}})


def test_patches() -> None:
    """Tokens are the patches and the prefix; images may be rectangular, given as height and width."""
    vit = read("vit", image_size=[32, 64], patch_size=[8, 16]).patches
    assert vit is not None
    assert (vit.size, vit.patch, vit.grid, vit.tokens) == ((64, 32), (16, 8), (4, 4), 17)
    registers = read("dinov2_with_registers", image_size=28, patch_size=14, num_register_tokens=4)
    assert registers.max_tokens == 9


@variants(
    ("processor", "count"),
    [
        ({"do_center_crop": True, "crop_size": {"height": 224, "width": 224}, "size": {"shortest_edge": 256}}, 257),
        ({"size": {"height": 28, "width": 56}, "crop_size": {"height": 224, "width": 224}}, 9),
        ({"size": {"shortest_edge": 256}}, 1370),
        ({"size": 224}, 1370),
        ({"size": {"height": -1, "width": "a"}}, 1370),
        ({"size": {"height": 1, "width": 1}}, 1370),
        ({}, 1370),
    ],
)
def test_tokens_of_images_as_the_processor_makes_them(processor: dict[str, Any], count: int) -> None:
    """DINOv2 was built for 518 pixels, and its processor makes 224, which is a 28th of the memory for a map."""
    found = facts.with_processor(read("dinov2", image_size=518, patch_size=14), processor)
    assert found.max_tokens == found.tower("self").max_tokens == count
    assert found.patches is not None
    assert found.patches.tokens == count


@pytest.mark.parametrize("family", ["swin", "convnext", "wav2vec2", "detr", "chinese_clip", "vision-encoder-decoder"])
def test_what_is_neither_text_nor_patches_is_refused(family: str) -> None:
    """With the reason, before anything is loaded."""
    nested = {"text_config": BASE, "vision_config": BASE} if family == "chinese_clip" else {}
    paired = {"is_encoder_decoder": True} if "encoder-decoder" in family else {}
    with pytest.raises(Unsupported):
        facts.read({"model_type": family, **nested, **paired})


@pytest.mark.parametrize(
    "wrong", [{"image_size": 0}, {"image_size": 32}, {"image_size": 4, "patch_size": 8}, {"image_size": [32, "a"], "patch_size": 8}, {"image_size": 10**9, "patch_size": 1}]
)  # fmt: skip
def test_absurd_patches(wrong: dict[str, Any]) -> None:
    """A hostile configuration can't ask for billions of patches."""
    with pytest.raises(UnsafeModel):
        read("vit", **wrong)


@pytest.mark.filterwarnings("ignore")
def test_every_family_gives_numbers_or_a_reason() -> None:
    """No configuration that transformers itself makes ends in anything but facts or one of our errors."""
    text = families.DECODERS | families.ENCODERS | families.ENCODER_DECODERS
    checked = 0
    for family in sorted(text & set(transformers.CONFIG_MAPPING.keys()))[::3]:
        try:
            config = transformers.CONFIG_MAPPING[family]().to_dict()
        except Exception:  # noqa: BLE001 - some have no defaults
            continue
        try:
            found = facts.read(config)
        except HeadscopeError:
            continue
        checked += 1
        assert found.towers
    assert checked > 40
