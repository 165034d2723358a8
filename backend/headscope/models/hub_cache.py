"""The hub's cache on this machine: which models it holds, where, and how they are removed."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..core.lazy import LazyModule, huggingface_hub
from . import safety

# Not an attribute of huggingface_hub before it is imported.
hub_constants = LazyModule("huggingface_hub.constants")
PREFIX = "models--"


def find(hub: str, revision: str) -> Path | None:
    """Return the folder of a model in the cache, None if it is missing or incomplete."""
    try:
        found = huggingface_hub.snapshot_download(
            hub, revision=revision, allow_patterns=list(safety.ALLOWED), local_files_only=True
        )
    except (OSError, ValueError):
        return None
    folder = Path(found)
    return folder if is_whole(folder) else None


def ids() -> list[str]:
    """Return the hub ids of all repositories in the cache that belong to an organisation or user, whether complete or not."""
    names = [path.name.removeprefix(PREFIX).split("--") for path in _root().glob(f"{PREFIX}*")]
    return sorted("/".join(parts) for parts in names if len(parts) == 2)


def remove(hub: str) -> None:
    """Remove every revision of a model from the cache. Raises OSError if its files cannot be deleted."""
    # Not by delete_revisions, which finds a commit by its hash alone: a copy of a repository has the same commits.
    folder = _root() / f"{PREFIX}{hub.replace('/', '--')}"
    if folder.is_dir():
        shutil.rmtree(folder)


def _root() -> Path:
    return Path(hub_constants.HF_HUB_CACHE)


def is_whole(folder: Path) -> bool:
    """Return whether the folder has a configuration and weights, unlike an incomplete download or checkout."""
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))
