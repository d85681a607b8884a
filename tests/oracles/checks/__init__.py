"""A slow and obvious reference of every check with an intricate kernel:
`tests.oracles.checks.<name>`, one module each.

    reference(views)    all anomalies, one for each record or offset: (kind, cluster, topic,
                        partition, offset)

These names are optional:

    KINDS               the kinds that it judges, if not all: those whose rule is intricate
    EACH                kinds of which the check joins neighbours into one anomaly, with their
                        number (`records`)
    DESPITE_TORN        kinds that the remaining part of a torn log proves, whatever is missing
    possible(view)      destinations that the check judges as a whole: (cluster, topic, partition),
                        the anomalies that it may find there, and those of which it must find at
                        least one, if there are any; instead of what `reference` says there
    alternatives(views) the anomalies of `reference`, each as a list of all that explain the logs as
                        well; the check must name one of them
    KNOWS_TORN          the reference looks across partitions, and itself decides what a torn log
                        proves

A reference uses lists, dictionaries and loops, and no code of `spark_verify.checks` or
`spark_verify.facts.eras`. `views` are all partitions of one run. For a partition with a torn log
only proven findings count (`tests.oracles.agreement`).
"""
