"""Failback: takes over topics that a mirror once copied from here, and truncates them."""
