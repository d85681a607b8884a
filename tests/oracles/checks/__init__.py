"""A slow and obvious reference of every check: `tests.oracles.checks.<name>`, one module each.

    reference(views)    every thing that is wrong, one place for each: (kind, cluster, topic, partition, offset)
    EACH                kinds of which the check tells neighbours as one, and how many `records` they are

Made of lists, dictionaries and loops, and of nothing of `spark_verify.checks` or `spark_verify.eras`. `views` are all partitions
of one run. Logs that are torn are not for these.
"""
