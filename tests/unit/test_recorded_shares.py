"""Share groups recorded on the wire: real requests and answers become rows of their members, and
what the check share-groups says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from linkflap.harness.model.history import SHARE_SAMPLER, Poll
from linkflap.harness.rundir import RunReader
from linkflap.harness.wire import messages
from linkflap.harness.wire.messages import Error
from linkflap.harness.wire.recorder.connection import WireConnection
from linkflap.harness.wire.recorder.shares import RESETS
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.read.assemble import PartitionRows
from linkflap.spark_verify.read.payload_ids import fetched_on_the_wire
from linkflap.spark_verify.read.pieces import history_rows
from tests.recorder_rig import ID, TOPIC, Wire, batch, wire
from tests.unit.checks.histories import Log, view
from tests.unit.checks.verdicts import anomalies, unjudged
from tests.unit.test_recorded_reads import at, marker

__all__ = ["wire"]
ALL = (1, 2)
"""The versions of ShareFetch and ShareAcknowledge that kio knows."""
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
TWO = at(0, batch(b"1", b"2"))
Acks = Sequence[tuple[int, int, tuple[int, ...]]]
"""Ranges with their types: one for each offset, or one for all."""


@dataclass
class Member:
    """A member's connection to a recorded broker."""

    wire: Wire
    version: int = 2
    name: str = "m1"
    group: str = "workers"
    connection: WireConnection = field(init=False)
    lock: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        self.connection = self.wire.connection()
        self.wire.history.names[ID] = TOPIC

    def _ask(self, api: str, topic: str, body: str, acks: Acks, epoch: int, **more: Any) -> int:
        m = messages.request(api, self.version)
        batches = tuple(
            m.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in acks
        )
        part = {"share_fetch": "FetchPartition", "share_acknowledge": "AcknowledgePartition"}[api]
        partition = getattr(m, part)(partition_index=0, acknowledgement_batches=batches)
        topics = (getattr(m, topic)(topic_id=ID, partitions=(partition,)),)
        asked = getattr(m, body)(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=epoch,
            topics=topics,
            **more,
        )
        return self.wire.ask(self.connection, api, self.version, asked)

    def fetch(self, *acks: tuple[int, int, tuple[int, ...]], epoch: int = 1) -> int:
        more: dict[str, Any] = {
            "max_wait": timedelta(seconds=1),
            "min_bytes": 1,
            "max_records": 100,
            "batch_size": 100,
            "forgotten_topics_data": (),
        }
        return self._ask("share_fetch", "FetchTopic", "ShareFetchRequest", acks, epoch, **more)

    def acknowledge(self, *acks: tuple[int, int, tuple[int, ...]], epoch: int = 2) -> int:
        kinds = "AcknowledgeTopic", "ShareAcknowledgeRequest"
        return self._ask("share_acknowledge", *kinds, acks, epoch)

    def fetched(
        self,
        asked: int,
        records: bytes,
        *acquired: tuple[int, int, int],
        error: Any = Error.none,
        refused: Any = Error.none,
    ) -> None:
        m = messages.response("share_fetch", self.version)
        each = m.PartitionData(
            partition_index=0,
            error_code=error,
            acknowledge_error_code=refused.value,
            current_leader=m.LeaderIdAndEpoch(leader_id=1, leader_epoch=0),
            records=records,
            acquired_records=tuple(
                m.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in acquired
            ),
        )
        self._answer("share_fetch", asked, m.ShareFetchableTopicResponse, each)

    def acknowledged(self, asked: int, error: Any = Error.none) -> None:
        m = messages.response("share_acknowledge", self.version)
        each = m.PartitionData(
            partition_index=0,
            error_code=error,
            current_leader=m.LeaderIdAndEpoch(leader_id=1, leader_epoch=0),
        )
        self._answer("share_acknowledge", asked, m.ShareAcknowledgeTopicResponse, each)

    def _answer(self, api: str, asked: int, topic: Any, each: Any) -> None:
        m = messages.response(api, self.version)
        more: dict[str, Any] = {}
        if api == "share_fetch" or self.version >= 2:
            more["acquisition_lock_timeout"] = self.lock
        body = getattr(m, f"{messages.api_name(api)}Response")(
            throttle_time=timedelta(0),
            error_code=Error.none,
            responses=(topic(topic_id=ID, partitions=(each,)),),
            node_endpoints=(),
            **more,
        )
        self.wire.answer(self.connection, api, self.version, asked, body)

    def get(self, *acquired: tuple[int, int, int], records: bytes = TWO) -> None:
        self.fetched(self.fetch(), records, *acquired)

    def leave(self) -> None:
        body = messages.request("share_group_heartbeat", 1).ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=self.name, member_epoch=-1
        )
        self.wire.ask(self.wire.connection(), "share_group_heartbeat", 1, body)


