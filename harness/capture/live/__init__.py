"""Reads the logs of running clusters that linkflap did not start, by Fetch alone, and changes
nothing there."""
