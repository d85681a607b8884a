"""Client libraries of workloads: which Kafka release and Java, and programs with Java's clients."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from linkflap.chaos import scenario_file
from linkflap.chaos.scenarios import ScenarioRequest, scenario
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Library, WorkloadSpec, libraries
from linkflap.harness.model.security import Address, Security
from linkflap.harness.workloads import jvms, readers
from linkflap.harness.workloads.client import Context, Numbers
from linkflap.harness.workloads.clients import PER_PROCESS, _shared_out
from linkflap.harness.workloads.java.clients import Errors
from linkflap.harness.workloads.java.producer import serialized
from linkflap.harness.workloads.library import of_consumer, of_producer, producer_config
from linkflap.harness.workloads.protocol import Hosted
from linkflap.recording.run import check
from linkflap.topologies import parse


@pytest.mark.parametrize(
    ("text", "libraries_"),
    [
        ("librdkafka", [Library(name="librdkafka")]),
        ("java", [Library(name="java")]),
        (
            "java@3.9.2, librdkafka",
            [Library(name="java", release="3.9.2"), Library(name="librdkafka")],
        ),
    ],
)
def test_whose_clients(text: str, libraries_: list[Library]) -> None:
    assert list(libraries(text)) == libraries_
    assert [str(one) for one in libraries(text)] == [word.strip() for word in text.split(",")]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "jave",
            (
                r"there are no clients 'jave' \(did you mean 'java'\?\); known: librdkafka,"
                r" java, and java@3\.9\.2"
            ),
        ),
        ("java@", "clients 'java@' name no release"),
        ("librdkafka@2.0", "clients 'librdkafka@2.0' name no release"),
        ("java@1.0", r"no list of jars is kept for Kafka '1\.0'"),
        ("java@/nowhere", "there is no directory /nowhere"),
        ("java,", "there are no clients ''"),
    ],
)
def test_clients_that_there_are_not(text: str, sentence: str) -> None:
    made = scenario("baseline", ScenarioRequest(seed=1, clients=text))
    with pytest.raises(InputError, match=sentence):
        check(made, "process")


def test_several_libraries_take_turns_and_share_no_process() -> None:
    hosted = [Hosted(name=f"c-{number}", cluster="A") for number in range(8)]
    shared = [
        (str(library), [each.name for each in some])
        for library, some in _shared_out(hosted, libraries("java,librdkafka"))
    ]
    assert shared == [
        ("java", ["c-0", "c-2", "c-4"]),
        ("java", ["c-6"]),
        ("librdkafka", ["c-1", "c-3", "c-5"]),
        ("librdkafka", ["c-7"]),
    ]
    assert max(len(some) for _, some in shared) <= PER_PROCESS


def test_a_workload_with_one_client_has_the_first_library() -> None:
    hosted = [Hosted(name="c-0", cluster="A")]
    assert [
        (str(library), len(some))
        for library, some in _shared_out(hosted, libraries("java,librdkafka"))
    ] == [("java", 1)]


def test_java_is_the_newest_release_of_the_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(jvms, "_installed", fetched.append)
    specs = [
        WorkloadSpec(kind="relay", home="A", library=text)
        for text in ("java", "java@3.9.1,librdkafka", "librdkafka")
    ]
    topology = parse("A@3.9.2->B@3.8.1")
    assert [spec.library for spec in jvms.resolve(specs, topology)] == [
        "java@3.9.2",
        "java@3.9.1,librdkafka",
        "librdkafka",
    ]
    assert fetched == ["3.9.2", "3.9.1"]


def test_a_built_in_scenario_has_the_clients_that_were_asked_for(tmp_path: Path) -> None:
    made = scenario("relay", ScenarioRequest(seed=3, clients="java@3.9.2"))
    assert {spec.library for spec in made.workloads} == {"java@3.9.2"}
    path = tmp_path / "saved.toml"
    scenario_file.save(made, path)
    assert 'clients = "java@3.9.2"' in path.read_text()
    assert scenario_file.read(path, seed=0) == made


def test_a_file_names_clients_for_all_and_for_one(tmp_path: Path) -> None:
    path = tmp_path / "mixed.toml"
    path.write_text(
        'schema = 1\nname = "mixed"\ntopology = "A->B"\nclients = "java"\n'
        '[[workload]]\nkind = "transactional"\nhome = "A"\n'
        '[[workload]]\nkind = "readers"\nhome = "A"\nlibrary = "librdkafka"\n'
        '[[workload]]\ncommand = ["/bin/true"]\nhome = "A"\n'
    )
    read = scenario_file.read(path, seed=1)
    assert [spec.library for spec in read.workloads] == ["java", "librdkafka", "librdkafka"]
    again = tmp_path / "again.toml"
    scenario_file.save(read, again)
    assert scenario_file.read(again, seed=1).workloads == read.workloads
    path.write_text(path.read_text().replace('clients = "java"', 'clients = "jave"'))
    with pytest.raises(InputError, match=r"mixed\.toml, line 4: there are no clients 'jave'"):
        scenario_file.read(path, seed=1)
    path.write_text(
        path.read_text().replace('"jave"', '"java"').replace('"librdkafka"', '"java@1.0"')
    )
    with pytest.raises(
        InputError, match=r"mixed\.toml, line 11: no list of jars is kept for Kafka '1\.0'"
    ):
        scenario_file.read(path, seed=1)


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


def test_java_error_keeps_its_retriable_fatal_and_abortable_flags() -> None:
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
        options=readers.READER_OPTIONS,
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


def test_a_setting_without_a_translation_is_refused() -> None:
    with pytest.raises(LookupError, match=r"no name of a Java client is known for sasl\.whatever"):
        of_consumer({"bootstrap.servers": "b:1", "sasl.whatever": "x"}, batch=1)
