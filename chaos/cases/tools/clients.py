"""Clients with transactions: the same five calls of librdkafka and of the Java client under
test."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, Protocol

from confluent_kafka import KafkaException, Producer

from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure
from linkflap.harness.wire.offsets import quiet

LOG: Final = logging.getLogger("linkflap.cases.librdkafka")
"""Where what librdkafka prints of fatal errors goes: they are on purpose here."""
LOG.addHandler(logging.NullHandler())
LOG.propagate = False


def ignored(_: object) -> None:
    """Fatal errors: the call that meets one reports it. Without this one they come out of whatever
    is called next."""


class ClientFailed(EnvironmentFailure):
    """The client reported an error; `name` is Kafka's name of it."""

    def __init__(self, doing: str, name: str) -> None:
        super().__init__(f"{doing} failed with {name}")
        self.name = name


class Transactional(Protocol):
    """A transactional producer. Every call raises ClientFailed."""

    def begin(self) -> None: ...
    def send(self, topic: str, value: bytes, partition: int = 0) -> None: ...
    def flush(self) -> None:
        """Returns when everything that was sent is acknowledged."""

    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class LibrdkafkaProducer:
    """confluent-kafka's transactional producer; it has no client side of KIP-890."""

    def __init__(
        self, bootstrap: str, transactional_id: str, settings: Mapping[str, str | int | bool]
    ) -> None:
        self._failed: list[str] = []
        given = {
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "error_cb": ignored,
            **settings,
        }
        self.client = Producer(quiet(bootstrap) | given, logger=LOG)
        self._call("init_transactions", 60)

    def _call(self, name: str, *arguments: float) -> None:
        try:
            getattr(self.client, name)(*arguments)
        except KafkaException as error:
            raise ClientFailed(name, error.args[0].name()) from error

    def begin(self) -> None:
        self._call("begin_transaction")

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self.client.produce(topic, value, partition=partition, on_delivery=self._delivered)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(error.name())  # type: ignore[attr-defined]

    def flush(self) -> None:
        if self.client.flush(60):
            raise DeadlineExceeded("waited 60 s for acknowledgements")
        if self._failed:
            raise ClientFailed("produce", self._failed.pop(0))

    def commit(self) -> None:
        self._call("commit_transaction", 60)

    def abort(self) -> None:
        self._failed.clear()
        self._call("abort_transaction", 60)

    def close(self) -> None:
        self.client.purge()
        self.client.flush(1)
