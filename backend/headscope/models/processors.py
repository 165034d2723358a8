"""Processors of vision-language models: a tokenizer and an image processor, joined by the rules of the model's family. Videos and audio are left out."""

from __future__ import annotations

import copy
import importlib
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from transformers.models.auto import processing_auto


def load(folder: Path, family: str, tokenizer: Any, image_processor: Any) -> Any:
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
