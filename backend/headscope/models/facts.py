"""Facts about a model's attention from its configuration, read without torch or transformers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from ..core.attention import Kind, ModelKind
from ..errors import UnsafeModel, Unsupported
from . import trained_mechanism
from .families import AUDIO, DECODERS, ENCODER_DECODERS, ENCODERS, IMAGES, READERS

# Configurations use different names for the same thing; the first one present wins.
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
WIDTH = ("hidden_size", "n_embd", "dim", "d_model", "emb_dim")
POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length")
VOCABULARY = ("vocab_size",)
HEAD_WIDTH = ("v_head_dim", "d_kv", "head_dim")  # of the values, which the lenses read

# Names of one stack of an encoder-decoder, which come first; a name without a stack means the encoder, or both.
ENCODER = {
    LAYERS: ("encoder_layers", "num_encoder_layers"),
    HEADS: ("encoder_attention_heads", "num_encoder_attention_heads"),
    POSITIONS: ("max_source_positions", "max_encoder_position_embeddings"),
}
DECODER = {
    LAYERS: ("decoder_layers", "num_decoder_layers"),
    HEADS: ("decoder_attention_heads", "num_decoder_attention_heads"),
    POSITIONS: ("max_target_positions", "max_decoder_position_embeddings"),
}

# Families whose position ids start after the padding id, so that fewer positions are usable than exist.
AFTER_PADDING = {
    "roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl", "roberta-prelayernorm", "data2vec-text", "xmod", "ibert",
    "longformer", "luke", "lilt", "layoutlmv3", "markuplm", "esm",
}  # fmt: skip
# Image models that attend from patch to patch -> names of the tokens before the patches. CLASSES and REGISTERS stand for as many as the configuration says.
CLASSES, REGISTERS = "[CLS*]", "[REG*]"
COUNTS = {CLASSES: ("num_cls_tokens", "n_cls_tokens"), REGISTERS: ("num_register_tokens", "num_registers")}
PREFIXES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        """
vit vit_msn beit data2vec-vision dinov2 clip_vision_model metaclip_2_vision_model altclip_vision_model chinese_clip_vision_model clipseg_vision_model
blip_2_vision_model instructblip_vision_model instructblipvideo_vision_model kosmos_2_vision_model mlcd_vision_model owlvit_vision_model
owlv2_vision_model internvl_vision git_vision_model qianfan_ocr_vision
""".split(),  # noqa: SIM905 - a table of words
        ("[CLS]",),
    ),
    **dict.fromkeys(("dinov2_with_registers", "dinov3_vit", "tipsv2_vision_model"), ("[CLS]", REGISTERS)),
    "radio": (CLASSES, REGISTERS),
    "pixio": (CLASSES,),
    "deit": ("[CLS]", "[DIST]"),
    **dict.fromkeys(
        """
