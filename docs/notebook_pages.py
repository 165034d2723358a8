"""A hook of MkDocs: every notebook in docs/notebooks as a page, with the outputs that it was saved with."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

FOLDER = "notebooks"
DATA_URL = re.compile(r"data:image/png;base64,([A-Za-z0-9+/=]+)")
ABOUT = '\n*[Download this notebook]({name}.ipynb), and run it with Jupyter: `pip install "headscope[notebook]" jupyterlab`.*\n'
ALT = "What the cell above draws"


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and their pictures to the site."""
    for path in sorted(Path(config.docs_dir, FOLDER).glob("*.ipynb")):
        page = NotebookPage(path)
        files.append(File.generated(config, f"{FOLDER}/{path.stem}.md", content=page.text))
        for name, content in page.pictures.items():
            files.append(File.generated(config, f"{FOLDER}/{name}", content=content))
    return files


class NotebookPage:
    """A notebook as Markdown, and its pictures by file name."""

    def __init__(self, path: Path) -> None:
        self._name = path.stem
        self.pictures: dict[str, bytes] = {}
        cells = json.loads(path.read_text("utf-8"))["cells"]
        first, *others = ("\n\n".join(self._parts(cell)) for cell in cells)
        self.text = "\n\n".join([first, ABOUT.format(name=self._name).strip(), *others]) + "\n"

    def _parts(self, cell: dict[str, Any]) -> Iterator[str]:
        source = "".join(cell["source"]).strip()
        yield source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
        for output in cell.get("outputs", []):
            yield self._output(output)

    def _output(self, output: dict[str, Any]) -> str:
        data = {kind: "".join(content) for kind, content in output.get("data", {}).items()}
        if "image/svg+xml" in data:
            return f"![{ALT}]({self._keep('svg', data['image/svg+xml'].encode())})"
        if "text/html" in data:
            return DATA_URL.sub(lambda found: self._keep("png", base64.b64decode(found[1])), data["text/html"])
        text = "".join(output["text"]) if output["output_type"] == "stream" else data["text/plain"]
        return f"```text\n{text.rstrip()}\n```"

    def _keep(self, kind: str, content: bytes) -> str:
        """Keep a picture, and return its file name."""
        name = f"{self._name}-{len(self.pictures) + 1}.{kind}"
        self.pictures[name] = content
        return name
