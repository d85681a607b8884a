"""Kafka as the oracle: its dump-log tool and its consumers agree with our decoders on every field
of logs that a broker wrote.

One broker writes logs with every codec: as clients compressed them (librdkafka) and as the broker
did it anew (Java), with both timestamp types, plain, idempotent and transactional, committed,
aborted and open, over several segments. Then it is stopped, so that it leaves snapshots of its
producer states.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.log import batches, codecs, layout, records, reference
from linkflap.harness.model.payload import HEADER, encode
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.model.topology import DEFAULT_KAFKA, ClusterSpec
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes.process import deploy
from linkflap.harness.wire.offsets import bounds, quiet
from linkflap.spark_verify.checks.parts import logs
from linkflap.spark_verify.checks.parts.last_stable import recompute_last_stable
from linkflap.spark_verify.facts.view import Batches, Records, Replica
from tests.on_runtimes import Events, topology
from tests.oracles.dump_log import Dumped, dump
from tests.oracles.words import (
    as_dumped,
    consumed_as,
    data_of,
    got,
    record_dumped,
    slowly_decoded,
    states,
    without_position,
)

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("decoder-oracle")]

SEGMENT = 1 << 16
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
KIP_1279 = sorted((Path(__file__).parents[1] / "data" / "logs" / "kip-1279").rglob("*.log"))
"""Logs of a mirror: leader epochs that rise, control records that no release knows."""
ACROSS = ("lz4", "none")
"""What clients that write to all topics compress with."""
ENDINGS = ("log", "txnindex", "snapshot")
LONG_AGO = 1_000_000_000_000
"""Milliseconds: a time of the client's choosing."""


def client_codec(topic: str) -> str:
    """What a client compresses with: for topics that the broker compresses anew, something else."""
    side, codec = topic.split("-")
    return codec if side == "client" else "zstd" if codec != "zstd" else "gzip"


class Writer:
    """Writes to every topic in turn; everything is a function of a seed."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._random = random.Random(7)
        self._uid = 0
        self._refused: list[object] = []

    def end(self) -> None:
        """What could not be written is not compared."""
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
        """What no codec makes much smaller, and the tool prints on one line."""
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
        """Null and empty keys and values, header values that are null, many headers, times out of
        order."""
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
        """Transactions over all topics at once; the last one stays open, and its producer has to be
        kept."""
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


def consumed(
    bootstrap: str, isolation: str, ends: dict[tuple[str, int], int]
) -> dict[str, list[Message]]:
    """All that a consumer of an isolation level gets of each topic below its end for that level."""
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
    """What a broker wrote, what its consumers got, and what its tool says of the files."""

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
        """A topic's log with its transactions worked out, as a verification has it."""
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


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    folder = tmp_path_factory.mktemp("oracle")
    with deploy(
        topology(ClusterSpec(name="A")), folder=folder / "clusters", recorder=Events()
    ) as up:
        yield _written(up.clusters["A"], folder)


def _written(cluster: Cluster, folder: Path) -> Written:
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


def test_what_was_written_has_what_is_to_be_compared(written: Written) -> None:
    for topic in TOPICS:
        h = batches.scan(written.files(topic, "log")).headers
        side, codec = topic.split("-")
        assert len(written.files(topic, "log")) > 1
        assert {codecs.NAMES[int(c)] for c in h.codec[h.control == layout.DATA]} == (
            {codec} if side == "broker" else {codec, *ACROSS}
        )
        assert set(h.control.tolist()) == {layout.DATA, layout.COMMIT, layout.ABORT}
        assert set(h.log_append_time[h.control == layout.DATA].tolist()) == {side == "broker"}
        assert {bool(t) for t in h.transactional[h.producer_id >= 0]} == {True, False}
        assert len({int(p) for p in h.producer_id}) > 3
        assert written.stable[topic, 0] < written.high[topic, 0]
        assert [bool(written.files(topic, ending)) for ending in ENDINGS] == [True] * 3


def test_every_header_field_is_what_the_tool_says(written: Written) -> None:
    compared = 0
    for path, dumped in of_logs(written):
        log = batches.scan([path])
        assert not log.damage
        for row, dumped_one in enumerate(dumped.batches):
            assert_same([dumped_one], [as_dumped(log.headers, row)])
        assert len(log.headers) == len(dumped.batches)
        by_the_slow_one = list(reference.batches(path.read_bytes()))
        assert_same(
            [without_position(dumped_one) for dumped_one in dumped.batches],
            [slowly_decoded(batch) for batch in by_the_slow_one],
        )
        compared += len(dumped.batches)
    assert compared > 300


