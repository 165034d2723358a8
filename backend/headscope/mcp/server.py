"""The server: the tools over standard input and output."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from .._version import __version__
from ..errors import HeadscopeError
from .answers import write_answer
from .tools import Tools

INSTRUCTIONS = """Headscope runs a transformer on a text and shows what its attention heads do.

A head is named layer.head, both counted from 0, such as 18.6. A lens is a way to read its attention, a measure is a number per head,
and an effect is what the head does to a prediction.
To find heads by what they do on one text, call analyze, then find_heads and read_edges. To find heads of a known role, such as induction, call head_scores.
To find what holds over many texts, call study. A map alone shows where a head looks; before saying that a head matters for a prediction, call effect.
Answers are cut to the most important entries; `left_out` says what is missing, and `limit` asks for more. Errors say what to change."""


def make_server() -> MCPServer:
    """Return a server with its own models and results."""
    server = MCPServer(
        "headscope", title="Headscope", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    turn = threading.Lock()
    for tool in Tools().all:
        server.add_tool(_answering(tool, turn), structured_output=False)
    return server


def _answering(tool: Callable[..., dict[str, Any]], turn: threading.Lock) -> Callable[..., str]:
    """Return a tool that answers with bounded JSON, runs one at a time with the others, and raises ToolError in place of HeadscopeError."""
    default = signature(tool).parameters["limit"].default

    @wraps(tool)
    def answer(**arguments: Any) -> str:
        try:
            with turn:
                return write_answer(tool(**arguments), arguments.get("limit", default))
        except HeadscopeError as error:
            raise ToolError(f"{error.detail} [{error.code}]") from error

    return answer
