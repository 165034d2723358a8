"""Studies for tests: a data set of our own, and what becomes of them on a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import headscope
from tests.support.server import Server, eventually

WORDS = "the cat sat on a mat because it was tired and some heads look back at commas , others at nothing .".split()


def lines(count: int) -> str:
    """JSON lines with texts of 3 to 22 words, no two the same."""
    texts = (" ".join(WORDS[(3 * row + place) % len(WORDS)] for place in range(3 + row % 20)) for row in range(count))
    return "".join(
        json.dumps({"sentence": f"{text} {row}", "label": "ab"[row % 2]}) + "\n" for row, text in enumerate(texts)
    )


def asked(count: int = 40, **more: Any) -> dict[str, Any]:
    """A request for a study of so many inputs by a tiny model; a chunk has 256 of them."""
    data = {"name": "cats.jsonl", "data": lines(count)}
    chosen = {"model": "bert", "lenses": ["weights"], "measures": ["entropy", "patterns", "special_tokens"]}
    return {"dataset": data, **chosen, **more}


def submit(server: Server, body: dict[str, Any]) -> str:
    """Ask for a study; its id."""
    answer = server.post(body, "/studies")
    assert answer.status_code in (200, 202), answer.text
    return str(answer.json()["id"])


def shown(server: Server, id_: str) -> dict[str, Any]:
    """The document of a study."""
    answer = server.get(f"/studies/{id_}")
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def ended(server: Server, id_: str) -> dict[str, Any]:
    """The document of a study once it has ended."""

    def over() -> dict[str, Any] | None:
        document = shown(server, id_)
        return document if document["status"] in ("done", "failed", "cancelled") else None

    return eventually(over, "the end of the study")


def done(server: Server, body: dict[str, Any]) -> dict[str, Any]:
    """Ask for a study and wait until it is done; its document."""
    document = ended(server, submit(server, body))
    assert document["status"] == "done", document["error"]
    return document


def midway(server: Server, id_: str, inputs: int = 1) -> None:
    """Wait until some chunks of a study are done, and others are not."""

    def begun() -> bool:
        document = shown(server, id_)
        assert document["status"] in ("queued", "running"), document
        return bool(document["progress"]["inputs"] >= inputs)

    eventually(begun, "a chunk that is done")


def arrays(server: Server, id_: str, folder: Path) -> dict[str, NDArray[Any]]:
    """All numbers of a study, by the file that the server exports."""
    path = folder / f"{id_}.safetensors"
    answer = server.get(f"/studies/{id_}/export")
    assert answer.status_code == 200, answer.text
    path.write_bytes(answer.content)
    return dict(headscope.Study.open(path).arrays)


def same(one: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]) -> None:
    """To the last bit."""
    assert one.keys() == other.keys()
    different = [
        name for name in one if not np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f")
    ]
    assert not different
