"""The commands that run Headscope, one file each; main.py puts them together with those that use it."""
