"""KAFKA-19522 (KIP-966): the last known leader is elected at its registration, while it is still
fenced."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import THREE
from linkflap.chaos.cases.tools import metadata, wire
from linkflap.harness.model.wait import until

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
