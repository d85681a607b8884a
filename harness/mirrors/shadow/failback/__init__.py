"""Failback: topics that were mirrored from here before are truncated and become this mirror's."""
