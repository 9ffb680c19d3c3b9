"""Run `nearmt` as `python -m nearmt`."""

from nearmt.cli import main

main()
