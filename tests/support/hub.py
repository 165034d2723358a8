"""A small hub on this machine: as much of its HTTP interface as huggingface_hub asks for to fetch models and data sets."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Serves the folders org/name below `root` as models with one commit, those of datasets/org/name as data sets. `asked` counts requests by path.

    `broken` names a file that is cut off half-way through; `down` answers everything with 503.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: Counter[str] = Counter()
        self.broken: str | None = None
        self._held: str | None = None
        self._released = threading.Event()
        self.down = False

    def __enter__(self) -> Hub:
        return self.listen()

    def __exit__(self, *_: object) -> None:
        self.close()

    def listen(self, port: int = 0) -> Hub:
        """Begin to answer."""
        self._server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {"hub": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def close(self) -> None:
        """Close the listening socket."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @contextmanager
    def holding(self, name: str = "model.safetensors") -> Iterator[None]:
        """Keep files of that name back until the end of the block."""
        self._released.clear()
        self._held = name
        try:
            yield
        finally:
            self._held = None
            self._released.set()

    def wait(self, name: str) -> None:
        """Wait while files of that name are kept back."""
        if name == self._held:
            self._released.wait(60)

    def downloads(self) -> set[str]:
        """Names of the files that were asked for."""
        return {path.rsplit("/", 1)[1] for path in self.asked if "/resolve/" in path}


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.0"  # a connection per request, so that a hub that is closed is closed

    def log_message(self, *_: object) -> None:
        """Nothing: the test says what matters."""

    def do_HEAD(self) -> None:
        self._answer(send_body=False)

    def do_GET(self) -> None:
        self._answer(send_body=True)

    def _answer(self, *, send_body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked[path] += 1
        parts = path.strip("/").split("/")
        if self.hub.down:
            self._send(503, b"{}", send_body=send_body)
        elif parts[0] == "api":  # data sets lie in a folder of their own, as their addresses do
            folder = self.hub.root / "/".join(parts[1 if parts[1] == "datasets" else 2 : 4])
            kind = parts[4] if len(parts) > 4 else "revision"
            self._json({"revision": self._info, "tree": self._tree}[kind](folder) if folder.is_dir() else None)
        else:
            repository, _, rest = path.strip("/").partition("/resolve/")
            self._file(self.hub.root / repository / rest.partition("/")[2], send_body=send_body)

    def _info(self, folder: Path) -> object:
        name = folder.relative_to(self.hub.root).as_posix()
        files = [{"rfilename": path} for path in _files(folder)]
        return {"id": name, "modelId": name, "sha": COMMIT, "private": False, "tags": [], "siblings": files}

    def _tree(self, folder: Path) -> object:
        return [
            {"type": "file", "path": path, "size": (folder / path).stat().st_size, "oid": _etag(folder / path)}
            for path in _files(folder)
        ]

    def _json(self, document: object) -> None:
        if document is None:
            self._send(404, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})
        else:
            self._send(200, json.dumps(document).encode())

    def _file(self, path: Path, *, send_body: bool) -> None:
        if not path.is_file():
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"}, send_body=send_body)
            return
        headers = {"ETag": f'"{_etag(path)}"', "X-Repo-Commit": COMMIT}
        if send_body:
            self.hub.wait(path.name)
        self._send(200, path.read_bytes(), headers, send_body=send_body, cut=send_body and path.name == self.hub.broken)

    def _send(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        *,
        send_body: bool = True,
        cut: bool = False,
    ) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if send_body:
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = True


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _etag(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()
