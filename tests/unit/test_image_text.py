"""Images and texts through vision-language models: which token is which patch, and what is refused. All families are compared in tests/sweep."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import CONFIG_MAPPING

import headscope
from headscope import Model
from headscope.analysis.request import AnalysisRequest
from headscope.capture import examine
from headscope.core.tokens import Token
from headscope.errors import HeadscopeError, InvalidImage, InvalidRequest, Unsupported
from headscope.models import image_layout, processors
from headscope.models.conversation import Message
from headscope.models.generation import Generate
from headscope.models.image_text import NOT_LOCATED
from tests.support.variants import variants
from tests.sweep.build import build as build_text
from tests.sweep.pictured import build, tokenizer
from tests.sweep.pictured import processor as processor_of
from tests.sweep.pictured_types import PATCHES

TEXT = "Is it a cat?"


@cache
def parts(family: str) -> tuple[Any, Any]:
    """A tiny model of the family, and its processor."""
    built, processor = build(family)
    return built.module, processor


def loaded(family: str) -> Model:
    return headscope.load(*parts(family))


def picture(width: int, height: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def own(model: Model, encoded: Any) -> list[Any]:
    """The model's own eager attention [H, Q, K], layer by layer."""
    model.module.set_attn_implementation("eager")
    with torch.no_grad():
        output = model.module(**model.inputs(encoded), output_attentions=True, use_cache=False)
    return [layer[0].numpy() for layer in output.attentions]


def test_an_unknown_character_is_a_word() -> None:
    """As in a text without an image, although the tokenizer counts the unknown token among its special ones."""
    model = loaded("llava")
    found = model.encode("a ☃", image=picture(64, 64)).tokens[-1]
    assert (found.text, found.kind) == (model.unknown, "word")
    assert found.kind == model.encode("a ☃").tokens[-1].kind


@pytest.mark.parametrize("family", ["llava", "qwen2_vl", "llava_next", "idefics3", "ovis2"])
def test_every_patch_is_one_token(family: str) -> None:
    """The boxes of the image, and of its overview, meet without gaps; other tokens have their place in the text."""
    encoded = loaded(family).encode(TEXT, image=picture(64, 64))
    assert encoded.grid
    assert encoded.picture is not None
    assert encoded.text is not None
    covered = np.zeros(encoded.picture.shape[:2], int)
    for token in encoded.tokens:
        assert (token.kind == "image") == (token.box is not None)
        if token.box:
            left, top, right, bottom = token.box
            covered[top:bottom, left:right] += 1
            assert (token.word, token.start, token.end) == (None, 0, 0)
        elif token.kind != "special":
            assert encoded.text[token.start : token.end] == token.text
    assert covered.max() == 1
    main = {token.text for token in encoded.tokens if token.box and ":" not in token.text}
    assert main == {f"{row},{column}" for row in range(encoded.grid.rows) for column in range(encoded.grid.columns)}
    assert (covered == 0).all(0).sum() == (8 if family in ("llava_next", "idefics3", "ovis2") else 0), (
        "between two views"
    )
    assert encoded.text.endswith(TEXT)


def test_the_picture_is_what_the_model_sees() -> None:
    """Pixels of an image that is not scaled, put together from its tiles."""
    image = picture(64, 64)
    seen = loaded("internvl").encode(TEXT, image=image).picture
    np.testing.assert_array_equal(seen[:64, :64], image)


def test_an_image_stands_where_the_text_has_its_token() -> None:
    encoded = loaded("llava").encode("Is <image> a cat?", image=picture(32, 32))
    kinds = [token.kind == "image" for token in encoded.tokens]
    assert encoded.text == "Is  a cat?"
    assert kinds.index(True) == 3
    with pytest.raises(InvalidRequest, match="once"):
        loaded("llava").encode("<image> or <image>?", image=picture(32, 32))


