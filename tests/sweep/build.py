"""A tiny random model of any architecture that transformers knows, made from its configuration alone, and inputs for it."""

from __future__ import annotations

import importlib
import inspect
import re
import zlib
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, PretrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from .sizes import LAYERS, NONE, NOT_ALONE, OPTIONAL, SIZES, SPECIAL, SPECIAL_IDS, SPREAD, SPREADS, VOCABULARY

# Classes to build, first that a type has wins; then any class of its module.
TEXT = ("MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "CAUSAL_LM")
VISION = ("IMAGE_CLASSIFICATION",)
READERS = ("IMAGE_TEXT_TO_TEXT",)  # read a text without an image, too
INPUTS = ("input_ids", "pixel_values")
ATTENDS = re.compile("attention|attn|MLA", re.IGNORECASE)


class OutOfScope(Exception):
    """A type that is no text or vision model, or has no attention at all."""


@dataclass(frozen=True)
class Built:
    """A tiny model in eval mode, and what it takes."""

    model_type: str
    module: Any
    takes: str

    @property
    def class_name(self) -> str:
        return type(self.module).__name__


def types() -> list[str]:
    """Every model type that transformers has, sorted."""
    return sorted(CONFIG_MAPPING)


def build(model_type: str) -> Built:
    """The model. Raises OutOfScope, or whatever transformers raises where the small sizes do not fit together."""
    if model_type in NOT_ALONE:
        raise OutOfScope(NOT_ALONE[model_type])
    cls = model_class(model_type)
    torch.manual_seed(zlib.crc32(model_type.encode()))
    config = small(CONFIG_MAPPING[model_type])
    if cls.config_class is not type(config) and isinstance(config.get_text_config(), cls.config_class):
        raise OutOfScope(f"read as its text part, {config.get_text_config().model_type}")
    module = cls._from_config(config, attn_implementation="eager").eval()
    if not any(ATTENDS.search(type(part).__name__) for part in module.modules()):
        raise OutOfScope(NONE)
    randomise(module, SPREADS.get(model_type, SPREAD))
    return Built(model_type, module, takes(cls) or "")


def model_class(model_type: str) -> type[PreTrainedModel]:
    """The class with a head for text or images where there is one, else the bare model."""
    config = CONFIG_MAPPING[model_type]
    bare = not getattr(config, "sub_configs", None)
    for purpose in (*TEXT, *VISION, *READERS, *[""] * bare):
        table = f"MODEL_FOR_{purpose}_MAPPING_NAMES" if purpose else "MODEL_MAPPING_NAMES"
        names = getattr(modeling_auto, table).get(model_type)
        for name in [names] if isinstance(names, str) else names or ():
            cls = getattr(transformers, name, None)
            if cls is not None and takes(cls):
                return cls
    if getattr(config, "sub_configs", None):
        raise OutOfScope("made of parts, which are types of their own")
    for cls in _own_classes(config):
        if takes(cls):
            return cls
    raise OutOfScope("takes neither text nor images alone")


def takes(cls: type[PreTrainedModel]) -> str | None:
    """`input_ids` or `pixel_values`, whichever the class works with alone; None for classes that need something else."""
    parameters = inspect.signature(cls.forward).parameters
    needed = {name for name, p in parameters.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD} - {
        "self"
    }
    for name in (cls.main_input_name, *INPUTS):
        if name in INPUTS and name in parameters and needed <= {name}:
            return name
    return None


def _own_classes(config: type[PretrainedConfig]) -> list[type[PreTrainedModel]]:
    """Model classes of the configuration's own module that are made from it: parts of larger models are in no table of transformers."""
    try:
        module = importlib.import_module(config.__module__.replace("configuration_", "modeling_"))
    except ImportError as error:
        raise OutOfScope("no code of its own") from error
    found = []
    for name, cls in vars(module).items():
        if inspect.isclass(cls) and issubclass(cls, PreTrainedModel) and cls.__module__ == module.__name__:
            asked = inspect.signature(cls.__init__).parameters.get("config")
            annotated = asked is not None and asked.annotation in (config, config.__name__)
            if "PreTrained" not in name and (annotated or cls.__dict__.get("config_class") is config):
                found.append(cls)
    return found


def small(config: type[PretrainedConfig]) -> PretrainedConfig:
    """The configuration with small sizes, and so its parts."""
    return config(**(_sizes(config()) | SPECIAL.get(config.model_type, {})))


def _sizes(plain: PretrainedConfig) -> dict[str, Any]:
    """Arguments that make a configuration small."""
    values = {name: value for name, value in vars(plain).items() if not name.startswith("_")}
    renamed = {theirs: ours for ours, theirs in getattr(plain, "attribute_map", {}).items()}
    layers = next(
        (
            values[n]
            for n in ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
            if isinstance(values.get(n), int)
        ),
        None,
    )
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        size = SIZES.get(name, SIZES.get(renamed.get(name, "")))
        if isinstance(value, PretrainedConfig):
            arguments[name] = small(type(value)).to_dict()
        elif (
            size is not None
            and (value is not None or name not in OPTIONAL)
            and not isinstance(value, (list, tuple, dict))
        ):
            arguments[name] = size
        elif name.endswith(("_token_id", "_token_index")):
            if isinstance(value, int) and value >= VOCABULARY:
                arguments[name] = SPECIAL_IDS.get(name.removesuffix("_token_id"), VOCABULARY - 1)
            elif isinstance(value, list):
                arguments[name] = 2
        elif isinstance(value, (list, tuple)) and layers and len(value) == layers:
            arguments[name] = _every_kind(value)
    if "use_sliding_window" in arguments:
        arguments.pop("layer_types", None)  # follows from the sizes
    if arguments.get("kv_lora_rank") and "num_key_value_heads" in arguments:
        arguments["num_key_value_heads"] = arguments["num_attention_heads"]
    if "layer_types" in arguments and "num_hidden_layers" in arguments:
        arguments["num_hidden_layers"] = len(arguments["layer_types"])
    return arguments


def _every_kind(values: Any) -> list[Any]:
    """One layer of every kind, two at least."""
    kinds = list(dict.fromkeys(v for v in values if isinstance(v, str)))
    return kinds if len(kinds) >= LAYERS else [*values[:LAYERS]]


def randomise(module: torch.nn.Module, spread: float) -> None:
    """Normal weights of this standard deviation; vectors (gains, biases, sinks) get some noise."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1:
                parameter.copy_(noise * spread)
            else:
                parameter.copy_(torch.nan_to_num(parameter, 0, 0, 0) + noise * 0.2)


def ids(count: int, seed: int) -> list[int]:
    """Random token ids, none of which is special."""
    return torch.randint(5, VOCABULARY - 5, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
