"""Faults that know the protocol: what the recorder does to requests and answers, and what its
history says of them."""

from __future__ import annotations

import asyncio
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest

from linkflap.harness.model.interference import (
    API_VERSIONS,
    APIS,
    ERRORS,
    Does,
    Interference,
    Requests,
    legal_errors,
)
from linkflap.harness.wire import messages
from linkflap.harness.wire.forwarding import Forwarder, _OneSide
from linkflap.harness.wire.messages import LENGTH, Error
from linkflap.harness.wire.recorder.history import WireHistory
from linkflap.harness.wire.recorder.interferences import (
    NAMES,
    Interferences,
    capped,
    nothing,
    refusal,
    throttled,
)
from linkflap.harness.wire.recorder.settings import SEEN_APIS, Asked, Settings, seen_size
from tests.recorder_rig import SIDES, TOPIC, Wire, batch, example, oldest, transactional, wire

__all__ = ["wire"]


@pytest.mark.parametrize("pieces", [1, 5, 1 << 30])
def test_a_dropped_answer_leaves_its_batch_open_and_what_came_before_passes(
    wire: Wire, pieces: int
) -> None:
    wire.pieces = pieces
    program = wire.connection()
    first = wire.produce(program, batch(b"1"))
    wire.fault("unanswered", "Produce", count=1)
    asked = [first, *(wire.produce(program, batch(b"2", sequence=n)) for n in (1, 2))]
    wire.written(program, asked[0], 0)
    before = len(wire.clients)
    for offset, correlation in enumerate(asked[1:], 1):
        wire.written(program, correlation, offset)
    assert program.responses.ends
    assert len(wire.clients) == before
    program.ended()
    assert [send.outcome for send in wire.sends()] == ["ok", "info", "info"]
    assert (wire.done, wire.report.interfered) == (1, {"unanswered": 1})


def test_a_request_that_is_not_carried_out_is_written_down_and_does_not_pass(wire: Wire) -> None:
    program = wire.connection()
    wire.fault("unanswered", "Produce", carried_out=False)
    wire.produce(program, batch(b"1"))
    assert (program.requests.ends, bytes(wire.brokers), wire.done) == (True, b"", 1)
    program.ended()
    # its client sends it again: it is the same batch
    again = wire.connection()
    asked = wire.produce(again, batch(b"1"))
    wire.written(again, asked, 7)
    (send,) = wire.sends()
    assert (send.outcome, send.offsets.tolist()) == ("ok", [7])


