"""headscope mcp: tools for language models."""

from __future__ import annotations

from importlib import import_module

import click

from ..errors import HeadscopeError


@click.command()
def mcp() -> None:
    """Offer tools to a language model, over standard input and output.

    An assistant or an editor starts this command and calls its tools by the Model Context Protocol. The models run in this process. Needs: pip install "headscope[mcp]"
    """
    try:
        server = import_module("..mcp.server", __package__)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise HeadscopeError('The package mcp is missing. Install it: pip install "headscope[mcp]"') from error
    server.make_server().run()
