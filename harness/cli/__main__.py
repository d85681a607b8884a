"""`python -m harness.cli` is `linkflap`."""

from harness.cli.commands import main

main()
