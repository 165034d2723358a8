"""Loading a located model into memory. Only this module and `processors` call from_pretrained."""

from __future__ import annotations

import importlib.util
import inspect
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from weakref import finalize

import huggingface_hub
import torch
import transformers
from huggingface_hub.utils import tqdm
from tokenizers import Tokenizer
from transformers.models.auto import modeling_auto

from ..errors import (
    CorruptModel,
    HeadscopeError,
    ModelUnavailable,
    OutOfMemory,
    UnsafeModel,
    UnsafeWeights,
    Unsupported,
)
from . import facts, free_memory, placement, processors, safety, tokens, trained_mechanism, widening
from .catalog import NOT_HERE
from .conversation import ChatTemplate
from .gguf_files import convert
from .located import Located
from .model import DTYPES, NO_TOKENIZER, Model
from .modules import is_out_of_memory, unwrap

__all__ = ["DTYPES", "Model", "fetch", "load", "wrap"]

OnDownload = Callable[[int, int], None]

# Parameters that may be missing: they do not affect attention.
UNUSED = ("pooler.",)
NO_ROOM = "There is not enough memory to load this model. Choose a smaller model or a machine with more memory."
NOT_QUANTISED = (
    "The model's configuration says that its weights are quantised, and its files have ordinary ones. "
    "Remove quantization_config from its config.json."
)
# Kind of model -> tasks; a model is loaded as the first class in its configuration that serves one of them.
TASKS = {
    "encoder-decoder": ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ"),
    "vision": ("IMAGE_CLASSIFICATION",),
    "text": (
        "CAUSAL_LM", "MASKED_LM", "PRETRAINING", "SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION", "QUESTION_ANSWERING",
        "TEXT_ENCODING", "IMAGE_TEXT_TO_TEXT",
    ),
}  # fmt: skip
# Family of checkpoints with an image and a text tower -> class of the image tower.
IMAGE_TOWERS = {"clip": "CLIPVisionModel", "metaclip_2": "MetaClip2VisionModel", "siglip": "SiglipVisionModel"}


def wrap(module: Any, processor: Any = None, name: str | None = None) -> Model:
    """Wrap a model in memory with its tokenizer (a fast transformers tokenizer, or a tokenizers.Tokenizer), its image processor, or a processor of both.

    A compiled model or a PeftModel is replaced by the model inside, including adapters. Raises UnsafeModel or Unsupported.
    """
    module = unwrap(module)
    # How its weights are quantised shows in its modules.
    config = {name: value for name, value in module.config.to_dict().items() if name != "quantization_config"}
    known = facts.read({**config, "architectures": [type(module).__name__]})
    if known.kind == "vision":
        # Only the image tower of a model with two towers.
        if "input_ids" in inspect.signature(module.forward).parameters:
            module = module.vision_model
        return Model(name or _name(module), module, None, known, processor=_image_processor(processor))
    if known.kind != "encoder-decoder" and "input_ids" not in inspect.signature(module.forward).parameters:
        raise Unsupported("This model does not take text and is not one of the image models that Headscope supports.")
    tokenizer = getattr(processor, "tokenizer", processor)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    slow = backend is not None and not isinstance(backend, Tokenizer)
    return Model(
        name or _name(module),
        module,
        tokens.prepare(backend) if backend and not slow else None,
        known,
        special_ids=_special_ids(tokenizer),
        unknown=getattr(tokenizer, "unk_token", None),
        processor=processor if hasattr(processor, "image_processor") and not slow else None,
        mask=getattr(tokenizer, "mask_token", None),
        template=None if slow else _template(processor, tokenizer),
        target_tokenizer=_target_tokenizer(tokenizer) if known.kind == "encoder-decoder" and not slow else None,
        no_tokenizer=processors.SLOW if slow else NO_TOKENIZER,
        vectors=trained_mechanism.read_vectors(config),
    )


def _name(module: Any) -> str:
    return str(module.config.name_or_path or type(module).__name__)


def _special_ids(tokenizer: Any) -> frozenset[int]:
    """Return the ids of a transformers tokenizer's special tokens; none for other tokenizers.

    The unknown token is a part of the text, unless it has another purpose too, as the end of a text does in GPT-2.
    """
    found = frozenset(getattr(tokenizer, "all_special_ids", ()) or ())
    named = dict(tokenizer.special_tokens_map) if found else {}
    unknown = named.pop("unk_token", None)
    return found if unknown is None or unknown in named.values() else found - {tokenizer.unk_token_id}


