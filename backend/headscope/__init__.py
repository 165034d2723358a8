"""Headscope: see what attention heads do, and how much of what a head map shows reaches the output.

import headscope

model = headscope.load("minilm")
a = headscope.analyze(model, "The cat sat.")
a.maps["effective"]  # float32 [L, H, Q, K]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import errors
from ._version import __version__

if TYPE_CHECKING:
    from .figures import FIGURES
    from .figures.studies import STUDY_FIGURES
    from .lenses import LENSES
    from .library.analysis import Analysis, analyze, load, open, study  # noqa: A004 - headscope.open
    from .library.compare import compare
    from .library.from_attentions import from_attentions
    from .library.notebook import show
    from .library.study import Study
    from .library.training import attend_by, learn_pasta
    from .measures import MEASURES
    from .measures.compare import COMPARISONS
    from .mechanisms import MECHANISMS
    from .models.loading import Model

# What lives where. Imported on first use, so that the server's process, which only queues and reads, never loads torch.
_HOMES = {
    "COMPARISONS": "measures.compare",
    "FIGURES": "figures",
    "LENSES": "lenses",
    "MEASURES": "measures",
    "MECHANISMS": "mechanisms",
    "STUDY_FIGURES": "figures.studies",
    "Analysis": "library.analysis",
    "Model": "models.loading",
    "Study": "library.study",
    "analyze": "library.analysis",
    "attend_by": "library.training",
    "compare": "library.compare",
    "from_attentions": "library.from_attentions",
    "learn_pasta": "library.training",
    "load": "library.analysis",
    "open": "library.analysis",
    "show": "library.notebook",
    "study": "library.analysis",
}

__all__ = [
    "COMPARISONS",
    "FIGURES",
    "LENSES",
    "MEASURES",
    "MECHANISMS",
    "STUDY_FIGURES",
    "Analysis",
    "Model",
    "Study",
    "__version__",
    "analyze",
    "attend_by",
    "compare",
    "errors",
    "from_attentions",
    "learn_pasta",
    "load",
    "open",
    "show",
    "study",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headscope' has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
