"""The command line. Every command is a file of this package and is imported when it is run."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from .. import __version__
from ..errors import HeadscopeError

# Command -> its module, and its line in `headscope --help`, which imports none of them.
COMMANDS = {
    "analyze": (
        "analyze",
        'Analyse TEXT ("-" reads standard input), an image or both, and print a summary of every head.',
    ),
    "database": ("database", "Upgrade the database of a cluster."),
    "doctor": ("doctor", "Check this machine and say what to change."),
    "effect": (
        "effect",
        'Print what every head does to a prediction of TEXT ("-" reads standard input): to one logit, or to a difference.',
    ),
    "export-site": ("export_site", "Write analyses as a static site, for any web host."),
    "head-scores": (
        "head_scores",
        "Test what every head is for, such as induction, on prompts made for the model.",
    ),
    "lenses": ("methods", "List the lenses, with their parameters and defaults."),
    "mcp": ("mcp", "Offer tools to a language model, over standard input and output."),
    "measures": ("methods", "List the measures, with their parameters and defaults."),
    "mechanisms": ("methods", "List the mechanisms, with their parameters and defaults."),
    "models": ("models", "List the available models, or install one."),
    "serve": ("serve", "Start the service and the page."),
    "study": ("study", "Run a data set through a model, and write figures and tables."),
    "token": ("token", "Manage the users of the service."),
    "worker": ("worker", "Run jobs of a cluster."),
}

# Otherwise everything that was imported is traversed once more before the process ends, which takes a second after an analysis.
atexit.register(gc.freeze)


class _LazyGroup(click.Group):
    """A group that imports its commands on first use and prints every HeadscopeError as one line, with exit status 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in ("serve", "worker"):
            import_module("..settings", __package__).limit_threads()
        gc.disable()  # imports stay: there is no garbage among them
        command: click.Command = getattr(
            import_module(f".{COMMANDS[cmd_name][0]}", __package__), cmd_name.replace("-", "_")
        )
        gc.freeze()
        gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HeadscopeError as error:
            click.echo(f"headscope: {error.detail} [{error.code}]", err=True)
            ctx.exit(1)
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader has seen enough
                raise
            place = f" ({error.filename})" if error.filename else ""
            click.echo(f"headscope: {error.strerror or error}{place}.", err=True)
            _discard_output()
            ctx.exit(1)


def _discard_output() -> None:
    """Discard what standard output could not take, which Python would try to write again at exit."""
    with suppress(OSError, ValueError):  # ValueError: it is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headscope")
def main() -> None:
    """See what attention heads do, and how much of what a head map shows reaches the output."""
