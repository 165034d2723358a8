"""python -m headscope is the command line."""

from .cli.main import main

main(prog_name="headscope")
