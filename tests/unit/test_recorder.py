"""The recorder: real requests and answers, cut anywhere, become the rows of a history; and what
checks say of the smallest histories that only the wire shows."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec
import psutil
import pytest

from linkflap.chaos.cases.wire import ProducerIdentity
from linkflap.chaos.schedule import check_recorded
from linkflap.harness.log import layout
from linkflap.harness.machine import children
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.interference import Does, Interference
from linkflap.harness.model.scenario import FaultSpec, TopicSpec, WorkloadSpec
from linkflap.harness.wire import forwarding, messages
from linkflap.harness.wire.forwarding import Forwarder
from linkflap.harness.wire.messages import LENGTH, Error, Malformed, Side
from linkflap.harness.wire.recorder.connection import _READS, _WRITES
from linkflap.harness.wire.recorder.interferences import NAMES
from linkflap.harness.wire.recorder.reads import assigned
from linkflap.harness.wire.recorder.settings import SETTINGS, Asked, Settings, read_report
from linkflap.harness.wire.recorder.shares import SHARES
from linkflap.recording.run import on_the_wire
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Found, PartialFinding, Unjudged
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.read.payload_ids import named_on_the_wire
from linkflap.topologies import parse
from tests.recorder_rig import (
    FIRST,
    ID,
    ME,
    SIDES,
    TOPIC,
    Wire,
    batch,
    example,
    oldest,
    transactional,
    wire,
)
from tests.scenarios import scenario_of
from tests.unit.checks.histories import Log, but, poll, promoted, view
from tests.waiting import eventually

__all__ = ["wire"]


@pytest.mark.parametrize("pieces", [1, 3, 7, 64, 1 << 30])
@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_batch_is_written_down_before_and_after(wire: Wire, version: int, pieces: int) -> None:
    wire.pieces = pieces
    program = wire.connection()
    sent = batch(b"1", b"2")
    asked = wire.produce(program, sent, version=version)
    (invoked,) = wire.rows()
    assert (invoked.phase, invoked.kind, invoked.client) == ("invoke", "send", "shop")
    assert (invoked.producer_id, invoked.producer_epoch) == (7, 0)
    (group,) = invoked.sends
    assert (group.topic, group.partition, group.first_uid, group.count) == (TOPIC, 0, FIRST, 2)
    assert (group.sequence, group.acks) == (0, ())
    assert group.crc == int.from_bytes(sent[17:21], "big")
    wire.written(program, asked, 40, version=version)
    _, returned = wire.rows()
    assert (returned.phase, returned.outcome) == ("return", "ok")
    assert returned.sends[0].acks == ((0, 2, 40),)
    (send,) = wire.sends()
    assert send.offsets.tolist() == [40, 41]


def test_topics_by_id_have_the_names_of_metadata(wire: Wire) -> None:
    program = wire.connection()
    assert wire.produce(program, batch(b"1"), version=13)
    assert wire.report.unread == {"produce v13": 1}
    m = messages.request("metadata", 12)
    asked = wire.ask(
        program,
        "metadata",
        12,
        m.MetadataRequest(
            topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        ),
    )
    r = messages.response("metadata", 12)
    topic = r.MetadataResponseTopic(
        error_code=Error.none, name=TOPIC, topic_id=ID, partitions=(), is_internal=False
    )
    wire.answer(
        program,
        "metadata",
        12,
        asked,
        r.MetadataResponse(
            throttle_time=timedelta(0), brokers=(), cluster_id="x", controller_id=1, topics=(topic,)
        ),
    )
    asked = wire.produce(program, batch(b"1"), version=13)
    wire.written(program, asked, 3, version=13)
    (send,) = wire.sends()
    assert send.offsets.tolist() == [3]


def test_answers_to_requests_with_one_correlation_id_are_those_of_their_order(wire: Wire) -> None:
    program = wire.connection()
    for number in range(3):
        wire.correlation = 4
        wire.produce(program, batch(str(number).encode(), sequence=number))
    for offset in (7, 8):
        wire.written(program, 5, offset)
    assert [send.offsets.tolist() for send in wire.sends()] == [[7], [8], [-1]]


def test_a_batch_that_is_sent_again_is_the_same(wire: Wire) -> None:
    first, second = wire.connection(), wire.connection()
    wire.produce(first, batch(b"1"))
    asked = wire.produce(second, batch(b"1"))
    wire.written(second, asked, 5)
    asked = wire.produce(second, batch(b"2", sequence=1))
    wire.written(second, asked, 6)
    one, other = wire.sends()
    assert (one.first_uid, one.offsets.tolist()) == (FIRST, [5])
    assert (other.first_uid, other.offsets.tolist()) == (FIRST + 1, [6])
    assert wire.report.batches == 2


def test_errors_that_a_client_retries_leave_a_batch_open_and_refusals_do_not(wire: Wire) -> None:
    program = wire.connection()
    asked = wire.produce(program, batch(b"1"))
    wire.written(program, asked, -1, error=Error.not_leader_or_follower)
    assert [row.phase for row in wire.rows()] == ["invoke"]
    asked = wire.produce(program, batch(b"2", sequence=1))
    wire.written(program, asked, -1, error=Error.message_too_large)
    assert [(row.phase, row.outcome) for row in wire.rows()][-1] == ("return", "fail")
    # sent twice, one answer is missing: it may have been written
    wire.produce(wire.connection(), batch(b"3", sequence=2))
    asked = wire.produce(program, batch(b"3", sequence=2))
    wire.written(program, asked, -1, error=Error.message_too_large)
    assert [send.outcome for send in wire.sends()] == ["info", "fail", "info"]


def test_a_transaction_is_one_operation(wire: Wire) -> None:
    program, coordinator = wire.connection(), wire.connection()
    for sequence, offset in ((0, 10), (1, 11)):
        asked = wire.produce(program, transactional(b"x", sequence=sequence))
        wire.written(program, asked, offset)
    assert {send.ending for send in wire.sends()} == {"open"}
    wire.end(coordinator, commit=True)  # its answer is lost with the connection
    assert {(send.ending, send.outcome) for send in wire.sends()} == {("commit", "info")}
    again = wire.connection()
    asked = wire.end(again, commit=True)
    wire.ended(again, asked, Error.concurrent_transactions)
    asked = wire.end(again, commit=True)
    wire.ended(again, asked)
    sends = wire.sends()
    assert len({send.number for send in sends}) == 1
    assert [(s.ending, s.outcome, s.offsets.tolist()) for s in sends] == [
        ("commit", "ok", [10]),
        ("commit", "ok", [11]),
    ]
    asked = wire.produce(program, transactional(b"x", sequence=2))
    asked = wire.end(program, commit=False)
    wire.ended(program, asked)
    assert [(s.ending, s.outcome) for s in wire.sends()][-1] == ("abort", "ok")


def test_a_fenced_commit_was_not_done_unless_it_was_asked_before(wire: Wire) -> None:
    program = wire.connection()
    wire.produce(program, transactional(b"x"))
    asked = wire.end(program, commit=True)
    wire.ended(program, asked, Error.producer_fenced)
    wire.produce(program, transactional(b"x", sequence=1))
    wire.end(wire.connection(), commit=True)
    asked = wire.end(program, commit=True)
    wire.ended(program, asked, Error.producer_fenced)
    assert [send.outcome for send in wire.sends()] == ["fail", "info"]


def test_other_topics_and_producers_without_an_id(wire: Wire) -> None:
    one, other = wire.connection(), wire.connection()
    wire.produce(one, batch(b"1"), topic="A.other")
    assert wire.rows() == []
    for program in (one, one, other):
        wire.produce(program, batch(b"1", who=None))
    sends = wire.sends()
    assert len({(send.number, send.first_uid) for send in sends}) == 3
    assert len({send.process for send in sends}) == 2


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00",
        struct.pack(">i", 2**31 - 1) + b"\0" * 20,
        struct.pack(">i", -5) + b"\0" * 20,
        struct.pack(">i", 3) + b"\0" * 20,
    ],
)
def test_bytes_that_are_no_frame_are_refused(wire: Wire, head: bytes) -> None:
    with pytest.raises(Malformed, match=r"it (announces a frame|begins a TLS)"):
        wire.connection().requests.feed(memoryview(head))


def test_unknown_apis_and_versions_pass_and_are_counted(wire: Wire) -> None:
    program = wire.connection()
    for key, version in ((999, 3), (0, 99), (0, 9)):
        frame = struct.pack(">hhih", key, version, 5, -1) + b"\xff" * 30
        program.requests.feed(memoryview(LENGTH.pack(len(frame)) + frame))
    assert wire.report.unread == {"produce v99": 1, "produce v9": 1}
    assert wire.rows() == []
    asked = wire.produce(program, batch(b"1"))
    wire.written(program, asked, 0)
    assert len(wire.sends()) == 1


READ: Final = sorted({*_WRITES.values(), *_READS.values(), *SHARES.values()})
"""The messages that the recorder reads."""


@pytest.mark.parametrize("does", ["", "refused", "throttled"])
@pytest.mark.parametrize("api", READ)
def test_messages_with_a_wrong_byte_pass(wire: Wire, api: str, does: Does) -> None:
    """Each byte in turn is wrong, in a request and in the answer to one."""
    wire.history.names[UUID(int=0)] = TOPIC
    for key in [key for key, name in NAMES.items() if name == api and does]:
        fault = Interference(
            does=does,
            api=key,
            error="UNKNOWN_SERVER_ERROR",
            topic="x" if "commit" in api or api == "fetch" else "",
            count=1 << 30,
        )
        wire.faults.ask(Asked(faults={"f": fault}))
    for version in (oldest(api), messages.newest(api)):
        request, answer = (example(messages.schema(api, version, side).entity) for side in SIDES)
        asked = messages.encode_request(api, version, 5, "shop", request)
        for wrong in with_a_wrong_byte(asked):
            program, before = wire.connection(), len(wire.brokers)
            wire.feed(program.requests, wrong, wire.brokers)
            assert len(wire.brokers) > before
            program.ended()
        for wrong in with_a_wrong_byte(bytes(messages.encode_response(api, version, 5, answer))):
            program, before = wire.connection(), len(wire.clients)
            wire.feed(program.requests, asked, wire.brokers)
            wire.feed(program.responses, wrong, wire.clients)
            assert len(wire.clients) > before
            program.ended()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("api", READ)
def test_arrays_are_checked_before_they_are_read(api: str, side: Side) -> None:
    """kio ends the process for an array that claims to be of 2^31, so that no claim may reach it;
    what is right passes."""
    decode = messages.decode_request if side == "request" else messages.decode_response
    for version in range(oldest(api), messages.newest(api) + 1):
        known = messages.schema(api, version, side)
        right = example(known.entity)
        frame = (
            messages.encode_request(api, version, 5, "", right)
            if side == "request"
            else bytes(messages.encode_response(api, version, 5, right))
        )[LENGTH.size :]
        assert decode(api, version, frame) == right
        _, begins = known.read_header(frame, 0)
        for at in range(begins, len(frame)):
            for claim in ("ffffffff07", "7fffffff", "fffffff0"):
                wrong = frame[:at] + bytes.fromhex(claim) + frame[at + 1 :]
                with contextlib.suppress(Malformed):
                    decode(api, version, wrong)


def test_a_request_with_more_partitions_than_clients_send_is_not_decoded() -> None:
    m = messages.request("produce", 9)

    def encoded(topics: int, partitions: int) -> bytes:
        part = m.PartitionProduceData(index=0, records=b"")
        topic = m.TopicProduceData(name="x", partition_data=(part,) * partitions)
        body = m.ProduceRequest(
            transactional_id="x",
            acks=-1,
            timeout=timedelta(seconds=1),
            topic_data=(topic,) * topics,
        )
        return messages.encode_request("produce", 9, 5, "shop", body)[LENGTH.size :]

    assert messages.decode_request("produce", 9, encoded(10, 1000)).acks == -1
    for topics, partitions in ((1, 30_000), (30_000, 0), (150, 150)):
        with pytest.raises(Malformed, match="too many elements"):
            messages.decode_request("produce", 9, encoded(topics, partitions))


def test_an_assignment_that_a_client_made_is_checked_too() -> None:
    with pytest.raises(Malformed, match="too many elements"):
        list(assigned(b"\0\1" + b"\x7f\xff\xff\xff" + bytes(20)))


def with_a_wrong_byte(frame: bytes) -> Iterator[bytes]:
    """Behind its length, and API and version, or correlation id."""
    for at in range(2 * LENGTH.size, len(frame)):
        for wrong in (0, 1, 0x7F, 0x80, 0xFF):
            yield frame[:at] + bytes([wrong]) + frame[at + 1 :]


# What the judge makes of it.


def judged(check: str, seen: PartitionView) -> Sequence[Found | Unjudged]:
    return [f for f in REGISTRY[check].kernel(seen) if isinstance(f, Found | Unjudged)]


def kinds(seen: PartitionView) -> set[str]:
    return {
        found.kind if isinstance(found, Found) else "unknown"
        for check in ("lost-write", "ghost-ack", "duplicate", "provenance", "sequence-continuity")
        for found in judged(check, seen)
    }


def named(wire: Wire, *logs: Log, **rest: Any) -> PartitionView:
    seen = view(logs, sends=wire.sends(), mirror_kind="shadow", mirror={}, **rest)
    seen = but(seen, programs=frozenset({TOPIC}), wired=frozenset({TOPIC}))
    return named_on_the_wire(seen)


def acknowledged(wire: Wire, *offsets: int) -> None:
    program = wire.connection()
    for sequence, offset in enumerate(offsets):
        asked = wire.produce(program, batch(b"x", sequence=sequence))
        wire.written(program, asked, offset)


def log(cluster: str, *sequences: int) -> Log:
    made = Log(cluster)
    for sequence in sequences:
        made.data(-1, pid=7, sequence=sequence)
    return made


def test_records_have_the_names_of_the_wire_on_both_sides(wire: Wire) -> None:
    acknowledged(wire, 0, 1)
    seen = named(wire, log("A", 0, 1), log("B", 0, 1))
    assert [r.records.uid.tolist() for r in seen.replicas] == [[FIRST, FIRST + 1]] * 2
    assert kinds(seen) == set()


def test_an_acknowledged_record_that_is_gone_is_lost(wire: Wire) -> None:
    acknowledged(wire, 0, 1, 2)
    (found,) = judged(
        "lost-write",
        named(
            wire, Log("A").data(-1, pid=7, sequence=0).skip(1).data(-1, pid=7, sequence=2), Log("B")
        ),
    )
    assert isinstance(found, Found)
    assert (found.kind, found.cluster, found.offset) == ("lost-write", "A", 1)


def test_an_acknowledgement_that_was_lost_on_the_way_promises_nothing(wire: Wire) -> None:
    wire.produce(wire.connection(), batch(b"x"))
    assert kinds(named(wire, log("A", 0), log("B", 0))) == set()
    assert kinds(named(wire, Log("A"), Log("B"))) == set()


@pytest.mark.parametrize("who", [None, ME])
def test_a_batch_whose_answer_was_lost_is_acknowledged_where_it_is(
    wire: Wire, who: ProducerIdentity | None
) -> None:
    """A broker answers the repeated request of an idempotent client with the offset of the
    first; without idempotence the batch is written again, or for the first time."""
    first, again = wire.connection(), wire.connection()
    made = batch(b"1", who=who)
    wire.produce(first, made)
    first.ended()
    (sent,) = wire.sends()
    there = Log("A").data(-1, pid=sent.producer_id, sequence=sent.sequence, crc=sent.crc)
    assert kinds(named(wire, there, Log("B"))) == set()
    assert kinds(named(wire, Log("A"), Log("B"))) == set()
    wire.written(again, wire.produce(again, made), 0)
    assert kinds(named(wire, there, Log("B"))) == set()
    assert {"ghost-ack", "lost-write"} <= kinds(named(wire, Log("A").data(5, pid=9), Log("B")))


def test_equal_batches_without_an_acknowledgement_have_no_name(wire: Wire) -> None:
    program, sent = wire.connection(), batch(b"1", who=None)
    for _ in range(2):
        asked = wire.produce(program, sent)
        wire.written(program, asked, -1, error=Error.not_enough_replicas_after_append)
    there = Log("A").data(-1, crc=wire.sends()[0].crc)
    (found,) = judged("provenance", named(wire, there, Log("B")))
    assert isinstance(found, Unjudged)
    assert found.reason.endswith("or in several equal batches that nobody acknowledged")


def test_a_batch_acknowledged_at_two_offsets_is_there_twice_or_not_at_one_of_them(
    wire: Wire,
) -> None:
    first, second = wire.connection(), wire.connection()
    one = wire.produce(first, batch(b"x"))
    other = wire.produce(second, batch(b"x"))
    wire.written(first, one, 0)
    wire.written(second, other, 1)
    assert {"duplicate", "sequence-repeat"} <= kinds(named(wire, log("A", 0, 0), log("B")))
    (found,) = judged("ghost-ack", named(wire, log("A", 0), log("B")))
    assert isinstance(found, Found)
    assert (found.kind, found.offset) == ("ghost-ack", 1)


def test_an_offset_that_another_batch_has_was_not_acknowledged_truly(wire: Wire) -> None:
    acknowledged(wire, 0, 1)
    asked = wire.produce(wire.connection(), batch(b"x", who=ProducerIdentity(id=8, epoch=0)))
    assert asked
    seen = named(wire, Log("A").data(-1, pid=7, sequence=0).data(-1, pid=8, sequence=0), Log("B"))
    assert {"ghost-ack", "lost-write"} <= kinds(seen)


def test_a_transaction_commits_without_what_was_not_acknowledged(wire: Wire) -> None:
    program = wire.connection()
    for sequence, offset in ((0, 0), (1, -1)):
        asked = wire.produce(program, transactional(b"x", sequence=sequence))
        error = Error.none if offset >= 0 else Error.not_enough_replicas
        wire.written(program, asked, offset, error=error)
    wire.ended(program, wire.end(program, commit=True))

    def found(*sequences: int) -> set[str]:
        made = Log("A")
        for sequence in sequences:
            made.data(-1, pid=7, sequence=sequence, transactional=True)
        seen = named(wire, made.marker("commit", pid=7), Log("B"))
        partial = [f for f in REGISTRY["torn-transaction"].kernel(seen)]
        parts = [
            replace(f, topic=TOPIC, partition=0) for f in partial if isinstance(f, PartialFinding)
        ]
        combine = REGISTRY["torn-transaction"].combine
        assert combine is not None
        return kinds(seen) | {str(each.found) for each in combine(parts)}

    assert found(0) == set()
    assert found(0, 1) == set()
    assert "lost-write" in found(1)


@pytest.mark.parametrize("taken_for", ["commit", "abort"])
@pytest.mark.parametrize("carried_out", [True, False])
def test_the_end_of_the_next_transaction_says_nothing_of_one_whose_end_was_refused(
    wire: Wire, taken_for: str, carried_out: bool
) -> None:
    """A client that writes on without asking again: the broker has ended the first transaction, or
    has not, and is accused of neither."""
    program, commit = wire.connection(), taken_for == "commit"
    wire.written(program, wire.produce(program, transactional(b"x")), 0)
    wire.fault("refused", "EndTxn", error="NOT_COORDINATOR", carried_out=carried_out)
    wire.ended(program, wire.end(program, commit=True))
    next_at = 2 if carried_out else 1
    wire.written(program, wire.produce(program, transactional(b"y", sequence=1)), next_at)
    wire.ended(program, wire.end(program, commit=commit))
    assert [(s.ending, s.outcome) for s in wire.sends()] == [("commit", "info"), (taken_for, "ok")]

    def found(ending: str) -> set[str]:
        made = Log("A").data(-1, pid=7, sequence=0, transactional=True)
        made = made.marker("commit", pid=7) if carried_out else made
        made = made.data(-1, pid=7, sequence=1, transactional=True).marker(ending, pid=7)
        seen = named(wire, made, Log("B"))
        ended = (*judged("commit-aborted", seen), *judged("marker-pairing", seen))
        return kinds(seen) | {each.kind for each in ended if isinstance(each, Found)}

    assert found(taken_for) == set()
    assert found("abort" if commit else "commit")


@pytest.mark.parametrize("mapped", [False, True])
def test_a_transaction_with_the_sequences_of_an_aborted_one_is_lost_where_the_log_has_that(
    wire: Wire, mapped: bool
) -> None:
    """docs/findings/librdkafka-reused-sequences.md: a broker takes the second batch for a repeat,
    and acknowledges it where the first one is."""
    first = wire.connection()
    wire.produce(first, transactional(b"x"))
    first.ended()
    program = wire.connection()
    wire.ended(program, wire.end(program, commit=False))
    wire.written(program, wire.produce(program, transactional(b"y")), 0)
    wire.ended(program, wire.end(program, commit=True))
    crcs = list(dict.fromkeys(send.crc for send in wire.sends()))
    assert len(crcs) == 2

    def found(crc: int, *endings: str) -> set[str]:
        a, b = Log("A"), Log("B")
        for log, pid, theirs in ((a, 7, crc), (b, -9 if mapped else 7, 1 if mapped else crc)):
            log.data(-1, pid=pid, sequence=0, crc=theirs, transactional=True)
            for ending in endings:
                log.marker(ending, pid=pid)
        seen = view([a, b], sends=wire.sends(), mirror_kind="shadow", mirror=how)
        seen = named_on_the_wire(but(seen, programs=frozenset({TOPIC}), wired=frozenset({TOPIC})))
        same = [each.kind for each in judged("order-equality", seen) if isinstance(each, Found)]
        return kinds(seen) | set(same)

    how = {"producer_ids": "negate"} if mapped else {}
    assert "lost-write" in found(crcs[0], "abort", "commit")
    assert found(crcs[1], "commit") == set()


def test_a_retry_with_new_timestamps_is_the_same_batch_until_its_transaction_ends(
    wire: Wire,
) -> None:
    """KafkaJS encodes records again when it sends them again."""
    first = wire.connection()
    wire.produce(first, transactional(b"x"))
    first.ended()
    program = wire.connection()
    wire.written(program, wire.produce(program, transactional(b"later")), 0)
    wire.ended(program, wire.end(program, commit=True))
    there = one_of_a_transaction().marker("commit", pid=7)
    assert kinds(named(wire, there, Log("B"))) == set()


def read_aborted(wire: Wire, made: Log, records: int = 1) -> set[str]:
    """The findings of aborted-read for a reader that got the first records."""
    got = replace(poll(*((offset, -1) for offset in range(records))), cluster="A")
    seen = named(wire, made, Log("B"), reads=[got])
    return {each.kind for each in judged("aborted-read", seen) if isinstance(each, Found)}


def one_of_a_transaction() -> Log:
    return Log("A").data(-1, pid=7, sequence=0, transactional=True)


@pytest.mark.parametrize("answer", [None, Error.invalid_txn_state, Error.none])
def test_a_record_was_aborted_if_no_commit_was_requested_before_or_the_abort_was_answered(
    wire: Wire, answer: Any
) -> None:
    program = wire.connection()
    wire.written(program, wire.produce(program, transactional(b"x")), 0)
    wire.end(program, commit=True)
    program.ended()
    again = wire.connection()
    asked = wire.end(again, commit=False)
    if answer is not None:
        wire.ended(again, asked, answer)
    found = {"aborted-read"} if answer is Error.none else set()
    assert read_aborted(wire, one_of_a_transaction().marker("commit", pid=7)) == found


def test_a_record_whose_abort_had_no_answer_was_aborted(wire: Wire) -> None:
    program = wire.connection()
    wire.written(program, wire.produce(program, transactional(b"x")), 0)
    wire.end(program, commit=False)
    program.ended()
    committed = one_of_a_transaction().marker("commit", pid=7)
    assert read_aborted(wire, committed) == {"aborted-read"}


def test_a_record_whose_abort_came_to_nothing_is_committed_with_the_next_transaction(
    wire: Wire,
) -> None:
    program = wire.connection()
    wire.written(program, wire.produce(program, transactional(b"x")), 0)
    wire.fault("refused", "EndTxn", error="NOT_COORDINATOR", carried_out=False)
    wire.ended(program, wire.end(program, commit=False))
    wire.written(program, wire.produce(program, transactional(b"y", sequence=1)), 1)
    wire.ended(program, wire.end(program, commit=True))
    both = one_of_a_transaction().data(-1, pid=7, sequence=1, transactional=True)
    assert read_aborted(wire, both.marker("commit", pid=7), records=2) == set()


def test_without_a_producer_id_a_record_is_known_by_offset_and_crc(wire: Wire) -> None:
    program = wire.connection()
    for value, offset in ((b"1", 0), (b"2", 1), (b"3", -1)):
        asked = wire.produce(program, batch(value, who=None))
        if offset >= 0:
            wire.written(program, asked, offset)
    crcs = [send.crc for send in wire.sends()]
    there = Log("A").data(-1, crc=crcs[0]).data(-1, crc=crcs[1]).data(-1, crc=crcs[2])
    seen = named(wire, there, Log("B"))
    assert seen.replicas[0].records.uid.tolist() == [FIRST, FIRST + 1, FIRST + 2]
    assert kinds(seen) == set()
    other = Log("A").data(-1, crc=crcs[0]).data(-1, crc=1)
    assert {"ghost-ack", "lost-write"} <= kinds(named(wire, other, Log("B")))
    rewritten = Log("A").data(-1, crc=1).data(-1, crc=2)
    assert kinds(named(wire, rewritten, Log("B"))) == set()


def test_a_batch_without_a_producer_id_that_is_sent_again_is_there_twice(wire: Wire) -> None:
    """A client without idempotence retries what was written and not answered."""
    first, second = wire.connection(), wire.connection()
    made = batch(b"1", who=None)
    wire.produce(first, made)
    first.ended()
    wire.written(second, wire.produce(second, made), 1)
    (sent,) = wire.sends()
    assert sent.offsets.tolist() == [1]
    twice = Log("A").data(-1, crc=sent.crc).data(-1, crc=sent.crc)
    assert kinds(named(wire, twice, Log("B"))) == {"duplicate"}
    once = Log("A").skip(1).data(-1, crc=sent.crc)
    assert kinds(named(wire, once, Log("B"))) == set()


def test_the_same_values_with_other_timestamps_may_be_new_records(wire: Wire) -> None:
    """A client without idempotence may stamp what it retries anew (segmentio/kafka-go)."""
    first, second = wire.connection(), wire.connection()
    one, other = (
        layout.batch(
            [(None, b"1")], leader_epoch=-1, attributes=0, time=at, producer=(-1, -1), sequence=-1
        )
        for at in (1, 2)
    )
    wire.produce(first, one)
    first.ended()
    wire.written(second, wire.produce(second, other), 1)
    unanswered, acknowledged = wire.sends()
    both = Log("A").data(-1, crc=unanswered.crc).data(-1, crc=acknowledged.crc)
    assert kinds(named(wire, both, Log("B"))) == set()


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("who", [None, ME])
def test_only_an_acknowledged_batch_has_to_be_before_what_is_asked_for_later(
    wire: Wire, who: ProducerIdentity | None, answered: bool
) -> None:
    """A client with several requests in flight may send them again in another order, unless it is
    idempotent: then the brokers keep the order of its sequences."""
    first, again = wire.connection(), wire.connection()
    made = [batch(value, sequence=n, who=who) for n, value in enumerate((b"1", b"2"))]
    asked = wire.produce(first, made[0])
    if answered:
        wire.written(first, asked, 0)
    wire.produce(first, made[1])
    first.ended()
    wire.written(again, wire.produce(again, made[1]), 0)
    if not answered:
        wire.written(again, wire.produce(again, made[0]), 1)
    one, two = wire.sends()
    turned = Log("A")
    for send in (two, one):
        turned.data(-1, pid=send.producer_id, sequence=send.sequence, crc=send.crc)
    seen = named(wire, turned, Log("B"))
    assert seen.replicas[0].records.uid.tolist() == [FIRST + 1, FIRST]
    found = [each.kind for each in judged("send-order", seen) if isinstance(each, Found)]
    assert found == (["send-inversion"] if answered else [])
    assert ("sequence-start" in kinds(seen)) == (who is not None)


def test_equal_batches_of_open_connections_are_two(wire: Wire) -> None:
    made = batch(b"1", who=None)
    for offset in (0, 1):
        program = wire.connection()
        wire.written(program, wire.produce(program, made), offset)
    assert len(wire.sends()) == 2
    (crc, _) = (send.crc for send in wire.sends())
    twice = Log("A").data(-1, crc=crc).data(-1, crc=crc)
    assert kinds(named(wire, twice, Log("B"))) == set()


def test_a_record_without_a_recorded_write_is_unknown(wire: Wire) -> None:
    acknowledged(wire, 0)
    (found,) = judged("provenance", named(wire, log("A", 0, 5), log("B")))
    assert isinstance(found, Unjudged)
    assert "from offset 1 on, were not seen on the wire" in found.reason


@pytest.mark.parametrize(
    ("how", "mapped"),
    [("negate", -9), ("complement", 2**63 - 1 - 8), ("region", (-5 << 31) | 7), ("keep", 7)],
)
def test_mapped_producer_ids_are_those_of_the_source(wire: Wire, how: str, mapped: int) -> None:
    acknowledged(wire, 0)
    seen = view(
        [
            log("A", 0),
            Log("B").data(-1, pid=mapped, producer_epoch=0, base_sequence=0, last_sequence=0),
        ],
        sends=wire.sends(),
        mirror_kind="shadow",
        mirror={"producer_ids": how},
    )
    assert [r.records.uid.tolist() for r in named_on_the_wire(seen).replicas] == [[FIRST]] * 2


def test_equal_ids_of_two_clusters_are_distinguished_by_era(wire: Wire) -> None:
    acknowledged(wire, 0)
    (send,) = wire.sends()
    theirs = replace(send, cluster="B", first_uid=5, number=5)
    seen = view(
        [log("A", 0), log("B", 0, 0)],
        sends=[send, theirs],
        mirror_kind="shadow",
        mirror={},
        promotions=[promoted(1)],
    )
    assert named_on_the_wire(seen).replicas[1].records.uid.tolist() == [FIRST, 5]


def moved(
    wire: Wire, source: Sequence[int], destination: Sequence[int], *, start: int = 0
) -> PartitionView:
    """A mirror that moves offsets: records by their content. Its own producer has the id of the
    clients' one."""
    logs = Log("A"), Log("B", start=start).skip(3)
    for number, content in enumerate(source):
        logs[0].data(-1, pid=7, sequence=number, digest={-1: content})
    for number, content in enumerate(destination):
        logs[1].data(-1, pid=7, sequence=number, digest={-1: content})
    seen = view(logs, sends=wire.sends())
    seen = but(seen, programs=frozenset({TOPIC}), wired=frozenset({TOPIC}))
    return named_on_the_wire(seen)


