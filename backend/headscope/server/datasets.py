"""The data sets of a server: uploaded files, files in the operator's folders, and data sets of the hub if they are allowed."""

from __future__ import annotations

import hashlib
import math
import os
import re
import stat
import tempfile
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ..errors import InvalidDataset, InvalidRequest, Unknown
from ..jobs import JobDatabase
from ..models.jacobian_lens import describe_jacobian_lens
from ..settings import Settings
from ..store import Blobs
from ..store.blobs import digest_of
from ..studies.data import hub
from ..studies.data.dataset import SAMPLE, BadRows, Dataset
from ..studies.data.formats import FORMATS
from ..studies.data.sandbox import ReadLimits, read_sandboxed
from ..studies.request import InlineData

ID = re.compile(r"[0-9a-f]{32}")
# Most files of the operator's folders that are listed, and how their places in the list begin.
MOST_LISTED, FILE = 10_000, "file-"
# Most characters of a text in a sample.
SHOWN_CHARACTERS = 500
# A fitted Jacobian lens is uploaded like a data set, and told from one by its suffix and this format.
LENS_SUFFIX, LENS_FORMAT = ".safetensors", "jacobian-lens"
NO_ROWS = "This file is a Jacobian lens, which effects read. It has no rows."

Columns = Mapping[str, str] | None


