"""The output of Kafka's own dump-log tool (DumpLogSegments of the release) and of its consumer, as
plain values, and the writer of the files that they read.

Its words are taken over as they are (`baseOffset`, `isvalid`, …): one dictionary of strings per
line, so that a field that a release adds or drops is seen.
"""

from __future__ import annotations

import base64
import random
import re
import struct
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.log import batches, codecs, layout, records, reference
from linkflap.harness.log.batch_headers import Headers
from linkflap.harness.log.batches import ReplicaLog
from linkflap.harness.machine import children
from linkflap.harness.model.payload import HEADER, encode
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.model.topology import DEFAULT_KAFKA
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes.kraft.installation import broker_command
from linkflap.harness.runtimes.process import install
from linkflap.harness.wire.librdkafka import bounds, quiet
from linkflap.spark_verify.checks.log_model import logs
from linkflap.spark_verify.facts.view import Batches, Records, Replica

MAIN = "org.apache.kafka.tools.DumpLogSegments"
_MEMORY = ("-Xms64m", "-Xmx256m")
_HARMLESS = ("Log starting offset: ", "Non-consecutive offsets in ", "  -1 is followed by ")
"""The tool assumes that every segment except the first follows offset -1."""
_FIELD = re.compile(r"(\w+): (\S+)")
_RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) (?P<type>\w+): (?P<timestamp>-?\d+)"
    r" keySize: (?P<key_size>-?\d+) valueSize: (?P<value_size>-?\d+)"
    r" sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<headers>[^\]]*)\](?P<rest>.*)",
    re.DOTALL,
)
Fields = dict[str, str]


@dataclass(slots=True)
class Dumped:
    """The tool's output for one file: for a segment its batches with their records, for another
    file its entries."""

    batches: list[Fields] = field(default_factory=list)
    records: list[list[Fields]] = field(default_factory=list)
    entries: list[Fields] = field(default_factory=list)


def dump(files: Sequence[Path], *options: str, kafka: str, folder: Path) -> dict[Path, Dumped]:
    """Runs the tool once over all files. Raises AssertionError with the end of its output if it
    fails."""
    folder.mkdir(parents=True, exist_ok=True)
    installation = install(kafka)
    command = broker_command(
        installation.kafka, installation.java, main=MAIN, memory=_MEMORY, log=folder / "tool.log",
        archive=[],
        arguments=["--deep-iteration", *options, "--files", ",".join(map(str, files))],
    )  # fmt: skip
    output = folder / f"dump{''.join(options)}.txt"
    status = children.run(
        command, name="the dump-log tool", folder=folder, output=output, within=300
    )
    said = output.read_text()
    assert status == 0, said[-2000:]
    return _parsed(said)


def _parsed(said: str) -> dict[Path, Dumped]:
    found: dict[Path, Dumped] = {}
    at = Dumped()
    for line in said.splitlines():
        if line.startswith("Dumping "):
            at = found[Path(line.removeprefix("Dumping "))] = Dumped()
        elif line.startswith("baseOffset: "):
            at.batches.append(_fields(line))
            at.records.append([])
        elif line.startswith("| offset: "):
            at.records[-1].append(_record(line))
        elif _FIELD.match(line) and not line.startswith(_HARMLESS):
            at.entries.append(_fields(line))
        else:
            assert not line or line.startswith(_HARMLESS), line
    return found


def _fields(line: str) -> Fields:
    return {name: value.rstrip(",") for name, value in _FIELD.findall(line)}


def _record(line: str) -> Fields:
    """`rest` is the text after the header keys: ` key: … payload: …`, or the content of a control
    record."""
    found = _RECORD.fullmatch(line)
    assert found is not None, line
    return found.groupdict()


CODECS = tuple(codecs.NAMES.values())
TOPICS = {
    **{f"client-{codec}": {"message.timestamp.type": "CreateTime"} for codec in CODECS},
    **{
        f"broker-{codec}": {
            "message.timestamp.type": "LogAppendTime",
            "compression.type": codec.replace("none", "uncompressed"),
        }
        for codec in CODECS
    },
}
ACROSS = ("lz4", "none")
"""The compression types of clients that write to all topics."""
LONG_AGO = 1_000_000_000_000
"""Milliseconds: a timestamp that the client chose."""


def client_codec(topic: str) -> str:
    """The compression types of clients, for topics that the broker recompresses with another
    codec."""
    side, codec = topic.split("-")
    return codec if side == "client" else "zstd" if codec != "zstd" else "gzip"


