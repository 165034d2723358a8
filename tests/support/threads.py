"""The thread in which a request reads results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import anyio

T = TypeVar("T")


def in_thread(call: Callable[..., T], *arguments: object, **named: object) -> T:
    """Return what `call` returns in a thread of AnyIO."""
    return anyio.run(anyio.to_thread.run_sync, partial(call, *arguments, **named))
