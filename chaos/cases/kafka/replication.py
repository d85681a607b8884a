"""Leadership and replication: KAFKA-18723, KAFKA-19522."""

from __future__ import annotations

import contextlib

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR, THREE
from linkflap.chaos.cases.tools import metadata, wire
from linkflap.chaos.cases.tools.logs import table
from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.mirrors.shadow.mirror import ShadowMirror
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure
from linkflap.harness.model.wait import until

BEFORE, BEHIND = 10, 10
AHEAD = 20
"""How far the batch's epoch is above the leader's: more than the mirror's start adds by fencing
itself."""
PATIENCE = 20.0


@case("KAFKA-18723", PAIR, claim={"ahead": AHEAD}, control={"ahead": 0})
def kafka_18723(bench: Bench, *, ahead: int) -> Observation:
    """B's broker follows a leader that serves batches of its own leader epoch, and then some of an
    epoch `ahead` of it.

    The leader is the shadow, which brokers follow like any broker. The leader epoch is not covered
    by a batch's checksum. It is the same as in a response whose last bytes a deposed leader sends
    from what it has fetched again.
    """
    topic = bench.topic()
    mirror = bench.mirror("shadow")
    if not isinstance(mirror, ShadowMirror):
        raise EnvironmentFailure("the mirror `shadow` is another one here; take linkflap's own")
    mirror.start()
    bench.write(topic, [b"before %d" % n for n in range(BEFORE)])
    bench.drained(mirror)
    until(lambda: _end(bench, topic) == BEFORE, within=WITHIN, what="B to have all", every=0.1)
    mirror.crash()
    journal = Journal(mirror.log.parent)
    note = journal.partition(topic, 0)
    own = max((epoch for epoch, _ in note.epochs), default=0)
    if ahead:
        note.epochs = [*note.epochs, (own + ahead, BEFORE)]
        journal.save()
    mirror.restart()
    bench.write(topic, [b"behind %d" % n for n in range(BEHIND)])
    # a follower that rejects the batch reports that to nobody
    with contextlib.suppress(DeadlineExceeded):
        until(
            lambda: _end(bench, topic) == BEFORE + BEHIND,
            within=PATIENCE,
            what="B to have what is behind",
            every=0.2,
        )
    of_leader = wire.answered(bench.broker(cluster="B").client_address, topic)[0].epoch
    log = bench.log(topic, cluster="B")
    later = [batch.base_offset for batch in log if batch.leader_epoch > of_leader]
    facts = {
        "leader_epoch_of_the_partition": of_leader,
        "first_offset_of_a_later_epoch": later[:1],
        "log_end_of_the_follower": _end(bench, topic),
        "log_end_of_the_leader": BEFORE + BEHIND,
        "follower": table(log)[-4:],
    }
    if not ahead and _end(bench, topic) < BEFORE + BEHIND:
        raise EnvironmentFailure(
            "B's broker does not follow a leader whose epochs are right; the machine is too busy"
        )
    return Observation(shown=bool(later), facts=facts)


def _end(bench: Bench, topic: str) -> int:
    """The follower's log end, from its bytes."""
    return max((batch.last_offset + 1 for batch in bench.log(topic, cluster="B")), default=0)


FEATURE = "eligible.leader.replicas.version"


@case("KAFKA-19522", THREE, claim={"eligible": True}, control={"eligible": False})
def kafka_19522(bench: Bench, *, eligible: bool) -> Observation:
    """The only replica dies and restarts uncleanly, which removes it from the eligible leader
    replicas at its registration."""
    asked = bench.ask(bench.up())
    level = asked.features().get(FEATURE, 0)
    if eligible and not level:
        asked.upgrade(FEATURE, 1)
    if level and not eligible:
        asked.downgrade(FEATURE, 0)
    home = bench.broker(3)
    other = bench.broker(1)
    topic = bench.topic(replicas=[home.id])
    bench.write(topic, [b"record"] * 10)
    home.kill()
    until(
        lambda: wire.leader(other.client_address, topic) == -1,
        within=WITHIN,
        what=f"{topic} to have no leader",
    )
    home.start()
    bench.led(topic, by=other)

    def seen() -> list[metadata.Change]:
        found = metadata.changes(bench.log(metadata.TOPIC, broker=other.id), topic)
        back = max(
            (one.offset for one in found if one.kind == "registered" and one.broker == home.id),
            default=-1,
        )
        return [one for one in found if one.offset >= back]

    until(
        lambda: {"unfenced", "leader"} <= {one.kind for one in seen() if one.broker == home.id},
        within=WITHIN,
        what=f"the controller's log to have broker {home.id} unfenced and leading",
        every=0.2,
    )
    after = [one for one in seen() if one.broker == home.id]
    unfenced = min(one.offset for one in after if one.kind == "unfenced")
    leads = min(one.offset for one in after if one.kind == "leader")
    facts = {
        FEATURE: int(eligible),
        "after_the_registration": [one.words for one in after],
        "read": len(bench.read(topic)),
    }
    return Observation(shown=leads < unfenced, facts=facts)
