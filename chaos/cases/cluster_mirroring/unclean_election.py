"""VK6: an unclean election at the source takes back what the destination has already, on the shadow
mirror."""

from __future__ import annotations

import contextlib
from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.tools import wire
from linkflap.chaos.cases.tools.logs import records
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.model.wait import until

BOTH, ALONE, AFTER = 10, 10, 5
_TOPOLOGY = Topology(
    clusters=(ClusterSpec(name="A", brokers=3), ClusterSpec(name="B")),
    links=(LinkSpec(source="A", destination="B"),),
)


def _elected(bench: Bench, *, unclean: bool) -> Observation:
    """Only the first has the last records when it dies; the second leads from then on, or waits for
    the first."""
    first, second, third = bench.cluster().brokers.values()
    config = {"min.insync.replicas": "1", "unclean.leader.election.enable": str(unclean).lower()}
    topic = bench.topic(replicas=[first.id, second.id], config=config)
    mirror = bench.mirror("shadow")
    mirror.start()
    bench.write(topic, [b"both %d" % n for n in range(BOTH)])
    second.stop()
    asked = bench.ask(third)
    until(
        lambda: asked.leadership(topic)[0].in_sync == (first.id,),
        within=WITHIN,
        what="the first to be alone in sync",
    )
    bench.write(topic, [b"alone %d" % n for n in range(ALONE)])
    bench.drained(mirror)
    until(
        lambda: bench.bound("high", topic, cluster="B") == BOTH + ALONE,
        within=WITHIN,
        what="B to have all",
        every=0.2,
    )
    first.kill()
    second.start()
    if not unclean:
        first.start()
    leader = second.id if unclean else first.id
    until(
        lambda: wire.leader(third.client_address, topic) == leader,
        within=2 * WITHIN,
        what=f"broker {leader} to lead",
        every=0.2,
    )
    bench.write(topic, [b"after %d" % n for n in range(AFTER)])
    on_a: list[str] = []
    on_b: list[str] = []

    def the_same() -> bool:
        on_a[:] = (
            (record.value or b"").decode() for record in records(bench.log(topic, broker=leader))
        )
        on_b[:] = (
            (record.value or b"").decode() for record in records(bench.log(topic, cluster="B"))
        )
        return on_a == on_b

    # the lag says nothing: it is 0 while the destination has more than the source
    with contextlib.suppress(DeadlineExceeded):
        until(the_same, within=WITHIN, what="both logs to be the same", every=0.5)
    if first.state == "stopped":
        first.start()
    differ = [n for n, (a, b) in enumerate(zip(on_a, on_b, strict=False)) if a != b]
    facts = {
        "records_on_A": len(on_a),
        "records_on_B": len(on_b),
        "first_difference": differ[:1],
        "only_on_B": sorted(set(on_b) - set(on_a))[:3],
        "mirror_alive": mirror.alive,
    }
    return Observation(shown=bool(differ) or bool(set(on_b) - set(on_a)), facts=facts)


CASE = Case(
    name="VK6-unclean-election",
    title=(
        "After an unclean election at the source the destination has records that the source has no"
        " more"
    ),
    kind="proposal",
    claim_text=(
        "The source's new leader never had its last records; the destination has them, at offsets "
        "where the source now writes others. A mirror that only fetches forward keeps both, and "
        "the logs differ for good."
    ),
    sources=(
        (
            "KIP-1279 discussion, VK6 (Vaquar Khan): unclean elections; accepted in February, last "
            "mirror epochs since March"
        ),
    ),
    expected=(Expected(shows=True, since="3.9.1"),),
    schedule=(
        f"1. three nodes; two replicas; {BOTH} records; 2. the second shuts down; {ALONE} records, "
        "which are mirrored; 3. kill -9 of the first; 4. the second starts and is elected; "
        f"{AFTER} records"
    ),
    reproduced="a record on the destination that the source has not at that offset",
    control_text="no unclean elections: the first comes back and leads, and both logs are the same",
    refuted="equal logs within a minute, by truncation of the destination",
    topology=_TOPOLOGY,
    claim=partial(_elected, unclean=True),
    control=partial(_elected, unclean=False),
    runs=10,
    oldest="3.9.1",
    apart=True,
)
