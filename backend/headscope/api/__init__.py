"""The REST interface, version 1, and the page. Nothing here imports torch."""