def test_generated_words_look_at_the_image() -> None:
    """Maps over image, text and continuation equal eager ones on all of them, and patches keep their boxes."""
    model = loaded("qwen2_vl")
    before = model.encode(TEXT, image=picture(48, 32))
    options: dict[str, Any] = {"image": picture(48, 32), "generate": Generate(max_new_tokens=3)}
    encoded = model.encode(TEXT, **options)
    assert encoded.generated == len(encoded.tokens) - len(before.tokens) == 3
    assert [token.box for token in encoded.tokens[:-3]] == [token.box for token in before.tokens]
    a = headscope.analyze(model, TEXT, lenses=("weights",), image=options["image"], generate={"max_new_tokens": 3})
    np.testing.assert_allclose(a.maps["weights"], own(model, encoded), atol=1e-5, rtol=0)
    assert a.measures["entropy"]["weights"].shape[-1] == len(encoded.tokens)


def test_texts_and_images_leave_nothing_behind() -> None:
    """A text has the same maps before and after an image: models keep offsets of positions between calls."""
    model = loaded("qwen2_vl")
    first, _, second = (
        headscope.analyze(model, "abcd", lenses=("weights",), image=image).maps["weights"]
        for image in (None, picture(48, 32), None)
    )
    np.testing.assert_array_equal(first, second)


def test_a_folder_is_loaded_with_its_processor(tmp_path: Path) -> None:
    module, processor = parts("qwen2_vl")
    module.save_pretrained(tmp_path)
    processor.tokenizer.save_pretrained(tmp_path)
    processor.image_processor.save_pretrained(tmp_path)
    maps = [
        headscope.analyze(model, TEXT, image=picture(50, 70), lenses=("weights",)).maps["weights"]
        for model in (headscope.load(tmp_path, device="cpu"), loaded("qwen2_vl"))
    ]
    np.testing.assert_array_equal(*maps)


TEMPLATE = (
    "{% for message in messages %}<s>{{ message.role }}: {% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<vision_start><image><vision_end>{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant: {% endif %}"
)
TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXT}]


