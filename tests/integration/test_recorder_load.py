"""The recorder between a real broker and clients that send what no client should, or too much of
it: it lives, each of their connections passes or ends with one sentence in its log, its memory
stays bounded, and a client beside them loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import socket
import ssl
import statistics
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from linkflap.chaos.cases.wire import record_batch
from linkflap.harness.model.history import Operation
from linkflap.harness.model.protocols import WireRecording
from linkflap.harness.runtimes.process import deploy
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import host_and_port
from linkflap.harness.wire.messages import LENGTH, Error
from linkflap.topologies import parse
from tests.on_runtimes import QUIET, Events
from tests.waiting import eventually

TOPIC, BIG, ATTACKED = "A.orders", "A.big", "A.attacked"
MOST_MORE: Final = 150 << 20
"""How much memory the recorder may need besides what it has when idle. An answer of 50 MB that is
read is in memory until the last of it has passed, in a buffer that may be copied once while it
grows. A thousand connections need some ten KB each, and nothing is kept of what is only claimed."""
_BIG: Final = 50 << 20
_SLOW: Final = 0.5
"""Seconds that half of the other client's writes never take, on a machine that is busy too."""
_READING_FROM: Final = 300
"""After so many writes of the other client, a slow reader reads."""


@dataclass
class Recorded:
    """A cluster of one broker behind its recorder."""

    bootstrap: str
    direct: str
    log: Path
    operations: Path
    process: psutil.Process
    idle: int = 0

    @property
    def memory(self) -> int:
        return int(self.process.memory_info().rss)

    @property
    def sentences(self) -> list[str]:
        return self.log.read_text().splitlines()

    def acknowledged(self, topic: str) -> set[int]:
        """The offsets of a topic that the history says were acknowledged."""
        rows = [
            msgspec.json.decode(line, type=Operation)
            for line in self.operations.read_bytes().splitlines()
        ]
        return {
            offset + n
            for row in rows
            if row.outcome == "ok"
            for group in row.sends
            if group.topic == topic
            for _, size, offset in group.acks
            for n in range(size)
        }


@dataclass
class Beside:
    """An ordinary client at the recorder, which writes until it is stopped, one record at a
    time."""

    recorded: Recorded
    stopped: threading.Event = field(default_factory=threading.Event)
    offsets: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    memory: int = 0

    def run(self) -> None:
        producer = Producer(
            {**QUIET, "bootstrap.servers": self.recorded.bootstrap, "enable.idempotence": True}
        )
        while not self.stopped.is_set():
            before = time.monotonic()
            producer.produce(TOPIC, str(len(self.offsets)), on_delivery=self._delivered)
            producer.flush(60)
            self.seconds.append(time.monotonic() - before)
            self.memory = max(self.memory, self.recorded.memory)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        elif (offset := message.offset()) is not None:
            self.offsets.append(offset)

    def writes_on(self, records: int = 50) -> None:
        """Waits until it has written some more."""
        least = len(self.offsets) + records
        eventually(f"{least} records", lambda: len(self.offsets) >= least, state=lambda: self)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    root = tmp_path_factory.mktemp("run")
    wire = WireRecording(
        root=root, topics=frozenset({TOPIC, ATTACKED}), reads=frozenset({TOPIC, BIG})
    )
    with deploy(parse("A"), folder=root / "logs", recorder=Events(), wire=wire) as deployment:
        cluster, recorder = deployment.clusters["A"], deployment.recorders["A"]
        for topic in (TOPIC, BIG, ATTACKED):
            cluster.create_topic(topic, partitions=1)
        assert recorder.pid is not None
        up = Recorded(
            bootstrap=recorder.bootstrap,
            direct=cluster.bootstrap,
            log=recorder.log,
            operations=root / "operations" / "wire-A.jsonl",
            process=psutil.Process(recorder.pid),
        )
        with beside(up, most=1 << 40) as client:
            client.writes_on()
        up.idle = up.memory
        yield up
        assert recorder.alive
        assert not any("Traceback" in line for line in up.sentences)


@contextlib.contextmanager
def beside(recorded: Recorded, most: int = MOST_MORE) -> Iterator[Beside]:
    """A client that writes meanwhile, loses nothing, and is recorded."""
    client = Beside(recorded)
    thread = threading.Thread(target=client.run)
    thread.start()
    try:
        client.writes_on(1)
        yield client
        client.writes_on()
    finally:
        client.stopped.set()
        thread.join()
    assert client.errors == []
    assert recorded.process.is_running()
    assert client.memory < recorded.idle + most
    assert set(client.offsets) <= recorded.acknowledged(TOPIC)
    reader = Consumer({**QUIET, "bootstrap.servers": recorded.bootstrap, "group.id": "x"})
    reader.assign([TopicPartition(TOPIC, 0, client.offsets[0])])
    try:
        read = reader.consume(len(client.offsets), 60)
    finally:
        reader.close()
    assert [m.value() for m in read] == [str(n).encode() for n in range(len(client.offsets))]


