"""Simulated runs of several clusters ("stories"): correct by construction, each a function of one
seed; and mutations that break them.

    entries       one batch of a log as a value, and its bytes
    made          a run directory as values, before it is written to disk
    clusters      clusters with their logs, and what Kafka does to the logs
    coordinators  what coordinators write into Kafka's own topics
    endings       how a mirror that keeps offsets ends or truncates open transactions
    links         the two kinds of mirrors
    clients       producers, with their history
    observers     readers and samplers, with their history
    rebalances    kills of readers, and partitions that move between members of a group
    relays        a relay: consume, transform, produce
    spec          the options of a story, drawn from its seed
    world         all state of a story while it goes on
    doing         what clients and mirrors do between faults
    tails         the end of a cluster whose mirror truncates
    turns         flaps, failovers, reversals, captures
    stories       a story from beginning to end
    mutations     every mutation: what it changes, which checks must find it, and which may
    matrix        writes docs/matrix.md from the mutations

It shares no code with `harness.log` or `spark_verify`, so that a wrong decoder or check is not
repeated here.
"""
