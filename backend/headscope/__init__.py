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
from . import study as _package
from ._version import __version__

# The package is imported first, so that importing its modules does not put it in the place of the function of its name.
del globals()[_package.__name__.rpartition(".")[2]], _package

if TYPE_CHECKING:
    from .attentions import from_attentions
    from .comparison import compare
    from .figures import FIGURES
    from .figures.studies import STUDY_FIGURES
    from .lenses import LENSES
    from .library import Analysis, analyze, load, open, study  # noqa: A004 - headscope.open
    from .measures import MEASURES
    from .measures.compare import COMPARISONS
    from .mechanisms import MECHANISMS
    from .models.loading import Model
    from .study.study import Study
    from .training import attend_by, learn_pasta
    from .widget import show

# What lives where. Imported on first use, so that the server's process, which only queues and reads, never loads torch.
_HOMES = {
    "COMPARISONS": "measures.compare",
    "FIGURES": "figures",
    "LENSES": "lenses",
    "MEASURES": "measures",
    "MECHANISMS": "mechanisms",
    "STUDY_FIGURES": "figures.studies",
    "Analysis": "library",
    "Model": "models.loading",
    "Study": "study.study",
    "analyze": "library",
    "attend_by": "training",
    "compare": "comparison",
    "from_attentions": "attentions",
    "learn_pasta": "training",
    "load": "library",
    "open": "library",
    "show": "widget",
    "study": "library",
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