ijepa siglip_vision_model aimv2_vision_model idefics2_vision idefics3_vision smolvlm_vision granite_docling_vision janus_vision_model ovis2_vision
phi4_multimodal_vision step3p5_vision
""".split(),  # noqa: SIM905 - a table of words
        (),
    ),
}
# Parts of the configuration of a model that reads images and texts.
IMAGE_PARTS = ("vision_config", "vq_config")
# Image-text models whose image tower transformers can load from the files of both.
PAIRED = {"clip", "metaclip_2", "siglip"}
# What a part of a configuration omits where it is as in the part's class, in files that older versions of transformers wrote.
DEFAULTED = (*LAYERS, *HEADS, *WIDTH, *POSITIONS, *HEAD_WIDTH, "image_size", "patch_size")
_DEFAULTS = Path(__file__).resolve().parent / "defaults.json"
# Upper limits that no model reaches: building a damaged or hostile configuration could block the worker for minutes.
MOST = {LAYERS: 1_000, HEADS: 4_096, WIDTH: 1_000_000, POSITIONS: 1_000_000_000, VOCABULARY: 10_000_000}
MOST_SIDE = 16_384  # pixels
Predicts = Literal["next-token", "masked-token", "class"]
QUANTISATION = re.compile(r"\w{1,10}(, \w{1,10}){0,15}")
# Ways of quantisation that are loaded from files -> the Python package that computes with them. Others are not: some fetch code from the hub.
QUANTISERS = {"bitsandbytes": "bitsandbytes", "torchao": "torchao"}
# What a model predicts, by how the name of its class ends: the first of these that fits.
PREDICTS = (
    ("class", re.compile(r"For(Sequence|Image)Classification(WithTeacher)?$")),
    (
        "token",
        re.compile(
            r"(For(Causal|Masked|Prefix)?LM|LMHead(Model)?|DoubleHeadsModel|ForConditionalGeneration|MTModel|EncoderDecoderModel|GenerationDecoder"
            r"|(?<!Electra)(?<!Splinter)ForPreTraining)$"
        ),
    ),
)
QUANTISED = (
    f"The files of this model are quantised in another way than those that Headscope loads ({', '.join(QUANTISERS)}). "
    "Load it with transformers and pass it in memory, or use the model before quantisation."
)


@dataclass(frozen=True, slots=True)
class Tower:
    """Numbers of one kind of attention: layers, heads per layer, width of their values, and the most query tokens (None if no limit is known)."""

    layers: int
    heads: int
    head_width: int
    max_tokens: int | None


@dataclass(frozen=True, slots=True)
class Patches:
    """How an image is cut into tokens: sizes of image and patch in pixels, (width, height), and the names of the tokens before the patches."""

    size: tuple[int, int]
    patch: tuple[int, int]
    prefix: tuple[str, ...]

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.size[1] // self.patch[1], self.size[0] // self.patch[0]

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return len(self.prefix) + self.grid[0] * self.grid[1]


@dataclass(frozen=True, slots=True)
class Facts:
    """Numbers of a model: layers, heads per layer, head width, and the most tokens (None if no limit is known).

    `towers` holds the same for every kind of attention: "self", or "encoder", "decoder" and "cross"; the other fields are those of the first.
    `mechanism` is the name and parameters of the mechanism that it was trained with, or if it is `patched`, of attend_by or learn_pasta. `quantisation` has the
    types, such as "Q4_1, Q8_0", from which the weights were dequantised; None if they never were quantised. `quantised_by` is the package that computes with
    weights that are quantised. `image_text` is the family of a model that reads an image and a text, of which `family` is the part that reads the text; empty
    for other models. `predicts` is None for a model that has no head, and for one whose files are not there yet.
    """

    family: str
    kind: ModelKind
    layers: int
    heads: int
    head_width: int
    max_tokens: int | None
    towers: Mapping[str, Tower] = field(default_factory=dict)
    patches: Patches | None = None
    mechanism: Mapping[str, Any] = field(default_factory=lambda: trained_mechanism.SOFTMAX)
    quantisation: str | None = None
    quantised_by: str | None = None
    image_text: str = ""
    predicts: Predicts | None = None
    patched: bool = False

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The model's kinds of attention, the default one first."""
        return ("encoder", "decoder", "cross") if self.kind == "encoder-decoder" else ("self",)

    def mechanism_of(self, kind: Kind) -> Mapping[str, Any]:
        """Return the mechanism of analyses that name none. Raises Unsupported for a kind of attention that is not patched, of a model that is."""
        if self.patched and kind in self.kinds[1:]:
            raise Unsupported(
                "attend_by changes the encoder of such a model, and analyses of its decoder run the encoder with softmax. Name the mechanism of the decoder.",
                pointer="/kind",
            )
        return self.mechanism

    def tower(self, kind: Kind) -> Tower:
        """Return the numbers of one kind of attention; "self" means the encoder of an encoder-decoder. Raises Unsupported for a kind it does not have."""
        name = self.kinds[0] if kind == "self" else kind
        if name not in self.kinds:
            offered = "it has encoder, decoder and cross" if len(self.kinds) > 1 else 'ask for kind "self"'
            raise Unsupported(f"This model has no attention of that kind; {offered}.", pointer="/kind")
        return self.towers.get(name) or Tower(self.layers, self.heads, self.head_width, self.max_tokens)


def read(config: Mapping[str, Any]) -> Facts:
    """Read the facts of a config.json.

    Raises UnsafeModel for a missing or absurd number or an unknown mechanism, Unsupported for a family that neither reads text nor attends from patch to
    patch.
    """
    quantiser = find_quantiser(config)
    mechanism, found = trained_mechanism.read_mechanism(config), _read(config)
    parts = [config.get(part) for part in IMAGE_PARTS]
    reads_both = found.kind in ("encoder", "decoder") and any(isinstance(part, Mapping) for part in parts)
    image_text = config["model_type"] if reads_both else ""
    dequantised = _read_quantisation(config)
    predicts = _predicts(config.get("architectures") or [], found.kind)
    return replace(
        found,
        mechanism=mechanism,
        quantisation=dequantised,
        quantised_by=quantiser,
        image_text=image_text,
        predicts=predicts,
    )


def _predicts(architectures: list[Any], kind: ModelKind) -> Predicts | None:
    """Return what a model of one of these classes predicts."""
    of = next((of for of, names in PREDICTS for name in architectures if names.search(str(name))), None)
    if of == "class":
        return "class"
    if of is None or kind == "vision":
        return None
    generates = any(
        str(name).endswith("ForConditionalGeneration") for name in architectures
    )  # PaliGemma sees all of a prompt
    return "masked-token" if kind == "encoder" and not generates else "next-token"


