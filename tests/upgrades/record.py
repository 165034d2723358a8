"""python -m tests.upgrades.record NAME: record the deployments of this version in tests/upgrades/NAME.

It runs a server and a cluster, each with a user who analyses, shares and studies. Each release records its own, with its version as the name.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.support import studies
from tests.support.cluster import Cluster
from tests.support.models import small_models
from tests.support.postgres import PROGRAMS
from tests.support.server import API, Server
from tests.upgrades import DUMP, HERE, STORE, read, read_study

SHORT = {
    "model": "bert",
    "text": "The cat sat on the mat.",
    "lenses": ["weights", "effective"],
    "measures": ["entropy"],
}
# Enough tokens for results to keep factors in place of maps.
LONG = {**SHORT, "text": "The cat sat on the mat because it was tired. " * 8}
STUDY = studies.asked(8)


def main(folder: Path) -> None:
    """Write the three files of this version into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headscope-record-") as name:
        work = Path(name)
        models = small_models(work / "models")
        answers = {"embedded": record_embedded(work / "home", models), "cluster": record_cluster(work / "lab", models)}
        for place, archive in (("home", "home"), ("lab", "cluster")):
            with tarfile.open(folder / f"{archive}.tar.xz", "w:xz") as packed:
                packed.add(work / place, arcname=place, filter=_plain)
    (folder / "answers.json").write_text(json.dumps(answers, indent=1) + "\n", "utf-8")


def record_embedded(home: Path, models: Path) -> dict[str, Any]:
    """Use one server, then again with results that keep factors; return its answers."""
    server = Server(home, models)
    server.token = server.create_user("ada")
    with server:
        first = use(server)
        study = studies.done(server, STUDY)["id"]
        first["studies"] = {study: read_study(server, study)}
    with Server(home, models, token=server.token, keep="factors") as again:
        long = again.analyse(**LONG)["id"]
        first["analyses"][long] = read(again, long)
    return first


def record_cluster(home: Path, models: Path) -> dict[str, Any]:
    """Use a cluster and write its database into its data directory; return its answers."""
    with Cluster(home, models, user="ada") as cluster:
        answers = use(cluster)
        dump = [PROGRAMS / "pg_dump", "--inserts", "--no-owner", "--no-privileges", cluster.db.url]
        sql = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
    lines = [line for line in sql.replace(str(home), STORE).splitlines() if not line.startswith("\\")]
    (home / DUMP).write_text("\n".join(lines), "utf-8")
    return answers


def use(server: Server) -> dict[str, Any]:
    """Analyse and share; return the user's token, the key and the answers."""
    id_ = server.analyse(**SHORT)["id"]
    key = server.client.post(f"{API}/analyses/{id_}/share").raise_for_status().json()["key"]
    return {"token": server.token, "shared": {id_: key}, "analyses": {id_: read(server, id_)}}


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Remove the owner of a file from the archive; skip sockets and other special files."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member if member.isfile() or member.isdir() else None


if __name__ == "__main__":
    main(HERE / sys.argv[1])
