"""The command line: thin, and slow imports only where a command needs them."""

from nearmt.cli.app import main

__all__ = ["main"]
