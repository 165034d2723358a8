"""The mechanism that a model was trained with, as its config.json says under "headscope"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ..errors import UnsafeModel
from ..mechanisms import MECHANISMS

# Of models that say nothing.
SOFTMAX: Mapping[str, Any] = {"name": "softmax"}


def read_mechanism(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Its name and all its parameters; in the place of vectors None, which stands for them and keeps requests and documents short.

    Raises UnsafeModel for one that Headscope does not have, or that has no such parameters.
    """
    found = _checked(config)
    return {**found, "vectors": None} if found.get("vectors") else found


def read_vectors(config: Mapping[str, Any]) -> list[list[list[float]]] | None:
    """What a model that was tuned by its special tokens adds to them, [layers, specials, width]; None for every other. Raises UnsafeModel."""
    return _checked(config).get("vectors") or None


def _checked(config: Mapping[str, Any]) -> dict[str, Any]:
    said = config.get("headscope", {})
    chosen = said.get("mechanism", SOFTMAX) if isinstance(said, dict) else None
    name = chosen.get("name") if isinstance(chosen, Mapping) else None
    if not isinstance(chosen, Mapping) or not isinstance(name, str) or name not in MECHANISMS:
        raise UnsafeModel(
            f"The model's config.json names no mechanism that Headscope has, under headscope.mechanism. There are: {', '.join(MECHANISMS)}."
        )
    params = MECHANISMS[name].params
    try:
        found = {"name": name, **params.model_validate(_without_name(chosen)).model_dump()}
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"] if part in params.model_fields)
        raise UnsafeModel(
            f"The model's config.json gives its mechanism, {name}, parameters that it does not take{f', the first of them {place}' if place else ''}."
        ) from None
    if found.get("vectors", ()) is None:
        raise UnsafeModel("The model's config.json gives its mechanism, pasta, no vectors.")
    return found


def _without_name(chosen: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in chosen.items() if key != "name"}
