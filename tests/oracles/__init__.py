"""Oracles: other ways to the same answer, to hold linkflap's own against.

dump_log    what Kafka's released dump-log tool says of segment, transaction index and producer
            snapshot files
checks      a slow reference of every check, one module each, named as the check is
plain       a partition's view as lists of plain values, which the references look at
story       who wrote what of a partition, and when which log was truncated, offset by offset
promises    what clients were acknowledged, and so what must be there
mirrored range    what came over a link, record by record
worlds      small random histories
happenings  what happens in them, faithful
changes     what clients, observers and mirrors may say wrong of them; changed_logs: what brokers
            and disks may have done
"""
