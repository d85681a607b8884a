"""Scenarios of planned and forced failovers, failbacks, lost regions and crashed mirrors."""

from __future__ import annotations

from linkflap.chaos.scenarios.base import (
    WITH_TRANSACTIONS,
    ScenarioRequest,
    default_workloads,
    default_workloads_at_every_home,
    failover_of_first,
    id_of,
    source_killed,
)
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import FaultSpec, Minimums, Scenario, TopicSpec, WorkloadSpec
from linkflap.topologies import parse


def planned_failover(request: ScenarioRequest) -> Scenario:
    """A->B: a slow link, then a drained failover to B.

    In another topology every link slows, and clients of the first link's source fail over.

    A drained switchover has an RPO of zero by definition: any record acknowledged on A that B does
    not have is a lost write.
    """
    topology = request.topology or parse("A->B")
    link = topology.links[0]
    at = round(request.rng.uniform(3.0, 5.0), 2)
    return request.scenario(
        topology,
        name="planned-failover",
        about=(
            f"{link.name} over a slow link; the mirror is drained and clients are moved to "
            f"{link.destination}"
        ),
        workloads=default_workloads_at_every_home(topology),
        schedule=(
            *(
                FaultSpec(
                    id=id_of("slow", each, topology),
                    fault="link-latency",
                    target=each.name,
                    at=0.5,
                    duration=2.0,
                    options={"latency": 100, "jitter": 20},
                )
                for each in topology.links
            ),
            FaultSpec(
                id="failover",
                fault="failover-planned",
                target=link.name,
                at=at,
                duration=0.0,
                when=WITH_TRANSACTIONS,
            ),
        ),
        duration=9.0,
    )


def failover_open_transactions(request: ScenarioRequest) -> Scenario:
    """A->B: A is killed while several transactions are open in every partition; B must end them.

    A transaction that is open at a failover has no coordinator on the destination: the mirror must
    end it at the promotion, and no other transaction. At first (February 2026) KIP-1279 truncated
    the log at its last stable offset. That removes records that the destination had shown, and the
    markers of transactions that had begun before: those then hang forever. Its code of July 2026
    appends ABORT markers. Guarantee at stake: after the failover every open transaction belongs to
    a producer of B, the last stable offset advances, and every record that readers of B saw is
    still there. A violation is a hanging transaction, a high watermark that goes back, or a lost
    write.
    """
    topology = request.topology or parse("A->B")
    link = topology.links[0]
    held = WorkloadSpec(
        kind="transactional",
        home=link.source,
        clients=5,
        options={
            "rate": 8.0,
            "records": 9,
            "partitions": 3,
            "open_share": 0.3,
            "abort_share": 0.1,
            "hold": 1.5,
        },
    )
    readers = tuple(w for w in default_workloads(topology, link.source) if w.kind == "readers")
    at = round(request.rng.uniform(4.0, 6.0), 2)
    return request.scenario(
        topology,
        name="failover-open-transactions",
        about=(
            f"{link.name}; {link.source} is killed with several transactions open in every "
            f"partition; {link.destination} ends them, and clients continue there"
        ),
        workloads=(held, *readers),
        schedule=(source_killed(link, at),),
        minimums=Minimums(committed=20, aborted=4, reads=300, afterwards=600),
        topics=TopicSpec(partitions=3),
        duration=9.0,
    )


def producer_id_collision(request: ScenarioRequest) -> Scenario:
    """A->B: producers on both sides draw ids; A is killed; its producers continue on B.

    Both clusters assign producer ids from 0 on. A mirror that keeps offsets also copies the
    source's ids. So after a failover the destination assigns ids that already have a producer state
    in its partitions. It then refuses their first records as out of order, or takes them for
    repeats, acknowledges them with old offsets and appends nothing (Redpanda PR 31659; KIP-1279,
    MIRROR_PID_RESET). With ids that jump (the default) only producers of the destination that are
    older than the mirror can collide; those here write to their own topics. Guarantee at stake: an
    acknowledged record is there. A violation is a producer-id-collision, a ghost ack, a lost write.
    """
    topology = request.topology or parse("A->B")
    link = topology.links[0]
    # Each producer writes few batches, so that the first ones on the other side look like repeats
    # of them (a broker keeps the last five).
    seldom = {"rate": 0.6, "records": 2, "partitions": 2}
    at = round(request.rng.uniform(4.0, 5.5), 2)
    return request.scenario(
        topology,
        name="producer-id-collision",
        about=(
            f"{link.name}; producers draw ids on both clusters; {link.source} is killed, and its "
            f"producers continue on {link.destination}"
        ),
        workloads=(
            *default_workloads(topology, link.source),
            WorkloadSpec(kind="idempotent", home=link.source, clients=4, options=seldom),
            WorkloadSpec(
                kind="idempotent", home=link.destination, clients=2, options={"rate": 5.0}
            ),
            WorkloadSpec(
                kind="readers",
                home=link.destination,
                options={
                    "cluster": link.destination,
                    "isolation": "read_committed",
                    "assign": True,
                },
            ),
        ),
        schedule=(source_killed(link, at),),
        minimums=Minimums(committed=15, aborted=2, reads=300, afterwards=1000),
        duration=9.0,
    )