def _template(processor: Any, tokenizer: Any) -> ChatTemplate | None:
    """Return the chat template of a processor of texts and images, or of a tokenizer; None if neither has one."""
    own = getattr(processor, "chat_template", None) if hasattr(processor, "image_processor") else None
    own = own if isinstance(own, str) and hasattr(tokenizer, "apply_chat_template") else None
    return ChatTemplate(tokenizer, own) if own or getattr(tokenizer, "chat_template", None) else None


def _image_processor(processor: Any) -> Any:
    processor = getattr(processor, "image_processor", processor)
    if processor is not None and not hasattr(processor, "preprocess"):
        raise Unsupported("The second argument for a vision model must be its image processor.")
    return processor


def _target_tokenizer(tokenizer: Any) -> Tokenizer | None:
    """Return the tokenizer for the decoder's text, if it differs by language or special tokens."""
    into, back = (getattr(tokenizer, f"_switch_to_{side}_mode", None) for side in ("target", "input"))
    if not callable(into) or not callable(back) or not getattr(tokenizer, "tgt_lang", None):
        return None
    into()
    try:
        return tokens.prepare(tokenizer.backend_tokenizer)
    finally:
        back()


def load(
    located: Located,
    device: str | None = None,
    on_download: OnDownload = lambda done, total: None,
    dtype: str = "float32",
    device_map: placement.DeviceMap | None = None,
) -> Model:
    """Load a model from its folder, downloading it from the hub first if necessary (see fetch), or converting its GGUF file.

    Its weights are in memory in the type of `kept_dtype`, unless they are quantised. With `device_map` its modules go to several devices.

    Raises ModelUnavailable, UnsafeModel, UnsafeWeights, CorruptModel, Unsupported, OutOfMemory, or InvalidRequest for an impossible device_map.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    places = placement.read(device, device_map)
    folder = _convert(located) or located.folder or fetch(located, on_download)
    config = safety.check(folder)
    with _silence(), ExitStack() as files:
        target = Path(files.enter_context(tempfile.TemporaryDirectory(prefix="headscope-")))
        staged = safety.stage(folder, target)
        known = facts.read(config)
        quantiser = known.quantised_by
        if quantiser and not safety.has_quantised(folder):
            raise CorruptModel(NOT_QUANTISED)
        kept = None if quantiser else DTYPES[kept_dtype(folder, dtype)]
        if isinstance(places, Mapping):
            free_memory.check(folder, places, kept)
        cls = _model_class(config, known.kind)
        if device_map is None and quantiser is None:
            module = _module(staged, cls, device, dtype=kept)
        else:
            if device_map is not None:
                places = placement.expand(places, _structure(staged, cls))
            with _explaining(quantiser):
                options = {"dtype": kept or "auto", "device_map": places, "offload_folder": target / "offloaded"}
                module = _module(staged, cls, None, **options)
        processor, reason = (
            (processors.read_image_processor(staged), None)
            if known.kind == "vision"
            else processors.read_tokenizer(staged)
        )
        lacking = None
        if known.image_text:
            processor, lacking = processors.read_image_text(staged, known.image_text, processor)
        model = wrap(module, processor, located.name)
        if device_map is not None:  # weights that stay on the disk are read from these files
            finalize(model.module, files.pop_all().close)
    model.no_tokenizer, model.no_processor = reason or model.no_tokenizer, lacking or model.no_processor
    model.source = located if located.gguf else Located(located.name, folder, located.hub, located.revision)
    return model


def kept_dtype(folder: Path, dtype: str) -> str:
    """Return the type that the weights in a folder have in memory for analyses in `dtype`: the stored one if it is the same, or if float32 would add much.

    Raises CorruptModel or UnsafeWeights.
    """
    stored = safety.stored_dtype(folder)
    if stored in (dtype, "float32"):
        return stored
    numbers = sum(map(safety.count_weights, safety.weight_files(folder)))
    return stored if widening.is_large(numbers, DTYPES[stored], torch.float32) else "float32"


def _convert(located: Located) -> Path | None:
    """Convert the model if it is a GGUF file, unless that was done before, and return the folder; None for any other model."""
    if located.gguf is None or located.conversions is None:
        return None
    folder = located.conversions / located.digest()[:32]
    convert.convert(located.gguf, folder)
    return folder


def fetch(located: Located, on_download: OnDownload = lambda done, total: None) -> Path:
    """Download the allowed files of a hub model into the hub's cache and return their folder.

    `on_download(done, total)`, in bytes, is called repeatedly, by one thread at a time, and may raise a HeadscopeError to stop.
    """
    if located.hub is None:
        raise ModelUnavailable(NOT_HERE)
    allowed = list(safety.ALLOWED)
    try:
        folder = Path(
            huggingface_hub.snapshot_download(
                located.hub, revision=located.revision, allow_patterns=allowed, tqdm_class=_progress_bar(on_download)
            )
        )
    except HeadscopeError:
        raise
    except Exception as error:  # from the hub's client, the operating system, or the HTTP library
        raise ModelUnavailable(
            "The model is not on this machine and could not be downloaded from the hub. "
            "Check the connection, or copy the model's folder into a model folder."
        ) from error
    if not any(folder.glob("*.safetensors")):
        raise UnsafeWeights(
            "The model has no safetensors weights on the hub. Pickled weights can run code and are never downloaded."
        )
    return folder


def _progress_bar(on_download: OnDownload) -> Any:
    """Create a class of invisible progress bars for the hub's client, which report the number of downloaded bytes."""
    lock = threading.Lock()

    class FetchProgress(tqdm):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._counts_bytes, self._done = options.get("name") == "huggingface_hub.snapshot_download", 0
            super().__init__(*arguments, **{**options, "disable": True})

        def update(self, more: float | None = 1) -> None:
            with lock:
                self._done += int(more or 0)
                if self._counts_bytes:
                    on_download(self._done, int(self.total or 0))

    return FetchProgress


