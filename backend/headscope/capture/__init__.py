"""Runs a model and sees every layer's attention on the way. The only user of transformers' AttentionInterface."""

from .anatomy import Anatomy
from .check import examine
from .passes import capture, capture_many
from .recording import FAULTS, Input, Wanted
from .separate import separate

__all__ = ["FAULTS", "Anatomy", "Input", "Wanted", "capture", "capture_many", "examine", "separate"]
