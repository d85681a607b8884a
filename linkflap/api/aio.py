"""`linkflap.AIOProducer` and `linkflap.AIOConsumer`: confluent-kafka's clients for asyncio, with a
recorded history."""

from __future__ import annotations

from typing import Any, final

from linkflap.api.consumer import Consumer
from linkflap.api.producer import Producer
from linkflap.harness.model.errors import InputError

try:
    import confluent_kafka.aio as theirs
except ImportError:
    raise InputError(
        "this confluent-kafka has no clients for asyncio; install confluent-kafka 2.13 or newer"
    ) from None


@final
class AIOProducer(theirs.AIOProducer):
    """A confluent_kafka.aio.AIOProducer with a recorded history."""

    def __init__(self, producer_conf: dict[str, Any], *arguments: Any, **named: Any) -> None:  # noqa: ANN401  (confluent-kafka's own)
        super().__init__(producer_conf, *arguments, **named)
        # It makes its producer itself, and calls `producer_conf`'s callbacks in the event loop.
        self._producer = self._kafka_executor._producer = Producer(producer_conf)


@final
class AIOConsumer(theirs.AIOConsumer):
    """A confluent_kafka.aio.AIOConsumer with a recorded history."""

    def __init__(self, consumer_conf: dict[str, Any], *arguments: Any, **named: Any) -> None:  # noqa: ANN401  (confluent-kafka's own)
        super().__init__(consumer_conf, *arguments, **named)
        self._consumer.close()  # it makes its consumer itself; this one has joined no group
        self._consumer = Consumer(consumer_conf)
