"""Run the command line with python -m headscope."""

from .cli.main import main

main(prog_name="headscope")
