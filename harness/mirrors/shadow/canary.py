"""The canary of a shadow: a record written to the source. The shadow counts as started once it has
mirrored that record."""

from __future__ import annotations

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from linkflap.harness.model.errors import SetupError
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet


def write_canary(source: Cluster, topic: str) -> int:
    """Writes one record to the source, not over the link. Returns the offset after it.

    The producer is not idempotent, so that it allocates no producer id. Raises SetupError when the
    write fails, DeadlineExceeded when it is not acknowledged within 20 s.
    """
    producer = Producer(
        quiet(source.bootstrap) | {"enable.idempotence": False, "acks": "all", "linger.ms": 0}
    )
    ends: list[int] = []
    producer.produce(
        topic,
        b"canary",
        partition=0,
        on_delivery=lambda error, m: ends.append(0 if error else (m.offset() or 0) + 1),
    )
    until(lambda: producer.flush(0.1) == 0, within=20, what=f"the canary to be written to {topic}")
    if not ends or not ends[0]:
        raise SetupError(
            f"the canary could not be written to {topic}; is cluster {source.name} healthy?"
        )
    return ends[0]


def remove_canary(admin: AdminClient, name: str) -> None:
    """Deletes the canary topic of an earlier mirror over the same link, which a new mirror creates
    again. Raises SetupError, DeadlineExceeded."""
    try:
        if name in admin.list_topics(timeout=20).topics:
            admin.delete_topics([name], operation_timeout=20)[name].result(20)
            until(
                lambda: name not in admin.list_topics(timeout=20).topics,
                within=20,
                what=f"topic {name} to be gone",
            )
    except KafkaException as error:
        raise SetupError(
            f"topic {name} could not be deleted ({error.args[0].str()}); see the brokers' logs"
        ) from error
