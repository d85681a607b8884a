"""Faults, schedules and scenarios: what is broken, and when."""
