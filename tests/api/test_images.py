"""Images over REST: valid ones are analysed, all others are one clear error, and the server stays up."""

from __future__ import annotations

import base64
import io
import socket
import threading
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.server import Server
from tests.support.variants import variants
from tests.unit import pictures


def asked(server: Server, image: str, **more: Any) -> tuple[int, dict[str, Any]]:
    """Return status and document of an analysis with the tiny vision model, once it has ended."""
    body = {"model": "vit", "image": image, "lenses": ["weights"], **more}
    answer = server.post(body, headers={"Prefer": "wait=60"})
    return answer.status_code, answer.json()


def code(found: tuple[int, dict[str, Any]]) -> str | None:
    """Return the error's code, whether the request was rejected or the analysis failed."""
    status, document = found
    if status >= 400:
        return str(document["code"])
    return None if document["status"] == "done" else str(document["error"]["code"])


@pytest.mark.parametrize("name", ["png", "jpeg", "webp", "palette-transparent", "cmyk", "one-pixel", "turned"])
def test_whole_images_are_analysed(server: Server, name: str) -> None:
    """One special token and 16 patches, each with its box."""
    status, document = asked(server, base64.b64encode(pictures.GOOD[name][0]()).decode())
    assert (status, document.get("status")) == (200, "done"), document
    assert [token["text"] for token in document["tokens"]][:3] == ["[CLS]", "0,0", "0,1"]
    assert document["tokens"][-1]["box"] == [24, 24, 32, 32]


def test_what_the_model_sees(server: Server) -> None:
    """The image is scaled and cropped, in its original colours; a text has none."""
    original = Image.open(io.BytesIO(pictures.GOOD["png"][0]())).convert("RGB")
    _, document = asked(server, base64.b64encode(pictures.GOOD["png"][0]()).decode())
    answer = server.get(f"/analyses/{document['id']}/image")
    assert answer.headers["content-type"] == "image/png"
    seen = Image.open(io.BytesIO(answer.content))
    assert list(seen.size) == document["grid"]["size"] == [32, 32]
    wanted = np.asarray(original.resize((32, 32), resample=2), int)
    assert np.abs(np.asarray(seen, int) - wanted).max() <= 1
    text = server.analyse(model="bert", text="A cat.", lenses=["weights"])
    assert server.get(f"/analyses/{text['id']}/image").json()["code"] == "not-ready"


def test_an_image_is_sent_once(server: Server) -> None:
    """Later requests may send the name from the document; an unknown name is one clear error."""
    _, first = asked(server, base64.b64encode(pictures.GOOD["jpeg"][0]()).decode())
    _, again = asked(server, first["image"])
    assert again["id"] == first["id"]
    status, other = asked(server, first["image"], lenses=["effective"])
    assert (status, other["status"], other["image"]) == (200, "done", first["image"])
    for name in (f"sha256:{'0' * 64}", "sha256:../../results", "sha256:"):
        assert code(asked(server, name)) == "invalid-image"


@variants("name", [name for name in pictures.BAD if name != "too-many-bytes"])
def test_anything_else_is_one_clear_error(server: Server, name: str) -> None:
    """An invalid image is rejected at once if its first bytes are wrong, otherwise when the worker decodes it."""
    image = base64.b64encode(pictures.BAD[name]()).decode()
    assert code(asked(server, image)) in ("invalid-image", "invalid-request")


def test_the_server_goes_on(server: Server) -> None:
    """After all of these, the same worker still responds."""
    test_whole_images_are_analysed(server, "png")


def test_too_many_bytes(server: Server) -> None:
    """More than 10 MB is rejected before it is received, or by its size."""
    image = base64.b64encode(pictures.BAD["too-many-bytes"]()).decode()
    assert code(asked(server, image)) in ("invalid-image", "too-large", "invalid-request")


def test_no_url_is_requested(server: Server) -> None:
    """An image URL is never requested by the server."""
    asked_for: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        stop = threading.Event()

        def listen() -> None:
            while not stop.is_set():
                try:
                    listening.accept()[0].close()
                    asked_for.append("connection")
                except TimeoutError:
                    continue

        thread = threading.Thread(target=listen)
        thread.start()
        port = listening.getsockname()[1]
        for address in (
            f"http://127.0.0.1:{port}/cat.png",
            f"http://localhost:{port}",
            f"//127.0.0.1:{port}/x",
            f"file://127.0.0.1:{port}/x",
        ):
            assert code(asked(server, address)) in ("invalid-image", "invalid-request")
        stop.set()
        thread.join()
    assert asked_for == []


@pytest.mark.parametrize(
    "image", ["/etc/hostname", "../../etc/passwd", "data:image/png;base64,", "data:image/png,x", "", "🦩"]
)
def test_text_is_never_a_path(server: Server, image: str) -> None:
    """Anything but base64 is rejected."""
    assert code(asked(server, image)) in ("invalid-image", "invalid-request")


def test_images_belong_to_vision_models(server: Server) -> None:
    """Text models reject images, and a request has either a text or an image."""
    image = base64.b64encode(pictures.GOOD["png"][0]()).decode()
    assert code(asked(server, image, model="bert")) == "unsupported"
    assert code(asked(server, image, text="a cat")) == "invalid-request"
    body = {"model": "vit", "text": "a cat"}
    assert server.post(body).json()["code"] == "invalid-request"
