"""Data sets of the hub: named as hub:org/name/path/in/repository, fetched into the hub's own cache."""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import DatasetUnavailable, HeadscopeError, InvalidDataset, InvalidRequest, Unknown
from .formats import FORMATS

PREFIX = "hub:"
NAMED = re.compile(r"hub:(?P<repository>[\w.-]{1,96}/[\w.-]{1,96})(/(?P<path>[^\\\0]{1,500}))?")
# File names of a repository that are shown where one has to be chosen.
SHOWN = 10


def fetch(name: str, most_bytes: int | None = None) -> Path:
    """The file of that name, fetched where it is not here yet; without a path the only one of a format that is read.

    Raises InvalidRequest, Unknown, DatasetUnavailable, or InvalidDataset for a file larger than `most_bytes`.
    """
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    found = NAMED.fullmatch(name)
    if found is None:
        raise InvalidRequest("A data set of the hub is named hub:org/name/path/in/repository.", pointer="/dataset")
    try:
        return _fetched(found["repository"], found["path"], most_bytes)
    except HeadscopeError:
        raise
    except LocalEntryNotFoundError as error:  # the hub can't be reached, and the file is not in its cache
        raise _unavailable() from error
    except (RepositoryNotFoundError, EntryNotFoundError, HFValidationError):
        raise Unknown("dataset", "The hub has no such data set, or no such file in it.", pointer="/dataset") from None
    except Exception as error:  # its own errors, the operating system's, and those of the HTTP library underneath
        raise _unavailable() from error


def _fetched(repository: str, path: str | None, most_bytes: int | None) -> Path:
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    path = path or _only(repository)
    size = get_hf_file_metadata(hf_hub_url(repository, path, repo_type="dataset")).size
    if most_bytes is not None and (size is None or size > most_bytes):
        raise InvalidDataset(
            f"The file on the hub has more than {most_bytes} bytes.", pointer="/dataset", limit=most_bytes, actual=size
        )
    return Path(hf_hub_download(repository, path, repo_type="dataset"))


def _unavailable() -> DatasetUnavailable:
    return DatasetUnavailable(
        "The data set could not be fetched from the hub. Try again later, or send the file itself.", pointer="/dataset"
    )


def _only(repository: str) -> str:
    """The one file of the repository that is of a format that is read. Raises InvalidRequest where there are several, or none."""
    from huggingface_hub import HfApi

    suffixes = tuple(suffix for one in FORMATS.values() for suffix in one.suffixes)
    files = HfApi().list_repo_files(repository, repo_type="dataset")
    usable = sorted(file for file in files if file.lower().endswith(suffixes))
    if len(usable) == 1:
        return str(usable[0])
    listed = ", ".join(usable[:SHOWN]) + (", ..." if len(usable) > SHOWN else "")
    raise InvalidRequest(
        f"The data set has several files; name one of them, as hub:org/name/file: {listed}."
        if usable
        else "The data set has no file of a format that can be read.",
        pointer="/dataset",
    )
