"""What the steps of cases share, without a broker: batches as clients send them, markers in logs,
formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from linkflap.chaos.cases.cluster_mirroring.outages import connections
from linkflap.chaos.cases.cluster_mirroring.producer_ids import _ids
from linkflap.chaos.cases.kafka import replication
from linkflap.chaos.cases.mirror_maker.offsets import committed, syncs
from linkflap.chaos.cases.tools import logs
from linkflap.chaos.cases.tools.record_batch import ProducerIdentity, record_batch
from linkflap.harness.jvm.bridge import failure
from linkflap.harness.log import reference
from tests.kafka_log import ABORT, COMMIT, Plain, marker, record, segment
from tests.kafka_log import batch as written


@pytest.mark.parametrize("size", [0, 1, 63, 64, 300, 20_000])
def test_a_batch_as_a_client_sends_it(size: int) -> None:
    values = [b"v" * size, b"", b"last"]
    data = record_batch(
        values, producer=ProducerIdentity(id=7, epoch=3), sequence=11, transactional=True
    )
    (batch,) = reference.batches(data)
    assert batch.crc_ok
    assert (batch.base_offset, batch.last_offset, batch.count) == (0, 2, 3)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, 11)
    assert batch.transactional
    assert not batch.is_control
    assert [(one.offset, one.key, one.value) for one in reference.records(batch)] == [
        (n, None, v) for n, v in enumerate(values)
    ]


def test_the_order_of_registration_election_and_unfencing_in_the_log_of_the_controllers() -> None:
    topic, other = b"T" * 16, b"O" * 16

    def a_record(kind: int, body: bytes) -> bytes:
        return bytes([1, kind, 0]) + body

    def number(value: int) -> bytes:
        return value.to_bytes(4, "big", signed=True)

    def named(name: bytes, uuid: bytes) -> bytes:
        return a_record(2, bytes([len(name) + 1]) + name + uuid + b"\0")

    def leads(uuid: bytes, partition: int, tags: bytes) -> bytes:
        return a_record(5, number(partition) + uuid + tags)

    def fenced(broker: int, byte: int) -> bytes:
        return a_record(17, number(broker) + bytes(8) + bytes([1, 0, 1, byte]))

    isr_and_leader = bytes([2, 0, 5, 2]) + number(3) + bytes([1, 4]) + number(3)
    values = [
        named(b"other", other),
        named(b"records", topic),
        fenced(3, 1),
        leads(topic, 0, bytes([1, 1, 4]) + number(-1)),
        a_record(27, number(3) + b"the rest of a registration"),
        leads(topic, 0, isr_and_leader),
        leads(other, 0, isr_and_leader),
        leads(topic, 1, isr_and_leader),
        leads(topic, 0, bytes([1, 0, 5, 2]) + number(3)),
        a_record(17, number(2) + bytes(8) + b"\0"),
        fenced(3, 255),
    ]
    log = reference.batches(record_batch(values))
    found = [one.words for one in replication.changes(log, "records")]
    assert found == [
        "fenced 3 @ 2",
        "leader -1 @ 3",
        "registered 3 @ 4",
        "leader 3 @ 5",
        "unfenced 3 @ 10",
    ]
    assert replication.changes(log, "nothing") == [
        one for one in replication.changes(log, "records") if one.kind != "leader"
    ]


def test_a_batch_without_a_producer() -> None:
    (batch,) = reference.batches(record_batch([b"plain"]))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.transactional) == (
        -1,
        -1,
        -1,
        False,
    )


def test_a_log_as_a_broker_wrote_it(tmp_path: Path) -> None:
    torn = written(4, [record(b"torn")])[:-3]
    data = [
        written(0, [record(b"a"), record(b"b")], pid=5, epoch=0, seq=0, transactional=True),
        marker(2, COMMIT, pid=5, epoch=0),
        marker(3, ABORT, pid=6, epoch=2),
    ]
    segment(tmp_path / "t-0", data, tail=torn)
    log = logs.batches(tmp_path, ("t", 0))
    assert [one.base_offset for one in log] == [0, 2, 3], "what is being written is left out"
    assert [one.words for one in logs.markers(log)] == [
        "COMMIT @ 2 (producer 5, epoch 0)",
        "ABORT @ 3 (producer 6, epoch 2)",
    ]
    assert [one.value for one in logs.records(log)] == [b"a", b"b"]
    assert logs.table(log)[0] == "0-1 transactional producer 5 epoch 0 sequence 0 leader epoch 0"
    assert logs.table(log)[2].startswith("3-3 ABORT producer 6 epoch 2")
    assert logs.batches(tmp_path, ("t", 1)) == []


def test_connections_to_the_proxies_of_a_link() -> None:
    table = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:4E20 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   1: 0100007F:C001 0100007F:4E20 01 00000000:00000000 00:00000000 00000000     0        0 2
   2: 0100007F:4E20 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 3
   3: 0100007F:C002 0100007F:4E20 06 00000000:00000000 00:00000000 00000000     0        0 4
   4: 0100007F:C003 0100007F:4E21 01 00000000:00000000 00:00000000 00000000     0        0 5
"""
    assert connections(table.splitlines(), {20000}) == {0xC001, 0xC002}
    assert connections([], {20000}) == frozenset()


