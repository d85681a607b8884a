"""Suites: many generated scenarios, recorded in parallel and judged in batches by one Spark.

plan        the options of a suite, written into its directory
folder      the suite directory; it stays readable when the suite is killed
work        one `linkflap run` in a child process, and its judgement with others
observed    what a run exercised, read from its run directory
failures    signatures of failures, by which runs are grouped
reports     the reports in failures/, and the runs that each of them explains
explore     the main loop: generate, record, judge, keep or prune
page        suite.html
regression  plays again every case that was reproduced before
"""
