"""A shadow's process: settings, journal, failpoints, its listeners, and its heartbeats to the
controller."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from linkflap.harness.mirrors.shadow import control, settings
from linkflap.harness.mirrors.shadow.destination.leader import (
    EPOCH_ENDS,
    FETCH,
    LIST_OFFSETS,
    Leader,
)
from linkflap.harness.mirrors.shadow.destination.listeners import Listeners, ended_of, pass_on
from linkflap.harness.mirrors.shadow.destination.membership import Membership
from linkflap.harness.mirrors.shadow.journal import (
    PAUSE_AT,
    STEPS,
    Journal,
    PartitionNote,
    Step,
    Steps,
)
from linkflap.harness.mirrors.shadow.shadow import Shadow
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.connection import Connection, quietly_closed
from linkflap.harness.wire.messages import Error, Malformed
from tests.shadows import config
from tests.unit.test_shadow_log import (
    BATCHES,
    CLIENT_FETCHES,
    FETCHES,
    ID,
    NUMBER,
    REAL,
    TOPIC,
    ask,
    fetch,
    leading,
    led,
)


def test_defaults_are_the_first_choices() -> None:
    made = settings.options({})
    assert [getattr(made, name) for name in settings.CHOICES] == [
        values[0] for values in settings.CHOICES.values()
    ]
    assert made == settings.ShadowOptions()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"delivery": "x"},
            "mirror shadow has no option 'delivery'; it has producer_ids, bound, open_transactions",
        ),
        ({"bound": "leo"}, "option bound of mirror shadow is 'leo'; it must be hw or lso"),
        (
            {"groups": "("},
            r"option groups of mirror shadow is '\(', which is not a valid regular expression",
        ),
    ],
)
def test_an_unknown_option_or_value_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        settings.options(given)


def test_a_configuration_survives_the_file(tmp_path: Path) -> None:
    settings.write(config(), tmp_path)
    assert settings.read(tmp_path) == config()


def test_a_folder_without_one_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a shadow configuration"):
        settings.read(tmp_path)


def test_data_topics_of_the_homes_are_mirrored_and_the_canary() -> None:
    topics = [
        "A.orders",
        "A.linkflap-canary",
        "B.orders",
        "A.checkpoints.internal",
        "__consumer_offsets",
    ]
    assert [t for t in topics if config().mirrors(t)] == ["A.orders", "A.linkflap-canary"]


def test_a_journal_is_found_again_and_a_torn_one_is_reported(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.fresh
    journal.partition("t", 3).epochs = [(0, 0), (2, 7)]
    journal.notes.phase = "ending"
    journal.save()
    again = Journal(tmp_path)
    assert not again.fresh
    assert again.notes == journal.notes
    (tmp_path / settings.JOURNAL).write_bytes(b'{"directory_id"')
    with pytest.raises(EnvironmentFailure, match="cannot be read"):
        Journal(tmp_path)


MARKER = "ABORT of producer 7, epoch 0"


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [
        ({}, -1),
        ({"mirrored": 9, "promoted": 9}, 9),
        ({"mirrored": 9, "promoted": 11, "appended": [(9, MARKER), (10, "reset")]}, 9),
        ({"mirrored": 9, "promoted": 4, "truncated": [(9, 4)]}, 4),
        ({"mirrored": 9, "promoted": 5, "truncated": [(9, 4)], "appended": [(4, "reset")]}, 4),
        ({"mirrored": 9, "promoted": 9, "appended": [(12, MARKER)]}, 9),
    ],
    ids=[
        "not ended",
        "nothing to do",
        "markers",
        "truncated",
        "truncated, and reset there",
        "markers of the brokers that lead then",
    ],
)
def test_the_mirrored_part_ends_before_appended_markers_and_at_the_lowest_truncation(
    lengths: dict[str, Any], kept: int
) -> None:
    assert PartitionNote(**lengths).kept == kept


class _Shadow:
    """Stands in for the mirror behind the port, and counts its commands."""

    def __init__(self) -> None:
        self.failovers = 0
        self.journal = SimpleNamespace(notes=SimpleNamespace(phase="mirroring", topics={}))
        self.membership = SimpleNamespace(fenced=False, longest_silence=0.0)
        self.source = SimpleNamespace(lost=False)
        self.log = SimpleNamespace(held=0, steps=SimpleNamespace(at=""), partitions={})
        self.groups = SimpleNamespace(synced=True)

    def fail_over(self) -> None:
        self.failovers += 1


def sent(folder: Path, *lines: bytes, own: control.Verb | None = None) -> tuple[int, list[bytes]]:
    """How many failovers a shadow makes for these lines, and its answers; or for the harness's own
    command."""
    settings.write(config(), folder)
    shadow = _Shadow()
    port = socket.create_server(("127.0.0.1", 0))
    number = port.getsockname()[1]

    def stranger() -> list[bytes]:
        if own is not None:
            return [b"" if control.ask(number, own, folder=folder, within=5) is None else b"answer"]
        answers = []
        for line in lines:
            with socket.create_connection(("127.0.0.1", number), timeout=5) as connection:
                connection.sendall(line + b"\n")
                connection.shutdown(socket.SHUT_WR)
                answers.append(connection.recv(1000))
        return answers

    async def serve() -> list[bytes]:
        served = control.Control(cast("Shadow", shadow), port, settings.new_token(folder))
        await served.start()
        try:
            return await asyncio.to_thread(stranger)
        finally:
            served.close()

    answers = asyncio.run(serve())
    return shadow.failovers, answers


def test_the_harness_is_obeyed(tmp_path: Path) -> None:
    assert sent(tmp_path, own="fail-over") == (1, [b"answer"])
    assert sent(tmp_path, own="status") == (0, [b"answer"])


@pytest.mark.parametrize("token", [None, "", "x", "0" * 64, 1, ["a"], "\u00e9"])
def test_without_the_token_nothing_is_done_or_answered(tmp_path: Path, token: object) -> None:
    command = {"do": "fail-over"} | ({} if token is None else {"token": token})
    assert sent(tmp_path, json.dumps(command).encode()) == (0, [b""])


def test_other_lines_end_a_connection(tmp_path: Path) -> None:
    deep = b"[" * 30_000
    assert sent(tmp_path, b"", b"[]", b"{}", b"\xff", deep)[1] == [b""] * 5


ANSWERS: list[bytes] = [b"", b"\n", b"{}\n", b'{"x":' + b"[" * 300_000 + b"\n", b'{"x":"\xff"}\n']


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_stranger_on_the_port_of_a_dead_shadow_is_no_shadow(
    tmp_path: Path, answer: bytes
) -> None:
    assert _asked(tmp_path, [answer]) is None


def test_an_answer_without_end_is_not_waited_for(tmp_path: Path) -> None:
    assert _asked(tmp_path, itertools.repeat(bytes(1 << 20))) is None


def _asked(folder: Path, answers: Iterable[bytes]) -> control.Status | None:
    """The answer to a status request to a stranger, who sends these bytes until the connection
    ends."""
    settings.write(config(), folder)
    settings.new_token(folder)
    with socket.create_server(("127.0.0.1", 0)) as port:

        def stranger() -> None:
            connection, _ = port.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1000)
                for answer in answers:
                    connection.sendall(answer)

        sender = threading.Thread(target=stranger)
        sender.start()
        try:
            return control.ask(port.getsockname()[1], "status", folder=folder, within=30)
        finally:
            sender.join()


def test_the_token_is_this_users_alone_and_of_one_process(tmp_path: Path) -> None:
    settings.write(config(), tmp_path)
    path = tmp_path / settings.TOKEN
    token = settings.new_token(tmp_path)
    assert settings.control_token(tmp_path) == token
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(token) == 64
    assert token not in (tmp_path / settings.CONFIG).read_text()
    assert settings.new_token(tmp_path) != token
    assert settings.control_token(tmp_path) != token


async def returns(steps: Steps, step: Step) -> bool:
    try:
        await asyncio.wait_for(steps.reach(step), 0.05)
    except TimeoutError:
        return False
    return True


def test_shadow_without_failpoints_stops_at_no_step() -> None:
    async def play() -> None:
        steps = Steps.of({})
        assert [step for step in STEPS if not await returns(steps, step)] == []

    asyncio.run(play())


@pytest.mark.parametrize("wanted", STEPS)
def test_failpoint_holds_every_task_until_its_release(wanted: Step) -> None:
    async def play() -> None:
        steps = Steps.of({PAUSE_AT: wanted})
        standing = [asyncio.create_task(steps.reach(wanted)) for _ in range(2)]
        await asyncio.sleep(0)
        assert steps.at == wanted
        assert await returns(steps, STEPS[STEPS.index(wanted) - 1])
        steps.go_on()
        await asyncio.wait_for(asyncio.gather(*standing), 60)
        assert not steps.at
        assert await returns(steps, wanted)

    asyncio.run(play())


def test_a_step_that_there_is_not_is_named() -> None:
    with pytest.raises(
        InputError,
        match=f"{PAUSE_AT} is 'settle', which is not a step of a shadow; set it to one of",
    ):
        Steps.of({PAUSE_AT: "settle"})


@pytest.mark.parametrize(
    ("offset", "last_epoch", "agreed"),
    [
        (7, 3, 7),
        (12, 3, 12),  # more of the same log: the follower with most of it is read
        (12, 1, 5),  # of a log that ended at 5 here
        (12, 2, 5),
        (4, 1, 4),
        (12, 9, 12),  # an epoch that is unknown here proves nothing yet
        (0, -1, 0),
    ],
)
def test_a_follower_counts_up_to_where_its_log_is_this_one(
    offset: int, last_epoch: int, agreed: int
) -> None:
    partition = led([(1, 0), (3, 5)], leader_epoch=3)
    assert partition.agreed(partition.heard(1, offset, 3, last_epoch)) == agreed
    assert partition.agreed(None) == -1


# A shadow's listeners: what brokers and clients are answered, and what is sent on.


@pytest.fixture
def leader(tmp_path: Path) -> Leader:
    return leading(tmp_path)


@pytest.mark.parametrize("version", FETCHES)
def test_followers_of_every_release_are_given_batches_and_the_high_watermark(
    leader: Leader, version: int
) -> None:
    answer = ask(leader, FETCH, "fetch", version, fetch(version))
    assert (answer.error_code, answer.session_id) == (Error.none, 0)
    (row,) = answer.responses[0].partitions
    assert (row.error_code, row.high_watermark, row.diverging_epoch.end_offset) == (
        Error.none,
        0,
        -1,
    )
    assert [
        struct.unpack_from(">q4xi", row.records, at)
        for at in range(0, len(row.records), len(BATCHES) // 4)
    ] == [
        (0, 1),
        (1, 1),
        (2, 3),
        (3, 3),
    ]
    (row,) = (
        ask(leader, FETCH, "fetch", version, fetch(version, offset=4, last=3))
        .responses[0]
        .partitions
    )
    assert (bytes(row.records), row.high_watermark) == (b"", 4)


@pytest.mark.parametrize("version", FETCHES)
@pytest.mark.parametrize(
    ("asked", "error", "divergence"),
    [
        ({"offset": 4, "last": 1}, Error.none, (1, 2)),
        ({"offset": 9, "last": 5}, Error.none, (3, 4)),
        ({"offset": 9, "last": 3}, Error.none, (3, 4)),
        ({"offset": 9, "last": -1}, Error.offset_out_of_range, (-1, -1)),
        ({"epoch": 2}, Error.not_leader_or_follower, (-1, -1)),
    ],
)
def test_followers_learn_where_they_diverge(
    leader: Leader,
    version: int,
    asked: dict[str, int],
    error: ErrorCode,
    divergence: tuple[int, int],
) -> None:
    (row,) = ask(leader, FETCH, "fetch", version, fetch(version, **asked)).responses[0].partitions
    assert row.error_code == error
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == divergence
    assert not row.records


@pytest.mark.parametrize("version", FETCHES)
def test_only_brokers_of_the_destination_count_as_followers(leader: Leader, version: int) -> None:
    (row,) = ask(leader, FETCH, "fetch", version, fetch(version, broker=-1)).responses[0].partitions
    assert row.error_code == Error.not_leader_or_follower
    partition = leader.find(fetch(version).topics[0], version, NUMBER)
    assert partition is not None
    assert not partition.followers


@pytest.mark.parametrize("version", [9, 10, 11])
@pytest.mark.parametrize(("timestamp", "offset"), [(-1, 4), (-2, 0)])
def test_ends_are_reported(leader: Leader, version: int, timestamp: int, offset: int) -> None:
    m = messages.request("list_offsets", version)
    row = m.ListOffsetsPartition(
        partition_index=NUMBER, current_leader_epoch=3, timestamp=timestamp
    )
    fields = {"timeout": timedelta(seconds=1)} if version >= 10 else {}
    body = m.ListOffsetsRequest(
        replica_id=1,
        isolation_level=0,
        topics=(m.ListOffsetsTopic(name=TOPIC, partitions=(row,)),),
        **fields,
    )
    (answer,) = ask(leader, LIST_OFFSETS, "list_offsets", version, body).topics[0].partitions
    assert (answer.error_code, answer.offset, answer.leader_epoch) == (Error.none, offset, 3)


@pytest.mark.parametrize(("epoch", "known", "end"), [(1, 1, 2), (2, 1, 2), (3, 3, 4), (9, -1, -1)])
def test_epoch_ends_are_reported(leader: Leader, epoch: int, known: int, end: int) -> None:
    m = messages.request("offset_for_leader_epoch", 4)
    row = m.OffsetForLeaderPartition(partition=NUMBER, current_leader_epoch=3, leader_epoch=epoch)
    topic = m.OffsetForLeaderTopic(topic=TOPIC, partitions=(row,))
    body = m.OffsetForLeaderEpochRequest(replica_id=1, topics=(topic,))
    (answer,) = ask(leader, EPOCH_ENDS, "offset_for_leader_epoch", 4, body).topics[0].partitions
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (Error.none, known, end)


@hypothesis_settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    noise=st.lists(st.tuples(st.integers(8, 90), st.integers(0, 255)), min_size=1, max_size=6),
    version=st.sampled_from(FETCHES),
)
def test_a_damaged_fetch_is_answered_or_malformed_and_nothing_else(
    leader: Leader, noise: list[tuple[int, int]], version: int
) -> None:
    frame = bytearray(messages.encode_request("fetch", version, 11, "broker", fetch(version))[4:])
    for at, value in noise:
        frame[at % (len(frame) - 8) + 8] = value
    try:
        request = messages.decode_request("fetch", version, bytes(frame))
    except Malformed:
        return
    leader._log.ring()  # its bell is of the loop before
    short = request.max_wait.total_seconds() <= 0.1
    if short:
        assert asyncio.run(leader.answer(FETCH, version, 11, bytes(frame))) is not None


def answer(
    offset: int, *, start: int, high_watermark: int, follower: int = 1, version: int = 12
) -> Any:
    asked = SimpleNamespace(partition=0, fetch_offset=offset)
    partition = cast(Any, SimpleNamespace(start=start, high_watermark=high_watermark))
    return pass_on(messages.response("fetch", version), version, asked, partition, follower)


@pytest.mark.parametrize("offset", [10, 11, 99, 100])
def test_a_consumer_is_sent_on_to_a_follower(offset: int) -> None:
    row = answer(offset, start=10, high_watermark=100)
    assert (row.error_code, row.preferred_read_replica) == (Error.none, 1)


def test_a_fetch_of_deleted_records_is_refused_and_not_redirected() -> None:
    assert answer(9, start=10, high_watermark=100).error_code == Error.offset_out_of_range


def test_while_followers_are_behind_the_new_log_start_they_are_asked() -> None:
    assert answer(50, start=100, high_watermark=50).error_code == Error.none
    assert answer(49, start=100, high_watermark=50).error_code == Error.offset_out_of_range


def test_without_a_follower_or_with_an_old_client_the_leader_is_elsewhere() -> None:
    assert (
        answer(20, start=10, high_watermark=100, follower=-1).error_code
        == Error.not_leader_or_follower
    )
    assert (
        answer(20, start=10, high_watermark=100, version=10).error_code
        == Error.not_leader_or_follower
    )


def end_of(end: int | None, *, log_end: int, taking: bool = False) -> tuple[int, int]:
    """The offset and the leader epoch in the response to a client, of a shadow that leads in epoch
    6."""
    partition = cast(Any, SimpleNamespace(end=log_end, taking=taking, leader_epoch=6))
    asked = SimpleNamespace(partition_index=0)
    row = ended_of(messages.response("list_offsets", 7), 7, asked, partition, end)
    return int(row.offset), int(row.leader_epoch)


def test_the_end_that_a_follower_has_is_said_in_the_epoch_of_the_shadow() -> None:
    assert end_of(582, log_end=582) == end_of(582, log_end=600) == (582, 6)
    assert end_of(230, log_end=227, taking=True) == (230, 6)


def test_end_beyond_the_log_is_not_that_of_a_follower() -> None:
    assert end_of(583, log_end=582) == (-1, -1)
    assert end_of(None, log_end=582) == (-1, -1)


class Serving:
    """Real sockets, one listener for followers and one for clients."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    async def __aenter__(self) -> Serving:
        servers = [await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) for _ in range(2)]
        self.ports = {
            name: s.sockets[0].getsockname()[1]
            for name, s in zip(("INTERNAL", "CLIENT"), servers, strict=True)
        }
        for server in servers:
            server.close()
            await server.wait_closed()
        mirrored = self._leader._log
        mirrored.config = config(real=REAL, listeners=self.ports)
        self._listeners = Listeners(mirrored, self._leader)
        await self._listeners.start()
        self.problems: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.problems.append(context)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listeners.close()
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})

    async def closes(self, listener: str, data: bytes) -> None:
        """The connection ends without an answer, and another one is served."""
        good = Connection(f"127.0.0.1:{self.ports['INTERNAL']}")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[listener])
        writer.write(data)
        if len(data) < 4 or struct.unpack_from(">i", data)[0] > len(data) - 4:
            writer.write_eof()
        # so it ends when it did not read all that it was sent
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        answer = await good.call("fetch", 17, fetch(17), within=5)
        assert answer.error_code == Error.none
        good.close()
        assert not self.problems


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


