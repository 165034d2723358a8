"""The server: the tools over standard input and output."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from pydantic import BaseModel, ConfigDict, create_model

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
    turn = threading.Lock()
    return MCPServer(
        "headscope",
        title="Headscope",
        instructions=INSTRUCTIONS,
        version=__version__,
        tools=[_closed(_answering(tool, turn)) for tool in Tools().all],
        log_level="WARNING",
    )


class _Closed(BaseModel):
    """Arguments of which there are no others."""

    model_config = ConfigDict(extra="forbid")


def _closed(tool: Callable[..., str]) -> Tool:
    """Return a tool that rejects unknown arguments: a misspelled one would be answered as if it had not been given."""
    found = Tool.from_function(tool, structured_output=False)
    arguments = found.fn_metadata.arg_model
    found.fn_metadata.arg_model = create_model(arguments.__name__, __base__=(arguments, _Closed))
    found.parameters = found.fn_metadata.arg_model.model_json_schema(by_alias=True)
    return found


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
