"""How topic names affect MirrorMaker 2: copies that keep their names circulate for ever, and
prefixed names can meet the target's own topics."""

from __future__ import annotations

from confluent_kafka.admin import NewTopic

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
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


@case("MM2-loop", PAIR, claim={"identity": True}, control={"identity": False})
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


@case("MM2-name-clash", PAIR, claim={"clash": True}, control={"clash": False})
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
