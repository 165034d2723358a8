"""The capture of every layer's attention during a forward pass. The only user of transformers' AttentionInterface."""

from .batch import Batch, by_input, part
from .batch_check import batches_exactly
from .check import examine
from .direct import DirectPath, PathPart, direct_path
from .forward import capture, capture_many
from .outputs import gradients_of_heads, outputs_of_heads
from .patched import PatchedModule
from .recording import INPUT_ERRORS, CaptureSpec, ModelInput
from .replaced import replaced_logits
from .sites import AttentionSites, Site

__all__ = [
    "INPUT_ERRORS",
    "AttentionSites",
    "Batch",
    "CaptureSpec",
    "DirectPath",
    "ModelInput",
    "PatchedModule",
    "PathPart",
    "Site",
    "batches_exactly",
    "by_input",
    "capture",
    "capture_many",
    "direct_path",
    "examine",
    "gradients_of_heads",
    "outputs_of_heads",
    "part",
    "replaced_logits",
]
