"""Schemas of head scores: what every head of a model is for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .common import Strict
from .single import SingleDocument

Grid = list[list[float | None]]


class HeadScoresResult(Strict):
    """The score of every head in every battery, and its control: what it would get by chance on the same prompts."""

    model: str
    prompts: Annotated[int, Field(description="Number of prompts of each battery.")]
    seed: int
    layers: Annotated[list[int], Field(description="Numbers along axis L.")]
    heads: Annotated[list[int], Field(description="Numbers along axis H.")]
    scores: Annotated[dict[str, Grid], Field(description="[L][H] of every battery, 0 to 1.")]
    controls: Annotated[dict[str, Grid], Field(description="[L][H] of every battery, 0 to 1.")]
    missing: Annotated[dict[str, str], Field(description="Batteries that the model does not allow, and why.")]


class HeadScoresDocument(SingleDocument):
    """Head scores in any state. `result` is null until they are done."""

    model: str
    result: HeadScoresResult | None
