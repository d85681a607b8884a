"""Fetches and commits of programs, recorded on the wire: real requests and answers become rows of
readers; the verdicts of checks about copies of these rows."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from linkflap.chaos.cases.wire import record_batch
from linkflap.harness.log import layout
from linkflap.harness.model.history import Poll
from linkflap.harness.rundir import RunReader
from linkflap.harness.wire import messages
from linkflap.harness.wire.messages import Error, Malformed
from linkflap.harness.wire.recorder.connection import WireConnection
from linkflap.harness.wire.recorder.reads import delivered
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Found, Unjudged
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.read.assemble import PartitionRows
from linkflap.spark_verify.read.payload_ids import fetched_on_the_wire
from linkflap.spark_verify.read.pieces import history_rows
from tests.recorder_rig import ID, ME, TOPIC, Wire, batch, transactional, wire
from tests.unit.checks.histories import Log, but, send, view

__all__ = ["wire"]
ALL = range(4, 19)
"""The versions of Fetch that kio knows."""
OTHER = batch(b"another")


def at(offset: int, made: bytes) -> bytes:
    """A batch as a broker has it at an offset."""
    return struct.pack(">q", offset) + made[8:]


def marker(offset: int, *, commit: bool) -> bytes:
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
    made = layout.batch(
        [(key, value)],
        leader_epoch=0,
        attributes=layout.CONTROL | layout.TRANSACTIONAL,
        time=0,
        producer=(ME.id, ME.epoch),
        sequence=-1,
    )
    return at(offset, made)


class Client:
    """A consumer's connection to a recorded broker."""

    def __init__(self, wire: Wire, version: int = 12) -> None:
        self.wire, self.version = wire, version
        self.connection: WireConnection = wire.connection()
        self.wire.history.names[ID] = TOPIC

    def name(self, topic: str, since: int) -> dict[str, Any]:
        return {"topic_id": ID} if self.version >= since else {"topic": topic}

    def fetch(
        self, start: int | None, *, committed: bool = True, session: tuple[int, int] = (0, -1)
    ) -> int:
        m, v = messages.request("fetch", self.version), self.version
        partitions: tuple[Any, ...] = ()
        if start is not None:
            partitions = (
                m.FetchTopic(
                    **self.name(TOPIC, 13),
                    partitions=(
                        m.FetchPartition(
                            partition=0, fetch_offset=start, partition_max_bytes=1 << 20
                        ),
                    ),
                ),
            )
        more: dict[str, Any] = {}
        if v >= 7:
            more |= {
                "session_id": session[0],
                "session_epoch": session[1],
                "forgotten_topics_data": (),
            }
        body = m.FetchRequest(
            max_wait=timedelta(seconds=1),
            min_bytes=1,
            isolation_level=int(committed),
            topics=partitions,
            **more,
        )
        return self.wire.ask(self.connection, "fetch", v, body)

    def fetched(
        self,
        asked: int,
        records: bytes,
        *,
        aborted: Sequence[tuple[int, int]] = (),
        session: int = 0,
        error: Any = Error.none,
    ) -> None:
        m, v = messages.response("fetch", self.version), self.version
        each = m.PartitionData(
            partition_index=0,
            error_code=error,
            high_watermark=100,
            aborted_transactions=tuple(
                m.AbortedTransaction(producer_id=who, first_offset=first) for who, first in aborted
            ),
            records=records,
        )
        more: dict[str, Any] = {"session_id": session, "error_code": Error.none} if v >= 7 else {}
        body = m.FetchResponse(
            throttle_time=timedelta(0),
            responses=(m.FetchableTopicResponse(**self.name(TOPIC, 13), partitions=(each,)),),
            **more,
        )
        self.wire.answer(self.connection, "fetch", v, asked, body)

    def get(self, start: int, records: bytes, **more: Any) -> None:
        self.fetched(self.fetch(start), records, **more)

    def assigned(self, group: str) -> None:
        body = messages.request("sync_group", 3).SyncGroupRequest(
            group_id=group,
            generation_id=1,
            member_id="m",
            group_instance_id=None,
            assignments=(),
        )
        asked = self.wire.ask(self.connection, "sync_group", 3, body)
        name = TOPIC.encode()
        assignment = struct.pack(f">hih{len(name)}siii", 1, 1, len(name), name, 1, 0, -1)
        answer = messages.response("sync_group", 3).SyncGroupResponse(
            throttle_time=timedelta(0), error_code=Error.none, assignment=assignment
        )
        self.wire.answer(self.connection, "sync_group", 3, asked, answer)

    def commit(self, group: str, offset: int, *, error: Any = Error.none, version: int = 8) -> None:
        m, r = (part("offset_commit", version) for part in (messages.request, messages.response))
        name = {"topic_id": ID} if version >= 10 else {"name": TOPIC}
        part = m.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        body = m.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=1,
            member_id="m",
            topics=(m.OffsetCommitRequestTopic(**name, partitions=(part,)),),
        )
        asked = self.wire.ask(self.connection, "offset_commit", version, body)
        done = r.OffsetCommitResponsePartition(partition_index=0, error_code=error)
        answer = r.OffsetCommitResponse(
            throttle_time=timedelta(0),
            topics=(r.OffsetCommitResponseTopic(**name, partitions=(done,)),),
        )
        self.wire.answer(self.connection, "offset_commit", version, asked, answer)


