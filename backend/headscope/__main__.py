"""python -m headscope is the command line."""

from .cli import main

main(prog_name="headscope")
