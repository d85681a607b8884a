"""From finished run directories to verdicts and their reports: in this process, or through the one
verifier of this machine."""