class Writer:
    """Writes to every topic in turn. Everything is a function of the seed."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._random = random.Random(7)
        self._uid = 0
        self._refused: list[object] = []

    def end(self) -> None:
        """Sends that failed are not compared."""
        assert not self._refused

    def producer(self, codec: str, **settings: object) -> Producer:
        callbacks = {"on_delivery": lambda error, _: self._refused.append(error) if error else None}
        return Producer(
            {
                **quiet(self._bootstrap),
                "compression.type": codec,
                "linger.ms": 20,
                **callbacks,
                **settings,
            }
        )

    def text(self, size: int) -> bytes:
        """A value that no codec makes much smaller, and that the tool prints on one line."""
        return base64.b64encode(self._random.randbytes(size))

    def write(
        self, producer: Producer, topic: str, count: int, size: int = 20, **rest: Any
    ) -> None:
        for _ in range(count):
            self._uid += 1
            headers = [(HEADER, encode(self._uid, self._uid - self._uid % 3, self._uid % 1000))]
            producer.produce(
                topic,
                self.text(size),
                b"key %d" % self._uid,
                partition=0,
                headers=cast(Any, headers),
                **rest,
            )
            producer.poll(0)

    def odd(self, producer: Producer, topic: str) -> None:
        """Null and empty keys and values, null header values, many headers, and unordered
        timestamps."""
        produce = producer.produce
        produce(topic, None, None, partition=0)
        produce(topic, b"", b"", partition=0, timestamp=LONG_AGO + 5)
        produce(
            topic,
            b"value",
            None,
            partition=0,
            timestamp=LONG_AGO,
            headers=[("a", None), ("a", b""), ("b", b"\x00\xff")],
        )
        produce(
            topic,
            None,
            b"key",
            partition=0,
            timestamp=LONG_AGO + 9_999_999,
            headers=[(f"h{n}", b"x" * n) for n in range(70)],
        )
        produce(
            topic,
            "ümlaut €".encode(),
            b"k",
            partition=0,
            headers=[("ß", b"x"), (HEADER, b"not ours")],
        )

    def one_client(self, topic: str) -> None:
        codec = client_codec(topic)
        plain = self.producer(codec, acks=1)
        self.odd(plain, topic)
        assert plain.flush(60) == 0
        self.write(plain, topic, 1)
        assert plain.flush(60) == 0
        idempotent = self.producer(codec, **{"enable.idempotence": True})
        for _ in range(3):
            self.write(idempotent, topic, 7)
            assert idempotent.flush(60) == 0
        for kind in ("commit", "abort", "commit"):
            self.odd(plain, topic)
            with_transactions = self.producer(codec, **{"transactional.id": f"{topic}-{kind}"})
            with_transactions.init_transactions(60)
            for number in range(2):
                with_transactions.begin_transaction()
                self.write(with_transactions, topic, 5, 200)
                assert plain.flush(60) == 0
                end = (
                    with_transactions.abort_transaction
                    if (number == 0) == (kind == "abort")
                    else with_transactions.commit_transaction
                )
                assert with_transactions.flush(60) == 0
                end(60)
        for count, size in ((40, 1000), (1, 30_000), (40, 900)):
            self.write(plain, topic, count, size)
            assert plain.flush(60) == 0

    def across(self) -> Producer:
        """Transactions over all topics at once. The last one stays open, so the caller must keep
        its producer."""
        both = self.producer(ACROSS[0], **{"transactional.id": "across"})
        both.init_transactions(60)
        for end in (both.abort_transaction, both.commit_transaction, None):
            both.begin_transaction()
            for topic in TOPICS:
                self.write(both, topic, 3)
            assert both.flush(60) == 0
            if end:
                end(60)
        last = self.producer(ACROSS[1], acks=1)
        for topic in TOPICS:
            self.write(last, topic, 2)
        assert last.flush(60) == 0
        return both


SEGMENT = 1 << 16
KIP_1279 = sorted((Path(__file__).parents[1] / "data" / "logs" / "kip-1279").rglob("*.log"))
"""Logs of a mirror: rising leader epochs, and control records that no release knows."""
ENDINGS = ("log", "txnindex", "snapshot")


def consumed(
    bootstrap: str, isolation: str, ends: dict[tuple[str, int], int]
) -> dict[str, list[Message]]:
    """All records that a consumer with this isolation level gets of each topic, up to the end for
    that level."""
    found: dict[str, list[Message]] = {topic: [] for topic in TOPICS}
    settings = {
        "group.id": "oracle",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "check.crcs": True,
    }
    with closing(Consumer({**quiet(bootstrap), **settings, "fetch.wait.max.ms": 50})) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0) for topic in TOPICS])

        def there() -> bool:
            for message in consumer.consume(500, 0.2):
                assert message.error() is None, message.error()
                found[cast(str, message.topic())].append(message)
            positions = consumer.position([TopicPartition(topic, 0) for topic in TOPICS])
            return all(p.offset >= ends[p.topic, 0] for p in positions)

        until(
            there,
            within=120,
            what=f"a {isolation} consumer to come to {ends}",
            state=lambda: {t: len(m) for t, m in found.items()},
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The bytes that a broker wrote, the records that its consumers got, and the dump-log tool's
    output for the files."""

    folder: Path
    stable: Mapping[tuple[str, int], int]
    high: Mapping[tuple[str, int], int]
    committed: Mapping[str, list[Message]]
    uncommitted: Mapping[str, list[Message]]
    dumped: Mapping[Path, Dumped]

    def files(self, topic: str, ending: str) -> list[Path]:
        """Files of one kind of a topic's only partition, by offset."""
        return files_in(self.folder / f"{topic}-0", ending)

    def log(self, topic: str) -> logs.Log:
        """A topic's log with resolved transactions, as a verification has it."""
        found = batches.scan(self.files(topic, "log"))
        columns, damage = records.decode(found)
        assert not found.damage
        assert not damage
        replica = Replica(
            cluster="A", broker=1, leader=True, canonical=True, log_start=0,
            high_watermark=self.high[topic, 0],
            high_watermark_from="sampled",
            batches=Batches(**{f.name: getattr(found.headers, f.name) for f in fields(Batches)}),
            records=Records(**{f.name: getattr(columns, f.name) for f in fields(Records)}),
            damage=(),
        )  # fmt: skip
        return logs.read(replica)


