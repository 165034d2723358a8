"""Version 1 of the REST API, and the page. Nothing here imports torch."""
