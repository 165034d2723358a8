"""What a model supports, from its configuration alone: before anything is loaded, without torch.

The worker verifies everything again on the loaded model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Protocol

from ..core.attention import Kind
from ..core.declarations import CAPABILITIES
from ..errors import InvalidRequest, Unsupported
from ..mechanisms import MECHANISMS
from . import images
from .facts import Facts

# Missing capability -> reason: in cross-attention, in all attention of a decoder beside an encoder, under a causal mask, and without one.
CROSS = {
    "same-tokens": "In cross-attention queries and keys are different tokens.",
    "padding": "The published code pads only self-attention over a single text.",
}
DECODER = {"one-text": "The decoder of this model also reads its encoder."}
CAUSAL = {
    "bidirectional": "This method needs every token, and a causal model masks later ones.",
    "padding": "The published code pads only bidirectional models.",
}
IMAGE = {"padding": "An image always has the same size, so there is nothing to pad."}
NOT_CAUSAL = {"causal": "Every token of this model attends to all others."}

# Why heads have no effect on a prediction.
NO_HEAD = "This model has no head that predicts tokens, or classes of whole inputs."
NO_TOKENS = "This model has no output matrix over the tokens that it reads."
BEFORE_DECODER = (
    "Effects are those of the decoder's heads: the heads of an encoder reach the logits through the decoder only."
)
NOT_SOFTMAX = "Effects are computed with softmax, and this model attends by another mechanism."

# Encoder-decoders whose encoder takes audio: their text is the decoder's.
LISTENING = frozenset({"whisper"})
# What becomes of an image beside a text in the table, where it is read: the weights are exact; so they are, but the image's tokens are no known patches; the weights
# are those that the model returns.
EQUAL, UNLOCATED, FALLBACK = READ = ("equal", "equal, without patches", "fallback")
_TABLE = Path(__file__).resolve().parent / "families.json"


class InputKind(Protocol):
    """The fields of a request that determine which kind of model it fits."""

    @property
    def kind(self) -> Kind: ...
    @property
    def text(self) -> str | None: ...
    @property
    def text_pair(self) -> str | None: ...
    @property
    def messages(self) -> Any: ...
    @property
    def token_ids(self) -> list[int] | None: ...
    @property
    def target_ids(self) -> list[int] | None: ...
    @property
    def image(self) -> Any: ...
    @property
    def generate(self) -> Any: ...


def by_mask(*, kind: Kind, causal: bool) -> dict[str, str]:
    """Return missing capability -> reason, as far as the kind of attention and its mask determine it."""
    sides = {"cross": {**CROSS, **DECODER}, "decoder": DECODER}
    return {**sides.get(kind, {}), **(CAUSAL if causal else NOT_CAUSAL)}


def find_missing(facts: Facts, kind: Kind) -> dict[str, str]:
    """Return missing capability -> reason, for one kind of the model's attention. Raises Unsupported for a kind that it does not have."""
    facts.tower(kind)
    family = _families().get(facts.family, {})
    refused = family.get("refused", {}).get(facts.kinds[0] if kind == "self" else kind)
    if refused is not None:
        return dict.fromkeys(CAPABILITIES, refused)
    known: Mapping[str, str] = family.get("lacks", {})
    causal = facts.kind == "decoder" or kind == "decoder"
    silent = {} if facts.predicts in ("next-token", "masked-token") else {"unembedding": NO_TOKENS}
    found = {**known, **by_mask(kind=kind, causal=causal), **(IMAGE if facts.kind == "vision" else {}), **silent}
    return {need: reason for need, reason in found.items() if need in CAPABILITIES}


def explain_silence(facts: Facts, kind: Kind, of: Literal["prediction", "score"]) -> str | None:
    """Return why heads of a kind have no effect on a prediction, or on a score, of a model whose files are there; None if they may have one."""
    if of == "prediction" and facts.predicts is None:
        return NO_HEAD
    if of == "prediction" and kind == "encoder":
        return BEFORE_DECODER
    return None if facts.mechanism["name"] == "softmax" else NOT_SOFTMAX


