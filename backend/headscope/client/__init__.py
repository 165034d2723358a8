"""A typed client of a Headscope server, blocking and async.

from headscope.client import Client

with Client("http://127.0.0.1:8000") as client:
    a = client.wait(client.create_analysis({"model": "minilm", "text": "The cat sat."}))
    client.maps(a.id, "weights", layer=4)["map"]  # float32 [1, H, Q, K]
"""

from __future__ import annotations

from ..errors import ApiError
from .clients import AsyncClient, Client

__all__ = ["ApiError", "AsyncClient", "Client"]
