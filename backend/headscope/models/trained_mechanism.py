"""The mechanism that a model was trained with, from "headscope" in its config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ..errors import UnsafeModel
from ..mechanisms import MECHANISMS

# The mechanism of models that name none.
SOFTMAX: Mapping[str, Any] = {"name": "softmax"}


def read_mechanism(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read name and parameters of the mechanism. Learned vectors are replaced by None to keep requests and documents short.

    Raises UnsafeModel for an unknown mechanism or invalid parameters.
    """
    found = _validated(config)
    return {**found, "vectors": None} if found.get("vectors") else found


def read_vectors(config: Mapping[str, Any]) -> list[list[list[float]]] | None:
    """Read the vectors [layers, specials, width] that a PASTA-tuned model adds to its special tokens; None for other models. Raises UnsafeModel."""
    return _validated(config).get("vectors") or None


def _validated(config: Mapping[str, Any]) -> dict[str, Any]:
    section = config.get("headscope", {})
    chosen = section.get("mechanism", SOFTMAX) if isinstance(section, dict) else None
    name = chosen.get("name") if isinstance(chosen, Mapping) else None
    if not isinstance(chosen, Mapping) or not isinstance(name, str) or name not in MECHANISMS:
        raise UnsafeModel(f"headscope.mechanism in the model's config.json is not one of {', '.join(MECHANISMS)}.")
    params = MECHANISMS[name].params
    try:
        given = {key: value for key, value in chosen.items() if key != "name"}
        found = {"name": name, **params.model_validate(given).model_dump()}
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"] if part in params.model_fields)
        raise UnsafeModel(
            f"The model's config.json has invalid parameters for its mechanism {name}{f': {place}' if place else ''}."
        ) from None
    if found.get("vectors", ()) is None:
        raise UnsafeModel("The model's config.json has no vectors for its mechanism pasta.")
    return found
