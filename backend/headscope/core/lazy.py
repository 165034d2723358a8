"""Packages that are imported on first use: `from ..core.lazy import torch` at the top of a file costs nothing until `torch.x` is read.

The server process starts in a fraction of a second and never needs torch. `lazy_loader.load` does not fit: it registers an empty module in `sys.modules`,
which `inspect` may fill by accident, and before Python 3.12.3 a second thread can see that module half filled. Here the import system's own lock decides.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import alembic.command as alembic_command
    import alembic.config as alembic_config
    import fsspec as fsspec
    import huggingface_hub as huggingface_hub
    import IPython.display as ipython_display
    import kaleido as kaleido
    import plotly.graph_objects as go
    import pyarrow as pa
    import pyarrow.parquet as pq
    import redis as redis
    import tokenizers as tokenizers
    import torch as torch
    import uvicorn as uvicorn
    from PIL import Image as Image
    from PIL import ImageOps as ImageOps
    from torch import Tensor as Tensor


class LazyModule(ModuleType):
    """A stand-in for the module called `__name__`; every attribute is looked up there once."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return dir(import_module(self.__name__))


if not TYPE_CHECKING:
    alembic_command = LazyModule("alembic.command")
    alembic_config = LazyModule("alembic.config")
    fsspec = LazyModule("fsspec")
    go = LazyModule("plotly.graph_objects")
    huggingface_hub = LazyModule("huggingface_hub")
    Image = LazyModule("PIL.Image")
    ImageOps = LazyModule("PIL.ImageOps")
    ipython_display = LazyModule("IPython.display")
    kaleido = LazyModule("kaleido")
    pa = LazyModule("pyarrow")
    pq = LazyModule("pyarrow.parquet")
    redis = LazyModule("redis")
    Tensor = Any  # for annotations, which nothing evaluates; elsewhere it is torch.Tensor
    tokenizers = LazyModule("tokenizers")
    torch = LazyModule("torch")
    uvicorn = LazyModule("uvicorn")

__all__ = [
    "alembic_command",
    "alembic_config",
    "go",
    "ipython_display",
    "pa",
    "pq",
]  # the other names are re-exported by "as" above