@pytest.mark.parametrize("pieces", [1, 1 << 30])
def test_a_delayed_answer_is_written_down_when_it_passes_and_what_follows_waits(
    wire: Wire, pieces: int
) -> None:
    wire.pieces = pieces
    program = wire.connection()
    wire.fault("delayed", "Produce", seconds=3.0)
    asked = [wire.produce(program, batch(b"1", sequence=n)) for n in (0, 1)]
    for offset, correlation in enumerate(asked):
        wire.written(program, correlation, offset)
    assert (program.responses.waits, bytes(wire.clients), wire.done) == (3.0, b"", 1)
    assert {row.phase for row in wire.rows()} == {"invoke"}
    program.responses.go_on()
    passed = program.responses.taken()
    assert [send.outcome for send in wire.sends()] == ["ok", "ok"]
    assert [passed[4:8], passed[4 + len(passed) // 2 :][:4]] == [n.to_bytes(4) for n in asked]


def test_a_delayed_request_is_asked_at_once_and_passes_later(wire: Wire) -> None:
    program = wire.connection()
    wire.fault("delayed", "Produce", seconds=3.0, carried_out=False)
    wire.produce(program, batch(b"1"))
    assert [row.phase for row in wire.rows()] == ["invoke"]
    assert (program.requests.waits, bytes(wire.brokers)) == (3.0, b"")
    program.requests.go_on()
    assert program.requests.taken().endswith(batch(b"1")[-5:] + b"\0\0\0")


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_client_that_is_refused_was_promised_nothing_and_its_retry_is_the_same_batch(
    wire: Wire, carried_out: bool
) -> None:
    program = wire.connection()
    wire.fault("refused", "Produce", error="NOT_LEADER_OR_FOLLOWER", carried_out=carried_out)
    asked = wire.produce(program, batch(b"1"))
    assert (bytes(wire.brokers) == nothing(asked)) is not carried_out
    wire.written(program, asked, 4)  # what the broker says, to either request
    answer = messages.decode_response("produce", 9, bytes(wire.clients)[LENGTH.size :])
    (part,) = answer.responses[0].partition_responses
    assert (answer.responses[0].name, part.index, part.base_offset) == (TOPIC, 0, -1)
    assert (part.error_code, wire.done) == (Error.not_leader_or_follower, 1)
    assert [send.outcome for send in wire.sends()] == ["info"]
    asked = wire.produce(program, batch(b"1"))
    wire.written(program, asked, 4)  # found to be a duplicate, if it was carried out
    (send,) = wire.sends()
    assert (send.outcome, send.offsets.tolist()) == ("ok", [4])


@pytest.mark.parametrize(
    ("does", "options", "outcome"),
    [
        ("unanswered", {}, "ok"),
        ("delayed", {"seconds": 60.0}, "ok"),
        ("refused", {"error": "NOT_LEADER_OR_FOLLOWER"}, "ok"),
        # its broker never got it
        ("refused", {"error": "NOT_LEADER_OR_FOLLOWER", "carried_out": False}, "info"),
    ],
)
def test_an_answer_that_comes_after_a_fault_is_not_changed(
    wire: Wire, does: Does, options: Mapping[str, Any], outcome: str
) -> None:
    program = wire.connection()
    wire.fault(does, "Produce", **options)
    asked = wire.produce(program, batch(b"1"))
    wire.faults.ask(Asked(number=2))
    wire.written(program, asked, 4)
    assert [send.outcome for send in wire.sends()] == [outcome]
    assert (wire.done, program.responses.ends) == (int(outcome == "info"), False)


def test_a_refused_commit_goes_on_until_it_is_answered(wire: Wire) -> None:
    program = wire.connection()
    asked = wire.produce(program, transactional(b"x"))
    wire.written(program, asked, 10)
    wire.fault("refused", "EndTxn", error="COORDINATOR_NOT_AVAILABLE")
    wire.ended(program, wire.end(program, commit=True))
    assert {(send.ending, send.outcome) for send in wire.sends()} == {("commit", "info")}
    # fenced meanwhile: the first request may have been carried out
    wire.ended(program, wire.end(program, commit=True), Error.producer_fenced)
    assert {(send.ending, send.outcome) for send in wire.sends()} == {("commit", "info")}


@pytest.mark.parametrize("api", sorted(set(ERRORS) - {"Fetch", "Metadata"}))
def test_every_refusal_is_an_answer_that_a_client_can_read(wire: Wire, api: str) -> None:
    name = NAMES[APIS[api]]
    module = f"kio.schema.{name}"
    versions = [int(each.name[1:]) for each in pkgutil.iter_modules(import_module(module).__path__)]
    for version in sorted(v for v in versions if api != "AddPartitionsToTxn" or v < 4):
        for error in (*legal_errors(api, carried_out=True), *legal_errors(api, carried_out=False)):
            entity = messages.schema(name, version, "request").entity
            asked = messages.encode_request(name, version, 9, "shop", example(entity))
            frame = memoryview(asked)[LENGTH.size :]
            answer = refusal(frame, messages.decode_request(name, version, frame), error)
            read = messages.decode_response(name, version, answer[LENGTH.size :])
            assert Error[error.lower()] in set(errors_of(read))


def test_metadata_is_refused_for_each_topic_and_names_all_brokers(wire: Wire) -> None:
    for version in range(oldest("metadata"), messages.newest("metadata") + 1):
        asked, answered = (
            example(messages.schema("metadata", version, side).entity) for side in SIDES
        )
        wire.fault("refused", "Metadata", error="LEADER_NOT_AVAILABLE")
        wire.faults._came.clear()
        program, before = wire.connection(), len(wire.clients)
        correlation = wire.ask(program, "metadata", version, asked)
        nowhere = replace(answered, topics=())  # as of a client that asks for brokers alone
        wire.answer(program, "metadata", version, correlation, nowhere)
        passed = messages.decode_response("metadata", version, wire.clients[before + 4 :])
        assert passed == nowhere
        correlation, before = wire.ask(program, "metadata", version, asked), len(wire.clients)
        wire.answer(program, "metadata", version, correlation, answered)
        got = messages.decode_response("metadata", version, wire.clients[before + 4 :])
        assert [(t.error_code, t.partitions) for t in got.topics] == [
            (Error.leader_not_available, ())
        ]
        assert replace(got, topics=()) == nowhere


def test_coordinators_of_transactions_are_chosen_by_their_id(wire: Wire) -> None:
    def chosen(version: int, kind: int, key: str) -> bool:
        entity = messages.schema("find_coordinator", version, "request").entity
        named = {"coordinator_keys": (key,)} if version >= 4 else {"key": key}
        typed = {"key_type": kind} if version else {}
        wire.fault("unanswered", "FindCoordinator", transactional_id="payments", count=1 << 30)
        program = wire.connection()
        asked = wire.ask(program, "find_coordinator", version, entity(**named, **typed))
        example_of = messages.schema("find_coordinator", version, "response").entity
        wire.answer(program, "find_coordinator", version, asked, example(example_of))
        return program.responses.ends

    for version in range(1, messages.newest("find_coordinator") + 1):
        assert chosen(version, 1, "payments")
        assert not chosen(version, 1, "other")
        assert not chosen(version, 0, "payments")  # a group of that name
    assert not chosen(0, 0, "payments")


def errors_of(part: Any) -> Iterator[Any]:
    """The error codes of an answer, at any depth."""
    for name in getattr(part, "__dataclass_fields__", ()):
        value = getattr(part, name)
        if isinstance(value, Error):
            yield value
        elif isinstance(value, tuple):
            for each in value:
                yield from errors_of(each)


def test_a_repeated_batch_reaches_its_broker_twice_and_has_one_answer(wire: Wire) -> None:
    program = wire.connection()
    wire.fault("repeated", "Produce")
    asked = wire.produce(program, batch(b"1"))
    half = len(wire.brokers) // 2
    assert wire.brokers[:half] == wire.brokers[half:]
    wire.written(program, asked, 4)
    size = len(wire.clients)
    wire.written(program, asked, 4)
    assert (len(wire.clients), wire.done) == (size, 1)
    (send,) = wire.sends()
    assert (send.outcome, send.offsets.tolist()) == ("ok", [4])


def test_a_batch_that_would_be_written_twice_is_not_repeated(wire: Wire) -> None:
    program = wire.connection()
    wire.fault("repeated", "Produce")
    sent = batch(b"1", who=None)
    asked = wire.produce(program, sent)
    assert wire.brokers.count(sent) == 1
    wire.written(program, asked, 4)
    assert wire.done == 0


def test_requests_without_acks_are_not_chosen_as_they_have_no_answer(wire: Wire) -> None:
    program = wire.connection()
    wire.fault("unanswered", "Produce")
    wire.produce(program, batch(b"1"), acks=0)
    asked = wire.produce(program, batch(b"2", sequence=1))
    wire.written(program, asked, 4)
    assert wire.done == 1


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({}, [0]),
        ({"first": 2, "count": 2}, [1, 2]),
        ({"client": "shop", "topic": TOPIC, "partition": 0}, [0]),
        ({"client": "other"}, []),
        ({"topic": "A.other"}, []),
        ({"topic": TOPIC, "partition": 1}, []),
        ({"transactional_id": "payments"}, [0]),
        ({"transactional_id": "other"}, []),
    ],
)
def test_a_fault_chooses_by_number_client_and_partition(
    wire: Wire, options: Mapping[str, Any], chosen: Sequence[int]
) -> None:
    wire.fault("refused", "Produce", error="UNKNOWN_SERVER_ERROR", **options)
    asked = []
    for number in range(4):
        program = wire.connection()
        correlation = wire.produce(
            program, batch(b"1", sequence=number), transactional_id="payments"
        )
        before = wire.done
        wire.written(program, correlation, number)
        asked += [number] if wire.done > before else []
    assert asked == chosen


