"""A user's own mirror, run by the commands of a manifest: linkflap starts, stops and judges it."""
