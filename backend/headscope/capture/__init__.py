"""Runs a model and sees every layer's attention on the way. The only user of transformers' AttentionInterface."""

from .anatomy import Anatomy
from .check import examine
from .passes import Wanted, capture

__all__ = ["Anatomy", "Wanted", "capture", "examine"]