def test_a_mirror_that_moves_offsets_is_followed_by_content(wire: Wire) -> None:
    acknowledged(wire, 0, 1, 2, 3)
    one, two, three, four = range(FIRST, FIRST + 4)
    seen = moved(wire, [11, 12, 12, 14], [11, 12, 12, 14])
    assert seen.replicas[1].records.uid.tolist() == [one, two, three, four]
    assert kinds(seen) == set()
    assert not judged("order-equality", seen)

    def found(destination: Sequence[int]) -> set[str]:
        seen = moved(wire, [11, 12, 12, 14], destination)
        every = (*judged("order-equality", seen), *judged("lost-write", seen))
        return {each.kind if isinstance(each, Found) else "unknown" for each in every}

    assert found([11, 12, 14]) >= {"mirror-hole", "lost-write"}
    assert found([11, 12, 99, 12, 14]) == {"mirror-phantom"}
    assert found([12, 11, 12, 14]) == {"mirror-inversion"}
    assert found([11, 12, 12]) == {"unknown"}  # a tail that was not there yet


def test_copies_of_equal_content_in_a_log_that_lost_its_beginning_are_not_distinguished(
    wire: Wire,
) -> None:
    acknowledged(wire, 0, 1, 2, 3)
    seen = moved(wire, [12, 11, 12, 14], [11, 12, 14], start=1)
    assert not {each.kind for each in judged("order-equality", seen) if isinstance(each, Found)}
    assert not kinds(seen)
    (lost,) = judged("order-equality", moved(wire, [12, 11, 13, 14], [11, 14], start=1))
    assert isinstance(lost, Found)
    assert lost.kind == "mirror-hole"


