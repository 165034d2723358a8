"""Notebooks in JupyterLab and marimo, and the notebooks of the docs: make notebooks."""
