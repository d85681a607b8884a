"""The pytest fixtures and the marker."""
