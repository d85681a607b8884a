"""KAFKA-19163: a group whose only offsets are in an open transaction is deleted, together with
these offsets."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import one
from linkflap.chaos.cases.wire_transactions import WireTransactional, send_offsets
from linkflap.harness.model.wait import pause, until

CHECKS = 4.0
"""In seconds: eight rounds of the group coordinator's cleanup."""


@case(
    "KAFKA-19163",
    one({"offsets.retention.check.interval.ms": "500", "offsets.retention.minutes": "1"}),
    claim={"only_pending": True},
    control={"only_pending": False},
)
def kafka_19163(bench: Bench, *, only_pending: bool) -> Observation:
    """KAFKA-19163: a group whose only offsets are in an open transaction is deleted, together with
    these offsets."""
    topic, group = bench.topic(), bench.name("group")
    coordinator = bench.ask(bench.coordinator(group, 0))
    if not only_pending:
        coordinator.commit_offset(group, (bench.topic("other"), 0), 1)
    writer = WireTransactional(bench)
    sent = send_offsets(coordinator, writer, group, (topic, 0), 5)
    pause(CHECKS, lambda: False)
    ended = writer.end(commit=True)
    before = coordinator.committed(group, (topic, 0), stable=True)
    bench.end()
    bench.broker().stop()
    bench.broker().start()
    asked = bench.ask(bench.broker())
    until(
        lambda: asked.coordinator(group, 0) == bench.broker().id,
        within=WITHIN,
        what="the coordinator to be back",
    )
    after = asked.committed(group, (topic, 0), stable=True)
    facts = {
        "txn_offset_commit": sent,
        "commit": ended,
        "committed": before,
        "committed_after_a_restart": after,
    }
    return Observation(shown=ended == "none" and (before != 5 or after != 5), facts=facts)
