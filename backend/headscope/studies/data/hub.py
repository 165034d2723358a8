"""Download data sets of the Hugging Face Hub, named hub:org/name/path/in/repository, into the hub's cache."""

from __future__ import annotations

import re
from pathlib import Path

from ...core.lazy import LazyModule, huggingface_hub
from ...errors import DatasetUnavailable, HeadscopeError, InvalidDataset, InvalidRequest, Unknown
from .formats import FORMATS

# Not an attribute of huggingface_hub before it is imported.
hub_errors = LazyModule("huggingface_hub.errors")
PREFIX = "hub:"
NAMED = re.compile(r"hub:(?P<repository>[\w.-]{1,96}/[\w.-]{1,96})(/(?P<path>[^\\\0]{1,500}))?")
# File names listed in the error for a repository with several files.
SHOWN = 10


def fetch(name: str, max_bytes: int | None = None) -> Path:
    """Return the path of a file, downloading it if needed. Without a path in the name, the repository must have a single readable file.

    Raises InvalidRequest, Unknown, DatasetUnavailable, or InvalidDataset for a file larger than `max_bytes`.
    """
    found = NAMED.fullmatch(name)
    if found is None:
        raise InvalidRequest("Name a data set of the hub as hub:org/name/path/in/repository.", pointer="/dataset")
    try:
        return _download(found["repository"], found["path"], max_bytes)
    except HeadscopeError:
        raise
    except hub_errors.LocalEntryNotFoundError as error:  # the hub is unreachable, and the file is not in its cache
        raise _unavailable() from error
    except (
        hub_errors.RepositoryNotFoundError,
        hub_errors.EntryNotFoundError,
        hub_errors.HFValidationError,
    ):
        raise Unknown(
            "dataset", "The hub has no such data set, or the data set has no such file.", pointer="/dataset"
        ) from None
    except Exception as error:  # of the hub's client, its HTTP library, or the operating system
        raise _unavailable() from error


def _download(repository: str, path: str | None, max_bytes: int | None) -> Path:
    path = path or _single_file(repository)
    size = huggingface_hub.get_hf_file_metadata(huggingface_hub.hf_hub_url(repository, path, repo_type="dataset")).size
    if max_bytes is not None and (size is None or size > max_bytes):
        raise InvalidDataset(
            f"The file on the hub is larger than {max_bytes} bytes.", pointer="/dataset", limit=max_bytes, actual=size
        )
    return Path(huggingface_hub.hf_hub_download(repository, path, repo_type="dataset"))


def _unavailable() -> DatasetUnavailable:
    return DatasetUnavailable(
        "The data set could not be downloaded from the hub. Try again later, or upload the file.", pointer="/dataset"
    )


def _single_file(repository: str) -> str:
    """Return the only readable file of a repository. Raises InvalidRequest if there are several, or none."""
    suffixes = tuple(suffix for format_ in FORMATS.values() for suffix in format_.suffixes)
    files = huggingface_hub.HfApi().list_repo_files(repository, repo_type="dataset")
    usable = sorted(file for file in files if file.lower().endswith(suffixes))
    if len(usable) == 1:
        return str(usable[0])
    listed = ", ".join(usable[:SHOWN]) + (", ..." if len(usable) > SHOWN else "")
    raise InvalidRequest(
        f"The data set has several files. Name one of them, as hub:org/name/file: {listed}."
        if usable
        else "The data set has no file in a supported format.",
        pointer="/dataset",
    )
