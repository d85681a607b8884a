"""The bytes that a broker wrote, the records that its consumers got, and the dump-log tool's output
for the files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import cast

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.log import batches, records
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.model.topology import DEFAULT_KAFKA
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import bounds, quiet
from linkflap.spark_verify.checks.parts import logs
from linkflap.spark_verify.facts.view import Batches, Records, Replica
from tests.oracles.dump_log import Dumped, dump
from tests.oracles.log_writer import TOPICS, Writer

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
