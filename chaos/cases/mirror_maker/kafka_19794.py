"""KAFKA-19794: MirrorMaker 2 rewinds a group on the target that was active there a moment ago."""

from __future__ import annotations

import uuid

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools import wire
from linkflap.chaos.cases.tools.groups import JOIN, LEAVE, heartbeat
from linkflap.harness.model.wait import pause, until

RECORDS, OLD = 20, 5
OTHERS = 60
"""Idle groups. Each costs a request between the check of a group's state and the write of its
offsets."""
ROUNDS = 60
STAYS = 0.4
"""Seconds for which a member is in the group, and then is not. Offsets are synced every second."""


@case("KAFKA-19794", PAIR, claim={"leaves": True}, control={"leaves": False})
def kafka_19794(bench: Bench, *, leaves: bool) -> Observation:
    """The group is at the log end on B, and at a lower offset on A. Its member on B comes and goes,
    or stays."""
    topic, group = bench.topic(), bench.name("group")
    bench.write(topic, [b"%d" % n for n in range(RECORDS)])
    mirror = bench.mirror("mm2")
    mirror.start()
    bench.drained(mirror)
    a = bench.ask(bench.coordinator(group, wire.GROUP))
    for name in (group, *(f"{group}-{number}" for number in range(OTHERS))):
        a.commit_offset(name, (topic, 0), OLD)
    b = bench.ask(bench.coordinator(group, wire.GROUP, "B"))
    last = f"{group}-{OTHERS - 1}"
    until(
        lambda: b.committed(last, (topic, 0)) >= 0,
        within=2 * WITHIN,
        what="the groups to be on B",
        every=0.3,
    )
    rewound: list[int] = []
    member = str(uuid.uuid4())
    for _ in range(ROUNDS if leaves else ROUNDS // 3):
        member = str(uuid.uuid4()) if leaves else member
        epoch = heartbeat(b, group, member, JOIN, topic)
        b.commit_offset(group, (topic, 0), RECORDS, member=member, member_epoch=epoch)
        pause(STAYS, lambda: False)
        if leaves:
            heartbeat(b, group, member, LEAVE, topic)
            pause(STAYS, lambda: False)
        if (found := b.committed(group, (topic, 0))) < RECORDS:
            rewound.append(found)
            break
    mirror.stop()
    facts = {
        "committed_on_A": OLD,
        "committed_on_B": RECORDS,
        "rewound_to": rewound,
        "idle_groups": OTHERS,
    }
    return Observation(shown=bool(rewound), facts=facts)
