"""Workloads against real brokers: every entry of the history is compared with the log; clients
that die, and clients that move to another cluster."""

from __future__ import annotations

import os
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from linkflap.harness.capture.samplers import WatermarkSampler
from linkflap.harness.model.events import ClientDied
from linkflap.harness.model.history import Operation, Poll
from linkflap.harness.model.payload import process_of
from linkflap.harness.model.wait import now
from linkflap.harness.rundir import RunReader
from linkflap.harness.wire.librdkafka import bounds, quiet
from tests.waiting import eventually
from tests.workload_rig import PARTITIONS, TOPIC, Log, Rig

# Compares a history of clients with the log.


def acked(operation: Operation) -> dict[tuple[str, int, int], int]:
    """(topic, partition, offset) -> uid of every acknowledged record."""
    return {
        (send.topic, send.partition, offset + n): send.first_uid + index + n
        for send in operation.sends
        for index, count, offset in send.acks
        for n in range(count)
    }


def uids_of(operation: Operation) -> set[int]:
    return {send.first_uid + n for send in operation.sends for n in range(send.count)}


def uids_in(log: Log) -> Counter[int]:
    return Counter(uid for partition in log.values() for uid in partition.values())


def returns(operations: list[Operation]) -> list[Operation]:
    return [o for o in operations if o.phase == "return"]


def assert_truthful(
    operations: list[Operation], cluster: str, everything: Log, committed: Log
) -> None:
    """Every acknowledgement has its record, every confirmed ending its effect, and nothing occurs
    twice."""
    seen, visible = uids_in(everything), uids_in(committed)
    assert max(seen.values()) == 1
    for operation in returns(operations):
        if operation.cluster != cluster:
            continue
        for (topic, partition, offset), uid in acked(operation).items():
            assert everything[topic, partition].get(offset) == uid, operation
        refused = {
            s.first_uid + i + n
            for s in operation.sends
            for i, count in s.refused
            for n in range(count)
        }
        assert not refused & seen.keys()
        uids = uids_of(operation) - refused
        if operation.kind == "send" and operation.outcome == "ok":
            assert uids <= visible.keys()
        if operation.ending == "commit" and operation.outcome == "ok":
            assert uids <= visible.keys(), operation
        if operation.ending == "commit" and operation.outcome == "fail":
            assert not uids & visible.keys(), operation
        if operation.ending == "abort" and operation.outcome == "ok":
            assert not uids & visible.keys(), operation


def assert_polls_match(polls: list[Poll], log: Log) -> None:
    for poll in polls:
        for part in poll.fetched:
            for uid, offset, count in part.runs:
                for n in range(count):
                    assert (
                        poll.cluster != "A"
                        or log[part.topic, part.partition].get(offset + n) == uid + n
                    )


def test_a_history_says_what_the_log_has(rig: Rig) -> None:
    clients = rig.start(
        rig.workload(
            "transactional",
            clients=2,
            open_share=0.1,
            abort_share=0.2,
            hold=0.5,
            rate=40.0,
            compression="lz4",
        ),
        rig.workload("idempotent", rate=40.0),
        rig.workload("zombie", rate=5.0),
        rig.workload("readers", clients=2),
        rig.workload("readers", isolation="read_uncommitted", assign=True, via="proxy"),
    )
    sampler = WatermarkSampler(
        {"A": rig.deployment.clusters["A"].bootstrap},
        {TOPIC: PARTITIONS},
        rig.writer,
        groups=["linkflap.A.read_committed"],
    )
    sampler.start()
    eventually(
        "some of everything",
        lambda: (
            (p := clients.progress()).aborted >= 100
            and p.acknowledged >= 3000
            and p.read_committed >= 1000
            and p.open
        ),
        state=clients.progress,
    )
    eventually("an open transaction", lambda: clients.open_transactions("A"))
    assert clients.open_transactions("B") == 0
    since = clients.acknowledged_since(0, "A")
    assert 0 < since <= clients.progress().acknowledged
    assert clients.acknowledged_since(now(), "A") < since
    clients.stop_producers()
    everything, committed = rig.log("A"), rig.log("A", "read_committed")
    ends = rig.ends("A")
    clients.drain({"A": ends}, within=120)
    sampler.stop()
    reader = rig.finish()
    operations, polls = reader.operations()[0], reader.polls()[0]

    assert_truthful(operations, "A", everything, committed)
    invoked = {o.number: o for o in operations if o.phase == "invoke"}
    assert {o.number for o in returns(operations)} == invoked.keys()
    assert uids_in(everything).keys() <= set().union(*(uids_of(o) for o in invoked.values()))
    assert {o.kind for o in operations if o.outcome == "ok"} == {"init", "transaction", "send"}
    assert all(process_of(o.number) == o.process for o in operations)
    assert_zombies_were_fenced(operations)
    assert_identities(operations)

    assert_polls_match(polls, everything)
    assert {p.isolation for p in polls if p.kind == "drained"} == {
        "read_committed",
        "read_uncommitted",
    }
    for isolation, log in (("read_committed", committed), ("read_uncommitted", everything)):
        read = {
            u + n
            for p in polls
            if p.isolation == isolation
            for f in p.fetched
            for u, _, k in f.runs
            for n in range(k)
        }
        assert read == uids_in(log).keys()
    for drained in (p for p in polls if p.kind == "drained"):
        assert all(f.position >= ends[f.topic, f.partition] for f in drained.fetched)
    assert [p for p in polls if p.kind == "commit" and p.fetched and p.fetched[0].position > 0]
    assert [p for p in polls if p.kind == "assign" and p.group and p.fetched]
    assert_watermarks(reader, ends)


