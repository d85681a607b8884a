"""A replicator of 50 lines: reads what the source has committed, and writes it to the same
partition of the destination.

It commits its position after its writes are acknowledged: what it wrote before a crash and had not
committed, it writes again. With COPIER_COMMITS=early it commits before: what a crash comes between
is lost. That is the bug which tests/ find.
"""

import os
import re
import signal
import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

GROUP = f"mirror-{os.environ['LINKFLAP_LINK']}"
READING = {"group.id": GROUP, "enable.auto.commit": False, "isolation.level": "read_committed"}
EARLY = os.environ.get("COPIER_COMMITS") == "early"
PATTERN = re.compile(os.environ["LINKFLAP_TOPIC_PATTERN"])
stopping = False


def stop(*_):
    global stopping
    stopping = True


def delivered(error, record):
    if error:
        sys.exit(f"{record.topic()} was not written: {error}")


def cluster(side):
    file = os.environ.get(f"LINKFLAP_{side}_CONFIG")  # of a secured cluster: how it is entered
    lines = Path(file).read_text().splitlines() if file else []
    return dict(line.split("=", 1) for line in lines) | {
        "bootstrap.servers": os.environ[f"LINKFLAP_{side}_BOOTSTRAP"]
    }


def main():
    signal.signal(signal.SIGTERM, stop)
    source = Consumer(cluster("SOURCE") | READING)
    destination = Producer(cluster("DESTINATION") | {"acks": "all", "linger.ms": 5})
    topics = [
        topic
        for name, topic in source.list_topics(timeout=30).topics.items()
        if PATTERN.fullmatch(name)
    ]
    partitions = [
        TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions
    ]
    source.assign(
        [
            TopicPartition(p.topic, p.partition, max(p.offset, 0))
            for p in source.committed(partitions, timeout=30)
        ]
    )
    while not stopping:
        batch = [record for record in source.consume(500, timeout=0.2) if record.error() is None]
        if batch and EARLY:
            source.commit(offsets=source.position(source.assignment()), asynchronous=False)
        for record in batch:
            where = {
                "topic": record.topic(),
                "partition": record.partition(),
                "timestamp": record.timestamp()[1],
            }
            destination.produce(
                **where,
                key=record.key(),
                value=record.value(),
                headers=record.headers(),
                on_delivery=delivered,
            )
        if destination.flush(120):
            sys.exit("the destination did not acknowledge in 120 s")
        if batch and not EARLY:
            source.commit(offsets=source.position(source.assignment()), asynchronous=False)


if __name__ == "__main__":
    main()
