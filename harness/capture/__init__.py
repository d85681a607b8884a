"""Records a run's clusters: their raw logs at certain moments, and watermarks throughout."""