def assert_zombies_were_fenced(operations: list[Operation]) -> None:
    rounds = [o for o in returns(operations) if o.client == "zombie-1" and o.kind == "transaction"]
    fenced = [o for o in rounds if o.outcome == "fail"]
    assert fenced
    assert all("fenced" in o.error.lower() for o in fenced)
    assert [o for o in rounds if o.outcome == "ok" and o.ending == "commit"]
    assert len({o.transactional_id for o in rounds}) == 1


def assert_identities(operations: list[Operation]) -> None:
    known: dict[tuple[int, int], int] = {}
    for operation in returns(operations):
        if operation.kind == "transaction" and operation.outcome == "ok":
            identity = operation.producer_id, operation.producer_epoch
            assert identity >= (0, 0), operation
            assert known.setdefault(identity, operation.process) == operation.process


def assert_watermarks(reader: RunReader, ends: dict[tuple[str, int], int]) -> None:
    rows, damage = reader.watermarks()
    assert not damage
    assert len(rows) > PARTITIONS
    for row in rows:
        assert (
            0
            <= row.log_start
            <= row.last_stable
            <= row.high_watermark
            <= ends[row.topic, row.partition]
        )
        assert row.leader in (1, -1)
    assert [r for r in rows if r.last_stable < r.high_watermark]
    offsets, damage = reader.groups()
    assert not damage
    assert all(0 <= row.offset <= ends[row.topic, row.partition] for row in offsets)


def test_refused_records_fail_for_certain_and_a_reset_is_written(rig: Rig) -> None:
    admin = AdminClient({"bootstrap.servers": rig.deployment.clusters["A"].bootstrap})
    entry = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([topic])[topic].result(timeout=60)
    group = Consumer({"bootstrap.servers": rig.deployment.clusters["A"].bootstrap, "group.id": "g"})
    # beyond the end: out of range
    group.commit(offsets=[TopicPartition(TOPIC, 0, 50)], asynchronous=False)
    group.close()
    clients = rig.start(
        rig.workload("transactional", value_size=5000, abort_share=0.0, open_share=0.0, records=4),
        rig.workload("idempotent", value_size=5000, records=1, partitions=1),
        rig.workload("readers", group="g"),
    )
    polls = rig.writer.root / "polls" / "readers-1.jsonl"
    rows = [
        rig.writer.root / "operations" / f"{name}-1.jsonl"
        for name in ("transactional", "idempotent")
    ]
    eventually(
        "the clients' processes to write", lambda: all(file.exists() for file in (polls, *rows))
    )
    eventually("the reader's reset", lambda: b"reset to earliest" in polls.read_bytes())
    eventually(
        "operations to fail", lambda: all(row.read_bytes().count(b'"fail"') >= 3 for row in rows)
    )
    clients.stop_producers()
    fence(rig, "readers-1", group="g")
    eventually(
        "a new consumer in the place of the fenced one",
        lambda: len(processes_that_were_assigned(polls)) == 2,
    )
    everything = rig.log("A")
    reader = rig.finish()
    assert any("FENCED" in p.error or "fenced" in p.error for p in reader.polls()[0])
    assert uids_in(everything) == {}
    ended = [o for o in returns(reader.operations()[0]) if o.kind != "init"]
    assert not [o for o in ended if o.outcome == "ok"]
    failed = [o for o in ended if o.outcome == "fail"]
    assert {o.kind for o in failed} == {"transaction", "send"}
    assert all(s.refused for o in failed if o.kind == "send" for s in o.sends)
    # The first refusal aborts a transaction; what is in flight to other partitions is then purged.
    assert all(any(s.refused for s in o.sends) for o in failed)
    assert not any(s.acks for o in failed for s in o.sends)
    reset = next(p for p in reader.polls()[0] if p.error == "reset to earliest")
    assert [(f.partition, f.position) for f in reset.fetched] == [(0, 0)]


