"""Runs a model and sees every layer's attention on the way. The only user of transformers' AttentionInterface."""

from .attention import capture
from .check import ensure_exact

__all__ = ["capture", "ensure_exact"]