def _read_quantisation(config: Mapping[str, Any]) -> str | None:
    """Return the types from which the weights were dequantised, as Headscope writes them when it converts a GGUF file."""
    found = config.get("headscope", {}).get("quantisation")
    return found if isinstance(found, str) and QUANTISATION.fullmatch(found) else None


def find_quantiser(config: Mapping[str, Any]) -> str | None:
    """Return the package that a folder's quantised weights need, by the configuration of the model or of a part of it; None if they are not quantised.

    Raises Unsupported for a way of quantisation that is not loaded from files.
    """
    parts = [
        config,
        *(part for name in ("text_config", "vision_config") if isinstance(part := config.get(name), Mapping)),
    ]
    found = [part["quantization_config"] for part in parts if part.get("quantization_config")]
    methods = {str(one.get("quant_method")) if isinstance(one, Mapping) else "" for one in found}
    if not methods <= QUANTISERS.keys() or len(methods) > 1:
        raise Unsupported(QUANTISED)
    return QUANTISERS[methods.pop()] if methods else None


def _read(config: Mapping[str, Any]) -> Facts:
    family, names = config.get("model_type", ""), config.get("architectures") or []
    if not isinstance(family, str) or not isinstance(names, list):
        raise UnsafeModel(
            "The model's config.json has no valid architecture: model_type must be a string and architectures a list."
        )
    whole = family
    config, family = _inner(config, family)
    kind = _kind(config, family, whole, " ".join(str(name) for name in names))
    if kind == "encoder-decoder":
        towers = _pair(config, family)
    elif kind == "vision":
        patches = _patches(config, family)
        return _facts(family, kind, {"self": replace(_tower(config, family), max_tokens=patches.tokens)}, patches)
    else:
        # A stack taken out of an encoder-decoder keeps the configuration of both.
        cut = {"decoder": DECODER, "encoder": ENCODER}[kind] if family in ENCODER_DECODERS | {"trocr"} else {}
        towers = {"self": _tower(config, family, cut)}
    _number(config, VOCABULARY, default=0)
    return _facts(family, kind, towers)


def with_processor(found: Facts, processor: Mapping[str, Any]) -> Facts:
    """Adjust the facts of a vision model to the image size of its image processor (a preprocessor_config.json)."""
    cropped = processor.get("crop_size") if processor.get("do_center_crop") else None
    size = cropped if isinstance(cropped, dict) else processor.get("size")
    width, height = (size.get("width"), size.get("height")) if isinstance(size, dict) else (None, None)
    if found.patches is None or not isinstance(width, int) or not isinstance(height, int):
        return found
    patches = replace(found.patches, size=(width, height))
    if min(patches.grid) < 1 or max(width, height) > MOST_SIDE:
        return found
    towers = {name: replace(tower, max_tokens=patches.tokens) for name, tower in found.towers.items()}
    return replace(found, max_tokens=patches.tokens, towers=towers, patches=patches)


def _facts(family: str, kind: ModelKind, towers: dict[str, Tower], patches: Patches | None = None) -> Facts:
    first = next(iter(towers.values()))
    return Facts(family, kind, first.layers, first.heads, first.head_width, first.max_tokens, towers, patches)


def _inner(config: Mapping[str, Any], family: str) -> tuple[Mapping[str, Any], str]:
    """Return the part of a configuration that is analysed: the image tower of an image-text model, the text tower of one that reads both."""
    text, image = config.get("text_config"), config.get("vision_config")
    if isinstance(image, dict) and family in PAIRED:
        return _completed(image, f"{family}_vision_model"), f"{family}_vision_model"
    if isinstance(text, dict) and not any(config.get(name) is not None for name in LAYERS):
        inner = text.get("model_type")
        family = inner if isinstance(inner, str) and inner else f"{family}_text"
        return _completed(text, family), family
    return config, family


def _completed(part: Mapping[str, Any], family: str) -> Mapping[str, Any]:
    """Return a part of a configuration with the numbers that it omits, under all of their names."""
    given = {
        *part,
        *(name for names in (LAYERS, HEADS, WIDTH, POSITIONS) if part.keys() & set(names) for name in names),
    }
    return {**{name: value for name, value in _defaults().get(family, {}).items() if name not in given}, **part}


@cache
def _defaults() -> dict[str, dict[str, int]]:
    """Model type -> what transformers takes for numbers that a part of that type omits."""
    found: dict[str, dict[str, int]] = json.loads(_DEFAULTS.read_text("utf-8"))
    return found


