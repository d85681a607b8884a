"""The judging half of linkflap: from run directories to verdicts."""