@pytest.mark.parametrize("of", ["processor", "tokenizer"])
def test_a_conversation_with_an_image(of: str) -> None:
    """The image comes before the user's first message; tokens of messages have their roles, those of the image and the template none."""
    module, processor = parts("qwen2_vl")
    talking = copy.copy(processor)
    if of == "processor":
        talking.chat_template = TEMPLATE
    else:
        talking.tokenizer = copy.deepcopy(processor.tokenizer)
        talking.tokenizer.chat_template = TEMPLATE
    model = headscope.load(module, talking)
    found = headscope.analyze(model, messages=TALK, image=picture(48, 32), lenses=("weights",))
    said = {role: "".join(token.text for token in found.tokens if token.role == role) for role in ("system", "user")}
    assert said == {"system": "Be brief.", "user": TEXT}
    patches = [place for place, token in enumerate(found.tokens) if token.kind == "image"]
    assert [found.tokens[place].role for place in patches] == [None] * len(patches)
    first = next(place for place, token in enumerate(found.tokens) if token.role == "user")
    assert patches[-1] + 2 == first
    prompt = f"<s>system: Be brief.</s><s>user: <vision_start><image><vision_end>{TEXT}</s><s>assistant: "
    given = processor(
        text=[prompt], images=[Image.fromarray(picture(48, 32))], return_tensors="pt", add_special_tokens=False
    )
    assert [token.id for token in found.tokens] == given["input_ids"][0].tolist()
    for ours, theirs in zip(
        found.maps["weights"], own(model, model.encode(messages=_messages(), image=picture(48, 32))), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    answered = headscope.analyze(
        model, messages=TALK, image=picture(48, 32), generate={"max_new_tokens": 2}, lenses=("weights",), maps=False
    )
    assert {token.role for token in answered.tokens[-2:] if token.kind != "special"} == {"assistant"}


def test_conversations_with_an_image_that_are_refused() -> None:
    module, processor = parts("qwen2_vl")
    for template, messages, reason in (
        (None, TALK, "no chat template"),
        (TEMPLATE, TALK[:1], "no place for one image"),
        (TEMPLATE.replace("<image>", ""), TALK, "no place for one image"),
        (TEMPLATE, [{"role": "user", "content": "a <image> b"}], "name of a special token"),
    ):
        talking = copy.copy(processor)
        talking.chat_template = template
        with pytest.raises(Unsupported, match=reason):
            headscope.analyze(headscope.load(module, talking), messages=messages, image=picture(48, 32))


def _messages() -> list[Message]:
    return [Message(**each) for each in TALK]


def test_a_processor_that_needs_its_part_for_videos_says_so(tmp_path: Path) -> None:
    """MiniCPM-V reads texts all the same; the part needs torchvision, which is not installed."""
    own, settings = tokenizer(), {"image_processor_type": "MiniCPMV4_6ImageProcessor"}
    build_text("minicpmv4_6").module.save_pretrained(tmp_path)
    own.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    model = headscope.load(tmp_path, device="cpu")
    assert len(model.encode(TEXT).tokens) == len(TEXT)
    with pytest.raises(Unsupported, match="part for videos, which needs torchvision"):
        model.encode(TEXT, image=picture(32, 32))


def test_tokens_in_another_order_are_not_drawn_over_the_image() -> None:
    """As when a model turns its patches around: there are as many as in the grid."""
    built, processor = build("llava")
    projector = built.module.model.multi_modal_projector
    plain = projector.forward
    projector.forward = lambda features: plain(features).flip(1)
    model = headscope.load(built.module, processor)
    found = headscope.analyze(model, TEXT, image=picture(32, 32))
    assert not examine(model, pictured=True).located
    _assert_numbered(found.tokens, 16)
    assert found.grid is None
    assert found.picture is not None
    assert found.warnings[0].code == "image-not-located"


def test_a_number_of_tokens_that_is_no_grid_is_not_drawn_over_the_image() -> None:
    """As when a processor counts the class token as well."""
    built, processor = build("llava")
    processor.vision_feature_select_strategy = "full"
    found = headscope.load(built.module, processor).encode(TEXT, image=picture(32, 32))
    _assert_numbered(found.tokens, 17)
    assert found.warnings == (NOT_LOCATED,)


def _assert_numbered(listed: Sequence[Token], count: int) -> None:
    image = [token for token in listed if token.kind == "image"]
    assert [token.text for token in image] == [str(number) for number in range(1, count + 1)]
    assert all(token.box is None for token in image)


CLIP = {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}}
STRATEGY = {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
# Settings of published checkpoints: of the image processor, the processor and the image tower; and rows and columns for an image of 333 x 777 pixels.
PUBLISHED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], list[tuple[int, int]]]] = {
    "llava": (CLIP, STRATEGY, {}, [(24, 24)]),
    "llava_next": (CLIP, STRATEGY, {}, [(56, 24), (24, 24)]),
    "llava_onevision": (
        {},
        {"num_image_tokens": 729, "vision_feature_select_strategy": "full"},
        {},
        [(63, 27), (27, 27)],
    ),
    "qwen2_vl": ({}, {}, {}, [(28, 12)]),
    "internvl": (
        {"size": {"height": 448, "width": 448}, "crop_to_patches": True, "min_patches": 1, "max_patches": 12},
        {},
        {},
        [(80, 32), (16, 16)],
    ),
    "idefics3": (
        {"size": {"longest_edge": 1456}, "max_image_size": {"longest_edge": 364}},
        {"image_seq_len": 169},
        {"patch_size": 14, "image_size": 364},
        [(52, 26), (13, 13)],
    ),
    "gemma3": (
        {"size": {"height": 896, "width": 896}},
        {},
        {"patch_size": 14, "image_size": 896},
        [(16, 16)],
    ),
}


@variants("family", PUBLISHED)
def test_sizes_of_published_models(family: str) -> None:
    """There are as many image tokens as rows and columns say, where sizes do not divide each other."""
    images, joined, vision, expected = PUBLISHED[family]
    own = tokenizer()
    processor = processor_of(family, own, images, joined)
    config = CONFIG_MAPPING[family](vision_config=vision) if vision else CONFIG_MAPPING[family]()
    image = Image.fromarray(picture(333, 777))
    call = processors.for_one_call(processor)
    found = call(images=[image], text=[processor.image_token], return_tensors="pt")
    count = found["input_ids"][0].tolist().count(own.convert_tokens_to_ids(PATCHES.get(family, "<image>")))
    layout = image_layout.find({**found, **call.image_outputs}, processor, config, image, count)
    assert layout is not None
    assert len(layout.cells) == count
    assert [(view.rows, view.columns) for view in layout.views] == expected


