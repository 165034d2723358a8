"""Where the files of a model are, and the digest of everything in them that determines results. Imports neither torch nor transformers."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import CorruptModel, HeadscopeError
from . import safety
from .facts import find_quantiser
from .gguf_files import header

# Changes whenever the conversion of a GGUF file changes.
CONVERSION = 1


@dataclass(frozen=True, slots=True)
class Located:
    """A model and the location of its files: a local `folder`, which may be `in_cache` of the hub, a `gguf` file, or the `hub`. Without one it is not available.

    A GGUF file is converted into a subfolder of `conversions` when the model is loaded.
    """

    name: str
    folder: Path | None
    hub: str | None = None
    revision: str = "main"

    in_cache: bool = False
    gguf: Path | None = None
    conversions: Path | None = None

    @property
    def local(self) -> bool:
        """Whether the files are on this machine."""
        return self.folder is not None or self.gguf is not None

    @property
    def bytes(self) -> int:
        """Size of the weights on this machine, 0 if there are none."""
        files = [self.gguf] if self.gguf else self.folder.glob("*.safetensors") if self.folder else ()
        return sum(path.stat().st_size for path in files)

    @property
    def parameters(self) -> int | None:
        """Number of the weights on this machine, None if there are none, or their files cannot be read or are quantised."""
        try:
            if self.gguf is not None:
                return header.read(self.gguf).parameters
            if self.folder is None:
                return None
            quantised = find_quantiser(safety.read_json(self.folder / "config.json"))  # several weights to a number
            files = safety.weight_files(self.folder)
            return None if quantised else sum(safety.count_weights(path) for path in files)
        except (HeadscopeError, OSError):
            return None

    def lacks_template(self) -> bool:
        """Return whether the files are on this machine and have no chat template. Raises CorruptModel."""
        if self.gguf is not None:
            return "tokenizer.chat_template" not in header.read(self.gguf).values
        if self.folder is None or (self.folder / "chat_template.jinja").is_file():
            return False
        config = self.folder / "tokenizer_config.json"
        return not config.is_file() or not safety.read_json(config).get("chat_template")

    def digest(self) -> str:
        """Return the SHA-256 of everything that determines results: weights, configuration and tokenizer files; before download, of the hub id."""
        if self.gguf is not None:
            return hashlib.sha256(f"gguf:{CONVERSION}:{file_digest(self.gguf)}".encode()).hexdigest()
        if self.folder is None:
            return hashlib.sha256(f"hub:{self.hub}@{self.revision}".encode()).hexdigest()
        whole = hashlib.sha256()
        for name in sorted(filter(safety.is_allowed, os.listdir(self.folder))):  # noqa: PTH208 - every request comes here
            path = self.folder / name
            if path.exists():
                whole.update(f"{len(name)}:{name}:{file_digest(path)};".encode())
        return whole.hexdigest()

    def accepted_digests(self) -> set[str]:
        """Return the digests under which a request for the model may have been accepted: of its files, or of its hub id before the download."""
        return {self.digest(), *([replace(self, folder=None).digest()] if self.hub else [])}


# path -> ((size, mtime, inode), digest), so that weights are hashed once per process.
_digests: dict[Path, tuple[tuple[int, int, int], str]] = {}


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a model's file. Raises CorruptModel if it is not a file or no longer exists."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError
        fingerprint = (status.st_size, status.st_mtime_ns, status.st_ino)
        if path not in _digests or _digests[path][0] != fingerprint:
            with path.open("rb") as file:
                _digests[path] = fingerprint, hashlib.file_digest(file, "sha256").hexdigest()
        return _digests[path][1]
    except OSError:
        raise CorruptModel(f"The model's {path.name} cannot be read.") from None
