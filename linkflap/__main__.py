"""`python -m linkflap` is the command `linkflap`."""

from linkflap.harness.cli.commands import main

main()
