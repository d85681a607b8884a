"""Suites: many generated scenarios, recorded side by side and judged in batches by one Spark.

plan        what a suite is to do, kept with it
folder      the suite directory, which survives whatever happens to its suite
recording   one `linkflap run` as a process of its own
observed    what a run exercised, read from its run directory
failures    what failed how: signatures
explore     the loop: generate, record, judge, keep or prune
page        suite.html
regression  every case that was reproduced before, played again
"""
