"""Acknowledged records and replication: min.insync.replicas, eligible leaders (KIP-966), leader
epochs (KIP-320)."""

from __future__ import annotations

import contextlib

from linkflap.chaos.cases.bench import THREE, Bench, nodes, wait_for
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.tools import wire
from linkflap.chaos.cases.tools.wire import record_batch
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.wire.requests import fetch


@case("min-isr", THREE, claim={"acks": -1}, control={"acks": 1})
def min_isr(bench: Bench, *, acks: int) -> Observation:
    """min.insync.replicas: with acks=all, nothing is acknowledged that fewer replicas have."""
    leader, follower = bench.broker(1), bench.broker(2)
    topic = bench.topic(replicas=[leader.id, follower.id], config={"min.insync.replicas": "2"})
    asked = bench.ask(leader)
    follower.kill()
    bench.in_sync(topic, leader, by=asked)
    answer = asked.produce((topic, 0), record_batch([b"record"]), acks=acks)
    return Observation(
        shown=answer[0] == "none",
        facts={"acks": acks, "in_sync": list(asked.leadership(topic)[0].in_sync), "answer": answer},
    )


FEATURE = "eligible.leader.replicas.version"
PATIENCE = 15.0


@case("KIP-966-eligible-leader", nodes(5), claim={"eligible": True}, control={"eligible": False})
def eligible_leaders(bench: Bench, *, eligible: bool) -> Observation:
    """Two replicas acknowledge. The second shuts down, the first dies, and only the second comes
    back."""
    first, second, *others = bench.cluster().brokers.values()
    asked = bench.ask(others[0])
    level = asked.features().get(FEATURE, 0)
    if level and not eligible:
        asked.downgrade(FEATURE, 0)
    topic = bench.topic(replicas=[first.id, second.id], config={"min.insync.replicas": "2"})
    bench.write(topic, [b"%d" % number for number in range(10)])
    second.stop()
    bench.in_sync(topic, first, by=asked)
    first.kill()
    bench.unled(topic, by=others[0])
    second.start()
    with contextlib.suppress(DeadlineExceeded):
        wait_for(
            f"broker {second.id} to lead",
            lambda: wire.leader(others[0].client_address, topic) == second.id,
            within=PATIENCE,
            every=0.2,
        )
    leader = wire.leader(others[0].client_address, topic)
    first.start()
    bench.in_sync(topic, first, second, by=asked)
    # with fewer in-sync replicas than min.insync.replicas, the leader does not advance the high
    # watermark, which limits reads (KIP-966)
    read = len(bench.read(topic))
    facts = {
        FEATURE: level if eligible else 0,
        "leader_with_the_first_down": leader,
        "read": read,
        "written": 10,
    }
    return Observation(shown=leader != second.id or read != 10, facts=facts)


@case("KIP-320-stale-epoch", THREE, claim={"with_epoch": True}, control={"with_epoch": False})
def leader_epochs(bench: Bench, *, with_epoch: bool) -> Observation:
    """KIP-320: a fetch with an older leader epoch is refused, so that a consumer notices that the
    log may have been truncated."""
    home, other = bench.broker(1), bench.broker(2)
    topic = bench.topic(replicas=[home.id])
    bench.write(topic, [b"record"] * 3)
    watcher = bench.ask(other)
    before = watcher.leadership(topic)[0].epoch
    home.kill()
    bench.unled(topic, by=other)
    home.start()
    bench.led(topic, by=home)
    asked = bench.ask(home)
    known = before if with_epoch else -1
    body = fetch(12, topic, 0, 0, most=1 << 20, epoch=known)

    def answered() -> str | None:
        error = str(asked.call("fetch", 12, body).responses[0].partitions[0].error_code.name)
        return None if error == "not_leader_or_follower" else error

    error = wait_for("an answer", answered)
    return Observation(
        shown=error == "none",
        facts={"epoch_of_the_fetch": known, "fetch": error},
    )