def rows(wire: Wire) -> Sequence[Poll]:
    found, damage = RunReader(wire.writer.root).polls()
    assert damage == []
    return found


def got(wire: Wire) -> list[tuple[str, list[tuple[int, int]], int]]:
    """Kind, runs of offsets and position of each part of a row."""
    return [
        (row.kind, [(first, size) for _, first, size in part.runs], part.position)
        for row in rows(wire)
        for part in row.fetched
    ]


@pytest.mark.parametrize("pieces", [3, 1 << 30])
@pytest.mark.parametrize("version", ALL)
def test_what_a_member_acquires_and_acknowledges(wire: Wire, version: int, pieces: int) -> None:
    wire.pieces = pieces
    member = Member(wire, version)
    member.get((0, 1, 1), (3, 3, 2), records=TWO + at(2, batch(b"3")) + at(3, batch(b"4")))
    member.acknowledged(member.acknowledge((0, 1, (ACCEPT,)), (3, 3, (REJECT,))))
    assert got(wire) == [
        ("acquire", [(0, 2)], 1),
        ("acquire", [(3, 1)], 2),
        ("accept", [(0, 2)], -1),
        ("reject", [(3, 1)], -1),
        ("accepted", [(0, 2)], -1),
        ("rejected", [(3, 1)], -1),
    ]
    first = rows(wire)[0]
    assert (first.reader, first.group, first.isolation) == (
        "shop (wire)",
        "workers",
        "read_uncommitted",
    )
    assert (first.lock_ms, first.fetched[0].crcs) == (
        30_000,
        (int.from_bytes(TWO[17:21], "big"),),
    )
    assert (wire.report.delivered, wire.report.unread) == (3, {})


def test_types_of_single_records_come_with_the_next_fetch(wire: Wire) -> None:
    member = Member(wire)
    member.get((0, 3, 1), records=at(0, batch(b"1", b"2", b"3", b"4")))
    member.fetched(member.fetch((0, 3, (ACCEPT, RELEASE, ACCEPT, RENEW))), b"")
    asked = [("accept", [(0, 1), (2, 1)]), ("release", [(1, 1)]), ("renew", [(3, 1)])]
    confirmed = [("accepted", [(0, 1), (2, 1)]), ("released", [(1, 1)]), ("renewed", [(3, 1)])]
    assert got(wire)[1:] == [(kind, runs, -1) for kind, runs in (*asked, *confirmed)]


@pytest.mark.parametrize("type_of_a_gap", [0, ACCEPT])
def test_markers_are_neither_delivered_nor_acknowledged(wire: Wire, type_of_a_gap: int) -> None:
    member = Member(wire)
    member.get((0, 2, 1), records=TWO + marker(2, commit=True))
    member.acknowledged(member.acknowledge((0, 2, (ACCEPT, ACCEPT, type_of_a_gap))))
    assert got(wire) == [
        ("acquire", [(0, 2)], 1),
        ("accept", [(0, 2)], -1),
        ("accepted", [(0, 2)], -1),
    ]


def test_what_a_broker_refuses_is_not_confirmed(wire: Wire) -> None:
    member = Member(wire)
    member.get((0, 1, 1))
    member.acknowledged(member.acknowledge((0, 0, (ACCEPT,))), Error.invalid_record_state)
    member.fetched(member.fetch((1, 1, (ACCEPT,))), b"", refused=Error.invalid_record_state)
    assert [kind for kind, *_ in got(wire)] == ["acquire", "accept", "accept"]


