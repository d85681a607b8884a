"""KAFKA-19794: MirrorMaker 2 sets a group back on the target that was active there a moment ago."""

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
"""Idle groups: each is asked for between the look at a group and the writing of its offsets."""
ROUNDS = 60
STAYS = 0.4
"""Seconds for which a member is in the group, and for which it is not; offsets are synced every
second."""


def _rewound(bench: Bench, *, leaves: bool) -> Observation:
    """The group is at the end on B, and further back on A; its member on B comes and goes, or
    stays."""
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
    title="MirrorMaker 2 sets the offset of a group back that has just been active on the target",
    kind="defect",
    claim_text=(
        "MirrorMaker 2 writes an offset of the source for every group of the target that it has no "
        "newer offset of. Of a group that was active when it looked it has none, or an old one; "
        "when the member leaves before the offsets are written, the group is set back to where it "
        "is on the source, and reads again what it has done."
    ),
    sources=("KAFKA-19794 (Apache JIRA), pull request 22610, open", "KIP-545"),
    expected=(Expected(shows=True, basis="runs"),),
    schedule=(
        f"1. a group has offset {OLD} on A; {OTHERS} idle groups; 2. on B its member commits "
        f"{RECORDS}, and leaves {STAYS:g} s later; 3. {STAYS:g} s later it comes back; up to "
        f"{ROUNDS} times"
    ),
    reproduced=f"the group's offset on B is below {RECORDS}",
    control_text="the member stays: the offset stays",
    refuted="an offset that stays, whenever members leave",
    topology=PAIR,
    claim=partial(_rewound, leaves=True),
    control=partial(_rewound, leaves=False),
    clients=("wire",),
    oldest="4.0.0",
    apart=True,
)
