"""Tiny vision-language models with their own processors, made without the hub: image processors from small sizes, and a tokenizer of single characters."""

from __future__ import annotations

import zlib
from typing import Any

import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import CONFIG_MAPPING
from transformers.models.auto import image_processing_auto, modeling_auto

from headscope.models.processors import find_class

from .build import Built, model_class, randomise, small, takes
from .pictured_types import CLASSES, CONFIGS, IMAGES, OWN, PATCHES, PIL, PLAIN, PROCESSORS, SPELLED, TOKENS
from .sizes import SPREAD


def tokenizer(**own: str) -> Any:
    """A tokenizer of single characters with the special tokens of all families; `own` are attributes of this family."""
    vocabulary = {token: id_ for id_, token in enumerate(PLAIN)}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    plain.decoder = decoders.Fuse()
    special = list(dict.fromkeys([*TOKENS.values(), *SPELLED]))
    plain.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    named = {name: token for name, token in (TOKENS | own).items() if not name.endswith("_token_")}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        extra_special_tokens=named,
    )


def build(model_type: str) -> tuple[Built, Any]:
    """The model and its processor. Raises what transformers raises where the sizes do not fit together."""
    cls = _class(model_type)
    torch.manual_seed(zlib.crc32(model_type.encode()))
    own = tokenizer(**OWN.get(model_type, {}))
    config = small(CONFIG_MAPPING[model_type])
    config = type(config)(**_joined(config.to_dict(), CONFIGS.get(model_type, {})))
    _name_tokens(config, own, PATCHES.get(model_type, "<image>"))
    module = cls._from_config(config, attn_implementation="eager").eval()
    randomise(module, SPREAD)
    return Built(model_type, module, takes(cls) or ""), processor(model_type, own)


def _class(model_type: str) -> Any:
    names = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.get(model_type)
    return getattr(transformers, names if isinstance(names, str) else names[0]) if names else model_class(model_type)


def processor(
    model_type: str, own: Any, images: dict[str, Any] | None = None, joined: dict[str, Any] | None = None
) -> Any:
    """The processor of a family, at a small size unless settings of its image processor and its own are given."""
    names = image_processing_auto.IMAGE_PROCESSOR_MAPPING_NAMES.get(model_type, {})
    sizes = IMAGES.get(model_type, {}) if images is None else images
    image_processor = getattr(transformers, PIL.get(model_type) or names["pil"])(**sizes)
    cls = find_class(CLASSES.get(model_type, model_type))
    parts = {"tokenizer": own, "image_processor": image_processor}
    settings = PROCESSORS.get(model_type, {}) if joined is None else joined
    return cls(**{part: parts.get(part) for part in cls.get_attributes()}, **settings)


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Both, with the values of the second, in parts too."""
    inner = {
        name: _joined(one[name], value)
        for name, value in other.items()
        if isinstance(value, dict) and isinstance(one.get(name), dict)
    }
    return one | other | inner


def _name_tokens(config: Any, own: Any, patch: str) -> None:
    """Set the ids of special tokens in a configuration to those of the tokenizer."""
    if "<image>" in (getattr(config, "vocabulary_map", None) or {}):
        config.vocabulary_map["<image>"] = own.convert_tokens_to_ids("<image>")
    for name in [*vars(config), *getattr(config, "attribute_map", {})]:
        for ending in ("_token_id", "_token_index"):
            token = (
                patch
                if name == f"image{ending}"
                else getattr(own, name.removesuffix(ending) + "_token", None)
                if name.endswith(ending)
                else None
            )
            if token is not None and name.startswith(("image", "video", "vision", "boi", "eoi")):
                setattr(config, name, own.convert_tokens_to_ids(token))