class Datasets:
    """The data sets, found by name and read. Methods block; the API calls them in threads.

    A data set is named by the id of an uploaded file, by `folder/path` of a file in one of HEADSCOPE_DATA_DIRS, or as `hub:org/name/path`. Only data sets
    that `owner` may read are found; None is the one user of a server without users.
    """

    def __init__(self, settings: Settings, files: Blobs, database: JobDatabase) -> None:
        self._settings, self._files, self._database = settings, files, database
        limits = ReadLimits(
            settings.dataset_memory_bytes, settings.dataset_seconds, settings.dataset_bytes, settings.text_bytes
        )
        self._read = partial(read_sandboxed, limits=limits, folder=files.staging)

    @property
    def staging(self) -> Path:
        """Local folder for files that are being transferred."""
        return self._files.staging

    def add(self, path: Path, name: str, format_: str | None, owner: str | None) -> dict[str, Any]:
        """Read an uploaded file, store it, and return its description. The same file under the same name has the same id.

        Raises InvalidDataset, Unknown for its format, StorageFull or StoreUnavailable; then nothing is stored.
        """
        id_ = _content_id(name, format_, digest_of(path))
        document = self._files.document(id_)
        if document is not None and owner:
            self._database.grant(owner, id_)
            document = self._files.document(id_)  # its last owner may have deleted it before
        if document is None:
            lens = format_ is None and name.lower().endswith(LENS_SUFFIX)
            document = _describe_lens(path, name, id_) if lens else self._describe(path, name, format_, {}, id_)
            self._files.put(id_, path, {**document, "given": format_})
            if owner:
                self._database.grant(owner, id_)
        return document

    def load(
        self, dataset: str | InlineData, columns: Columns, bad_rows: BadRows, owner: str | None
    ) -> tuple[str, Dataset]:
        """Return the name and rows of a data set. Inline data is stored like an uploaded file, and named by its id.

        Raises Unknown, InvalidDataset, InvalidRequest, DatasetUnavailable, StorageFull or StoreUnavailable.
        """
        if isinstance(dataset, InlineData):
            dataset = self._add_inline(dataset, owner)
        with self._open(dataset, owner) as (path, name, format_):
            found = self._read(path, name, format=format_, columns=columns, bad_rows=bad_rows)
        if owner and ID.fullmatch(dataset):
            self._database.grant(owner, dataset)  # only the newest grants are kept
        return dataset, found

    def identify(self, dataset: str, owner: str | None) -> tuple[Hashable, dict[str, Any] | None]:
        """Return a fingerprint of a data set's content (None for the hub), and the description of an uploaded file (else None). Raises Unknown."""
        if dataset.startswith(hub.PREFIX):
            return None, None
        if ID.fullmatch(dataset):
            return dataset, self._find(dataset, owner)
        path = self._find_in_folders(dataset)
        status = path.stat()
        return (str(path), status.st_mtime_ns, status.st_size), None

    def describe(self, dataset: str, format_: str | None, columns: Columns, owner: str | None) -> dict[str, Any]:
        """Read a data set with these columns, and describe it. Raises the errors of `load`."""
        with self._open(dataset, owner) as (path, name, given):
            return self._describe(path, name, format_ or given, columns, dataset)

    def find_lens(self, id_: str, owner: str | None) -> tuple[int, int]:
        """Return the number of matrices and the width of an uploaded Jacobian lens. Raises Unknown."""
        found = self._files.document(id_) if ID.fullmatch(id_) else None
        mine = owner is None or self._database.may_read(id_, owner)
        if found is None or not mine or found["format"] != LENS_FORMAT:
            raise Unknown(
                "dataset",
                "There is no Jacobian lens of that id, or it was evicted. Upload its file with POST /api/v1/datasets?name=lens.safetensors.",
                pointer="/jacobian_lens",
            )
        return found["rows"], found["width"]

    def list(self, owner: str | None, after: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield every data set `after` a place in the list: its own place, and its id, name and bytes. First the owner's, newest first, then those in the operator's folders.

        Places stay when data sets are uploaded or deleted. Raises StoreUnavailable or DatabaseUnavailable.
        """
        start = 0
        if after.startswith(FILE):
            start = int(after.removeprefix(FILE))
        else:
            yield from self._uploaded(owner, after)
        for place, (name, size) in enumerate(islice(self._walk_folders(), start, MOST_LISTED), start + 1):
            yield f"{FILE}{place}", {"id": name, "name": name, "bytes": size}

    def _uploaded(self, owner: str | None, after: str) -> Iterator[tuple[str, dict[str, Any]]]:
        mine = None if owner is None else self._database.granted(owner)
        readable = (id_ for id_ in self._files.ids() if mine is None or id_ in mine)
        found = [document for id_ in readable if (document := self._files.document(id_, used=False)) is not None]
        made, _, last = after.partition("-")
        start = (-float(made), last) if after else (-math.inf, "")
        for key, one in sorted(((-float(one["made"]), one["id"]), one) for one in found):
            if key > start:
                yield f"{one['made']}-{one['id']}", {part: one[part] for part in ("id", "name", "bytes")}

    def delete(self, id_: str, owner: str | None) -> None:
        """Delete an uploaded file, unless other users have uploaded it too. Raises Unknown."""
        if not ID.fullmatch(id_):
            raise _unknown()
        self._find(id_, owner)
        if self._database.forget(id_, owner) or owner is None:
            self._files.delete(id_)

    def _add_inline(self, dataset: InlineData, owner: str | None) -> str:
        with tempfile.TemporaryDirectory(dir=self.staging) as folder:
            path = Path(folder) / "sent"
            path.write_text(dataset.data, "utf-8", errors="surrogatepass", newline="")
            return str(self.add(path, dataset.name, dataset.format, owner)["id"])

    def _find(self, id_: str, owner: str | None) -> dict[str, Any]:
        document = self._files.document(id_)
        if document is None or not (owner is None or self._database.may_read(id_, owner)):
            raise _unknown()
        return document

    @contextmanager
    def _open(self, dataset: str, owner: str | None) -> Iterator[tuple[Path, str, str | None]]:
        """Provide a local path of the data set, its name, and its format if it was given."""
        if dataset.startswith(hub.PREFIX):
            if self._settings.hub != "any":
                raise Unknown(
                    "dataset",
                    "Data sets of the hub are not allowed here. Start the server with HEADSCOPE_HUB=any to allow them, or upload the file.",
                    pointer="/dataset",
                )
            path = hub.fetch(dataset, self._settings.dataset_bytes)
            yield path, path.name, None
        elif ID.fullmatch(dataset):
            document = self._find(dataset, owner)
            if document["format"] == LENS_FORMAT:
                raise InvalidDataset(NO_ROWS, pointer="/dataset")
            with tempfile.TemporaryDirectory(dir=self.staging) as folder:
                path = Path(folder) / "file"
                if not self._files.copy(dataset, path):
                    raise _unknown()
                yield path, document["name"], document["given"]
        else:
            path = self._find_in_folders(dataset)
            yield path, path.name, None

    def _find_in_folders(self, name: str) -> Path:
        """Return the path of a file in the operator's folders. Links that leave their folder are not followed."""
        first, _, rest = name.partition("/")
        for root in self._settings.data_dirs:
            if root.resolve().name == first and rest and (found := _file_below(root, rest)):
                return found[0]
        raise _unknown()

    def _walk_folders(self) -> Iterator[tuple[str, int]]:
        """Yield the name and bytes of every file in the operator's folders that has the suffix of a format."""
        suffixes = tuple(suffix for one in FORMATS.values() for suffix in one.suffixes)
        for root in (folder.resolve() for folder in self._settings.data_dirs):
            for folder, folders, names in os.walk(root):
                folders[:] = sorted(one for one in folders if not one.startswith("."))
                for path in (Path(folder) / one for one in sorted(names) if not one.startswith(".")):
                    name = path.relative_to(root).as_posix()
                    if path.name.lower().endswith(suffixes) and (found := _file_below(root, name)):
                        yield f"{root.name}/{name}", found[1]

    def _describe(self, path: Path, name: str, format_: str | None, columns: Columns, id_: str) -> dict[str, Any]:
        dataset = self._read(path, name, format=format_, columns=columns, max_rows=SAMPLE)
        sample = [_shorten(row.as_dict()) for row in dataset.rows]
        return {**dataset.report(), "id": id_, "bytes": path.stat().st_size, "sample": sample}


def _describe_lens(path: Path, name: str, id_: str) -> dict[str, Any]:
    """Describe a file with a matrix for every layer, as if they were its rows. Raises InvalidDataset."""
    try:
        layers, width = describe_jacobian_lens(path)
    except InvalidRequest as error:
        raise InvalidDataset(error.detail, pointer="/dataset") from error
    empty: dict[str, Any] = {
        "chosen": {},
        "reasons": {},
        "guessed": False,
        "bad_rows": [],
        "bad_count": 0,
        "sample": [],
    }
    columns = [f"J_{layer}" for layer in layers]
    own = {"id": id_, "name": name, "format": LENS_FORMAT, "encoding": "", "columns": columns, "rows": len(layers)}
    return {**empty, **own, "bytes": path.stat().st_size, "width": width}


def _file_below(root: Path, name: str) -> tuple[Path, int] | None:
    """Return the resolved path and the bytes of a file below `root`; None for a link that leaves it, or if there is no such file."""
    try:
        name.encode()  # file systems allow names that are not UTF-8, JSON does not
        path = (root / name).resolve(strict=True)
        status = path.stat()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, a loop of links, not permitted
        return None
    inside = path.is_relative_to(root.resolve()) and stat.S_ISREG(status.st_mode)
    return (path, status.st_size) if inside else None


def _shorten(row: dict[str, Any]) -> dict[str, Any]:
    number = row.pop("number")
    return {
        "row": number,
        **{part: value if isinstance(value, int) else value[:SHOWN_CHARACTERS] for part, value in row.items()},
    }


def _content_id(name: str, format_: str | None, digest: str) -> str:
    whole = "".join(f"{len(part)}:{part}" for part in (name, format_ or "", digest))
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _unknown() -> Unknown:
    return Unknown(
        "dataset",
        "There is no data set of that id or name, or it was evicted. GET /api/v1/datasets lists the data sets.",
        pointer="/dataset",
    )