MALFORMED = {
    "nothing": framed(b""),
    "short": framed(b"\0\1"),
    "negative": struct.pack(">i", -5),
    "huge": struct.pack(">i", 0x7FFFFFFF) + b"x",
    "fetch-unknown-version": framed(struct.pack(">hhi", FETCH, 99, 1) + b"\xff" * 20),
    "fetch-garbage": framed(struct.pack(">hhi", FETCH, 17, 1) + b"\xff" * 40),
    "offsets-garbage": framed(struct.pack(">hhi", LIST_OFFSETS, 9, 1) + b"\x01" * 9),
    "cut": messages.encode_request("fetch", 17, 1, "c", fetch(17))[:40],
    "cut-inside": framed(messages.encode_request("fetch", 17, 1, "c", fetch(17))[4:50]),
}


@pytest.mark.parametrize("listener", ["INTERNAL", "CLIENT"])
@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_frame_ends_its_connection_alone(
    leader: Leader, listener: str, data: bytes
) -> None:
    async def play() -> None:
        async with Serving(leader) as serving:
            await serving.closes(listener, data)

    asyncio.run(play())


@pytest.mark.parametrize(
    ("key", "name", "newest"),
    [(FETCH, "Fetch", 18), (LIST_OFFSETS, "ListOffsets", messages.newest("list_offsets"))],
)
def test_brokers_that_speak_a_newer_version_are_named(
    leader: Leader, key: int, name: str, newest: int
) -> None:
    client = b"broker-2-fetcher-0"
    head = struct.pack(">hhih", key, newest + 1, 1, len(client)) + client

    async def play() -> None:
        async with Serving(leader) as serving:
            await serving.closes("INTERNAL", framed(head + b"\0" * 20))
            await asyncio.wait_for(serving._listeners.refused, 5)

    with pytest.raises(
        InputError, match=rf"send {name} v{newest + 1}, and the shadow speaks .*mm2"
    ):
        asyncio.run(play())


