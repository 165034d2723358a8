"""Draw the pictures of the README and the docs: python docs/pictures.py [NAME ...]

A name is that of a picture in docs/pictures, "figures" for all of plotly's, or "page" for those of the page itself; these two need Chromium. Without names all are
made.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from drawing import PICTURES, page, plots

TARGET = Path(__file__).resolve().parent / "pictures"
# Functions that make several pictures, with a browser.
TAKEN = {"figures": plots.take, "page": page.take}


def main(wanted: Sequence[str]) -> None:
    """Draw the named pictures, or all."""
    unknown = [name for name in wanted if name not in PICTURES and name not in TAKEN]
    if unknown:
        sys.exit(f"There is no picture {', '.join(unknown)}; there are: {', '.join([*TAKEN, *PICTURES])}.")
    TARGET.mkdir(exist_ok=True)
    for name in wanted or [*PICTURES, *TAKEN]:
        if name in TAKEN:
            TAKEN[name](TARGET)
        else:
            (TARGET / f"{name}.svg").write_text(PICTURES[name]().svg(), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
