"""Prints the OpenAPI document, from which the page's types are generated: python -m headscope.api.openapi"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from ..settings import Settings
from .app import create


def document() -> dict[str, Any]:
    """Return the OpenAPI document of this version."""
    with tempfile.TemporaryDirectory() as home:
        return create(Settings(home=Path(home))).openapi()


if __name__ == "__main__":
    print(json.dumps(document(), indent=1, sort_keys=True))  # noqa: T201 - the command's output
