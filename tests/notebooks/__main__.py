"""python -m tests.notebooks [--write]

Executes the notebooks of the docs in a kernel; --write saves their outputs. Runs in the environment that `make notebooks` makes.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import nbformat

from .executed import DOCS, execute


def main() -> None:
    """Execute all notebooks. Raises CellExecutionError for the first one that fails."""
    parser = argparse.ArgumentParser("python -m tests.notebooks", description=__doc__)
    parser.add_argument("--write", action="store_true", help="save the outputs of the docs' notebooks")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headscope-notebooks-") as folder:
        for path in sorted(DOCS.glob("*.ipynb")):
            notebook = execute(path, Path(folder))
            if asked.write:
                nbformat.write(notebook, path)
            print(f"{path.stem} runs", flush=True)


if __name__ == "__main__":
    main()
