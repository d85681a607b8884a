"""Goes back from a verdict to the bytes: explains one anomaly, and examines logs by themselves."""