def test_what_a_member_holds_goes_back_when_it_closes_leaves_or_is_gone(wire: Wire) -> None:
    closes, leaves, gone = (Member(wire, name=name) for name in ("m1", "m2", "m3"))
    for member in (closes, leaves, gone):
        member.get((0, 1, 1))
    closes.acknowledge((0, 0, (ACCEPT,)), epoch=-1)
    leaves.leave()
    last = max(row.returned for row in rows(wire))
    gone.connection.ended()
    closes.connection.ended()
    assert got(wire)[3:] == [
        ("accept", [(0, 1)], -1),
        ("release", [(1, 1)], -1),
        ("release", [(0, 2)], -1),
        ("release", [(0, 2)], -1),
    ]
    *_, before, of_gone = rows(wire)
    assert (before.process, of_gone.process) == (2, 3)
    assert of_gone.time < before.time <= last  # its last answer, and not the end of its connection


def test_what_expired_does_not_go_back(wire: Wire) -> None:
    member = Member(wire, lock=timedelta(0))
    member.get((0, 1, 1))
    member.connection.ended()
    assert [kind for kind, *_ in got(wire)] == ["acquire"]


def test_a_member_is_the_same_on_every_connection(wire: Wire) -> None:
    for name in ("m1", "m2", "m1"):
        Member(wire, name=name).get((0, 1, 1))
    assert [row.process for row in rows(wire)] == [1, 2, 1]


def test_other_groups_and_topics_are_not_recorded(wire: Wire) -> None:
    Member(wire, group="others").get((0, 1, 1))
    member = Member(wire)
    wire.history.names[ID] = "B.other"
    member.fetched(member.fetch((0, 1, (ACCEPT,))), TWO, (0, 1, 1))
    assert (got(wire), wire.report.unread) == ([], {})


@pytest.mark.parametrize(("first", "last"), [(0, 1 << 60), (5, 4), (-(1 << 63), (1 << 63) - 1)])
def test_a_range_that_no_broker_gives_is_unread(wire: Wire, first: int, last: int) -> None:
    member = Member(wire)
    member.acknowledge((first, last, (ACCEPT,)))
    member.get((first, last, 1))
    assert wire.report.unread == {"share_acknowledge v2": 1, "answer to share_fetch v2": 1}
    assert got(wire) == []


def test_an_unknown_version_is_unread(wire: Wire) -> None:
    member = Member(wire)
    frame = bytearray(messages.encode_request("share_group_heartbeat", 1, 1, "shop", HEARTBEAT))
    frame[4:8] = b"\0\x4e\0\x09"  # ShareFetch v9
    wire.feed(member.connection.requests, bytes(frame), wire.brokers)
    assert wire.brokers.endswith(frame)
    assert wire.report.unread == {"share_fetch v9": 1}


HEARTBEAT = messages.request("share_group_heartbeat", 1).ShareGroupHeartbeatRequest(
    group_id="workers", member_id="m1", member_epoch=1
)


# What the check says of them.


def seen(wire: Wire) -> PartitionView:
    """The log has 7 and 8 in the batch that was fetched."""
    gathered = PartitionRows()
    for each in history_rows(wire.writer.root, "polls"):
        gathered.add(each)
    logged = view([Log("A").data(7, 8)])
    (replica,) = logged.replicas
    crc = int.from_bytes(TWO[17:21], "big")
    batches = replace(replica.batches, crc=replica.batches.crc * 0 + crc)
    logged = replace(logged, replicas=[replace(replica, batches=batches)])
    return fetched_on_the_wire(replace(logged, shares=gathered.reads()[1]))


def test_the_smallest_share_group_is_accepted(wire: Wire) -> None:
    member = Member(wire)
    member.get((0, 1, 1))
    member.acknowledged(member.acknowledge((0, 1, (ACCEPT,))))
    judged = seen(wire)
    assert [row.uids.tolist() for row in judged.shares] == [[7, 8]] * 3
    assert anomalies("share-groups", judged) == []
    assert unjudged("share-groups", judged) == []


def test_delivered_again_after_it_was_accepted(wire: Wire) -> None:
    member = Member(wire)
    member.get((0, 1, 1))
    member.acknowledged(member.acknowledge((0, 1, (ACCEPT,))))
    member.get((1, 1, 2))
    assert anomalies("share-groups", seen(wire)) == [("delivered-again", "A", 1)]


