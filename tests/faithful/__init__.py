"""Simulated runs of several clusters ("stories"): correct by construction, each a function of one
seed; and mutations that break them.

    clusters      clusters with their logs, and what Kafka and mirrors do to the logs
    coordinators  what coordinators write into Kafka's own topics
    links         the two kinds of mirrors
    clients       producers, with their history
    observers     readers and samplers, with their history
    relays        relays and programs: consume, transform, produce
    shares        share groups
    spec          the options of a story, drawn from its seed
    world         all state of a story while it goes on
    doing         what clients and mirrors do between faults; kills and rebalances
    turns         flaps, failovers, reversals, captures
    stories       a story from beginning to end
    made          a run directory as values, before it is written to disk
    wire          the same run, recorded on the wire
    mutations     every mutation: what it changes, which checks must find it, and which may
    changes       random changes of a made run: of rows, logs and files; mutations among them
    matrix        writes docs/matrix.md from the mutations

It shares no code with `harness.log` or `spark_verify`, so that a wrong decoder or check is not
repeated here.
"""
