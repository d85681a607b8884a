"""`python -m linkflap` is the command `linkflap`."""

from linkflap.cli.commands import main

main()
