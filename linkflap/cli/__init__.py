"""The command line: one file per command, or per group of commands that belong together."""

from linkflap.cli.commands import main

__all__ = ["main"]
