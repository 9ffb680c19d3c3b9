"""The command line: thin commands over the library, which import slow packages only when they need them."""

from nearmt.cli.app import main

__all__ = ["main"]
