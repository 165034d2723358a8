"""The commands that run Headscope, one file each; cli.py puts them together with those that use it."""