def failback_divergence(request: ScenarioRequest) -> Scenario:
    """A->B: the link is cut, A takes more writes and dies; clients fail over to B; the mirror is
    reversed; clients come back.

    Guarantee at stake: the failback truncates A's log exactly where the two diverge, no more and no
    less (KIP-1279, failback: the last mirrored offset in its draft, the last mirror epoch since;
    option failback_point). The tail that was never mirrored is on A until then, as its capture
    before the truncation shows, and on neither cluster afterwards. A violation looks like a record
    of that tail behind the truncation, or like a missing record before it.
    """
    rng = request.rng
    topology = request.topology or parse("A->B")
    link = topology.links[0]
    back = f"{link.destination}->{link.source}"
    cut_at = round(rng.uniform(3.0, 4.5), 2)
    return request.scenario(
        topology,
        name="failback-divergence",
        about=(
            f"{link.name}; the link is cut, {link.source} takes more writes and dies; the "
            "failback truncates what was never mirrored"
        ),
        workloads=default_workloads(topology, link.source),
        schedule=(
            FaultSpec(
                id="cut",
                fault="link-cut",
                target=link.name,
                at=cut_at,
                duration=round(rng.uniform(3.0, 4.0), 2),
            ),
            source_killed(link, round(cut_at + rng.uniform(1.0, 1.5), 2), "away"),
            FaultSpec(
                id="reverse",
                fault="mirror-reverse",
                target=link.name,
                at=round(rng.uniform(2.0, 3.0), 2),
                duration=0.0,
                when="after:away",
            ),
            # Only then may A's coordinator abort the open transactions of its dead clients: it
            # appends its own markers.
            FaultSpec(
                id="home",
                fault="failover-planned",
                target=back,
                at=1.0,
                duration=0.0,
                when="after:reverse",
            ),
        ),
        duration=12.0,
    )


def region_loss(request: ScenarioRequest) -> Scenario:
    """A<->B: clients write on both; A is killed for good with transactions open, and its clients
    continue on B.

    In another topology the source of the first link is killed. Raises InputError if that link
    carries topics of other clusters too, as in a ring.

    Guarantee at stake: what each region promised before stays true on those that are left. What the
    dead region had not received yet, or had received and nobody can ask it for, is not due: only
    the dead could show it. What it had shown to readers or acknowledged to clients must be in its
    logs, and what it had not sent on is the recovery point of the failover. A violation is a record
    of a living region that is missing there, a record of the dead region that another one had shown
    and has no more, or clients that do not go on.
    """
    topology = request.topology or parse("A<->B")
    link = topology.links[0]
    failover = tuple(failover_of_first(topology, round(request.rng.uniform(4.0, 6.0), 2), ()))
    if not failover:
        raise InputError(
            f"region-loss moves the clients of {link.source} over {link.name}, which carries topics"
            f" of {', '.join(topology.homes_over(link))}; name first a link that carries "
            "the topics of its source alone, e.g. 'A<->B'"
        )
    return request.scenario(
        topology,
        name="region-loss",
        about=(
            f"clients write in every region; {link.source} is killed for good with transactions "
            f"open; its clients continue on {link.destination}"
        ),
        workloads=default_workloads_at_every_home(topology),
        schedule=failover,
        duration=9.0,
    )


def mirror_crash(request: ScenarioRequest) -> Scenario:
    """A->B: the worker is killed while it is behind, and started again.

    In another topology this is done to the mirror of every link.

    MirrorMaker 2 in at-least-once mode commits its source offsets after it has produced (KIP-382;
    Connect's source tasks). After the kill it writes the records since its last commit again: these
    repeats are allowed, and counted. In exactly-once mode (KIP-618) none may be visible. A
    violation is a repeat outside that window, an inversion, or a hole.
    """
    rng = request.rng
    topology = request.topology or parse("A->B")
    return request.scenario(
        topology,
        name="mirror-crash",
        about=(
            f"{', '.join(link.name for link in topology.links)}; the mirror's worker is killed "
            "mid-write and started again"
        ),
        workloads=default_workloads_at_every_home(topology),
        schedule=tuple(
            FaultSpec(
                id=id_of("crash", link, topology),
                fault="mirror-kill",
                target=link.name,
                at=round(rng.uniform(3.0, 5.0), 2),
                duration=1.0,
                when="mirror-behind",
            )
            for link in topology.links
        ),
        duration=12.0,
    )