def fence(rig: Rig, member: str, *, group: str) -> None:
    """Joins as the same static member (KIP-345), which fences the previous consumer."""
    config = {"group.id": group, "group.instance.id": member, "session.timeout.ms": 6000}
    other = Consumer({"bootstrap.servers": rig.deployment.clusters["A"].bootstrap, **config})
    other.subscribe([TOPIC])
    eventually(
        "another member in that place", lambda: other.poll(0.2) is None and other.assignment()
    )
    other.close()


def processes_that_were_assigned(polls: Path) -> set[int]:
    rows = [line for line in polls.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return {
        row.process
        for row in (msgspec.json.decode(line, type=Poll) for line in rows)
        if row.kind == "assign"
    }


# Client processes that die while they work: their records stay, and their successors continue.
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

    eventually("clients to be at work", busy, state=clients.progress)
    committing = clients.kill(
        "A", workload="transactional", moment="commit", by="commit", within=60
    )
    assert committing.expected in [flying.operation for flying in committing.event.in_flight]
    eventually(
        "the producers to work again", lambda: clients.done_since_restart(committing.event.process)
    )
    holding = clients.kill(
        "A", workload="transactional", moment="transaction", by="transaction", within=60
    )
    assert holding.expected in [flying.operation for flying in holding.event.in_flight]
    others = [
        clients.kill("A", workload=kind, moment="any", by=kind, within=60)
        for kind in ("idempotent", "zombie", "readers")
    ]
    (assigned,) = (worker for crew in clients.workloads[-1:] for worker in crew.workers)
    os.kill(assigned.pid, signal.SIGABRT)
    eventually("all deaths to be noticed", lambda: len(clients.deaths()) == 6)
    for death in clients.deaths():
        works = partial(clients.done_since_restart, death.event.process)
        eventually(f"{death.event.clients} to work again", works)
    clients.stop_producers()
    everything, committed = rig.log("A"), rig.log("A", "read_committed")
    clients.drain({"A": rig.ends("A")}, within=120)
    reader = rig.finish(deaths=6)

    operations, polls = reader.operations()[0], reader.polls()[0]
    assert_truthful(operations, "A", everything, committed)
    assert_polls_match(polls, everything)
    unreturned = {o.number for o in operations if o.phase == "invoke"} - {
        o.number for o in returns(operations)
    }
    assert unreturned == {
        flying.operation for death in clients.deaths() for flying in death.event.in_flight
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
    eventually("an open transaction", lambda: clients.open_transactions("A"))
    (worker,) = clients.workloads[0].workers
    os.kill(worker.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        pausing = pool.submit(clients.pause, "A")
        eventually("the order to pause", lambda: all(member.paused for member in worker.members))
        os.kill(worker.pid, signal.SIGKILL)
        pausing.result(60)
    assert clients.open_transactions("A") == 0
    before = clients.acknowledged_since(0, "A")
    clients.move("A", "B", drained=True)
    moved = now()
    eventually(
        "writes on B", lambda: clients.acknowledged_since(moved, "B") > 100, state=clients.progress
    )
    assert clients.acknowledged_since(0, "A") == before
    eventually("the coordinator to end what the dead left open", lambda: not uncommitted(rig))
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


# Clients that move to another cluster: planned, with nothing in flight, and away from a dead
# one.
def test_clients_leave_a_dead_cluster_and_report_what_is_unknown(rig: Rig) -> None:
    clients = rig.start(
        rig.workload("transactional", open_share=1.0, abort_share=0.0, hold=600.0, timeout=60.0),
        rig.workload("transactional", clients=2, open_share=0.0, rate=0.0),
        rig.workload("idempotent", rate=0.0),
        rig.workload("readers"),
        rig.workload("readers", assign=True, cluster="B", isolation="read_uncommitted"),
    )
    eventually(
        "an open transaction and some writes",
        lambda: (
            clients.open_transactions("A")
            and clients.progress().read_committed
            and clients.progress().acknowledged > 2000
        ),
        state=clients.progress,
        within=180,
    )
    broker = rig.deployment.clusters["A"].brokers[1]
    broker.pause()  # so that commits and sends are in flight, unanswered, when it dies
    frozen = clients.progress().acknowledged
    eventually(
        "nothing to be acknowledged any more",
        lambda: clients.acknowledged_since(now() - int(5e8), "A") == 0,
    )
    broker.kill()
    assert clients.open_transactions("A") >= 1
    started = now()
    clients.move("A", "B", drained=False)
    assert (now() - started) / 1e9 < 40
    eventually(
        "clients to write to B",
        lambda: (
            clients.acknowledged_since(started, "B") > 500
            and clients.progress().acknowledged > frozen
        ),
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
    eventually(
        "an open transaction",
        lambda: clients.progress().acknowledged > 500 and clients.open_transactions("A"),
    )
    clients.pause("A")
    assert clients.open_transactions("A") == 0
    before = clients.progress().acknowledged
    moved = now()
    clients.move("A", "B", drained=True)
    eventually(
        "writes on B", lambda: clients.acknowledged_since(moved, "B") > 100, state=clients.progress
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
