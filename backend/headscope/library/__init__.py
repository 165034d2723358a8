"""The Python library: the functions of `import headscope`."""
