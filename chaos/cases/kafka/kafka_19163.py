"""KAFKA-19163: a group whose only offsets are in an open transaction is deleted, together with
these offsets."""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import one
from linkflap.chaos.cases.wire_transactions import WireTransactional, send_offsets
from linkflap.harness.model.wait import pause, until

CHECKS = 4.0
"""In seconds: eight rounds of the group coordinator's cleanup."""


def _committed(bench: Bench, *, only_pending: bool) -> Observation:
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


CASE = Case(
    name="KAFKA-19163",
    title=(
        "A group whose only offsets are pending in a transaction is deleted before the "
        "transaction is committed"
    ),
    kind="defect",
    claim_text=(
        "The cleanup treats a group that is empty and has no committed offsets as dead, although "
        "a transaction has pending offsets of it. The commit is acknowledged, and the group has "
        "no offset, at once or after the coordinator's next start."
    ),
    sources=("KAFKA-19163 (Apache JIRA): fixed in 4.0.1 and 4.1.0", "KIP-447, KIP-848"),
    expected=(
        Expected(shows=True, since="4.0.0", until="4.0.0", basis="runs"),
        Expected(shows=False, since="4.0.1", basis="runs"),
    ),
    schedule=(
        "1. TxnOffsetCommit for a new group; 2. eight rounds of the cleanup; 3. EndTxn(commit); "
        "4. the broker restarts"
    ),
    reproduced="the commit is acknowledged, and the group's committed offset is not 5",
    control_text=(
        "the group also has a committed offset: its transactional offset is 5, before and after "
        "the restart"
    ),
    refuted="offset 5 before and after the restart in every run",
    topology=one({"offsets.retention.check.interval.ms": "500", "offsets.retention.minutes": "1"}),
    claim=partial(_committed, only_pending=True),
    control=partial(_committed, only_pending=False),
    clients=("wire",),
)