def check_softmax(facts: Facts) -> None:
    """Raise Unsupported for a model that was trained with another mechanism, so that its predictions are not those of softmax."""
    if facts.mechanism["name"] != "softmax":
        raise Unsupported(NOT_SOFTMAX, pointer="/model")


def check_trained(facts: Facts) -> None:
    """Raise Unsupported for a model that does not support the mechanism that it claims to be trained with."""
    mechanism, lacking = MECHANISMS[facts.mechanism["name"]], find_missing(facts, "self")
    reason = next((lacking[need] for need in mechanism.needs if need in lacking), None)
    if reason is not None:
        raise Unsupported(
            f"The model's config.json says that it was trained with {mechanism.title}, which is impossible. {reason}"
        )


def check_input(facts: Facts, given: InputKind) -> None:
    """Raise InvalidRequest or Unsupported for an input that this kind of model does not take. Only the first bytes of an image are checked."""
    if facts.kind == "vision":
        if given.image is None or given.text is not None or given.messages is not None or given.token_ids is not None:
            raise InvalidRequest("This is a vision model. Give an image and no text.", pointer="/image")
        if given.generate is not None:
            raise Unsupported("Vision models do not generate text. Omit generate.", pointer="/generate")
        if isinstance(given.image, str):
            images.unpack(given.image)
        return
    if given.image is not None:
        _check_image_text(facts, given)
    if given.generate is not None and facts.kind == "encoder":
        raise Unsupported("This model cannot continue a text: only decoders can. Omit generate.", pointer="/generate")
    if given.generate is not None and facts.mechanism["name"] != "softmax":
        raise Unsupported(
            f"This model was trained with {MECHANISMS[facts.mechanism['name']].title}, but texts can be continued with softmax only. Omit generate.",
            pointer="/generate",
        )
    if given.messages is not None and facts.kind != "decoder":
        raise Unsupported("Only decoders with a chat template read conversations. Give a text.", pointer="/messages")
    if given.generate is not None and given.messages is not None and given.messages[-1].role == "assistant":
        raise InvalidRequest(
            "The model answers the last message, which is its own. Remove that message, or omit generate.",
            pointer="/messages",
        )
    if given.target_ids is not None and facts.kind != "encoder-decoder":
        raise InvalidRequest("Only encoder-decoder models take target_ids.", pointer="/target_ids")
    needs_target = given.kind in ("decoder", "cross") and facts.family not in LISTENING
    if needs_target and given.text_pair is None and given.target_ids is None and given.generate is None:
        raise InvalidRequest(
            "The decoder needs its own text. Give a second text, or, other than in a study, let the model generate it (generate).",
            pointer="/text_pair",
        )


def check_text_model(facts: Facts, listens: bool = False) -> None:
    """Raise Unsupported for a model that studies cannot use; whether it `listens` is known once it is loaded."""
    if facts.kind == "vision" or listens:
        raise Unsupported(
            "Studies read texts, but this model reads images or sound. Choose a text model.", pointer="/model"
        )


def reads_both(facts: Facts) -> bool:
    """Return whether a model reads an image beside a text, as far as it is known before it is loaded."""
    return bool(facts.image_text) and _families().get(facts.image_text, {}).get("image", EQUAL) in READ


def _check_image_text(facts: Facts, given: InputKind) -> None:
    if not facts.image_text:
        raise Unsupported("This model takes text. Choose a vision model for an image.", pointer="/image")
    if given.text is None and given.messages is None:
        raise InvalidRequest("This model reads an image together with a text. Give a text too.", pointer="/text")
    known = _families().get(facts.image_text, {}).get("image", EQUAL)
    if known not in READ:
        raise Unsupported(known, pointer="/image")
    if isinstance(given.image, str):
        images.unpack(given.image)


@cache
def _families() -> dict[str, Any]:
    """Return model type -> verdict on a small model of it. Empty if the table was made with another version of transformers."""
    table: dict[str, Any] = json.loads(_TABLE.read_text("utf-8"))
    found: dict[str, Any] = table["types"] if table["transformers"] == version("transformers") else {}
    return found
