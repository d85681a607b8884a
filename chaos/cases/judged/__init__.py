"""Scenarios of linkflap that are recorded and judged in Spark: what a check finds in them is the anomaly."""
