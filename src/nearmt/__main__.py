"""`python -m nearmt` is `nearmt`."""

from nearmt.cli import main

main()