def test_readers_got_what_their_cluster_had(wire: Wire) -> None:
    acknowledged(wire, 0, 1)
    got = poll((1, -1))
    seen = named(wire, log("A", 0, 1), log("B", 0, 1), reads=[got])
    assert seen.reads[0].uids.tolist() == [FIRST + 1]


def test_a_record_that_was_deleted_after_a_reader_got_it_is_the_acknowledged_one(
    wire: Wire,
) -> None:
    acknowledged(wire, 0, 1)
    got = poll((0, -1), (1, -1))
    left = Log("A", start=1).data(-1, pid=7, sequence=1)
    seen = named(wire, left, log("B", 0, 1), reads=[replace(got, cluster="A")])
    assert seen.reads[0].uids.tolist() == [FIRST, FIRST + 1]
    assert not judged("inconsistent-offset", seen)


# What cannot be recorded is refused before anything starts.


PROGRAM = WorkloadSpec(
    kind="command", home="A", command=("true",), writes=("payments",), record="wire"
)


@pytest.mark.parametrize(
    ("topology", "mirror", "config", "words"),
    [
        ("A->B", "shadow", {}, ""),
        ("A->B", "mm2", {}, ""),
        ("A{scram}->B", "shadow", {}, ""),
        ("A{tls+scram}->B{tls}", "mm2", {}, ""),
        ("A->B{mtls}", "shadow", {}, "cannot show cluster B the certificates"),
        ("A->B", "mm2", {"message.timestamp.type": "LogAppendTime"}, "LogAppendTime"),
    ],
)
def test_scenario_that_cannot_be_recorded_is_refused(
    topology: str, mirror: str, config: Mapping[str, str], words: str
) -> None:
    scenario = scenario_of(topology, mirror, workloads=(PROGRAM,), topics=TopicSpec(config=config))
    assert scenario.recorded_topics == {"A.payments"}
    refused = pytest.raises(InputError, match=words) if words else contextlib.nullcontext()
    with refused:
        check_recorded(scenario)
    check_recorded(replace(scenario, workloads=(replace(PROGRAM, record=""),)))


