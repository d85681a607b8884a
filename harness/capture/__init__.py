"""What a run records of its clusters: their raw logs at certain moments, and watermarks
throughout."""
