"""Judges finished run directories, in this process or through the one verifier service of this
machine, and writes their reports."""
