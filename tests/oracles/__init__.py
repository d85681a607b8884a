"""Oracles: independent, slow implementations. Tests compare linkflap's results with theirs.

dump_log         Kafka's released dump-log tool and consumer, on segment files of a broker
checks           a slow reference of each check with an intricate kernel, in a module of the same
                 name; decisions reads the logs of transaction coordinators for them
plain            a partition's view as lists of plain values, the input of the references
story            the writer of every offset of a partition, the truncations of each log, and its
                 generations: a log between two truncations
promises         the acknowledgements of clients, and so the records that must be in the log
mirrored_ranges  the records that came over a link, one by one
same_contents    the same where records are known by their contents alone: every way to copy them
random_runs      small random runs (`tests.faithful.changes`) as the checks see them
agreement        compares the findings of a check with those of its reference
"""