def test_requests_are_counted_by_what_they_name_and_while_they_have_no_answer(wire: Wire) -> None:
    asked = (
        Requests(api="Produce", topic=TOPIC, partition=0),
        Requests(api="Produce", topic=TOPIC, partition=1),
        Requests(api="EndTxn", transactional_id="payments"),
        Requests(api="Produce", in_flight=True),
        Requests(api="EndTxn", in_flight=True),
    )
    seen = memoryview(bytearray(seen_size(len(asked))))
    wire.faults = Interferences(seen, counted=asked)

    def counted() -> Sequence[int]:
        return list(seen.cast("q")[SEEN_APIS:])

    one, other = wire.connection(), wire.connection()
    first = wire.produce(one, batch(b"1"))
    wire.produce(one, batch(b"2", sequence=1))
    wire.produce(other, batch(b"1", who=None), acks=0)  # it has no answer
    assert counted() == [3, 0, 0, 1, 0]
    wire.written(one, first, 0)
    assert counted() == [3, 0, 0, 1, 0]
    commits = [wire.end(other, commit=True) for _ in range(2)]
    assert counted() == [3, 0, 2, 1, 2]
    wire.ended(other, commits[0])
    one.ended()
    assert counted() == [3, 0, 2, 0, 1]
    assert list(seen.cast("q")[:1]) == [3]
    same = wire.connection()
    for sequence in (2, 3):  # with one correlation id
        wire.correlation = 50
        wire.produce(same, batch(b"3", sequence=sequence))
    assert counted() == [5, 0, 2, 1, 1]
    for _ in range(2):
        wire.written(same, 51, 1)
    assert counted() == [5, 0, 2, 0, 1]


