"""A package index on this machine, which serves a folder of wheels while an image is built."""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextmanager
def served(wheels: Path) -> Iterator[str]:
    """Serve the wheels of a folder to builds in the host's network, and yield the address of the index. Its pages are listings of folders, one for each project."""
    with tempfile.TemporaryDirectory() as root:
        for wheel in wheels.glob("*.whl"):
            project = Path(root, re.sub(r"[-_.]+", "-", wheel.name.partition("-")[0]).lower())
            project.mkdir(exist_ok=True)
            (project / wheel.name).symlink_to(wheel.resolve())
        server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=root))
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