def test_the_frame_of_an_image_and_ends_of_rows_are_no_patches() -> None:
    """HunYuan-VL has a token at the end of every row, and one before and one after all rows, whether its tokens around an image are in the text or not."""
    model = loaded("hunyuan_vl")
    image = model.processor.image_token
    around = f"{model.processor.image_start_token}{image}{model.processor.image_end_token}"
    plain, *others = (
        model.encode(text, image=picture(64, 32)).tokens for text in (TEXT, f"{image}{TEXT}", f"{around}{TEXT}")
    )
    assert [[token.text for token in tokens] for tokens in others] == [[token.text for token in plain]] * 2
    id_ = model.module.config.image_token_id
    tokens = [token for token in plain if token.id == id_]
    rows = max(int(token.text.partition(",")[0]) for token in tokens if token.kind == "image") + 1
    columns = (len(tokens) - 2) // rows - 1
    patches = [f"{row},{place}" if place < columns else "\\n" for row in range(rows) for place in range(columns + 1)]
    assert [token.text for token in tokens] == [image, *patches, image]
    assert {token.kind for token in tokens if "," not in token.text} == {"special"}


def test_tiles_are_bounded() -> None:
    """Processors that would cut an image into tiles of too many pixels together are stopped before they do."""
    for family, name, value in (
        ("llava_next", "image_grid_pinpoints", [[32, 32], [9_000, 9_000]]),
        ("internvl", "max_patches", 1_000_000),
    ):
        built, processor = build(family)
        setattr(processor.image_processor, name, value)
        model = headscope.load(built.module, processor)
        with pytest.raises(InvalidImage, match="too large"):
            model.encode(TEXT, image=picture(64, 64))


def test_tokens_around_an_image_come_once() -> None:
    """The configuration's start and end are added, unless the processor adds them itself."""
    module, processor = parts("qwen2_vl")
    around = ["<vision_start>", "<vision_end>"]

    class Own(type(processor)):  # type: ignore[misc]
        def replace_image_token(self, image_inputs: dict[str, Any], image_idx: int, **options: Any) -> str:
            plain = super().replace_image_token(image_inputs, image_idx, **options)
            return f"{around[0]}{plain}{around[1]}"

    own = copy.copy(processor)
    own.__class__ = Own
    for each in (processor, own):
        found = headscope.load(module, each).encode(TEXT, image=picture(48, 32))
        assert [token.text for token in found.tokens if token.kind == "special"] == around


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "without a text": ({"image": picture(32, 32)}, "Give a text too"),
    "truncated": ({"text": TEXT, "image": picture(32, 32), "max_tokens": 5}, "Omit max_tokens"),
    "damaged": ({"text": TEXT, "image": b"\x89PNG\r\n\x1a\n" + bytes(40)}, "damaged|pixels"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    given, reason = REFUSED[name]
    with pytest.raises(HeadscopeError, match=reason):
        loaded("llava").encode(**given)


def test_a_model_without_its_processor_says_so() -> None:
    module, processor = parts("llava")
    with pytest.raises(Unsupported, match="without an image processor"):
        headscope.load(module, processor.tokenizer).encode(TEXT, image=picture(32, 32))
    with pytest.raises(Unsupported, match="takes text"):
        headscope.load("minilm").encode(TEXT, image=picture(32, 32))


def test_requests() -> None:
    """An image and a text go together; an image and anything else do not."""
    image = "iVBORw0KGgo="
    assert AnalysisRequest(model="m", text="a", image=image).recipe("") == ""
    for given in ({"token_ids": [1]}, {"text": "a", "text_pair": "b"}, {"text": "a", "mask": [0]}):
        with pytest.raises(InvalidRequest):
            AnalysisRequest(model="m", image=image, **given)
