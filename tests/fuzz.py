"""Generated requests to every operation of a real server, checked against its OpenAPI document: python -m tests.fuzz [--requests N] [--cluster] [--seed N]

Schemathesis sends them with all of its checks. The server has users, finished analyses, studies and data sets, and most paths have their ids; requests
that delete get ids that no other request reads. Runs with the next seeds follow until the server has answered N requests.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from PIL import Image

from tests.api.users import Users, users
from tests.support.cluster import Cluster
from tests.support.models import small_models
from tests.support.server import API, Server
from tests.support.studies import asked

# Examples per operation of one run; the edge cases of the coverage phase and the sequences of the stateful phase come on top.
EXAMPLES = 40
WAIT = {"Prefer": "wait=60"}
FILE = {"Content-Type": "application/octet-stream"}


def fuzz(lab: Users, folder: Path, seed: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Run Schemathesis once with a configuration in `folder`. Its exit status is 0 if every check of every request passed."""
    config = folder / "schemathesis.toml"
    config.write_text(configuration(lab))
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", config, "run", f"--seed={seed}", *options]
    location = f"http://{lab.server.url}{API}/openapi.json"
    return subprocess.run([*command, location], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def configuration(lab: Users) -> str:
    """Return the settings of Schemathesis (TOML): those of fuzz.toml, the access token, and the names and ids of this server."""
    fixed = Path(__file__).with_suffix(".toml").read_text()
    words = "".join(f"[dictionaries.{name}]\nvalues = {json.dumps(values)}\n" for name, values in names(lab).items())
    return f"headers = {{ Authorization = 'Bearer {lab.tokens['ada']}' }}\n{fixed}\n{words}"


def names(lab: Users) -> dict[str, list[Any]]:
    """Fill the server, and return the names and ids to use, by path parameter."""
    analyses = [
        lab.submit(lab.ada, "The cat sat.", lenses=["weights", "effective"], measures=["entropy", "patterns"]),
        lab.submit(lab.ada, "The dog sat.", measures=["entropy", "head_roles", "qk_distance", "max_activation"]),
        lab.submit(lab.ada, "A cat.", model="gpt2", maps=False),
        lab.submit(lab.ada, text=None, model="vit", image=picture()),
    ]
    studies = [lab.ada.post(f"{API}/studies", json=asked(count), headers=WAIT).json()["id"] for count in range(5, 10)]
    datasets = [
        lab.ada.post(f"{API}/datasets?name={name}.csv", content=b"text\nOne.\n", headers=FILE).json()["id"]
        for name in "abcdef"
    ]
    return {
        "analyses": analyses,
        "spare_analyses": [lab.submit(lab.ada, f"Spare {number}.") for number in range(8)],
        "studies": studies[:1],
        "spare_studies": studies[1:],
        "datasets": [*datasets[:1], "offered/cats.txt"],
        "spare_datasets": datasets[1:],
        "files": ["a.txt", "b.csv", "c.jsonl", "d.parquet"],
        "models": ["bert", "gpt2", "llama", "t5", "vit", "minilm"],
        "tables": ["heads", "inputs", "failed"],
        "places": [0, 1],
        "queries": ["entropy < 1", "vertical", "layer < 4 and patterns = diagonal", "The cat sat."],
        **{kind: listed(lab, kind) for kind in ("lenses", "measures", "figures")},
    }


def listed(lab: Users, kind: str) -> list[Any]:
    """Return the names of the server's lenses, measures or figures."""
    return [item["name"] for item in lab.ada.get(f"{API}/{kind}").json()["items"]]


def picture() -> str:
    """Return a PNG in base64."""
    written = io.BytesIO()
    Image.new("RGB", (32, 32), "orange").save(written, "PNG")
    return base64.b64encode(written.getvalue()).decode()


def answered(lab: Users) -> Counter[tuple[str, str, str]]:
    """Return the number of requests that the server has answered, by route, method and class of status."""
    found = re.findall(
        r'^headscope_http_requests_total{method="(.+?)",route="(.+?)",status="(.+?)"} (.+)$',
        lab.ada.get("/metrics").text,
        re.MULTILINE,
    )
    return Counter({(route, method, status): int(float(number)) for method, route, status, number in found})


def main(argv: Iterable[str] | None = None) -> int:
    """Fuzz until that many requests are sent or a check fails, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cluster", action="store_true")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with laboratory(folder, small_models(folder / "models"), Cluster if given.cluster else Server) as lab:
            failed, seed = False, given.seed
            while not failed and answered(lab).total() < given.requests:
                done = fuzz(lab, folder, seed, f"--max-examples={EXAMPLES}")
                print(done.stdout, f"seed {seed}: {answered(lab).total()} requests so far", sep="\n", flush=True)
                failed, seed = done.returncode != 0, seed + 1
            print(*(f"{number:6} {' '.join(what)}" for what, number in sorted(answered(lab).items())), sep="\n")
    return int(failed)


def laboratory(folder: Path, models: Path, kind: type[Server] = Server) -> AbstractContextManager[Users]:
    """A server with users and a folder of data sets."""
    offered = folder / "offered"
    offered.mkdir()
    (offered / "cats.txt").write_text("The cat sat.\nThe dog sat.\n")
    return users(folder / "home", models, kind, data_dirs=[str(offered)])


if __name__ == "__main__":
    sys.exit(main())