def files_in(folder: Path, ending: str) -> list[Path]:
    return sorted(folder.glob(f"*.{ending}"))


def write_and_read(cluster: Cluster, folder: Path) -> Written:
    admin = AdminClient(quiet(cluster.bootstrap))
    shared = {"internal.segment.bytes": str(SEGMENT), "retention.ms": "-1"}
    made = admin.create_topics(
        [NewTopic(topic, 1, 1, config=shared | own) for topic, own in TOPICS.items()],
        request_timeout=60,
    )
    for each in made.values():
        each.result(90)
    writer = Writer(cluster.bootstrap)
    for topic in TOPICS:
        writer.one_client(topic)
    kept = writer.across()
    writer.end()
    partitions = [(topic, 0) for topic in TOPICS]
    high, stable = (bounds(admin, partitions, which, within=60) for which in ("high", "stable"))
    committed = consumed(cluster.bootstrap, "read_committed", stable)
    uncommitted = consumed(cluster.bootstrap, "read_uncommitted", high)
    (broker,) = cluster.brokers.values()
    broker.stop()
    del kept
    data = broker.log_dir
    files = [
        path
        for topic in TOPICS
        for ending in ENDINGS
        for path in files_in(data / f"{topic}-0", ending)
    ]
    return Written(
        folder=data,
        stable=stable,
        high=high,
        committed=committed,
        uncommitted=uncommitted,
        dumped=dump(
            [*files, *KIP_1279], "--print-data-log", kafka=DEFAULT_KAFKA, folder=folder / "tool"
        ),
    )


LAST_BATCH = ("firstSequence", "lastSequence", "lastOffset", "offsetDelta")
"""The last batch of a producer according to a snapshot."""


def as_dumped(h: Headers, row: int) -> Fields:
    """One of our batch headers in the tool's words."""
    horizon = (
        f"OptionalLong[{h.base_timestamp[row]}]"
        if h.attributes[row] & 0x40
        else "OptionalLong.empty"
    )
    return {
        "baseOffset": str(h.base_offset[row]),
        "lastOffset": str(h.last_offset[row]),
        "count": str(h.count[row]),
        "baseSequence": str(h.base_sequence[row]),
        "lastSequence": str(h.last_sequence[row]),
        "producerId": str(h.producer_id[row]),
        "producerEpoch": str(h.producer_epoch[row]),
        "partitionLeaderEpoch": str(h.leader_epoch[row]),
        "isTransactional": str(bool(h.transactional[row])).lower(),
        "isControl": str(bool(h.control[row] != layout.DATA)).lower(),
        "deleteHorizonMs": horizon,
        "position": str(h.position[row]),
        "LogAppendTime" if h.log_append_time[row] else "CreateTime": str(h.max_timestamp[row]),
        "size": str(h.length[row]),
        "magic": "2",
        "compresscodec": codecs.NAMES[int(h.codec[row])],
        "crc": str(h.crc[row]),
        "isvalid": str(bool(h.crc_ok[row])).lower(),
    }


