"""The command line in this process, for all that does not test the process itself: one of its own takes a second to start, and five with torch."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner

from headscope import logs
from headscope.cli.main import main
from tests.support.server import environment


def run(
    home: Path, *arguments: str, models: Path | None = None, text: str | None = None, **settings: Any
) -> subprocess.CompletedProcess[str]:
    """`headscope` with these arguments; `text` goes to standard input. An exception that is no exit is raised, as it would end the process."""
    unset = {name: None for name in os.environ if name.startswith(("HEADSCOPE_", "HF_"))}
    variables = {**unset, **environment(home, models, **settings)}
    with patch.object(logs, "configure"):  # which is of a whole process
        result = CliRunner().invoke(main, arguments, prog_name="headscope", input=text, env=variables)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)