def _model_class(config: dict[str, Any], kind: str) -> Any:
    """Return the class that the configuration names, if transformers has it for a task of that kind, and AutoModel otherwise."""
    if config.get("model_type") not in transformers.CONFIG_MAPPING:
        raise UnsafeModel(
            "transformers does not have the model's architecture, and code that comes with a model is never run."
        )
    offered: set[str] = set()
    for task in TASKS.get(kind, TASKS["text"]):
        for names in getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES", {}).values():
            offered.update([names] if isinstance(names, str) else names)
    named = next((name for name in config.get("architectures") or [] if name in offered), None)
    if named is None and "vision_config" in config and kind == "vision":
        named = IMAGE_TOWERS[config["model_type"]]
    return getattr(transformers, named) if named else transformers.AutoModel


@contextmanager
def _silence() -> Iterator[None]:
    """Silence the log and progress bars of transformers: Headscope reports problems with a model's files itself."""
    log = transformers.utils.logging
    before, shown = log.get_verbosity(), log.is_progress_bar_enabled()
    log.disable_progress_bar()
    log.set_verbosity_error()
    try:
        yield
    finally:
        log.set_verbosity(before)
        if shown:
            log.enable_progress_bar()


@contextmanager
def _explaining(quantiser: str | None) -> Iterator[None]:
    """Say what a model lacks that cannot be loaded with its package for quantised weights."""
    needed = [] if quantiser is None else [quantiser, "accelerate"]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise Unsupported(
            f"This model is quantised, and a package that it needs is not installed. Install {' and '.join(missing)}."
        )
    try:
        yield
    except CorruptModel as error:
        if quantiser is None or error.__cause__ is None:  # or weights are missing
            raise
        raise Unsupported(
            f"{quantiser} cannot load the quantised weights of this model on this machine, or in the version that is installed."
        ) from error


def _structure(staged: Path, cls: Any) -> Any:
    """Return the modules of a model, without weights."""
    try:
        config = transformers.AutoConfig.from_pretrained(staged, local_files_only=True, trust_remote_code=False)
        with torch.device("meta"):
            return cls.from_config(config) if cls is transformers.AutoModel else cls(config)
    except Exception as error:  # as below
        raise CorruptModel(
            "The model's configuration does not describe a model that transformers can build."
        ) from error


def _module(staged: Path, cls: Any, device: str | None, **options: Any) -> Any:
    """Load the weights, and move all of them to the device if there is one."""
    try:
        module, report = cls.from_pretrained(
            staged,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            attn_implementation="eager",
            output_loading_info=True,
            **options,
        )
        if device is not None:
            module.to(device)
        module.eval()
    except HeadscopeError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise OutOfMemory(NO_ROOM) from error
        # The files passed our checks, so any other error of transformers is due to their content.
        raise CorruptModel("The model's files cannot be loaded: its weights do not fit its configuration.") from error
    missing = [key for key in report["missing_keys"] if not any(part in key for part in UNUSED)]
    if missing or report["mismatched_keys"]:
        raise CorruptModel(
            f"{len(missing) + len(report['mismatched_keys'])} of the model's parameters are missing from its weight files or have the wrong shape."
        )
    return module