def test_what_of_a_target_is_committed_and_what_its_offset_syncs_say(tmp_path: Path) -> None:
    ours: dict[str, Any] = {"pid": 5, "epoch": 0, "transactional": True}
    data = [
        written(0, [record(b"aborted")], seq=0, **ours),
        written(1, [record(b"another's")], pid=6, epoch=0, seq=0, transactional=True),
        marker(2, ABORT, pid=5, epoch=0),
        written(3, [record(b"a"), record(b"b")], seq=1, **ours),
        written(5, [record(b"plain")]),
        marker(6, COMMIT, pid=5, epoch=0),
        written(7, [record(b"open")], seq=3, **ours),
    ]
    segment(tmp_path / "t-0", data)
    assert committed(logs.batches(tmp_path, ("t", 0))) == {3: b"a", 4: b"b", 5: b"plain"}

    def sync(topic: bytes, partition: int, there: int, here: int) -> Plain:
        key = len(topic).to_bytes(2, "big") + topic + partition.to_bytes(4, "big")
        return record(there.to_bytes(8, "big") + here.to_bytes(8, "big"), key=key)

    segment(
        tmp_path / "syncs-0",
        [
            written(
                0,
                [
                    sync(b"t", 0, 10, 3),
                    sync(b"t", 1, 7, 7),
                    sync(b"other", 0, 1, 1),
                    sync(b"t", 0, 12, 5),
                ],
            )
        ],
    )
    assert syncs(logs.batches(tmp_path, ("syncs", 0)), "t") == [(10, 3), (12, 5)]


@pytest.mark.parametrize(
    ("formula", "same"),
    [
        ("keep", {"AB", "AC", "BC"}),
        ("negate", {"AC"}),
        ("complement", {"AC"}),
        ("region", {"AB"}),
        ("advance", set()),
    ],
)
def test_which_producers_have_one_id_after_two_hops(formula: str, same: set[str]) -> None:
    for drawn in (0, 7, 1000):
        ids = _ids(formula, drawn)
        assert {a + b for a in ids for b in ids if a < b and ids[a] == ids[b]} == same


class Thrown:
    """A Java exception as py4j passes it on."""

    def __init__(self, name: str, cause: Thrown | None = None) -> None:
        self.name, self.cause = name, cause

    def getClass(self) -> Thrown:
        return self

    def getSimpleName(self) -> str:
        return self.name

    def getCause(self) -> Thrown | None:
        return self.cause


def test_the_innermost_exception_of_java_is_named() -> None:
    class Error:
        java_exception = Thrown("ExecutionException", Thrown("ProducerFencedException"))

    assert failure(Error()) == "ProducerFencedException"
