"""Deployments that earlier versions made, each in a folder of its own, and the script that records them: python -m tests.upgrades.record NAME.

A folder has `home.tar.xz`, the data directory of one server, `cluster.tar.xz`, the data directory of a cluster with its database as SQL, and `answers.json`, what
the version itself answered. tests/contract/test_upgrade.py opens them with the present version.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import safetensors.numpy

from tests.support.server import Server

HERE = Path(__file__).parent
# Where a cluster keeps its results is in its database: the SQL has this in place of the folder.
STORE, DUMP = "/recorded/store", "database.sql"
TABLE = {"format": "csv"}


def read(server: Server, id_: str, key: str | None = None) -> dict[str, Any]:
    """Return what a server answers about an analysis, to the owner of the server's token or to one who has a share key: tensors as digests of their values."""
    given = {"share": key} if key else {}
    document = server.get(f"/analyses/{id_}", params=given).raise_for_status().json()
    kept = ("id", "status", "model", "mechanism", "lenses", "measures", "layers", "heads", "tokens", "warnings")
    maps = {lens: server.get(f"/analyses/{id_}/maps/{lens}", params=given) for lens in document["lenses"]}
    entropy = server.get(f"/analyses/{id_}/measures/entropy", params={"lens": "weights", **given})
    return {
        "document": {name: document[name] for name in kept},
        "maps": {lens: _digest(answer.raise_for_status().content) for lens, answer in maps.items()},
        "entropy": _digest(entropy.raise_for_status().content),
    }


def read_study(server: Server, id_: str) -> dict[str, Any]:
    """Return what a server answers about a study: its state, and its heads as a table."""
    document = server.get(f"/studies/{id_}").raise_for_status().json()
    table = server.get(f"/studies/{id_}/tables/heads", params=TABLE).raise_for_status()
    return {"status": document["status"], "heads": table.text.splitlines()}


def _digest(tensors: bytes) -> dict[str, str]:
    """Return type, shape and SHA-256 of each tensor."""
    return {
        name: f"{value.dtype} {list(value.shape)} {hashlib.sha256(value.tobytes()).hexdigest()}"
        for name, value in safetensors.numpy.load(tensors).items()
    }
