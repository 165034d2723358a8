"""python -m tests.notebooks [--write] [--only docs|jupyterlab|marimo]

Executes the notebooks of the docs in a kernel (--write saves their outputs), and shows 144 heads of 512 tokens in JupyterLab and marimo, in the Chromium of this
machine: head, lens, pins and range reach Python from the page and the page from Python, and the saved notebook is small. Prints times and sizes, with the size
of a notebook with BertViz beside, and leaves pictures in build/notebooks. Runs in the environment that `make notebooks` makes.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

import nbformat

from . import jupyterlab, marimo
from .executed import DOCS, execute

PARTS = ("docs", "jupyterlab", "marimo")


def main() -> None:
    """Check everything, or one part. Raises what the first check that fails raises."""
    asked = _arguments()
    checks = dict(zip(PARTS, (partial(_docs, write=asked.write), jupyterlab.check, marimo.check), strict=True))
    for name in asked.only or PARTS:
        with tempfile.TemporaryDirectory(prefix="headscope-notebooks-") as folder:
            checks[name](Path(folder))
        print(f"{name}: passed", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.notebooks", description=__doc__)
    parser.add_argument("--write", action="store_true", help="save the outputs of the docs' notebooks")
    parser.add_argument("--only", action="append", choices=PARTS, help="one part")
    return parser.parse_args()


def _docs(folder: Path, write: bool) -> None:
    for path in sorted(DOCS.glob("*.ipynb")):
        notebook = execute(path, folder)
        if write:
            nbformat.write(notebook, path)
        print(f"docs: {path.stem} runs", flush=True)


if __name__ == "__main__":
    main()
