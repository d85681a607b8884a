"""Back from a verdict to the bytes: one anomaly explained, and logs looked at by themselves."""
