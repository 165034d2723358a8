"""Tests of what heads are for, on prompts made for a model's own tokens: one family per file and one line per battery here."""

from __future__ import annotations

from .base import Battery
from .lists import SUCCESSOR
from .repeated import DUPLICATE_TOKEN, INDUCTION, PREVIOUS_TOKEN
from .sentences import DELIMITER, RETRIEVAL, S_INHIBITION

BATTERIES: dict[str, Battery] = {
    battery.name: battery
    for battery in (PREVIOUS_TOKEN, DUPLICATE_TOKEN, INDUCTION, SUCCESSOR, S_INHIBITION, RETRIEVAL, DELIMITER)
}

__all__ = ["BATTERIES"]
