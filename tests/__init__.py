"""Headscope's tests. Everything here is real: a server process, its child, files, signals; nothing is mocked."""
