"""Oracles: other ways to the same answer, to hold linkflap's own against.

dump_log    what Kafka's released dump-log tool says of segment, transaction index and producer snapshot files
"""
