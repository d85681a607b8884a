"""A mirror of the user's own, run by the commands of a manifest: linkflap starts, stops and judges
it.

manifest    what the user writes: the guarantee, the commands, their environment
behind      how far it is behind, by the bytes on both sides
mirror      the Mirror that runs the commands
"""