@pytest.mark.parametrize("version", [9, 12])
def test_a_throttled_client_is_answered_at_once_and_its_next_request_waits(
    wire: Wire, version: int
) -> None:
    program = wire.connection()
    wire.fault("throttled", "Produce", seconds=30.0)
    asked = wire.produce(program, batch(b"1"), version=version)
    wire.written(program, asked, 4, version=version)
    answer = messages.decode_response("produce", version, bytes(wire.clients)[LENGTH.size :])
    (part,) = answer.responses[0].partition_responses
    assert (answer.throttle_time, part.base_offset) == (timedelta(seconds=30), 4)
    assert ([send.outcome for send in wire.sends()], wire.done) == (["ok"], 1)
    before = len(wire.brokers)
    wire.produce(program, batch(b"2", sequence=1), version=version)
    assert len(wire.brokers) == before
    assert 0 < program.requests.waits <= 30


@pytest.mark.parametrize("api", sorted(APIS))
def test_every_throttled_answer_has_the_longer_time_and_nothing_else_changes(api: str) -> None:
    name, changed = NAMES[APIS[api]], 0
    for each in pkgutil.iter_modules(import_module(f"kio.schema.{name}").__path__):
        version = int(each.name[1:])
        body = example(messages.schema(name, version, "response").entity)
        frame = bytes(messages.encode_response(name, version, 9, body))
        view = memoryview(frame)[LENGTH.size :]
        answer = throttled(view, APIS[api], version, 2.5)
        if answer is None:
            assert not hasattr(body, "throttle_time")
            continue
        changed += 1
        read = messages.decode_response(name, version, answer[LENGTH.size :])
        assert read.throttle_time == timedelta(seconds=2.5)
        again = throttled(memoryview(answer)[LENGTH.size :], APIS[api], version, 1.0)
        assert again == answer  # the broker's own is longer
        assert replace(read, throttle_time=timedelta(0)) == messages.decode_response(
            name, version, view
        )
    assert changed


