"""How topic names affect MirrorMaker 2: copies that keep their names circulate for ever, and
prefixed names can meet the target's own topics."""

from __future__ import annotations

from functools import partial

from confluent_kafka.admin import NewTopic

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.mirror_maker_worker import POLICIES, worker
from linkflap.harness.model.wait import pause, until

RECORDS, ROUNDS = 10, 5
QUIET = 8.0
"""Seconds within which no record may come back."""


def _high(bench: Bench, topic: str, cluster: str) -> int:
    """The high watermark; 0 while there is no such topic."""
    known = bench.admin(cluster).list_topics(timeout=10).topics
    return bench.bound("high", topic, cluster=cluster) if topic in known else 0


def _round(bench: Bench, *, identity: bool) -> Observation:
    topic = bench.topic()
    bench.write(topic, [b"%d" % number for number in range(RECORDS)])
    policy = "IdentityReplicationPolicy" if identity else "DefaultReplicationPolicy"
    service = worker(
        bench, topic, both=True, settings={"replication.policy.class": f"{POLICIES}.{policy}"}
    )
    copy = topic if identity else f"A.{topic}"
    what = f"{copy} on B"
    until(
        lambda: _high(bench, copy, "B") >= RECORDS,
        within=3 * WITHIN,
        what=what,
        every=0.5,
        state=lambda: service.alive,
    )
    if identity:
        until(
            lambda: _high(bench, topic, "A") >= ROUNDS * RECORDS,
            within=2 * WITHIN,
            what="the records to come round",
            every=0.3,
        )
    else:
        pause(QUIET, lambda: False)
    on_a, on_b = _high(bench, topic, "A"), _high(bench, copy, "B")
    service.kill()
    facts = {"written": RECORDS, "on_A": on_a, "on_B": on_b, "policy": policy}
    return Observation(shown=on_a > RECORDS, facts=facts)


def _met(bench: Bench, *, clash: bool) -> Observation:
    """B has a topic of its own with the name that the copy of A's topic gets, or nearly that
    name."""
    topic = bench.topic()
    bench.write(topic, [b"of A"] * RECORDS)
    own = f"A.{topic}" if clash else f"A-{topic}"
    admin = bench.admin("B")  # its answers end with it
    admin.create_topics([NewTopic(own, 1, 1)])[own].result(WITHIN)
    bench.led(own, cluster="B")
    bench.write(own, [b"of B"] * RECORDS, cluster="B")
    service = worker(
        bench, topic, settings={"replication.policy.class": f"{POLICIES}.DefaultReplicationPolicy"}
    )
    copy = f"A.{topic}"
    wanted = 2 * RECORDS if clash else RECORDS
    until(
        lambda: _high(bench, copy, "B") >= wanted, within=3 * WITHIN, what=f"{copy} on B", every=0.5
    )
    bench.write(own, [b"of B"] * RECORDS, cluster="B")
    read = [value.decode() for _, value in bench.read(own, cluster="B")]
    alive = service.alive
    service.kill()
    facts = {
        "own_topic": own,
        "records_of_A_in_it": read.count("of A"),
        "of_B": read.count("of B"),
        "worker_alive": alive,
    }
    return Observation(shown="of A" in read and alive, facts=facts)


CASES = [
    Case(
        name="MM2-loop",
        title=(
            "With IdentityReplicationPolicy in both directions, MirrorMaker 2 copies every "
            "record round and round"
        ),
        kind="limit",
        claim_text=(
            "MirrorMaker 2 recognises a copy only by its name. If names are kept in both "
            "directions, each copy is copied back: both topics grow for ever, and nothing is "
            "reported."
        ),
        sources=(
            "KIP-382, cycle detection by names",
            "KIP-690, identity policy",
            "KIP-1279 discussion, VK5 (loops)",
        ),
        expected=(Expected(shows=True, basis="runs"),),
        schedule=f"1. {RECORDS} records on A; 2. a worker with A->B and B->A, names kept",
        reproduced=f"A's topic has {ROUNDS} times the records that were written",
        control_text=(
            f"the same with DefaultReplicationPolicy: A still has {RECORDS} records {QUIET:g} s "
            "after the copy"
        ),
        refuted="only the records that were written, once on each side",
        topology=PAIR,
        claim=partial(_round, identity=True),
        control=partial(_round, identity=False),
        apart=True,
    ),
    Case(
        name="MM2-name-clash",
        title=(
            "MirrorMaker 2 writes a source's records into a topic of the target's own that has "
            "the copy's name"
        ),
        kind="limit",
        claim_text=(
            "Only the name marks a topic as a copy. A topic of the target with the name "
            "<source>.<topic> is treated as the copy, and gets the source's records between "
            "those of its own producers."
        ),
        sources=(
            "KIP-382, remote topics",
            "KIP-1279 discussion, AS26 and PP: the KIP refuses topics of another id",
        ),
        expected=(Expected(shows=True, basis="runs"),),
        schedule=(
            f"1. {RECORDS} records in T on A; 2. a topic A.T of B's own with {RECORDS} records; "
            "3. a worker A->B; 4. more writes on B"
        ),
        reproduced="B's own topic also has A's records, and the worker runs",
        control_text="B's own topic is named A-T: it only has B's records",
        refuted="the worker refuses, or copies to another topic",
        topology=PAIR,
        claim=partial(_met, clash=True),
        control=partial(_met, clash=False),
        apart=True,
    ),
]