OWN = WorkloadSpec(kind="transactional", home="A", options={"via": "wire"})


@pytest.mark.parametrize(
    ("target", "given", "words"),
    [
        ("A->B", PROGRAM, ""),
        ("*->A", PROGRAM, r"has no effect on \*->A, where record = .wire. puts"),
        ("*->A", OWN, r"has no effect on \*->A, where via = .wire. puts"),
    ],
)
def test_a_certificate_that_a_recorder_hides_is_refused(
    target: str, given: WorkloadSpec, words: str
) -> None:
    expired = FaultSpec(
        id="expired", fault="certificate-expired", target=target, at=0.0, duration=1.0
    )
    scenario = replace(scenario_of("A{tls}->B", "shadow", workloads=(given,)), schedule=(expired,))
    with pytest.raises(InputError, match=words) if words else contextlib.nullcontext():
        check_recorded(scenario)


def test_topics_that_brokers_stamp_cannot_be_followed_through_mirror_maker() -> None:
    topology = parse("A->B")
    stamping = {"log.message.timestamp.type": "LogAppendTime"}
    clusters = tuple(
        replace(each, config=stamping) if each.name == "B" else each for each in topology.clusters
    )
    scenario = scenario_of(replace(topology, clusters=clusters), "mm2", workloads=(PROGRAM,))
    with pytest.raises(InputError, match="whose copies have times of their own"):
        check_recorded(scenario)


