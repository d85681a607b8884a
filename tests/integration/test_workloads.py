"""Workloads against real brokers: every entry of the history is compared with the log."""

from __future__ import annotations

from pathlib import Path

import msgspec
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from linkflap.harness.capture.watermarks import WatermarkSampler
from linkflap.harness.model.clock import now
from linkflap.harness.model.history import Operation, Poll
from linkflap.harness.model.payload import process_of
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import RunReader
from tests.truthful import assert_polls_match, assert_truthful, returns, uids_in, uids_of
from tests.workload_rig import PARTITIONS, TOPIC, Rig


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
    until(
        lambda: (
            (p := clients.progress()).aborted >= 100
            and p.acknowledged >= 3000
            and p.read_committed >= 1000
            and p.open
        ),
        within=60,
        what="some of everything",
        state=clients.progress,
    )
    until(lambda: clients.open_transactions("A"), within=120, what="an open transaction")
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

    assert_polls_match(polls, "A", everything)
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
    until(
        lambda: all(file.exists() for file in (polls, *rows)),
        within=60,
        what="the clients' processes to write",
    )
    until(lambda: b"reset to earliest" in polls.read_bytes(), within=60, what="the reader's reset")
    until(
        lambda: all(row.read_bytes().count(b'"fail"') >= 3 for row in rows),
        within=60,
        what="operations to fail",
    )
    clients.stop_producers()
    fence(rig, "readers-1", group="g")
    until(
        lambda: len(processes_that_were_assigned(polls)) == 2,
        within=60,
        what="a new consumer in the place of the fenced one",
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
    until(
        lambda: other.poll(0.2) is None and other.assignment(),
        within=60,
        what="another member in that place",
    )
    other.close()


def processes_that_were_assigned(polls: Path) -> set[int]:
    rows = [line for line in polls.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return {
        row.process
        for row in (msgspec.json.decode(line, type=Poll) for line in rows)
        if row.kind == "assign"
    }
