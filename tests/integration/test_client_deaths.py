"""Client processes that die while they work: their records stay, and their successors continue."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from confluent_kafka.admin import AdminClient

from linkflap.harness.model.clock import now
from linkflap.harness.model.events import ClientDied
from linkflap.harness.model.history import Operation, Poll
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import bounds, quiet
from tests.truthful import assert_polls_match, assert_truthful, returns, uids_in, uids_of
from tests.workload_rig import PARTITIONS, TOPIC, Rig


def test_clients_that_are_killed_leave_what_they_wrote_and_those_after_them_go_on(rig: Rig) -> None:
    clients = rig.start(
        rig.workload(
            "transactional", clients=2, open_share=0.2, abort_share=0.1, hold=1.0, rate=40.0
        ),
        rig.workload("idempotent", rate=40.0),
        rig.workload("zombie", rate=5.0),
        rig.workload("readers", clients=2),
        rig.workload("readers", isolation="read_uncommitted", assign=True),
    )

    def busy() -> bool:
        done = clients.progress()
        return done.acknowledged > 500 and done.read_committed > 300 and done.read_uncommitted > 300

    until(busy, within=60, what="clients to be at work", state=clients.progress)
    committing = clients.kill(
        "A", workload="transactional", moment="commit", by="commit", within=60
    )
    assert committing.expected in [flying.operation for flying in committing.in_flight]
    until(
        lambda: clients.done_since_restart(committing.process),
        within=60,
        what="the producers to work again",
    )
    holding = clients.kill(
        "A", workload="transactional", moment="transaction", by="transaction", within=60
    )
    assert holding.expected in [flying.operation for flying in holding.in_flight]
    others = [
        clients.kill("A", workload=kind, moment="any", by=kind, within=60)
        for kind in ("idempotent", "zombie", "readers")
    ]
    (assigned,) = (worker for crew in clients.workloads[-1:] for worker in crew.workers)
    os.kill(assigned.pid, signal.SIGABRT)
    until(lambda: len(clients.deaths()) == 6, within=60, what="all deaths to be noticed")
    for death in clients.deaths():
        works = partial(clients.done_since_restart, death.process)
        until(works, within=90, what=f"{death.clients} to work again")
    clients.stop_producers()
    everything, committed = rig.log("A"), rig.log("A", "read_committed")
    clients.drain({"A": rig.ends("A")}, within=120)
    reader = rig.finish(deaths=6)

    operations, polls = reader.operations()[0], reader.polls()[0]
    assert_truthful(operations, "A", everything, committed)
    assert_polls_match(polls, "A", everything)
    unreturned = {o.number for o in operations if o.phase == "invoke"} - {
        o.number for o in returns(operations)
    }
    assert unreturned == {
        flying.operation for death in clients.deaths() for flying in death.in_flight
    }
    assert {
        committing.expected,
        holding.expected,
        *(death.expected for death in others[:2]),
    } <= unreturned
    invoked = {o.number: o for o in operations if o.phase == "invoke"}
    assert not uids_of(invoked[holding.expected or 0]) & uids_in(committed).keys(), (
        "its successor has aborted it"
    )
    seen = uids_of(invoked[committing.expected or 0]) & uids_in(committed).keys()
    assert seen in (set(), uids_of(invoked[committing.expected or 0])), "all or nothing"
    assert_a_successor_is_another_process_of_the_same_name(operations, polls)
    assert {p.isolation for p in polls if p.kind == "drained"} == {
        "read_committed",
        "read_uncommitted",
    }
    assert {e.signal for e in reader.events()[0] if isinstance(e, ClientDied)} == {
        "SIGKILL",
        "SIGABRT",
    }


def assert_a_successor_is_another_process_of_the_same_name(
    operations: list[Operation], polls: list[Poll]
) -> None:
    for client in ("transactional-1", "transactional-2"):
        mine = [o for o in operations if o.client == client]
        assert len({o.process for o in mine}) >= 3
        assert len({o.transactional_id for o in mine}) == 1
    owners = {(o.process, o.client) for o in operations} | {(p.process, p.reader) for p in polls}
    assert len(owners) == len({process for process, _ in owners})
    for name in {p.reader for p in polls}:
        mine_read = [p for p in polls if p.reader == name]
        for number in {p.process for p in mine_read}:
            kinds = [p.kind for p in mine_read if p.process == number and p.kind != "error"]
            assert not kinds or kinds[0] == "assign", (
                "what a consumer got comes after where it began"
            )


def test_a_planned_failover_gets_over_a_death_while_clients_pause(rig: Rig) -> None:
    held = rig.workload(
        "transactional", clients=2, open_share=0.5, hold=60.0, rate=50.0, timeout=10.0
    )
    clients = rig.start(held, rig.workload("idempotent"))
    until(lambda: clients.open_transactions("A"), within=60, what="an open transaction")
    (worker,) = clients.workloads[0].workers
    os.kill(worker.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        pausing = pool.submit(clients.pause, "A")
        until(
            lambda: all(member.paused for member in worker.members),
            within=60,
            what="the order to pause",
        )
        os.kill(worker.pid, signal.SIGKILL)
        pausing.result(60)
    assert clients.open_transactions("A") == 0
    before = clients.acknowledged_since(0, "A")
    clients.move("A", "B", drained=True)
    moved = now()
    until(
        lambda: clients.acknowledged_since(moved, "B") > 100,
        within=60,
        what="writes on B",
        state=clients.progress,
    )
    assert clients.acknowledged_since(0, "A") == before
    until(
        lambda: not uncommitted(rig),
        within=120,
        what="the coordinator to end what the dead left open",
    )
    everything, committed = rig.log("A"), rig.log("A", "read_committed")
    reader = rig.finish(deaths=1)
    assert_truthful(reader.operations()[0], "A", everything, committed)


def uncommitted(rig: Rig) -> int:
    """Partitions of A with an open transaction: their last stable offset is below the high
    watermark."""
    partitions = [(TOPIC, p) for p in range(PARTITIONS)]
    admin = AdminClient(quiet(rig.deployment.clusters["A"].bootstrap))
    stable, high = (bounds(admin, partitions, kind, within=10.0) for kind in ("stable", "high"))
    return sum(stable[tp] < high[tp] for tp in partitions)