def test_clients_of_linkflap_behind_recorders_are_not_recorded(tmp_path: Path) -> None:
    stamped = TopicSpec(config={"message.timestamp.type": "LogAppendTime"})
    scenario = scenario_of("A->B", "mm2", workloads=(OWN,), topics=stamped)
    check_recorded(scenario)  # their own history is judged
    wire = on_the_wire(scenario, tmp_path)
    assert wire is not None
    assert (wire.topics, wire.reads) == (frozenset(), frozenset())
    assert on_the_wire(replace(scenario, workloads=(replace(OWN, options={}),)), tmp_path) is None


# The process.


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def running(tmp_path: Path, broker: int) -> Iterator[tuple[int, Path, int]]:
    """The recorder before a port: its own port, its folder, and its process id."""
    port = free_port()
    folder = tmp_path / "recorder"
    folder.mkdir()
    settings = Settings(
        cluster="A",
        number=0,
        root=str(tmp_path),
        topics=frozenset({TOPIC}),
        listens={port: f"127.0.0.1:{broker}"},
    )
    (folder / SETTINGS).write_bytes(msgspec.json.encode(settings))
    command, environment = children.module("linkflap.harness.wire.recorder", str(folder))
    child = children.spawn(
        command, name="recorder", folder=folder, output=folder / "log", environment=environment
    )
    try:
        eventually("the recorder to listen", lambda: "records at" in (folder / "log").read_text())
        yield port, folder, child.pid
        assert child.alive
        child.stop(within=60)
    finally:
        child.kill()


