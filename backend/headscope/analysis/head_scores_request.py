"""The request for head scores: batteries, and how many prompts each makes. With the model, its content determines the id of the scores."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ..batteries import BATTERIES
from ..errors import Unsupported
from ..models.facts import Facts
from .request import versions

MOST_PROMPTS = 10_000
NOT_CAUSAL = "Batteries test language models that predict the next token. This model does not."


def _in_order(names: list[str]) -> list[str]:
    return [name for name in BATTERIES if name in names]


BatteryName: Any = Literal[tuple(BATTERIES)]
BatteryNames = Annotated[list[BatteryName], Field(min_length=1, max_length=100), AfterValidator(_in_order)]


class HeadScoresRequest(BaseModel):
    """The batteries that test every head, and the prompts that they make."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    batteries: BatteryNames | None = Field(
        default=None,
        description="Names of batteries. By default all; those that the model does not allow are then in `missing`.",
    )
    prompts: int = Field(default=20, ge=1, le=MOST_PROMPTS, description="Number of prompts of each battery.")
    seed: int = Field(default=0, ge=0, le=2**53 - 1, description="The same seed makes the same prompts.")

    def key(self, model: str, model_digest: str) -> str:
        """Return the id of the scores of a model, 32 hexadecimal digits."""
        record = {**versions(), "head-scores": self.model_dump(), "model": model, "model_digest": model_digest}
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:32]


def check_causal(facts: Facts, pointer: str | None = None) -> None:
    """Raise Unsupported for a model that is no causal language model."""
    if facts.kind != "decoder":
        raise Unsupported(NOT_CAUSAL, pointer=pointer)