@pytest.mark.parametrize("client", [b"", b"\0", b"\xff\xff", struct.pack(">h", 6) + b"client"])
def test_only_brokers_can_end_a_shadow_with_a_newer_version(leader: Leader, client: bytes) -> None:
    async def play() -> None:
        async with Serving(leader) as serving:
            head = struct.pack(">hhi", FETCH, messages.newest("fetch") + 1, 1)
            await serving.closes("INTERNAL", framed(head + client))
            assert not serving._listeners.refused.done()

    asyncio.run(play())


@pytest.mark.parametrize("version", CLIENT_FETCHES)
def test_clients_of_every_version_are_sent_to_a_follower(leader: Leader, version: int) -> None:
    ask(leader, FETCH, "fetch", 17, fetch(17, broker=2, offset=4, last=3))

    async def play() -> Any:
        async with Serving(leader) as serving:
            connection = Connection(f"127.0.0.1:{serving.ports['CLIENT']}")
            answer = await connection.call("fetch", version, fetch(version, broker=-1), within=5)
            connection.close()
            return answer

    (row,) = asyncio.run(play()).responses[0].partitions
    assert not row.records
    if version >= 11:
        assert (row.error_code, row.preferred_read_replica) == (Error.none, 2)
    else:
        assert row.error_code == Error.not_leader_or_follower


