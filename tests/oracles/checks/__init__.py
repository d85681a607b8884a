"""A slow and obvious reference of every check: `tests.oracles.checks.<name>`, one module each.

    reference(views)    every thing that is wrong, one place for each: (kind, cluster, topic, partition, offset)
    EACH                kinds of which the check tells neighbours as one, and how many `records` they are

Made of lists, dictionaries and loops, and of nothing of `spark_verify.checks` or `spark_verify.eras`. `views` are all partitions
of one run. Of a partition with a torn log only what the rest proves counts (`tests.oracles.agreement`); the references of checks
that look across partitions know that themselves.
"""