def rows(wire: Wire) -> Sequence[Poll]:
    found, damage = RunReader(wire.writer.root).polls()
    assert damage == []
    return found


def got(wire: Wire) -> list[tuple[str, list[tuple[int, int]], int]]:
    """Kind, runs of offsets and position of each row."""
    return [
        (row.kind, [(first, size) for _, first, size in part.runs], part.position)
        for row in rows(wire)
        for part in row.fetched
    ]


def reads(wire: Wire) -> Sequence[Read]:
    """The judge's view of the rows."""
    gathered = PartitionRows()
    for each in history_rows(wire.writer.root, "polls"):
        gathered.add(each)
    return gathered.reads()[0]


BEGINS: list[tuple[str, list[tuple[int, int]], int]] = [("assign", [], -1), ("poll", [], 0)]


@pytest.mark.parametrize("pieces", [3, 1 << 30])
@pytest.mark.parametrize("version", ALL)
def test_a_fetch_is_a_poll(wire: Wire, version: int, pieces: int) -> None:
    wire.pieces = pieces
    client = Client(wire, version)
    two = at(0, batch(b"1", b"2"))
    client.get(0, two + at(2, batch(b"3", sequence=2)) + at(3, batch(b"4"))[:-1])
    assert got(wire) == [*BEGINS, ("poll", [(0, 2), (2, 1)], 3)]
    row = rows(wire)[-1]
    assert (row.reader, row.isolation, row.cluster) == ("shop (wire)", "read_committed", "A")
    assert row.fetched[0].crcs[0] == int.from_bytes(two[17:21], "big")
    client.get(3, b"")
    client.get(3, at(3, batch(b"4")))
    assert got(wire)[3:] == [("poll", [(3, 1)], 4)]
    assert wire.report.delivered == 4
    assert not wire.report.unread


def test_records_below_the_requested_offset_are_not_delivered(wire: Wire) -> None:
    client = Client(wire)
    client.get(1, at(0, batch(b"1", b"2", b"3")))
    assert got(wire)[-1] == ("poll", [(1, 2)], 3)


def test_a_client_that_moves_begins_anew(wire: Wire) -> None:
    client = Client(wire)
    client.get(0, at(0, batch(b"1")))
    client.get(7, at(7, batch(b"2")))
    client.get(0, at(0, batch(b"1")))
    assert [kind for kind, *_ in got(wire)] == ["assign", "poll", "poll"] * 3
    second = Client(wire)
    second.get(1, at(1, batch(b"1")))
    assert len({row.process for row in rows(wire)}) == 2


ABORTED = (
    at(0, transactional(b"1"))
    + at(1, batch(b"2"))
    + marker(2, commit=False)
    + at(3, transactional(b"3"))
    + marker(4, commit=True)
)


@pytest.mark.parametrize("version", [4, 12, 17])
def test_with_read_committed_listed_transactions_are_not_delivered(
    wire: Wire, version: int
) -> None:
    Client(wire, version).get(0, ABORTED, aborted=[(ME.id, 0)])
    assert got(wire)[-1] == ("poll", [(1, 1), (3, 1)], 5)
    uncommitted = Client(wire, version)
    uncommitted.fetched(uncommitted.fetch(0, committed=False), ABORTED)
    assert got(wire)[-1] == ("poll", [(0, 1), (1, 1), (3, 1)], 5)
    assert rows(wire)[-1].isolation == "read_uncommitted"


def test_markers_alone_move_the_position(wire: Wire) -> None:
    client = Client(wire)
    client.get(4, marker(4, commit=True))
    assert got(wire)[-1] == ("poll", [], 5)


def test_offsets_of_a_cleaned_batch_are_read_from_its_records() -> None:
    made = bytearray(record_batch([b"1", b"2", b"3"]))
    struct.pack_into(">i", made, layout.LAST_DELTA_AT, 7)
    what = delivered(memoryview(at(10, bytes(made))), 11, ())
    assert ([first for _, first, _ in what.runs], what.position) == ([11, 12], 18)


