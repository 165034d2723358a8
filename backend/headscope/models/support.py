"""What can be done with a model, told from its configuration alone: before anything is loaded, without torch.

The worker proves everything again on the loaded model; what this file does not know is left to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from ..core.attention import Kind
from ..core.declarations import CAPABILITIES
from ..errors import InvalidRequest, Unsupported
from ..mechanisms import MECHANISMS
from . import images
from .facts import Facts

# Need -> why it can't be met: in cross-attention, under a causal mask, and without one.
CROSS = {
    "same-tokens": "In cross-attention queries and keys are different tokens.",
    "padding": "The published code pads only self-attention over a single text.",
}
CAUSAL = {
    "bidirectional": "This method needs every token, and a causal model masks later ones.",
    "padding": "The published code pads only bidirectional models.",
}
IMAGE = {"padding": "An image always has the same size, so there is nothing to pad."}
NOT_CAUSAL = {"causal": "Every token of this model attends to all others."}

# Encoder-decoders whose encoder takes sound: their text is the decoder's.
LISTENING = frozenset({"whisper"})
_TABLE = Path(__file__).resolve().parent / "families.json"


class InputKind(Protocol):
    """The input of a request, as far as it decides what kind of model it suits."""

    @property
    def kind(self) -> Kind: ...
    @property
    def text(self) -> str | None: ...
    @property
    def text_pair(self) -> str | None: ...
    @property
    def target_ids(self) -> list[int] | None: ...
    @property
    def image(self) -> Any: ...
    @property
    def generate(self) -> Any: ...


def by_mask(*, cross: bool, causal: bool) -> dict[str, str]:
    """Need -> reason, as the kind of attention and its mask decide it."""
    return {**(CROSS if cross else {}), **(CAUSAL if causal else NOT_CAUSAL)}


def find_missing(facts: Facts, kind: Kind) -> dict[str, str]:
    """Need -> why this kind of attention of the model can't meet it. Raises Unsupported for a kind that it does not have."""
    facts.tower(kind)
    known: Mapping[str, str] = _families().get(facts.family, {}).get("lacks", {})
    causal = facts.kind == "decoder" or kind == "decoder"
    found = {**known, **by_mask(cross=kind == "cross", causal=causal), **(IMAGE if facts.kind == "vision" else {})}
    return {need: reason for need, reason in found.items() if need in CAPABILITIES}


def check_trained(facts: Facts) -> None:
    """Raise Unsupported for a model that can't carry the mechanism that it is said to be trained with."""
    mechanism, lacking = MECHANISMS[facts.mechanism["name"]], find_missing(facts, "self")
    reason = next((lacking[need] for need in mechanism.needs if need in lacking), None)
    if reason is not None:
        raise Unsupported(
            f"The model's config.json says that it was trained with {mechanism.title}, which can't be. {reason}"
        )


def check_writing(facts: Facts) -> None:
    """Raise Unsupported for a model that Headscope can't let write as it was trained to."""
    if facts.mechanism["name"] != "softmax":
        raise Unsupported(
            f"This model was trained with {MECHANISMS[facts.mechanism['name']].title}, and a text is continued with softmax only. Leave generate out.",
            pointer="/generate",
        )


def check_input(facts: Facts, given: InputKind) -> None:
    """Raise InvalidRequest or Unsupported for an input that this kind of model does not take; of an image only the first bytes are looked at."""
    if facts.kind == "vision":
        if given.image is None:
            raise InvalidRequest("This is a vision model. Give it an image, and no text.", pointer="/image")
        if given.generate is not None:
            raise Unsupported("A vision model writes no text. Leave generate out.", pointer="/generate")
        images.unpack(given.image)
        return
    if given.image is not None:
        raise Unsupported("This model is analysed on text. Choose a vision model for an image.", pointer="/image")
    if given.generate is not None and facts.kind == "encoder":
        raise Unsupported(
            "This model can't continue a text: only decoders can. Leave generate out.", pointer="/generate"
        )
    if given.generate is not None:
        check_writing(facts)
    if given.target_ids is not None and facts.kind != "encoder-decoder":
        raise InvalidRequest("Only encoder-decoder models take target_ids.", pointer="/target_ids")
    needs_target = given.kind in ("decoder", "cross") and facts.family not in LISTENING
    if needs_target and given.text_pair is None and given.target_ids is None and given.generate is None:
        raise InvalidRequest(
            "The decoder needs a text of its own. Give a second text, or let the model write it (generate).",
            pointer="/text_pair",
        )


@cache
def _families() -> dict[str, Any]:
    """Model type -> what a small model of it was found to lack. Empty if the table was made with another version of transformers than the installed one."""
    table: dict[str, Any] = json.loads(_TABLE.read_text("utf-8"))
    found: dict[str, Any] = table["types"] if table["transformers"] == version("transformers") else {}
    return found
