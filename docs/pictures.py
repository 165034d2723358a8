"""Makes the pictures of README and docs: python docs/pictures.py [NAME ...]

A name is that of a picture in docs/pictures, or "page" for those of the page itself, which need Chromium. Without names all are made.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from drawing import PICTURES, page

TARGET = Path(__file__).resolve().parent / "pictures"


def main(wanted: Sequence[str]) -> None:
    """Make the pictures that are wanted, or all."""
    unknown = [name for name in wanted if name not in PICTURES and name != "page"]
    if unknown:
        sys.exit(f"There is no picture {', '.join(unknown)}; there are: page, {', '.join(PICTURES)}.")
    TARGET.mkdir(exist_ok=True)
    for name in wanted or PICTURES:
        if name != "page":
            (TARGET / f"{name}.svg").write_text(PICTURES[name]().svg(), "utf-8")
    if not wanted or "page" in wanted:
        page.take(TARGET)


if __name__ == "__main__":
    main(sys.argv[1:])