def _kind(config: Mapping[str, Any], family: str, whole: str, architectures: str) -> ModelKind:
    """Return the model's kind. `family` is that of the analysed part, `whole` that of the whole model."""
    if family in PREFIXES:
        return "vision"
    _reject(config, family, whole)
    paired = config.get("is_encoder_decoder")
    if "EncoderModel" in architectures:
        return "encoder"
    if bool(paired) if paired is not None else family in ENCODER_DECODERS:
        return "encoder-decoder"
    if config.get("is_causal") is False or config.get("use_bidirectional_attention") in (True, "all"):
        return "encoder"
    if config.get("is_decoder") or family in DECODERS or whole in DECODERS | READERS:
        return "decoder"
    # A family that is not in the tables yet is classified by the names of its classes.
    unknown = family not in ENCODERS
    return "decoder" if unknown and ("CausalLM" in architectures or "LMHead" in architectures) else "encoder"


def _reject(config: Mapping[str, Any], family: str, whole: str) -> None:
    """Raise Unsupported for models that take neither text nor an image cut into patches."""
    if family in AUDIO or whole in AUDIO:
        raise Unsupported("This model takes audio. Headscope supports models that take text or images.")
    if family in IMAGES:
        raise Unsupported(
            "This image model does not attend from patch to patch alone: it uses windows, stages, overlapping patches or further tokens, or has no attention. "
            "Headscope supports ViT, DeiT, BEiT, DINOv2, DINOv3, and the image towers of CLIP and SigLIP."
        )
    if whole in READERS and config.get("is_encoder_decoder"):
        raise Unsupported("This model turns images into text, which Headscope does not support.")
    if whole != family and whole not in READERS | DECODERS | ENCODERS | ENCODER_DECODERS:
        raise Unsupported("This model pairs images with texts. Load one of its two towers on its own.")


def _pair(config: Mapping[str, Any], family: str) -> dict[str, Tower]:
    """Return the towers of an encoder-decoder, whose stacks may have separate configurations."""
    inner = [config.get(name) for name in ("encoder", "decoder")]
    if all(isinstance(part, dict) for part in inner):
        encoder, decoder = (_tower(_inner(part, family)[0], family) for part in inner if isinstance(part, dict))
    else:
        encoder, decoder = _tower(config, family, ENCODER), _tower(config, family, DECODER)
    return {"encoder": encoder, "decoder": decoder, "cross": decoder}


def _tower(
    config: Mapping[str, Any], family: str, first: Mapping[tuple[str, ...], tuple[str, ...]] | None = None
) -> Tower:
    first = first or {}
    heads = _number(config, HEADS, first.get(HEADS))
    width = _number(config, HEAD_WIDTH, default=0) or _number(config, WIDTH) // heads
    if width < 1:
        raise UnsafeModel("The model's config.json gives its heads a width of zero.")
    layers = _number(config, LAYERS, first.get(LAYERS))
    positions = _number(config, POSITIONS, first.get(POSITIONS), default=0)
    if family in AFTER_PADDING:
        padding = config.get("pad_token_id", 1)
        positions -= padding + 1 if isinstance(padding, int) and padding >= 0 else 2
    return Tower(layers, heads, width, positions if positions > 0 else None)


def _patches(config: Mapping[str, Any], family: str) -> Patches:
    size, patch = _sides(config, "image_size"), _sides(config, "patch_size")
    counts = {name: _number(config, names, default=0) for name, names in COUNTS.items()}
    prefix: list[str] = []
    for name in PREFIXES[family]:
        prefix += [name.replace("*", str(index + 1)) for index in range(counts[name])] if name in counts else [name]
    found = Patches(size, patch, tuple(prefix))
    if min(found.grid) < 1 or max(counts.values()) > MOST_SIDE:
        raise UnsafeModel("The model's config.json gives an image no patches.")
    return found


def _sides(config: Mapping[str, Any], name: str) -> tuple[int, int]:
    """Return width and height; configurations give one number for both, or height and width."""
    value = config.get(name)
    height, width = value if isinstance(value, (list, tuple)) and len(value) == 2 else (value, value)
    return _pixels(width, name), _pixels(height, name)


def _pixels(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_SIDE:
        raise UnsafeModel(f"The model's config.json has no valid {name}; it must be a number of pixels.")
    return value


def _number(
    config: Mapping[str, Any], names: tuple[str, ...], first: tuple[str, ...] | None = None, default: int | None = None
) -> int:
    """Return the first of these numbers that the configuration has; names in `first` take precedence."""
    value = next((config[name] for name in (*(first or ()), *names) if config.get(name) is not None), default)
    least, most = 0 if default is not None else 1, MOST.get(names, 1_000_000)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UnsafeModel(f"The model's config.json has no valid {names[0]}; it must be a positive integer.")
    return value
