"""Cases that are whole runs, recorded and judged: the anomaly is what a check finds."""
