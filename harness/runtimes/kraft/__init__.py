"""KRaft clusters in either runtime: configuration, formatting, start, and readiness."""
