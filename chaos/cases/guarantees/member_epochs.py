"""KIP-848: the broker refuses the offsets of a member with an older epoch."""

from __future__ import annotations

import uuid

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.groups import JOIN, heartbeat


@case("KIP-848-stale-member", ONE, claim={"behind": True}, control={"behind": False})
def member_epochs(bench: Bench, *, behind: bool) -> Observation:
    """KIP-848: the broker refuses the offsets of a member with an older epoch."""
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
