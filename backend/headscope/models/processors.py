"""What makes a model's inputs: the tokenizer and the image processor that its folder has, joined for vision-language models by the rules of the model's family.

Videos and audio are left out.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import transformers
from transformers.models.auto import image_processing_auto, processing_auto

from ..errors import CorruptModel, Unsupported
from . import safety

SLOW = (
    "This model's tokenizer gives no exact character offsets: it has no tokenizer.json and cannot be converted to one. "
    "Give token_ids, or save it as a fast tokenizer."
)
NO_FILES = (
    "The model's folder has no complete tokenizer, so it takes no text. Give token_ids, "
    "or add the tokenizer's files: tokenizer.save_pretrained writes them."
)
NO_VIDEOS = "The model's processor does not load without its part for videos, which needs torchvision. Install it, or omit the image."
NO_FAMILY = "transformers has no processor of images and texts for this model, or only one that needs torchvision. Omit the image."


def read_tokenizer(staged: Path) -> tuple[Any, str | None]:
    """Return the tokenizer, or None and the reason why the model has no usable one."""
    try:
        found = transformers.AutoTokenizer.from_pretrained(staged, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds of errors here
        if (staged / "tokenizer.json").exists() or (staged / "vocab.txt").exists():
            raise CorruptModel("The model's tokenizer cannot be loaded.") from error
        files = any(any(staged.glob(pattern)) for pattern in ("tokenizer*", "vocab*", "*.model"))
        return None, SLOW if files else NO_FILES
    return (found, None) if _is_whole(found, staged) else (None, NO_FILES)


def _is_whole(tokenizer: Any, staged: Path) -> bool:
    """Return whether all files of the tokenizer exist: transformers makes up the content of missing ones. Some slow tokenizers need no files."""
    names = dict(tokenizer.vocab_files_names)
    whole = staged / names.pop("tokenizer_file", "tokenizer.json")
    needs_none = not names and not hasattr(tokenizer, "backend_tokenizer")
    return whole.exists() or needs_none or (bool(names) and all((staged / name).exists() for name in names.values()))


def read_image_processor(staged: Path) -> Any:
    """Return the model's own image processor, None if its folder has none."""
    if not any((staged / name).exists() for name in ("preprocessor_config.json", "processor_config.json")):
        return None
    try:
        return transformers.AutoImageProcessor.from_pretrained(
            staged, local_files_only=True, trust_remote_code=False, backend="pil"
        )
    except Exception as error:  # as above
        if importlib.util.find_spec("torchvision") is None and _only_with_torchvision(staged):
            raise Unsupported("The model's image processor needs torchvision. Install it to use this model.") from error
        raise CorruptModel("The model's image processor cannot be loaded.") from error


def read_image_text(staged: Path, family: str, tokenizer: Any) -> tuple[Any, str | None]:
    """Return the processor of a vision-language model; or its tokenizer alone, for texts only, and the reason."""
    try:
        found = read_image_processor(staged)
    except Unsupported as error:  # torchvision is missing
        return tokenizer, error.detail
    if found is None or tokenizer is None:
        return tokenizer, None
    try:
        joined = _join(staged, family, tokenizer, found)
    except Exception as error:  # as above
        if importlib.util.find_spec("torchvision") is None and takes_videos(family):
            return tokenizer, NO_VIDEOS
        raise CorruptModel("The model's processor cannot be loaded.") from error
    return (joined, None) if joined is not None else (tokenizer, NO_FAMILY)


def _only_with_torchvision(staged: Path) -> bool:
    """Return whether the image processor that the folder names exists for torchvision only."""
    path = staged / "preprocessor_config.json"
    named = safety.read_json(path).get("image_processor_type") if path.exists() else None
    base = str(named).removesuffix("Fast")
    offered = getattr(image_processing_auto, "IMAGE_PROCESSOR_MAPPING_NAMES", {}).values()
    variants = [entry for entry in offered if isinstance(entry, dict) and entry.get("torchvision") == base]
    return bool(variants) and not any("pil" in entry for entry in variants)


def _join(folder: Path, family: str, tokenizer: Any, image_processor: Any) -> Any:
    """Build the processor of a family from the settings in a folder, its tokenizer and its image processor; None if transformers has none for the family.

    Raises whatever transformers raises about the settings.
    """
    cls = find_class(family)
    if cls is None:
        return None
    settings, _ = cls.get_processor_dict(folder, local_files_only=True)
    parts = {"tokenizer": tokenizer, "image_processor": image_processor}
    return cls.from_args_and_dict([parts.get(part) for part in cls.get_attributes()], settings)


def find_class(family: str) -> Any:
    """Return the class of processors of a family, for images and texts; None if transformers has none."""
    named = processing_auto.PROCESSOR_MAPPING_NAMES
    for other in (name for name, processor in named.items() if processor == named.get(family)):
        if cls := getattr(_module(other.replace("-", "_")), str(named[family]), None):
            return _for_images(cls)
    return None


def takes_videos(family: str) -> bool:
    """Return whether the processor of a family has a part for videos."""
    cls = find_class(family)
    return cls is not None and "video_processor" in cls.get_attributes()


def _module(name: str) -> Any:
    """Import the module of a processor, None if there is none.

    Without torchvision transformers does not offer Pixtral's, which needs a function only that is beside the image processor for torchvision and the one for
    Pillow alike.
    """
    parent = f"transformers.models.{name}"
    with suppress(ImportError):
        return importlib.import_module(f"{parent}.processing_{name}")
    other = f"{parent}.image_processing_{name}"
    with suppress(ImportError):
        sys.modules[other] = importlib.import_module(f"{parent}.image_processing_pil_{name}")
        try:
            return importlib.import_module(f"{parent}.processing_{name}")
        finally:
            del sys.modules[other]
    return None


def for_one_call(processor: Any) -> Any:
    """Return a copy of a processor that keeps what its image processor returned as `image_outputs`, such as rows and columns of tiles."""
    copied = copy.copy(processor)
    cls: Any = type(processor)
    copied.__class__ = _for_images(cls)
    vars(copied)["image_outputs"] = {}
    return copied


@cache
def _for_images(cls: Any) -> Any:
    """Return a class of processors that needs no part for videos or audio, for which transformers needs torchvision or other packages."""
    if hasattr(cls, "image_outputs"):
        return cls

    class ImageTextProcessor(cls):  # type: ignore[misc]
        image_outputs: ClassVar[dict[str, Any]] = {}

        @classmethod
        def get_attributes(cls) -> list[str]:
            return parts

        def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
            return type(None) if argument is None else super().check_argument_for_proper_class(argument_name, argument)

        def _process_images(self, images: Any, **options: Any) -> Any:
            found = super()._process_images(images, **options)
            self.__dict__["image_outputs"] = dict(found[0])
            return found

    parts: list[str] = cls.get_attributes()
    names = vars(sys.modules[cls.__module__])
    if names.get("num2words", str) is None:  # spells numbers in prompts about videos
        names["num2words"] = str
    ImageTextProcessor.__name__ = cls.__name__
    return ImageTextProcessor