@pytest.mark.parametrize("version", range(3, 14))
def test_producers_of_every_version_are_refused(leader: Leader, version: int) -> None:
    m = messages.request("produce", version)
    named = {"topic_id": ID} if version >= 13 else {"name": TOPIC}
    data = m.TopicProduceData(
        partition_data=(m.PartitionProduceData(index=0, records=BATCHES),), **named
    )
    body = m.ProduceRequest(acks=-1, timeout=timedelta(seconds=1), topic_data=(data,))

    async def play() -> Any:
        async with Serving(leader) as serving:
            connection = Connection(f"127.0.0.1:{serving.ports['CLIENT']}")
            answer = await connection.call("produce", version, body, within=5)
            connection.close()
            return answer

    (row,) = asyncio.run(play()).responses[0].partition_responses
    assert row.error_code == Error.policy_violation


def test_a_server_that_answers_rubbish_is_one_that_did_not_answer() -> None:
    async def play() -> None:
        async def rubbish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(4)
            writer.write(framed(b"\xff" * 30))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(rubbish, "127.0.0.1", 0)
        connection = Connection(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(Unanswered, match="cannot be read"):
            await connection.call("fetch", 17, fetch(17), within=5)
        connection.close()
        server.close()

    asyncio.run(play())


# What a shadow's heartbeats request while the active controller changes; the controller is a
# fake.


class Controller:
    """Fences and unfences a broker as its heartbeats request. It is active for `answers` more
    heartbeats."""

    def __init__(self) -> None:
        self.answers, self.fenced, self.epoch = 0, False, 0
        self._serving: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """The port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            await asyncio.gather(*self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(cast("asyncio.Task[None]", asyncio.current_task()))
        try:
            while True:
                frame = await reader.readexactly(
                    *messages.LENGTH.unpack(await reader.readexactly(messages.LENGTH.size))
                )
                _, version, correlation = messages.request_head(frame)
                asked = messages.decode_request("broker_heartbeat", version, frame)
                body = self._beaten(
                    messages.response("broker_heartbeat", version), want_fence=asked.want_fence
                )
                writer.write(
                    bytes(messages.encode_response("broker_heartbeat", version, correlation, body))
                )
        except EOFError:
            await quietly_closed(writer)

    def _beaten(self, m: messages.Message, *, want_fence: bool) -> messages.Message:
        self.answers -= 1
        active = self.answers >= 0
        if active:
            # of each partition that it leads: nobody does, or it does again
            self.epoch += self.fenced != want_fence
            self.fenced = want_fence
        error = Error.none if active else Error.not_controller
        return m.BrokerHeartbeatResponse(
            throttle_time=timedelta(),
            error_code=error,
            is_fenced=self.fenced,
            should_shut_down=False,
        )


@pytest.mark.parametrize("answers", [0, 1], ids=["before it is fenced", "while it is fenced"])
def test_a_shadow_whose_controller_moves_while_epochs_are_raised_is_not_left_fenced(
    tmp_path: Path, answers: int
) -> None:
    async def play() -> None:
        controller = Controller()
        async with controller.listening() as port:
            membership = Membership(config(controllers=(f"127.0.0.1:{port}",)), Journal(tmp_path))
            try:
                await moving(controller, membership)
            finally:
                membership._heart.close()

    async def moving(controller: Controller, membership: Membership) -> None:
        controller.answers = answers
        with pytest.raises(Unanswered):
            await membership.raise_epochs()
        controller.answers = 100
        await membership._beat()
        assert not controller.fenced
        assert not membership.fenced
        raised = controller.epoch
        await membership.raise_epochs()
        assert controller.epoch == raised + 2

    asyncio.run(asyncio.wait_for(play(), 60))
