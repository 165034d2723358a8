"""Images through vision models, against the model's own eager attention on pixels computed by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import headscope
from headscope import Model
from headscope.capture import examine
from headscope.errors import HeadscopeError, InvalidRequest, Unsupported
from headscope.models.generation import Generate
from tests.support.extent import mostly_long

from . import pictures
from .test_inputs import byte_level, own_attention, stacked

S = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
T = {name: S[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")}
VISION: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "vit": (lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**S)), ["[CLS]"]),
    "deit": (lambda: transformers.DeiTModel(transformers.DeiTConfig(**S)), ["[CLS]", "[DIST]"]),
    "dinov2": (lambda: transformers.Dinov2Model(transformers.Dinov2Config(**S)), ["[CLS]"]),
    "dinov2-registers": (
        lambda: transformers.Dinov2WithRegistersModel(transformers.Dinov2WithRegistersConfig(**S, num_register_tokens=2)),
        ["[CLS]", "[REG1]", "[REG2]"],
    ),
    "dinov3": (
        lambda: transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(**S, num_register_tokens=1)),
        ["[CLS]", "[REG1]"],
    ),
    "beit": (
        lambda: transformers.BeitForImageClassification(transformers.BeitConfig(**S, use_relative_position_bias=True)),
        ["[CLS]"],
    ),
    "clip": (lambda: transformers.CLIPModel(transformers.CLIPConfig(vision_config=S, text_config=T)), ["[CLS]"]),
    "pixio": (
        lambda: transformers.PixioModel(transformers.PixioConfig(**S, n_cls_tokens=2)),
        ["[CLS1]", "[CLS2]"],
    ),
    "siglip": (lambda: transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**S)), []),
}  # fmt: skip


@pytest.mark.parametrize(
    ("home", "name"),
    mostly_long(product(("memory", "folder"), VISION), *zip(cycle(("folder", "memory")), VISION, strict=False)),
)
def test_images_through_vision_models(name: str, home: str, tmp_path: Path) -> None:
    """Special tokens, then patches row by row; maps as eager's on pixels computed by hand."""
    torch.manual_seed(0)
    make, prefix = VISION[name]
    if home == "folder":
        make().save_pretrained(tmp_path)
    model = headscope.load(tmp_path, device="cpu") if home == "folder" else headscope.load(make().eval())
    image = np.asarray(pictures.plain(32, 32))
    a = headscope.analyze(model, image=image, lenses=("weights",))
    pixels = torch.tensor(image / 127.5 - 1, dtype=torch.float32).permute(2, 0, 1)[None]
    own = own_attention(model, pixel_values=pixels).attentions
    np.testing.assert_allclose(a.maps["weights"], stacked(own), atol=1e-5, rtol=0)
    assert [token.text for token in a.tokens] == [
        *prefix,
        *(f"{row},{column}" for row in range(4) for column in range(4)),
    ]
    assert model.facts.max_tokens == len(a.tokens) == 16 + len(prefix)


def test_a_model_s_own_image_processor_is_used(tmp_path: Path) -> None:
    """From its folder, and as the second argument; the image is scaled and cut as it says, and boxes are in what the model sees."""
    torch.manual_seed(0)
    processor = transformers.CLIPImageProcessor(size={"shortest_edge": 40}, crop_size={"height": 32, "width": 32})
    module = VISION["clip"][0]().vision_model
    module.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    picture = pictures.plain(60, 50)
    expected = processor(images=[picture], return_tensors="pt")["pixel_values"]
    for model in (headscope.load(tmp_path, device="cpu"), headscope.load(module.eval(), processor)):
        encoded = model.encode(image=picture)
        torch.testing.assert_close(encoded.pixels, expected)
        assert encoded.grid is not None
        assert encoded.grid.size == (32, 32)
        assert model.encode(image=pictures.plain(1, 1)).pixels.shape == expected.shape  # type: ignore[union-attr]


def test_vision_models_take_images_and_nothing_else(minilm: Model) -> None:
    """Texts, ids, continuations and other kinds of attention are refused; so is an image for a text model."""
    model = headscope.load(VISION["vit"][0]())
    picture = pictures.plain()
    for wrong in ({"text": "a cat"}, {}, {"image": picture, "text": "a cat"}, {"image": picture, "max_tokens": 5}):
        with pytest.raises(InvalidRequest):
            model.encode(**wrong)  # type: ignore[arg-type]
    for wrong in ({"generate": Generate(max_new_tokens=1)}, {"kind": "cross"}):
        with pytest.raises(Unsupported):
            model.encode(image=picture, **wrong)  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match="vision model"):
        minilm.encode(image=picture)
    with pytest.raises(Unsupported):
        headscope.load(VISION["vit"][0](), byte_level(around=False))


SIZE = {"height": 32, "width": 32}


PROCESSORS: list[tuple[dict[str, Any], str | None]] = [
    ({"image_processor_type": "ViTImageProcessorFast", "size": 32}, None),
    ({"feature_extractor_type": "ViTFeatureExtractor", "size": SIZE}, None),
    ({"image_processor_type": "ViTImageProcessor", "size": {"height": 48, "width": 32}}, None),
    ({"image_processor_type": "ViTImageProcessor", "size": {"height": 100_000, "width": 100_000}}, "invalid-image"),
    ({"image_processor_type": "ViTImageProcessor", "size": {"height": 0, "width": 32}}, "invalid-image"),
    ({"image_processor_type": "ViTImageProcessor", "size": SIZE, "resample": 99}, "invalid-image"),
    ({"image_processor_type": "ViTImageProcessor", "size": SIZE, "rescale_factor": 1e300}, "non-finite"),
    ({"image_processor_type": "SamImageProcessor"}, "unsupported"),
    ({"image_processor_type": "LlavaNextImageProcessor"}, "unsupported"),
    ({"image_processor_type": "Nonsense"}, "model-corrupt"),
    ({"image_processor_type": 7}, "model-corrupt"),
    ({"image_processor_type": "ViTImageProcessor", "auto_map": {"AutoImageProcessor": "x.Y"}}, "unsafe-model"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("processor", "code"),
    mostly_long(PROCESSORS, *PROCESSORS[1::2], PROCESSORS[2], PROCESSORS[6]),
    ids=lambda value: "-".join(str(part) for part in value.values()) if isinstance(value, dict) else str(value),
)
def test_image_processors_are_not_trusted(processor: dict[str, Any], code: str | None, tmp_path: Path) -> None:
    """Whatever a folder's image processor asks for: right maps, or one of our errors."""
    VISION["vit"][0]().save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    try:
        a = headscope.analyze(headscope.load(tmp_path, device="cpu"), image=pictures.plain(50, 40), lenses=("weights",))
    except HeadscopeError as error:
        assert error.code == code  # noqa: PT017 - the first case has none
    else:
        assert code is None
        assert a.maps["weights"].shape[2] in (17, 25)


def test_image_towers_under_a_pair_s_configuration() -> None:
    """A classifier of images on CLIP's image tower has the configuration of both towers, and is captured as the tower is."""
    torch.manual_seed(0)
    config = transformers.CLIPConfig(vision_config=S, text_config=T)
    model = headscope.load(transformers.CLIPForImageClassification(config).eval())
    assert examine(model).captured
