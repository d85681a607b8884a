"""KAFKA-19794: MirrorMaker 2 rewinds a group on the target that was active there a moment ago."""

from __future__ import annotations

import uuid
from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
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


def _rewound(bench: Bench, *, leaves: bool) -> Observation:
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


CASE = Case(
    name="KAFKA-19794",
    title="MirrorMaker 2 rewinds a group that has just been active on the target",
    kind="defect",
    claim_text=(
        "MirrorMaker 2 writes the translated source offset for every group on the target unless "
        "it knows a newer offset there. For a group that was active when it checked, it knows "
        "none, or an old one. If the member leaves before the offsets are written, the group is "
        "rewound to its source offset, and reads records again."
    ),
    sources=("KAFKA-19794 (Apache JIRA), pull request 22610, open", "KIP-545"),
    expected=(Expected(shows=True, basis="runs"),),
    schedule=(
        f"1. a group has offset {OLD} on A; {OTHERS} idle groups; 2. on B its member commits "
        f"{RECORDS}, and leaves {STAYS:g} s later; 3. {STAYS:g} s later it comes back; up to "
        f"{ROUNDS} times"
    ),
    reproduced=f"the group's offset on B is below {RECORDS}",
    control_text="the member stays: the offset does not change",
    refuted="an offset that does not change, whenever members leave",
    topology=PAIR,
    claim=partial(_rewound, leaves=True),
    control=partial(_rewound, leaves=False),
    clients=("wire",),
    oldest="4.0.0",
    apart=True,
)
