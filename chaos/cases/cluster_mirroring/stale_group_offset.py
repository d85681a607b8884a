"""KIP-1279 itself: a group that is back on A after a failback goes on from what it had committed
there before, above the records that replaced A's tail."""

from __future__ import annotations

from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import branch_mirror
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools import wire
from linkflap.chaos.cases.tools.members import CaseMember
from linkflap.harness.model.wait import pause, until

MIRRORED: Final = 50
TAIL: Final = 100
"""Records that A alone has: the group has processed them, and committed."""
OF_B: Final = 200
"""Records that are written to B once it was promoted."""
PROCESSED: Final = 30
"""Of those the ones that the group has processed at B."""
SYNCS: Final = 10.0
"""Seconds in which offsets of groups are synced several times: there is a refresh every two."""
OWNER: Final = "case"


@case("KIP-1279-stale-group-offset", PAIR, claim={"dies": True}, control={"dies": False})
def stale_group_offset(bench: Bench, *, dies: bool) -> Observation:
    """The group's member on A dies with A, or leaves the group before."""
    topic, group = bench.topic(), bench.name("group")
    brokers = bench.cluster("A").brokers.values()
    link = bench.deployment.links["A->B"]
    bench.write(topic, [b"of both %d" % n for n in range(MIRRORED)])
    with branch_mirror(bench, topic, groups=".*") as away:
        away.mirrors(1)
        _reaches(bench, topic, "B", MIRRORED)
        try:
            link.add_toxic("timeout", "responses", {"timeout": 0}, owner=OWNER)
            bench.write(topic, [b"of A %d" % n for n in range(TAIL)])
            member = _committed_up_to(bench, topic, group, MIRRORED + TAIL)
            if not dies:
                member.close()
            for broker in brokers:
                broker.pause()
            away.promoted(1)
            for broker in brokers:
                broker.kill()
        finally:
            link.clear(owner=OWNER)
    if dies:
        member.close()
    first = bench.bound("high", topic, cluster="B")
    bench.write(topic, [b"of B %d" % n for n in range(OF_B)], cluster="B")
    on_b = bench.ask(bench.coordinator(group, wire.GROUP, "B"))
    on_b.commit_offset(group, (topic, 0), first + PROCESSED)
    bench.settle()
    with branch_mirror(bench, topic, "A", source="B", groups=".*") as back:
        back.mirrors(1)
        _reaches(bench, topic, "A", bench.bound("high", topic, cluster="B"))
        pause(SYNCS, lambda: False)
        on_a = bench.ask(bench.coordinator(group, wire.GROUP))
        synced = on_a.committed(group, (topic, 0))
        back.promoted(1)
    begun = _first_of_b(bench, topic, group)
    facts = {
        "committed_on_A_before": MIRRORED + TAIL,
        "promoted_at": first,
        "committed_on_B": first + PROCESSED,
        "committed_on_A_after_syncs": synced,
        "first_read_on_A": begun,
        "skipped": max(0, begun - first - PROCESSED),
    }
    return Observation(shown=begun > first + PROCESSED, facts=facts)


def _reaches(bench: Bench, topic: str, cluster: str, end: int) -> None:
    until(
        lambda: bench.bound("high", topic, cluster=cluster) == end,
        within=WITHIN,
        what=f"{cluster} to have all",
        every=0.2,
    )


def _committed_up_to(bench: Bench, topic: str, group: str, end: int) -> CaseMember:
    """A member of the group on A that has read all, and committed it."""
    member = bench.member(group, enable_auto_commit="true", auto_commit_interval_ms="200")
    member.subscribe(topic)
    on_a = bench.ask(bench.coordinator(group, wire.GROUP))

    def committed() -> bool:
        member.poll(0.2)
        return on_a.committed(group, (topic, 0)) == end

    until(committed, within=WITHIN, what=f"group {group} to have committed {end}")
    return member


def _first_of_b(bench: Bench, topic: str, group: str) -> int:
    """The first offset that the group gets when it is back on A."""
    member = bench.member(group)
    member.subscribe(topic)
    read = until(
        lambda: member.poll(0.5),
        within=2 * WITHIN,
        what=f"group {group} to read on A",
    )
    return read[0][0]
