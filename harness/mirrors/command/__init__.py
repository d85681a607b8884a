"""A user's own mirror, run by the commands of a manifest: linkflap starts, stops and judges it.

manifest      the file that the user writes: guarantee, commands, environment
measured_lag  its lag, from the records on both sides
mirror        the Mirror that runs the commands
"""
