"""Runs of several clusters that nobody ran: faithful by construction, each a function of one seed,
and what to break in them.

    entries     one batch of a log as a value, and its bytes
    made        a whole run directory as values, until it is written
    clusters    clusters with their logs, and what Kafka does to those
    coordinators  what coordinators write into Kafka's own topics
    endings     how a mirror that keeps offsets ends what is open, or truncates it
    links       what the two kinds of mirrors do, failovers and failbacks
    clients     producers, with what they write down
    observers   readers and samplers, with what they write down
    rebalances  what happens to readers while they read
    relays      a relay: consume, transform, produce
    spec        what a seed's story is about
    world       everything of a story while it goes on
    doing       what clients and mirrors do on an ordinary day
    tails       the last moments of a cluster whose mirror truncates
    turns       flaps, failovers, reversals, captures
    stories     a seed's story from beginning to end
    mutations   every mutation, declared: what it does, what must find it, what may
    matrix      docs/matrix.md, written from those

It shares no code with `harness.log` or `spark_verify`: a decoder or a check that is wrong is not
wrong here in the same way.
"""
