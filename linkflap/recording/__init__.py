"""The first half of linkflap: runs a scenario and records what happened in a run directory."""