def test_other_formats_are_refused() -> None:
    made = bytearray(at(0, batch(b"1")))
    made[layout.MAGIC_AT] = 1
    with pytest.raises(Malformed, match="format 1"):
        delivered(memoryview(made), 0, ())


@pytest.mark.parametrize("version", [7, 12, 17])
def test_a_session_remembers_what_it_fetches(wire: Wire, version: int) -> None:
    client = Client(wire, version)
    client.fetched(client.fetch(0, session=(0, 0)), at(0, batch(b"1")), session=9)
    client.fetched(client.fetch(1, session=(9, 1)), b"", session=9)
    client.fetched(client.fetch(None, session=(9, 2)), at(1, batch(b"2")), session=9)
    assert got(wire)[3:] == [("poll", [(1, 1)], 2)]
    client.fetch(None, session=(8, 1))
    assert wire.report.unread == {f"fetch v{version}": 1}


def test_errors_and_preferred_replicas_deliver_nothing(wire: Wire) -> None:
    client = Client(wire)
    client.fetched(client.fetch(0), b"", error=Error.offset_out_of_range)
    client.fetched(client.fetch(0), b"")
    assert got(wire) == []


def test_a_group_is_known_by_its_assignment(wire: Wire) -> None:
    client = Client(wire)
    client.get(0, at(0, batch(b"1")))
    client.assigned("other")
    client.get(1, at(1, batch(b"1")))
    assert {row.group for row in rows(wire)} == {""}
    client.assigned("shop")
    assert "the groups other and shop" in next(iter(wire.report.unread))


def test_a_group_of_the_consumer_protocol_is_known_by_its_heartbeats(wire: Wire) -> None:
    """The assignment comes before the name of its topic."""
    client = Client(wire, 17)
    wire.history.names.clear()
    m, r = (part("consumer_group_heartbeat", 0) for part in (messages.request, messages.response))
    body = m.ConsumerGroupHeartbeatRequest(
        group_id="shop",
        member_id="m",
        member_epoch=0,
        rebalance_timeout=timedelta(seconds=5),
        topic_partitions=None,
    )
    asked = wire.ask(client.connection, "consumer_group_heartbeat", 0, body)
    mine = r.TopicPartitions(topic_id=ID, partitions=(0,))
    answer = r.ConsumerGroupHeartbeatResponse(
        throttle_time=timedelta(0),
        error_code=Error.none,
        member_epoch=1,
        heartbeat_interval=timedelta(seconds=5),
        assignment=r.Assignment(topic_partitions=(mine,)),
    )
    wire.answer(client.connection, "consumer_group_heartbeat", 0, asked, answer)
    wire.history.names[ID] = TOPIC
    client.get(0, at(0, batch(b"1")))
    assert {row.group for row in rows(wire)} == {"shop"}
    assert not wire.report.unread


@pytest.mark.parametrize("version", range(3, 11))
def test_commits_are_written_down_when_they_are_acknowledged(wire: Wire, version: int) -> None:
    client = Client(wire)
    client.assigned("shop")
    client.get(0, at(0, batch(b"1")))
    client.commit("shop", 1, version=version)
    client.commit("shop", 2, version=version, error=Error.rebalance_in_progress)
    client.commit("another", 3, version=version)
    assert got(wire)[3:] == [("commit", [], 1)]
    assert {(row.group, row.process) for row in rows(wire)} == {("shop", 1), ("shop", 2)}


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_transaction_are_committed_with_it(wire: Wire, commit: bool) -> None:
    client = Client(wire)
    m, r = messages.request("txn_offset_commit", 3), messages.response("txn_offset_commit", 3)
    part = m.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=""
    )
    body = m.TxnOffsetCommitRequest(
        transactional_id="payments",
        group_id="shop",
        producer_id=ME.id,
        producer_epoch=ME.epoch,
        topics=(m.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=(part,)),),
    )
    asked = wire.ask(client.connection, "txn_offset_commit", 3, body)
    done = r.TxnOffsetCommitResponsePartition(partition_index=0, error_code=Error.none)
    answer = r.TxnOffsetCommitResponse(
        throttle_time=timedelta(0),
        topics=(r.TxnOffsetCommitResponseTopic(name=TOPIC, partitions=(done,)),),
    )
    wire.answer(client.connection, "txn_offset_commit", 3, asked, answer)
    assert got(wire) == []
    wire.ended(client.connection, wire.end(client.connection, commit=commit))
    assert got(wire) == ([("commit", [], 5)] if commit else [])


# What the judge makes of it.

CHECKS = (
    "poll-continuity",
    "read-committed-visibility",
    "inconsistent-offset",
    "aborted-read",
    "uncommitted-read",
)


