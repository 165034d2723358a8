"""plotly.js for the page: the file that the Python package plotly ships, made to work where styles may not be written into a document."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

# plotly.js leaves out its own style rules where an element of this name and class says that the page has them (see styles.css).
OWN_STYLES = "plotly.js-style-global"
# A map library inside it does so where there is an element of the name that it gives its rules.
INSIDE = re.compile(rb'getElementById\("([0-9a-f]{64})"\)')
PREPARE = """for (const id of %s) {
  const mark = document.createElement("meta")
  mark.id = id
  mark.className = "no-inline-styles"
  document.head.append(mark)
}
"""


@dataclass(frozen=True)
class Script:
    """A script, as it is and compressed, with a name for its content."""

    body: bytes
    zipped: bytes
    tag: str


@cache
def script() -> Script:
    """The script; some MB, read and compressed once."""
    shipped = files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    names = [OWN_STYLES, *sorted({found.decode() for found in INSIDE.findall(shipped)})]
    body = (PREPARE % json.dumps(names)).encode() + shipped
    return Script(body, gzip.compress(body, 6), hashlib.sha256(body).hexdigest()[:32])
