"""VK6: an unclean election at the source takes back what the destination has already, on the shadow
mirror."""

from __future__ import annotations

import contextlib

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
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


@case("VK6-unclean-election", _TOPOLOGY, claim={"unclean": True}, control={"unclean": False})
def unclean_election(bench: Bench, *, unclean: bool) -> Observation:
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
