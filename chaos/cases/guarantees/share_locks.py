"""KIP-932: a record that one member of a share group has acquired is delivered to no other member
until its lock expires."""

from __future__ import annotations

import time

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.java import RawJavaConsumer
from linkflap.harness.model.wait import until

WATCHED = 4.0
"""Seconds for which the second member polls; an acquisition lock lasts 30 s."""


@case("KIP-932-acquired", ONE, claim={"one_group": True}, control={"one_group": False})
def share_locks(bench: Bench, *, one_group: bool) -> Observation:
    """KIP-932: a record that one member of a share group has acquired is delivered to no other
    member until its lock expires."""
    topic = bench.topic()
    groups = [bench.name("share"), bench.name("share" if one_group else "other")]
    asked = bench.ask(bench.up())
    for group in dict.fromkeys(groups):
        asked.group_setting(group, "share.auto.offset.reset", "earliest")
    bench.write(topic, [b"%d" % n for n in range(5)])
    members = [
        RawJavaConsumer(bench.java(), bench.bootstrap(), group, {}, name="KafkaShareConsumer")
        for group in groups
    ]
    for member in members:
        bench.closing(member)
        member.subscribe(topic)
    first: list[int] = []

    def acquired() -> bool:
        first.extend(offset for offset, _ in members[0].poll(0.5))
        return bool(first)

    until(acquired, within=WITHIN, what="the first member to acquire")
    second: list[int] = []
    end = time.monotonic() + WATCHED

    def polled() -> bool:
        second.extend(offset for offset, _ in members[1].poll(0.3))
        return bool(second) or (one_group and time.monotonic() > end)

    until(polled, within=WITHIN, what="the second member to have polled")
    both = sorted(set(first) & set(second))
    return Observation(shown=bool(both), facts={"first": first, "second": second})