def test_an_acknowledgement_of_what_another_member_holds(wire: Wire) -> None:
    Member(wire).get((0, 1, 1))
    thief = Member(wire, name="m2")
    thief.acknowledged(thief.acknowledge((0, 0, (ACCEPT,))))
    assert anomalies("share-groups", seen(wire)) == [("unacquired-acknowledgement", "A", 0)]


@pytest.mark.parametrize(
    ("lock", "wrong"),
    [(15, [("unacquired-acknowledgement", "A", 0)]), (60, [])],
)
def test_a_lock_lasts_as_long_as_its_broker_said(
    wire: Wire, lock: int, wrong: list[tuple[str, str, int]]
) -> None:
    """Accepted 30 seconds after it was acquired."""
    member = Member(wire, lock=timedelta(seconds=lock))
    member.get((0, 1, 1))
    member.acknowledged(member.acknowledge((0, 1, (ACCEPT,))))
    judged = seen(wire)
    got, *asked = judged.shares
    late = [replace(r, time=r.time + 30 * 10**9, returned=r.returned + 30 * 10**9) for r in asked]
    assert anomalies("share-groups", replace(judged, shares=(got, *late))) == wrong


def test_a_record_of_a_lost_connection_may_be_given_to_another_member(wire: Wire) -> None:
    gone = Member(wire)
    gone.get((0, 1, 1))
    gone.connection.ended()
    Member(wire, name="m2").get((0, 1, 2))
    again = Member(wire)
    again.acknowledged(again.acknowledge((0, 1, (ACCEPT,))), Error.invalid_record_state)
    assert anomalies("share-groups", seen(wire)) == []


def sampled(judged: PartitionView, *starts: int) -> PartitionView:
    """The same, with start offsets of the group that were sampled after everything else."""
    after = max((row.returned for row in judged.shares), default=1)
    none = np.empty(0, np.int64)
    rows = [
        Read(
            reader=SHARE_SAMPLER, process=0, cluster="A", isolation="read_uncommitted",
            kind="settled", group="workers", time=after + 2 * n + 1, returned=after + 2 * n + 2,
            position=start, uids=none, offsets=none,
        )
        for n, start in enumerate(starts)
    ]  # fmt: skip
    return replace(judged, shares=(*judged.shares, *rows))


@pytest.mark.parametrize(
    ("acquired", "starts", "wrong"),
    [
        pytest.param([(0, 0, 1), (1, 1, 1)], [0, 2], [], id="all was given"),
        pytest.param([(0, 0, 1)], [1], [], id="the rest may still be given"),
        pytest.param([(0, 0, 1)], [0, 2], [("never-delivered", "A", 1)], id="one was passed over"),
        pytest.param([(0, 0, 1)], [2], [], id="the next leader may have begun at the end"),
        pytest.param([(1, 1, 1)], [2], [], id="the group may have begun at the end"),
        pytest.param([], [2], [], id="nothing was given to it"),
        pytest.param([(0, 1, 1)], [2, 1], [("wrong-start-offset", "A", 1)], id="it went back"),
        pytest.param([(0, 1, 1)], [3], [("wrong-start-offset", "A", 3)], id="beyond the end"),
    ],
)
def test_start_offsets_of_a_program_s_group(
    wire: Wire,
    acquired: Sequence[tuple[int, int, int]],
    starts: Sequence[int],
    wrong: list[tuple[str, str, int]],
) -> None:
    member = Member(wire)
    for each in acquired:
        member.get(each)
    judged = sampled(seen(wire), *starts)
    assert anomalies("share-groups", judged) == wrong
    assert unjudged("share-groups", judged) == []


@pytest.mark.parametrize("api", sorted(RESETS.values()))
@pytest.mark.parametrize("group", ["workers", "others"])
def test_a_reset_of_a_group_is_unknown(wire: Wire, api: str, group: str) -> None:
    m = messages.request(api, 0)
    what: dict[str, Any] = {"group_id": group, "topics": ()}
    if api == "delete_groups":
        what = {"groups_names": ("x", group)}
    body = getattr(m, f"{messages.api_name(api)}Request")(**what)
    wire.ask(wire.connection(), api, 0, body)
    said = {f"share group workers as it was reset ({api})": 1} if group == "workers" else {}
    assert wire.report.unread == said