def test_every_record_is_what_the_tool_says(written: Written) -> None:
    for path, dumped in of_logs(written):
        for batch, dumped_one in zip(
            reference.batches(path.read_bytes()), dumped.records, strict=True
        ):
            assert_same(
                dumped_one, [record_dumped(batch, record) for record in reference.records(batch)]
            )


def test_what_control_records_say_is_what_the_tool_says(written: Written) -> None:
    seen = set()
    for path, dumped in of_logs(written):
        control = batches.scan([path]).headers.control.tolist()
        for kind, dumped_one in zip(control, dumped.records, strict=True):
            if kind != layout.DATA:
                (only,) = dumped_one
                seen.add((kind, only["rest"]))
    names = {
        layout.COMMIT: " endTxnMarker: COMMIT coordinatorEpoch: 0",
        layout.ABORT: " endTxnMarker: ABORT coordinatorEpoch: 0",
    }
    assert seen == set(names.items()) | {(layout.OTHER_CONTROL, " controlType: UNKNOWN(7)")}


def test_the_fast_decoder_reads_the_same_records_as_the_slow_one(written: Written) -> None:
    for path, _ in of_logs(written):
        log = batches.scan([path])
        columns, damage = records.decode(log)
        assert not damage
        slow = [
            (i, r)
            for i, b in enumerate(reference.batches(path.read_bytes()))
            if not b.is_control
            for r in reference.records(b)
        ]
        assert columns.batch.tolist() == [i for i, _ in slow]
        assert columns.offset.tolist() == [r.offset for _, r in slow]
        assert columns.timestamp.tolist() == [r.timestamp for _, r in slow]
        assert columns.digest.tolist() == [reference.digest(r) for _, r in slow]
        assert list(zip(columns.uid.tolist(), columns.operation.tolist(), strict=True)) == [
            reference.identity(r) for _, r in slow
        ]


def test_consumers_get_the_records_that_we_read(written: Written) -> None:
    for topic in TOPICS:
        log = written.log(topic)
        every = [
            got(b, r)
            for p in written.files(topic, "log")
            for b in reference.batches(p.read_bytes())
            for r in data_of(b)
        ]
        assert_same([consumed_as(m) for m in written.uncommitted[topic]], every)
        shown = [
            e
            for e, visible in zip(every, log.visible.tolist(), strict=True)
            if visible and cast(int, e[0]) < written.stable[topic, 0]
        ]
        assert_same([consumed_as(m) for m in written.committed[topic]], shown)
        assert len(shown) < len(every)


def test_the_last_stable_offset_is_what_the_broker_said(written: Written) -> None:
    for topic in TOPICS:
        log = written.log(topic)
        assert log.replica.end == written.high[topic, 0]
        assert (
            recompute_last_stable(log, written.high[topic, 0])
            == log.stable
            == written.stable[topic, 0]
        )


def test_aborted_transactions_are_those_of_the_transaction_index(written: Written) -> None:
    for topic in TOPICS:
        log = written.log(topic)
        every = log.transactions
        ours = [
            {
                "version": "0",
                "producerId": str(every.producer_id[i]),
                "firstOffset": str(every.first[i]),
                "lastOffset": str(every.marker[i]),
                "lastStableOffset": str(recompute_last_stable(log, int(every.marker[i]) + 1)),
            }
            for i in sorted(range(len(every)), key=lambda i: int(every.marker[i]))
            if every.marker[i] != logs.NOWHERE and not every.committed[i]
        ]
        entries = [
            entry
            for path in written.files(topic, "txnindex")
            for entry in written.dumped[path].entries
        ]
        assert entries == ours
        assert len(ours) > 2


def test_producer_states_are_those_of_the_snapshots(written: Written) -> None:
    for topic in TOPICS:
        snapshots = written.files(topic, "snapshot")
        for path in snapshots:
            entries = {entry["producerId"]: entry for entry in written.dumped[path].entries}
            assert entries == states(batches.scan(written.files(topic, "log")), int(path.stem))
        assert int(snapshots[-1].stem) == written.high[topic, 0]


def assert_same(kafka: Sequence[object], ours: Sequence[object]) -> None:
    """Says in one line where two lists part; pytest takes minutes to compare long values letter by
    letter."""
    parted = next(
        (n for n, (one, other) in enumerate(zip(kafka, ours, strict=False)) if one != other), None
    )
    if parted is not None:
        pytest.fail(
            f"at {parted} Kafka has {str(kafka[parted])[:1000]} and we have "
            f"{str(ours[parted])[:1000]}",
            pytrace=False,
        )
    assert len(kafka) == len(ours)


def of_logs(written: Written) -> Iterator[tuple[Path, Dumped]]:
    return ((path, dumped) for path, dumped in written.dumped.items() if path.suffix == ".log")
