"""Runs a model and sees every layer's attention on the way. The only user of transformers' AttentionInterface."""

from .anatomy import Anatomy, Site
from .check import examine
from .passes import capture, capture_many
from .recording import FAULTS, Input, Wanted
from .separate import separate
from .standing import Standing
from .together import Together, by_input, part

__all__ = [
    "FAULTS",
    "Anatomy",
    "Input",
    "Site",
    "Standing",
    "Together",
    "Wanted",
    "by_input",
    "capture",
    "capture_many",
    "examine",
    "part",
    "separate",
]