def request(key: int, version: int, rest: bytes = b"\xff" * 20, *, length: int = 0) -> bytes:
    """A framed request; `length`: what it claims to be."""
    frame = struct.pack(">hhih", key, version, 5, -1) + rest
    return LENGTH.pack(length or len(frame)) + frame


def offered() -> bytes:
    """A request that every broker answers: ApiVersions v0."""
    return request(18, 0, b"")


def produce(*values: bytes, acks: int = -1) -> bytes:
    m = messages.request("produce", 9)
    data = m.PartitionProduceData(index=0, records=record_batch(values))
    topics = (m.TopicProduceData(name=ATTACKED, partition_data=(data,)),)
    body = m.ProduceRequest(
        transactional_id=None, acks=acks, timeout=timedelta(seconds=30), topic_data=topics
    )
    return messages.encode_request("produce", 9, 7, "attacker", body)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(recorded: Recorded) -> Streams:
    host, port = host_and_port(recorded.bootstrap)
    return await asyncio.open_connection(host, port, limit=1 << 16)


async def answer(reader: asyncio.StreamReader) -> bytes:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return await reader.readexactly(length)


async def until_ended(recorded: Recorded, *sent: bytes, shut: bool = True) -> bytes:
    """Everything that comes back of what is sent, until the connection ends."""
    reader, writer = await connected(recorded)
    got = b""
    with contextlib.suppress(ConnectionError):
        for each in sent:
            writer.write(each)
            await writer.drain()
        if shut:
            writer.write_eof()
        while some := await reader.read(1 << 16):
            got += some
    writer.close()
    return got


def at_once(run: Callable[[], Coroutine[Any, Any, None]], seconds: float = 60) -> None:
    asyncio.run(asyncio.wait_for(run(), seconds))


def new_sentences(recorded: Recorded, before: int, words: str) -> list[str]:
    return [line for line in recorded.sentences[before:] if words in line]


NO_FRAMES: Final = {
    "2 GB": request(0, 9, length=2**31 - 1),
    "negative": request(0, 9, length=-(2**31)),
    "zero": LENGTH.pack(0) + b"\0" * 20,
    "shorter than a header": LENGTH.pack(3) + b"\0" * 20,
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "garbage": b"\xf7" + random.Random(1).randbytes(1 << 20),
}


def test_bytes_that_are_no_request_pass_with_one_sentence_that_names_the_client(
    recorded: Recorded,
) -> None:
    before = len(recorded.sentences)

    async def attack() -> None:
        await asyncio.gather(
            *(until_ended(recorded, sent, shut=False) for sent in NO_FRAMES.values())
        )

    with beside(recorded):
        at_once(attack)
    said = new_sentences(recorded, before, "a program sent what is no request")
    assert len(said) == len(NO_FRAMES) == len({line.split("127.0.0.1:")[1] for line in said})
    assert all("passes unread" in line and "it announces a frame of" in line for line in said)


def test_a_client_that_speaks_tls_to_a_plain_port_is_named(recorded: Recorded) -> None:
    before = len(recorded.sentences)
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    with (
        beside(recorded),
        socket.create_connection(host_and_port(recorded.bootstrap), timeout=60) as plain,
    ):
        where = "{}:{}".format(*plain.getsockname())
        with pytest.raises((ssl.SSLError, ConnectionError)):
            tls.wrap_socket(plain)
    (said,) = new_sentences(recorded, before, "it begins a TLS handshake where plain text is")
    assert where in said


