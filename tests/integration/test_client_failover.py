"""Clients that move to another cluster: planned, with nothing in flight, and away from a dead
one."""

from __future__ import annotations

from linkflap.harness.model.clock import now
from linkflap.harness.model.wait import until
from tests.truthful import acked, assert_truthful, returns
from tests.workload_rig import Rig


def test_clients_leave_a_dead_cluster_and_say_what_nobody_knows(rig: Rig) -> None:
    clients = rig.start(
        rig.workload("transactional", open_share=1.0, abort_share=0.0, hold=600.0, timeout=60.0),
        rig.workload("transactional", clients=2, open_share=0.0, rate=0.0),
        rig.workload("idempotent", rate=0.0),
        rig.workload("readers"),
        rig.workload("readers", assign=True, cluster="B", isolation="read_uncommitted"),
    )
    until(
        lambda: (
            clients.open_transactions("A")
            and clients.progress().read_committed
            and clients.progress().acknowledged > 2000
        ),
        within=60,
        what="an open transaction and some writes",
        state=clients.progress,
    )
    broker = rig.deployment.clusters["A"].brokers[1]
    broker.pause()  # so that commits and sends are in flight, unanswered, when it dies
    frozen = clients.progress().acknowledged
    until(
        lambda: clients.acknowledged_since(now() - int(5e8), "A") == 0,
        within=120,
        what="nothing to be acknowledged any more",
    )
    broker.kill()
    assert clients.open_transactions("A") >= 1
    started = now()
    clients.move("A", "B", drained=False)
    assert (now() - started) / 1e9 < 15
    until(
        lambda: (
            clients.acknowledged_since(started, "B") > 500
            and clients.progress().acknowledged > frozen
        ),
        within=60,
        what="clients to write to B",
        state=clients.progress,
    )
    clients.stop_producers()
    on_b, committed_b = rig.log("B"), rig.log("B", "read_committed")
    clients.drain({"B": rig.ends("B")}, within=120)
    reader = rig.finish()
    broker.start()
    operations, polls = reader.operations()[0], reader.polls()[0]

    assert_truthful(operations, "B", on_b, committed_b)
    on_a = rig.log("A")
    for operation in returns(operations):
        if operation.cluster == "A":
            assert (
                acked(operation).items()
                <= {(t, p, o): u for (t, p), log in on_a.items() for o, u in log.items()}.items()
            )
    unknown = [o for o in returns(operations) if o.cluster == "A" and o.outcome == "info"]
    assert [o for o in unknown if o.kind == "transaction" and o.ending == "commit" and o.ended_at]
    assert [
        o
        for o in unknown
        if o.kind == "transaction" and o.ending == "open" and not o.ended_at and acked(o)
    ]
    assert [o for o in unknown if o.kind == "send"]
    processes = {
        cluster: {o.process for o in operations if o.cluster == cluster} for cluster in "AB"
    }
    ids = {
        cluster: {o.transactional_id for o in operations if o.cluster == cluster}
        for cluster in "AB"
    }
    assert processes["A"]
    assert processes["B"]
    assert not processes["A"] & processes["B"]
    assert ids["A"] == ids["B"]
    assert {p.cluster for p in polls if p.group} == {"A", "B"}
    assert len({p.group for p in polls if p.group}) == 1
    assert {p.isolation for p in polls if p.kind == "drained" and p.cluster == "B"} == {
        "read_committed",
        "read_uncommitted",
    }


def test_a_planned_failover_leaves_nothing_in_flight(rig: Rig) -> None:
    clients = rig.start(
        rig.workload("transactional", clients=2, open_share=0.3, hold=60.0, rate=50.0),
        rig.workload("idempotent"),
    )
    until(
        lambda: clients.progress().acknowledged > 500 and clients.open_transactions("A"),
        within=60,
        what="an open transaction",
    )
    clients.pause("A")
    assert clients.open_transactions("A") == 0
    before = clients.progress().acknowledged
    moved = now()
    clients.move("A", "B", drained=True)
    until(
        lambda: clients.acknowledged_since(moved, "B") > 100,
        within=60,
        what="writes on B",
        state=clients.progress,
    )
    assert clients.acknowledged_since(moved, "A") == 0
    assert clients.acknowledged_since(0, "A") == before
    everything, committed = rig.log("A"), rig.log("A", "read_committed")
    clients.stop()
    operations = rig.finish().operations()[0]
    assert_truthful(operations, "A", everything, committed)
    assert not [o for o in returns(operations) if o.outcome != "ok"]
    assert {o.number for o in operations if o.phase == "invoke"} == {
        o.number for o in returns(operations)
    }
