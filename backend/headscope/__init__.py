"""Headscope: see what attention heads do, and how much of what a head map shows reaches the output.

import headscope

model = headscope.load("minilm")
a = headscope.analyze(model, "The cat sat.")
a.maps["effective"]  # float32 [L, H, Q, K]
"""

import lazy_loader

# The public names are listed once, in __init__.pyi, and imported on first use: the server's process never loads torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
