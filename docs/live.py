"""The live examples of the docs: analyses that are exported when the site is built, and need nothing but a browser."""

from __future__ import annotations

from pathlib import Path

import headscope
from headscope.api.documents.site_list import name_file

# Beside gallery.html, which shows them.
FOLDER = "live"
LONG = (
    "When the old clock on the town hall stopped, nobody noticed at first. The baker opened his shop when the bread was done, "
    "and the children came to school when they were hungry for company."
)
# The model and the text of each, by title.
EXAMPLES = {
    "The null part of a long sentence": ("minilm", LONG),
    "What “it” refers to": ("minilm", "The trophy did not fit into the suitcase because it was too big."),
    "A verb and its subject": ("twin-gpt-softmax", "The keys to the old cabinet in the kitchen are on the table."),
    "Atoms of a reaction": ("rxnmapper", "CC(=O)O.OCC>>CC(=O)OCC.O"),
}
MEASURES = ("entropy", "null_share", "patterns", "special_tokens")
FILES = tuple(f"{FOLDER}/{name}" for name in ("index.html", *(name_file(title, ()) for title in EXAMPLES)))


def write(site: Path) -> None:
    """Analyse the examples, and add their pages to the site."""
    analyses = {title: headscope.analyze(model, text, measures=MEASURES) for title, (model, text) in EXAMPLES.items()}
    headscope.export_site(site / FOLDER, analyses, title="Live examples")