def kinds(seen: PartitionView) -> set[str]:
    return {
        found.kind if isinstance(found, Found) else "unknown"
        for check in CHECKS
        for found in REGISTRY[check].kernel(seen)
        if isinstance(found, Found | Unjudged)
    }


def seen_by(wire: Wire, there: Log, **facts: Any) -> PartitionView:
    """The log of A, and what was fetched of it."""
    seen = view([there, Log("B")], reads=reads(wire), mirror_kind="shadow", mirror={})
    seen = but(seen, **facts)
    return fetched_on_the_wire(seen)


def crc(made: bytes) -> int:
    return int.from_bytes(made[17:21], "big")


THREE = [at(n, batch(b"%d" % n, sequence=n)) for n in range(3)]


def three(**changed: int) -> Log:
    """A log with these batches, of which some have another CRC."""
    made = Log("A")
    for number, each in enumerate(THREE):
        made.data(number + 1, crc=changed.get(f"at{number}", crc(each)))
    return made


def test_fetched_records_have_the_payload_ids_of_the_log(wire: Wire) -> None:
    client = Client(wire)
    client.get(0, THREE[0] + THREE[1])
    client.get(2, THREE[2])
    seen = seen_by(wire, three())
    assert [uid for read in seen.reads for uid in read.uids.tolist()] == [1, 2, 3]
    assert kinds(seen) == set()


def test_another_batch_at_the_offset_is_a_phantom(wire: Wire) -> None:
    Client(wire).get(0, b"".join(THREE))
    found = kinds(seen_by(wire, three(at1=crc(OTHER))))
    assert found >= {"phantom-read", "inconsistent-offset"}


def test_a_record_that_was_not_delivered_is_skipped(wire: Wire) -> None:
    client = Client(wire)
    client.get(0, THREE[0])
    client.get(1, THREE[2])
    assert {"poll-skip", "hidden-committed"} <= kinds(seen_by(wire, three()))


def test_record_skipped_at_the_first_fetch_is_passed_unread(wire: Wire) -> None:
    Client(wire).get(0, THREE[1])
    assert "passed-unread" in kinds(seen_by(wire, three()))


def test_a_program_may_seek(wire: Wire) -> None:
    client = Client(wire)
    client.get(0, THREE[0])
    client.get(2, THREE[2])
    client.get(0, THREE[0])
    assert kinds(seen_by(wire, three())) == set()


def test_an_aborted_record_that_was_not_listed_is_found(wire: Wire) -> None:
    client = Client(wire)
    made = transactional(b"1")
    client.get(0, at(0, made) + marker(1, commit=False))
    log = Log("A").data(1, pid=7, transactional=True, crc=crc(made)).marker("abort", pid=7)
    assert "aborted-read" in kinds(seen_by(wire, log))
    client.get(0, at(0, made) + marker(1, commit=False), aborted=[(ME.id, 0)])


def test_a_cleaner_changes_crcs(wire: Wire) -> None:
    Client(wire).get(0, b"".join(THREE))
    cleaned: Mapping[str, int] = {"A": 3}
    assert kinds(seen_by(wire, three(at0=1, at1=2), compacted=cleaned)) == set()
    left = Log("A").skip(2).data(3, crc=crc(THREE[2]))
    seen = seen_by(wire, left, compacted=cleaned)
    assert seen.reads[-1].uids.tolist() == [3]
    assert kinds(seen) == set()


def test_fetched_record_that_may_be_deleted_since_is_left_out(wire: Wire) -> None:
    Client(wire).get(0, b"".join(THREE))
    deleted = Log("A", start=2).data(3, crc=crc(THREE[2]))
    assert seen_by(wire, deleted).reads[-1].uids.tolist() == [3]
    seen = view([deleted], reads=reads(wire), sends=[send(7, acked=1)])
    assert fetched_on_the_wire(seen).reads[-1].uids.tolist() == [7, 3]
    mirror = Log("B").data(1, crc=crc(THREE[0]))
    seen = view([deleted, mirror], reads=reads(wire), mirror_kind="shadow", mirror={})
    assert fetched_on_the_wire(seen).reads[-1].uids.tolist() == [1, 3]
    assert "phantom-read" in kinds(seen_by(wire, Log("A").data(1, crc=crc(THREE[0]))))


@pytest.fixture
def no_reads(wire: Wire) -> Wire:
    wire.history.reads.topics = frozenset()
    return wire


def test_without_topics_to_read_no_fetch_is_looked_at(no_reads: Wire) -> None:
    client = Client(no_reads)
    client.get(0, THREE[0])
    assert rows(no_reads) == []