def test_requests_that_are_not_known_or_not_whole_pass(recorded: Recorded) -> None:
    before = len(recorded.sentences)
    sent = produce(b"never whole")
    every = [
        request(0, 99),  # no version of Produce
        request(3, -1),  # nor of Metadata
        request(999, 0),  # no API
        request(-1, 0),
        request(0, 9),  # a Produce that is none
        request(0, 9, struct.pack(">xxhi", -1, 0) + b"\xff\xff\xff\xff\x07"),  # of 2^31 topics
        sent[: len(sent) // 2],
        sent[:6],
        LENGTH.pack(100 << 20) + sent[4:],
    ]

    async def attack() -> None:
        await asyncio.gather(*(until_ended(recorded, each) for each in every))

    with beside(recorded):
        at_once(attack)
    for what in ("produce v99", "produce v9"):
        (said,) = new_sentences(recorded, before, f"{what} of 127.0.0.1:")
        assert "could not be read" in said


def test_a_thousand_connections_at_once_are_served(recorded: Recorded) -> None:
    async def one() -> None:
        reader, writer = await connected(recorded)
        writer.write(offered())
        assert len(await answer(reader)) > 100
        there.append(writer)
        if len(there) == 1000:
            every.set()
        await every.wait()
        writer.write(offered())
        assert len(await answer(reader)) > 100
        writer.close()

    async def attack() -> None:
        await asyncio.gather(*(one() for _ in range(1000)))

    every, there = asyncio.Event(), list[asyncio.StreamWriter]()
    open_before = recorded.process.num_fds()
    with beside(recorded):
        at_once(attack, 120)
    eventually(
        "all connections to be closed",
        lambda: recorded.process.num_fds() <= open_before,
        state=recorded.process.num_fds,
    )


def test_a_reader_that_does_not_read_slows_only_itself(recorded: Recorded) -> None:
    """It asks for 50 MB, and reads when the client beside it has gone on for a while."""
    writer = Producer({**QUIET, "bootstrap.servers": recorded.direct, "batch.size": 900_000})
    value = random.Random(2).randbytes(500_000)
    for _ in range(_BIG // len(value) + 1):
        writer.produce(BIG, value)
        writer.poll(0)
    assert writer.flush(60) == 0
    asked = fetching(BIG, _BIG)

    async def attack() -> None:
        reader, out = await connected(recorded)
        out.write(asked)
        await asyncio.to_thread(client.writes_on, _READING_FROM)
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        left = length
        while left and (some := await reader.read(1 << 20)):
            left -= len(some)
        assert (left, length > _BIG * 0.9) == (0, True)
        out.close()

    with beside(recorded) as client:
        before = len(client.seconds)
        at_once(attack)
        meanwhile = client.seconds[before:][:_READING_FROM]
    assert statistics.median(meanwhile) < _SLOW


def fetching(topic: str, size: int) -> bytes:
    m = messages.request("fetch", 11)
    part = m.FetchPartition(
        partition=0, fetch_offset=0, log_start_offset=-1, partition_max_bytes=size
    )
    body = m.FetchRequest(
        replica_id=-1,
        max_wait=timedelta(seconds=1),
        min_bytes=1,
        max_bytes=size,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(m.FetchTopic(topic=topic, partitions=(part,)),),
        forgotten_topics_data=(),
        rack_id="",
    )
    return messages.encode_request("fetch", 11, 8, "slow", body)


def test_a_writer_of_single_bytes_is_recorded(recorded: Recorded) -> None:
    async def attack() -> None:
        reader, writer = await connected(recorded)
        for byte in produce(b"slow"):
            writer.write(bytes([byte]))
            await writer.drain()
        got = messages.decode_response("produce", 9, await answer(reader))
        ((part,),) = (topic.partition_responses for topic in got.responses)
        assert part.error_code is Error.none
        offsets.append(part.base_offset)
        writer.close()

    offsets: list[int] = []
    with beside(recorded):
        at_once(attack)
    assert set(offsets) <= recorded.acknowledged(ATTACKED)


def test_connections_with_one_ended_direction_do_not_stay(recorded: Recorded) -> None:
    open_before = recorded.process.num_fds()

    async def attack() -> None:
        every = [b"", offered(), produce(b"half"), produce(b"half", acks=0), offered()[:9]] * 20
        await asyncio.gather(*(until_ended(recorded, each) for each in every))

    with beside(recorded):
        at_once(attack)
    eventually(
        "all connections to be closed",
        lambda: recorded.process.num_fds() <= open_before,
        state=recorded.process.num_fds,
    )


def test_one_connection_too_many_waits_and_is_named(recorded: Recorded) -> None:
    """Without descriptors the recorder takes no more connections, and then takes them again."""
    before = len(recorded.sentences)

    async def attack() -> None:
        opened = await asyncio.gather(*(connected(recorded) for _ in range(100)))
        for _, writer in opened:
            writer.write(offered())
        said = "no more connections are taken until others end"
        await asyncio.to_thread(eventually, said, lambda: new_sentences(recorded, before, said))
        resource.prlimit(recorded.process.pid, resource.RLIMIT_NOFILE, limit)
        assert await asyncio.gather(*(served(*each) for each in opened)) != [False] * 100

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            return len(await answer(reader)) > 100
        except (ConnectionError, asyncio.IncompleteReadError):
            return False
        finally:
            writer.close()

    limit = resource.prlimit(recorded.process.pid, resource.RLIMIT_NOFILE)
    with beside(recorded):
        few = recorded.process.num_fds() + 40, limit[1]
        resource.prlimit(recorded.process.pid, resource.RLIMIT_NOFILE, few)
        try:
            at_once(attack)
        finally:
            resource.prlimit(recorded.process.pid, resource.RLIMIT_NOFILE, limit)
