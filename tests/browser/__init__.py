"""The real page in a real browser, before a real server."""