@contextlib.contextmanager
def echoing() -> Iterator[int]:
    """A server that returns every byte, and ends when its client does."""
    program = (
        "import socketserver\n"
        "class Echo(socketserver.BaseRequestHandler):\n"
        "    def handle(self):\n"
        "        while data := self.request.recv(1 << 16):\n"
        "            self.request.sendall(data)\n"
        "socketserver.ThreadingTCPServer.request_queue_size = 1024\n"
        "server = socketserver.ThreadingTCPServer(('127.0.0.1', 0), Echo)\n"
        "print(server.server_address[1], flush=True)\n"
        "server.serve_forever()\n"
    )
    echo = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert echo.stdout is not None
    try:
        yield int(echo.stdout.readline())
    finally:
        echo.kill()
        echo.wait()
        echo.stdout.close()


def back(port: int, sent: bytes) -> bytes:
    """Everything that comes back of what was sent, until the end."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as program:
        program.sendall(sent)
        program.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: program.recv(1 << 16), b""))


def test_every_byte_passes_and_the_recorder_lives(tmp_path: Path) -> None:
    request = messages.encode_request(
        "end_txn",
        4,
        9,
        "shop",
        messages.request("end_txn", 4).EndTxnRequest(
            transactional_id="x", producer_id=1, producer_epoch=0, committed=True
        ),
    )
    every = [
        request * 3,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\7" * 500,
        struct.pack(">i", 2**31 - 1) + b"\0" * 100_000,
        struct.pack(">ihhih", 14, 0, 99, 5, -1) + b"\xff" * 4,
        b"\0\0",
    ]
    with echoing() as broker, running(tmp_path, broker) as (port, folder, pid):
        for sent in every:
            assert back(port, sent) == sent
        open_before = psutil.Process(pid).num_fds()
        for _ in range(300):
            with socket.create_connection(("127.0.0.1", port), timeout=20):
                pass
        assert back(port, request) == request
        eventually(
            "all connections to be closed", lambda: psutil.Process(pid).num_fds() <= open_before
        )
    report = read_report(folder)
    assert report is not None
    assert report.connections == len(every) + 301
    assert report.unread == {"produce v99": 1}
    assert len(report.passed) >= 3
    lines = (folder / "log").read_text().splitlines()
    assert sum("passes unread" in line for line in lines) >= 3
    assert not any("Traceback" in line for line in lines)


def test_while_a_broker_refuses_connections_its_recorder_does(tmp_path: Path) -> None:
    """A connection that ends at once is something else to a client: franz-go suspects TLS, and does
    not try again."""
    broker = free_port()
    with running(tmp_path, broker) as (port, _, _):

        def refuses() -> bool:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=20).close()
            except ConnectionRefusedError:
                return True
            return False

        eventually("it to refuse connections", refuses)
        for _ in range(2):
            with socket.create_server(("127.0.0.1", broker)):
                eventually("it to take connections", lambda: not refuses())
            eventually("it to refuse connections again", refuses)


def test_what_is_only_claimed_needs_no_memory(tmp_path: Path) -> None:
    """200 clients begin a Produce of 100 MB each."""
    began = struct.pack(">ihhih", 100 << 20, 0, 9, 5, -1) + bytes(5000)
    with echoing() as broker, running(tmp_path, broker) as (port, _, pid):
        recorder = psutil.Process(pid)
        idle = recorder.memory_info().rss
        with contextlib.ExitStack() as opened:
            for _ in range(200):
                program = opened.enter_context(
                    socket.create_connection(("127.0.0.1", port), timeout=20)
                )
                program.sendall(began)
                assert program.recv(1)
            assert recorder.memory_info().rss < idle + (50 << 20)


def test_the_connection_with_the_most_bytes_in_memory_ends_when_they_are_too_many(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(forwarding, "MOST_HELD", 2 << 20)
    began = struct.pack(">ihhih", 100 << 20, 0, 9, 5, -1)

    async def flood(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(bytes(1 << 16))
            await writer.drain()

    async def attack(broker: int, port: int) -> None:
        forwarder = Forwarder("a program")
        await forwarder.listen(port, ("127.0.0.1", broker), wire.connection)
        (small, its), (_, larger) = [
            await asyncio.open_connection("127.0.0.1", port) for _ in range(2)
        ]
        its.write(began + bytes(1 << 19))
        await small.readexactly(1 << 19)
        larger.write(began)
        with pytest.raises(ConnectionError):
            await flood(larger)
        its.write(bytes(1 << 19))
        await small.readexactly(1 << 19)
        assert forwarder.held == (1 << 20) + 10
        forwarder.close()
        its.close()
        await its.wait_closed()
        while forwarder.clients:
            await asyncio.sleep(0.01)
        assert forwarder.held == 0

    caplog.set_level("INFO")
    with echoing() as broker:
        asyncio.run(asyncio.wait_for(attack(broker, free_port()), 60))
    (said,) = (r.getMessage() for r in caplog.records if r.name == "forwarding")
    assert said.startswith("the connection of 127.0.0.1:")


def test_a_reader_that_is_slow_slows_its_peer_and_loses_nothing(tmp_path: Path) -> None:
    size = 64 << 20

    async def slowly(port: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
        writer.write(struct.pack(">i", size - 4) + bytes(size - 4))
        writer.write_eof()
        got = 0
        while some := await reader.read(1 << 16):
            got += len(some)
        writer.close()
        return got

    with echoing() as broker, running(tmp_path, broker) as (port, _, _):
        assert asyncio.run(asyncio.wait_for(slowly(port), 60)) == size


@pytest.mark.parametrize(
    ("error", "deleted"),
    [
        (Error.none, (0, 1)),
        (Error.unknown_topic_or_partition, (0, 0)),
        (Error.request_timed_out, (1, 0)),
        (None, (1, 0)),
    ],
)
@pytest.mark.parametrize("version", [5, 6])
def test_topics_that_a_program_deletes_are_noted(
    wire: Wire, version: int, error: Any, deleted: tuple[int, int]
) -> None:
    m, program = messages.request("delete_topics", version), wire.connection()
    wire.history.names[ID] = TOPIC
    topics = (
        {"topics": (m.DeleteTopicState(name=None, topic_id=ID),)}
        if version == 6
        else {"topic_names": (TOPIC,)}
    )
    body = m.DeleteTopicsRequest(**topics, timeout=timedelta(seconds=1))
    asked = wire.ask(program, "delete_topics", version, body)
    if error is None:
        program.ended()
    else:
        m = messages.response("delete_topics", version)
        own = {"topic_id": ID} if version == 6 else {}
        result = m.DeletableTopicResult(name=TOPIC, error_code=error, error_message=None, **own)
        answer = m.DeleteTopicsResponse(throttle_time=timedelta(0), responses=(result,))
        wire.answer(program, "delete_topics", version, asked, answer)
    assert (wire.report.deleted, wire.report.unread) == ({TOPIC: deleted}, {})