@pytest.mark.parametrize("version", [0, 3])
def test_a_version_is_withheld_and_all_else_is_offered(version: int) -> None:
    m = messages.response("api_versions", version)
    offers = tuple(
        m.ApiVersion(api_key=key, min_version=3, max_version=highest)
        for key, highest in ((0, 13), (1, 17))
    )
    given = {"throttle_time": timedelta(0)} if version else {}
    body = m.ApiVersionsResponse(error_code=Error.none, api_keys=offers, **given)
    frame = bytes(messages.encode_response("api_versions", version, 5, body))[LENGTH.size :]
    what = Interference(does="downgraded", api=API_VERSIONS, offers=0, version=12)
    answer = messages.decode_response(
        "api_versions", version, capped(memoryview(frame), version, what)[LENGTH.size :]
    )
    assert [(each.api_key, each.max_version) for each in answer.api_keys] == [(0, 12), (1, 17)]
    kept = replace(answer, api_keys=offers)
    assert kept == body


@pytest.mark.parametrize(("version", "done"), [(12, 1), (13, 0), (20, 0)])
def test_an_offer_that_was_no_higher_was_not_lowered(wire: Wire, version: int, done: int) -> None:
    wire.fault("downgraded", "ApiVersions", offers=0, version=version)
    program, asks, answers = wire.connection(), messages.request, messages.response
    asked = wire.ask(program, "api_versions", 0, asks("api_versions", 0).ApiVersionsRequest())
    r = answers("api_versions", 0)
    offer = r.ApiVersion(api_key=0, min_version=3, max_version=13)
    body = r.ApiVersionsResponse(error_code=Error.none, api_keys=(offer,))
    wire.answer(program, "api_versions", 0, asked, body)
    assert wire.done == done


def test_writes_that_are_not_recorded_pass_and_can_be_chosen(wire: Wire) -> None:
    wire.history = WireHistory(
        Settings(cluster="A", number=0, root="", topics=frozenset(), listens={}),
        wire.writer.operations("wire-A"),
        wire.writer.polls("wire-A"),
        wire.report,
    )
    program = wire.connection()
    wire.fault("refused", "Produce", error="NOT_LEADER_OR_FOLLOWER", topic=TOPIC, partition=0)
    wire.written(program, wire.produce(program, batch(b"1")), 4)
    answer = messages.decode_response("produce", 9, bytes(wire.clients)[LENGTH.size :])
    assert answer.responses[0].partition_responses[0].error_code is Error.not_leader_or_follower
    assert (wire.rows(), wire.done, wire.report.batches) == ([], 1, 0)


class Socket(asyncio.Transport):
    """A socket that only knows whether it is read."""

    reads = True

    def write(self, data: object) -> None:
        pass

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


def test_a_client_is_read_when_nothing_is_delayed_and_its_broker_takes_more(wire: Wire) -> None:
    """Whichever ends first: else what it sends meanwhile fills the memory."""
    wire.produce(wire.connection(), batch(b"1"))
    wire.fault("delayed", "Produce", seconds=0.01, carried_out=False, count=2)

    async def delayed() -> None:
        observer, forwarder = wire.connection(), Forwarder("a program")
        client = _OneSide(observer.requests, observer, "a program", forwarder)
        broker = _OneSide(observer.responses, observer, "a broker", forwarder)
        client.other, broker.other = broker, client
        client.transport = socket_of_client = Socket()
        broker.transport = Socket()
        for ends_first in ("broker", "delay"):
            client.get_buffer(-1)[: len(wire.brokers)] = wire.brokers
            broker.pause_writing()
            client.buffer_updated(len(wire.brokers))
            if ends_first == "broker":
                broker.resume_writing()
            assert (socket_of_client.reads, observer.requests.waits) == (False, 0.01)
            while observer.requests.waits:
                await asyncio.sleep(0)
            assert socket_of_client.reads is (ends_first == "broker")
            broker.resume_writing()
            assert socket_of_client.reads

    asyncio.run(asyncio.wait_for(delayed(), 60))
    assert wire.done == 2
