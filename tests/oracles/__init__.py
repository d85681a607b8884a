"""Oracles: other ways to the same answer, to hold linkflap's own against.

dump_log    what Kafka's released dump-log tool says of segment, transaction index and producer
            snapshot files
checks      a slow reference of every check, one module each, named as the check is; decisions,
            group_commits: what transaction and group coordinators wrote, for those that ask it
plain       a partition's view as lists of plain values, which the references look at
story       who wrote what of a partition, and when which log was truncated, offset by offset;
            generations: a log between two truncations
promises    what clients were acknowledged, and so what must be there
mirrored range    what came over a link, record by record
worlds      small random histories; views: what a check looks at, made of one; written, captured:
            one as a run directory
happenings  what happens in them, faithful: clients; mirrors and readers have modules of their own
changes     what clients and observers may say wrong of them; changed_reads, changed_mirrors: what
            readers and mirrors may; changed_logs, changed_own_topics, damaged_logs: what brokers
            and disks may have done
"""