def time_type(batch: reference.ReferenceBatch) -> str:
    return "LogAppendTime" if batch.attributes & layout.LOG_APPEND_TIME else "CreateTime"


def record_dumped(batch: reference.ReferenceBatch, record: reference.Record) -> Fields:
    """One of our records in the tool's words."""
    sequence = (
        -1
        if batch.base_sequence < 0
        else (batch.base_sequence + record.offset - batch.base_offset) % 2**31
    )
    return {
        "offset": str(record.offset),
        "type": time_type(batch),
        "timestamp": str(record.timestamp),
        "key_size": str(-1 if record.key is None else len(record.key)),
        "value_size": str(-1 if record.value is None else len(record.value)),
        "sequence": str(sequence),
        "headers": ",".join(name.decode() for name, _ in record.headers),
        "rest": _marker(record) if batch.is_control else _content(record),
    }


def _content(record: reference.Record) -> str:
    key = "" if record.key is None else f" key: {record.key.decode()}"
    return key if record.value is None else f"{key} payload: {record.value.decode()}"


def _marker(record: reference.Record) -> str:
    """KIP-98: key = version i16, type i16; the value of an end marker = version i16, coordinator
    epoch i32."""
    assert record.key is not None
    _, kind = struct.unpack(">hh", record.key)
    if kind not in (layout.ABORT, layout.COMMIT):
        return f" controlType: UNKNOWN({kind})"
    assert record.value is not None
    _, coordinator_epoch = struct.unpack(">hi", record.value[:6])
    return (
        f" endTxnMarker: {'COMMIT' if kind == layout.COMMIT else 'ABORT'} coordinatorEpoch: "
        f"{coordinator_epoch}"
    )


def data_of(batch: reference.ReferenceBatch) -> list[reference.Record]:
    return [] if batch.is_control else reference.records(batch)


def got(batch: reference.ReferenceBatch, record: reference.Record) -> tuple[object, ...]:
    kind = 2 if batch.attributes & layout.LOG_APPEND_TIME else 1
    headers = [(name.decode(), value) for name, value in record.headers]
    return (
        record.offset,
        (kind, record.timestamp),
        record.key,
        record.value,
        headers,
        batch.leader_epoch,
    )


def consumed_as(message: Message) -> tuple[object, ...]:
    headers = list(message.headers() or ())
    return (
        message.offset(),
        message.timestamp(),
        message.key(),
        message.value(),
        headers,
        message.leader_epoch(),
    )


def states(log: ReplicaLog, end: int) -> dict[str, Fields]:
    """A broker's state of each producer if its log ends at an offset, in the tool's words
    (ProducerStateManager)."""
    h = log.headers
    found: dict[int, Fields] = {}
    for row in range(len(h)):
        pid, epoch = int(h.producer_id[row]), int(h.producer_epoch[row])
        if pid < 0 or h.last_offset[row] >= end:
            continue
        empty = {
            "producerId": str(pid),
            "coordinatorEpoch": "-1",
            "currentTxnFirstOffset": "OptionalLong.empty",
        }
        state = found.setdefault(pid, empty)
        if state.get("producerEpoch") != str(epoch):
            for name in LAST_BATCH:
                state.pop(name, None)
        state |= {"producerEpoch": str(epoch), "lastTimestamp": str(h.max_timestamp[row])}
        if h.control[row] != layout.DATA:
            state |= {"currentTxnFirstOffset": "OptionalLong.empty", "coordinatorEpoch": "0"}
            continue
        if h.transactional[row] and state["currentTxnFirstOffset"] == "OptionalLong.empty":
            state["currentTxnFirstOffset"] = f"OptionalLong[{h.base_offset[row]}]"
        last = (h.base_sequence, h.last_sequence, h.last_offset, h.last_offset - h.base_offset)
        state |= {name: str(column[row]) for name, column in zip(LAST_BATCH, last, strict=True)}
    # The file has one timestamp for both.
    return {str(pid): state | {"timestamp": state["lastTimestamp"]} for pid, state in found.items()}
