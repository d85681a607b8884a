"""Oracles: independent, slow implementations. Tests compare linkflap's results with theirs.

dump_log         the output of Kafka's released dump-log tool for segment, transaction index and
                 producer snapshot files
checks           a slow reference of every check, in a module of the same name; decisions and
                 group_commits read the logs of transaction and group coordinators for them
plain            a partition's view as lists of plain values, the input of the references
story            the writer of every offset of a partition, and the truncations of each log;
                 generations: a log between two truncations
promises         the acknowledgements of clients, and so the records that must be in the log
mirrored_ranges  the records that came over a link, one by one
worlds           small random histories; views: the input of a check, made from a history; written
                 and captured: a history as a run directory
happenings       what clients do in a history, without errors; mirrors and readers have their own
                 modules
changes          wrong reports of clients and observers; changed_reads, changed_mirrors: of readers
                 and mirrors; changed_logs, changed_own_topics, damaged_logs: errors of brokers and
                 disks
"""
