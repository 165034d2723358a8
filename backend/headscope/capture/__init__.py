"""Runs a model and sees every layer's attention on the way. The only user of transformers' AttentionInterface."""

from .batch import Batch, by_input, part
from .batch_check import batches_exactly
from .check import examine
from .forward import capture, capture_many
from .patched import PatchedModule
from .recording import FAULTS, CaptureSpec, ModelInput
from .sites import AttentionSites, Site

__all__ = [
    "FAULTS",
    "AttentionSites",
    "Batch",
    "CaptureSpec",
    "ModelInput",
    "PatchedModule",
    "Site",
    "batches_exactly",
    "by_input",
    "capture",
    "capture_many",
    "examine",
    "part",
]
