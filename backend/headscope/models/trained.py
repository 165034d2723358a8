"""The mechanism that a model was trained with, as its config.json says under "headscope"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ..errors import UnsafeModel
from ..mechanisms import MECHANISMS

# Of models that say nothing.
SOFTMAX: Mapping[str, Any] = {"name": "softmax"}


def mechanism(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Its name and all its parameters. Raises UnsafeModel for one that Headscope does not have, or that has no such parameters."""
    said = config.get("headscope", {})
    chosen = said.get("mechanism", SOFTMAX) if isinstance(said, dict) else None
    name = chosen.get("name") if isinstance(chosen, Mapping) else None
    if not isinstance(chosen, Mapping) or not isinstance(name, str) or name not in MECHANISMS:
        raise UnsafeModel(
            f"The model's config.json names no mechanism that Headscope has, under headscope.mechanism. There are: {', '.join(MECHANISMS)}."
        )
    given = {key: value for key, value in chosen.items() if key != "name"}
    try:
        return {"name": name, **MECHANISMS[name].params.model_validate(given).model_dump()}
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"] if part in MECHANISMS[name].params.model_fields)
        raise UnsafeModel(
            f"The model's config.json gives its mechanism, {name}, parameters that it does not take{f', the first of them {place}' if place else ''}."
        ) from None
