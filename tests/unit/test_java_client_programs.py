"""Java clients without a JVM: what is passed to it, how errors and settings map, and which clients
are requested."""

from __future__ import annotations

import struct
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from linkflap.harness.model.scenario import WorkloadSpec
from linkflap.harness.model.security import Address, Security
from linkflap.harness.workloads import readers
from linkflap.harness.workloads.context import Context, Numbers
from linkflap.harness.workloads.java.configuration import of_consumer, of_producer
from linkflap.harness.workloads.java.errors import Errors
from linkflap.harness.workloads.java.producer import serialized
from linkflap.harness.workloads.librdkafka import producer_config


class Reader:
    """A simple reader of the output of `serialized`: arrays of arrays of bytes, and references to
    classes."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 4
        self._handles: list[str] = []
        assert data[:4] == bytes.fromhex("aced0005")

    def _take(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def _number(self) -> int:
        return int(struct.unpack(">i", self._take(4))[0])

    def _class(self) -> str:
        kind = self._take(1)
        if kind == b"\x71":
            return self._handles[self._number() - 0x7E0000]
        assert kind == b"\x72"
        name = self._take(struct.unpack(">H", self._take(2))[0]).decode()
        assert self._take(8 + 1 + 2 + 2) == bytes(8) + b"\x02" + bytes(2) + b"\x78\x70"
        self._handles.append(name)
        return name

    def read(self) -> list[object] | bytes | None:
        kind = self._take(1)
        if kind == b"\x70":
            return None
        assert kind == b"\x75"
        name = self._class()
        self._handles.append(f"a {name}")
        count = self._number()
        return self._take(count) if name == "[B" else [self.read() for _ in range(count)]

    @property
    def rest(self) -> bytes:
        return self._data[self._at :]


@pytest.mark.parametrize(
    "records",
    [
        [],
        [(b"k", b"v", b"h")],
        [(None, None)],
        [(b"k", None, b"h"), (b"", b"v" * 70_000, b"h", b"from")],
        [(None, b"1", b"h")] * 3,
    ],
)
def test_records_cross_as_one_java_object(records: list[tuple[bytes | None, ...]]) -> None:
    reader = Reader(serialized(records))
    assert reader.read() == [list(record) for record in records]
    assert reader.rest == b""


def errors() -> Errors:
    made = object.__new__(Errors)
    made._codes = {
        "org.apache.kafka.common.errors.TimeoutException": 7,
        "org.apache.kafka.common.errors.RecordTooLargeException": 10,
    }
    return made


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (
            "org.apache.kafka.common.errors.TimeoutException: Expiring 3",
            "REQUEST_TIMED_OUT",
            "TimeoutException: Expiring 3",
        ),
        (
            (
                "java.util.concurrent.ExecutionException: "
                "org.apache.kafka.common.errors.RecordTooLargeException: 9: large"
            ),
            "MSG_SIZE_TOO_LARGE",
            "RecordTooLargeException: 9: large",
        ),
        (
            "org.apache.kafka.common.KafkaException: Producer is closed forcefully.",
            "_FAIL",
            "KafkaException: Producer is closed",
        ),
        ("java.lang.NullPointerException", "_FAIL", "NullPointerException"),
    ],
)
def test_a_delivery_that_failed_has_the_code_of_its_exception(
    text: str, name: str, words: str
) -> None:
    error = errors().delivery(text)
    assert error.name() == name
    assert error.str().startswith(words)
    assert not error.fatal()


def test_what_an_error_lets_a_client_do_is_as_it_was_given() -> None:
    error = errors().of("org.apache.kafka.common.errors.TimeoutException", "", retriable=True)
    assert (error.code(), error.retriable(), error.fatal(), error.txn_requires_abort()) == (
        7,
        True,
        False,
        False,
    )
    assert errors().of("x.Y", "z", abortable=True).txn_requires_abort()
    assert errors().of("x.Y", "z", fatal=True).fatal()
    assert errors().of("x.Y", "z").code() == KafkaError._FAIL


def test_every_setting_of_a_producer_has_a_name_of_javas() -> None:
    java: dict[str, Any] = of_producer(
        producer_config("b:1", "tx", timeout=3.0, compression="lz4", largest=40 << 20)
    )
    assert java["delivery.timeout.ms"] == java["transaction.timeout.ms"] == 3000
    assert java["linger.ms"] + java["request.timeout.ms"] <= 3000
    assert java["buffer.memory"] >= java["max.request.size"] > 40 << 20
    assert java["transactional.id"] == "tx"
    assert not {"log_level", "message.timeout.ms"} & java.keys()


@pytest.mark.parametrize("group", ["followers", ""])
def test_every_setting_of_a_reader_has_a_name_of_javas(group: str) -> None:
    options = {"group": group} if group else {"assign": True}
    spec = WorkloadSpec(kind="readers", home="A", options=options)

    class Nowhere:
        def polls(self, reader: str) -> None: ...

    nowhere: Any = Nowhere()
    context = Context(
        spec=spec,
        clusters={"A": "b:1"},
        links={},
        topics={"A.t": 1},
        writer=nowhere,
        seed=1,
        numbers=cast(Numbers, None),
    )
    java = of_consumer(readers.ReaderClient(context, "readers-1", "A")._config(), batch=77)
    assert (java["auto.offset.reset"], java["max.poll.records"], java["fetch.max.wait.ms"]) == (
        "none",
        77,
        100,
    )
    assert java.get("group.instance.id") == ("readers-1" if group else None)


def test_a_secured_cluster_is_entered_as_java_enters_it() -> None:
    security = Security(
        protocol="SASL_SSL",
        authority="/ca.pem",
        mechanism="PLAIN",
        username="client",
        password="secret",
    )
    java: dict[str, Any] = of_producer(
        producer_config(Address("b:1", security), "", timeout=3.0, compression="none")
    )
    assert java.items() >= security.java().items()
    assert java["bootstrap.servers"] == "b:1"
    assert not [name for name in java if name.endswith(("username", "ca.location"))]


def test_a_setting_that_nobody_translated_is_refused() -> None:
    with pytest.raises(LookupError, match=r"no name of a Java client is known for sasl\.whatever"):
        of_consumer({"bootstrap.servers": "b:1", "sasl.whatever": "x"}, batch=1)
