"""plotly.js for the page: the file from the Python package plotly, adapted to a content security policy that forbids inline styles."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

# plotly.js skips its own style rules if an element with this id and class declares that the page has them (see styles.css).
OWN_STYLES = "plotly.js-style-global"
# A bundled map library skips its rules if there is an element with the id of its style sheet.
INSIDE = re.compile(rb'getElementById\("([0-9a-f]{64})"\)')
PREPARE = """for (const id of %s) {
  const mark = document.createElement("meta")
  mark.id = id
  mark.className = "no-inline-styles"
  document.head.append(mark)
}
"""


@dataclass(frozen=True)
class PlotlyScript:
    """plotly.js, plain and compressed, with an ETag."""

    body: bytes
    zipped: bytes
    tag: str


@cache
def load_script() -> PlotlyScript:
    """Return plotly.js (several MB), read and compressed once."""
    shipped = files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    names = [OWN_STYLES, *sorted({found.decode() for found in INSIDE.findall(shipped)})]
    body = (PREPARE % json.dumps(names)).encode() + shipped
    return PlotlyScript(body, gzip.compress(body, 6), hashlib.sha256(body).hexdigest()[:32])
