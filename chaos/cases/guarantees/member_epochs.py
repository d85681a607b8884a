"""KIP-848: the broker refuses the offsets of a member with an older epoch."""

from __future__ import annotations

import uuid

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.groups import JOIN, heartbeat


def _committed(bench: Bench, *, behind: bool) -> Observation:
    topic = bench.topic()
    bench.write(topic, [b"record"] * 5)
    group, member = bench.name("group"), str(uuid.uuid4())
    asked = bench.ask(bench.coordinator(group, 0))
    epoch = heartbeat(asked, group, member, JOIN, topic)
    answer = asked.commit_offset(
        group, (topic, 0), 5, member=member, member_epoch=epoch - 1 if behind else epoch
    )
    facts = {"member_epoch": epoch, "commit_with": epoch - 1 if behind else epoch, "answer": answer}
    return Observation(shown=answer == "none", facts=facts)


CASE = Case(
    name="KIP-848-stale-member",
    title="A member with an older epoch cannot commit offsets of its group",
    kind="guarantee",
    claim_text=(
        "Anomaly: a member with an older epoch commits offsets of partitions that another member "
        "owns by now."
    ),
    sources=("KIP-848, member epochs",),
    expected=(Expected(shows=False, since="4.0.0", basis="runs"),),
    schedule="1. a member joins by ConsumerGroupHeartbeat; 2. it commits with the previous epoch",
    reproduced="the commit is accepted",
    control_text="the same with the member's own epoch: it is accepted",
    refuted="anything but STALE_MEMBER_EPOCH",
    topology=ONE,
    claim=lambda bench: _committed(bench, behind=True),
    control=lambda bench: _committed(bench, behind=False),
    control_shows=True,
    clients=("wire",),
    oldest="4.0.0",
)
