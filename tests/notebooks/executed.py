"""Execute the notebooks of the docs in a kernel of their own."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

DOCS = Path(__file__).resolve().parents[2] / "docs" / "notebooks"
# A cell trains for a quarter of a minute.
PATIENCE_S = 300


def execute(path: Path, folder: Path) -> nbformat.NotebookNode:
    """Return the notebook with new outputs, executed in `folder`. Raises CellExecutionError."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=PATIENCE_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        store_widget_state=False,
        record_timing=False,
    )
    client.execute()
    for cell in notebook.cells:
        cell["outputs"] = [_keep(output) for output in cell.get("outputs", [])]
        if cell.cell_type != "code":
            del cell["outputs"]
    return notebook


def _keep(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return an output without what only the running kernel knows: models of widgets and places in memory."""
    data = output.get("data", {})
    data.pop("application/vnd.jupyter.widget-view+json", None)
    if {"text/html", "image/svg+xml"} & data.keys():
        data.pop("text/plain", None)
    return output
