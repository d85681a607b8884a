"""KRaft clusters whatever they run in: how they are configured, formatted, started and seen to be
healthy."""
