"""What the steps of cases share, without a broker: batches as clients send them, markers in logs,
formulas, what is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from linkflap.chaos import scenario_file
from linkflap.chaos.cases import case_named, registry
from linkflap.chaos.cases.case import Outcome
from linkflap.chaos.cases.cluster_mirroring.id_formulas import _ids
from linkflap.chaos.cases.cluster_mirroring.outage_backlog import connections
from linkflap.chaos.cases.mirror_maker.offset_syncs import committed, syncs
from linkflap.chaos.cases.regression import of_rows, reproduced
from linkflap.chaos.cases.results import Row
from linkflap.chaos.cases.scenario_files import FILES, changed, of_verdict
from linkflap.chaos.cases.tools import logs, metadata
from linkflap.chaos.cases.tools.record_batch import Producer, record_batch
from linkflap.harness.jvm.bridge import failure
from linkflap.harness.log import reference
from linkflap.harness.model.errors import EnvironmentFailure
from tests.kafka_log import ABORT, COMMIT, Plain, marker, record, segment
from tests.kafka_log import batch as written


@pytest.mark.parametrize("size", [0, 1, 63, 64, 300, 20_000])
def test_a_batch_as_a_client_sends_it(size: int) -> None:
    values = [b"v" * size, b"", b"last"]
    data = record_batch(values, producer=Producer(id=7, epoch=3), sequence=11, transactional=True)
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
    found = [one.words for one in metadata.changes(log, "records")]
    assert found == [
        "fenced 3 @ 2",
        "leader -1 @ 3",
        "registered 3 @ 4",
        "leader 3 @ 5",
        "unfenced 3 @ 10",
    ]
    assert metadata.changes(log, "nothing") == [
        one for one in metadata.changes(log, "records") if one.kind != "leader"
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
    """What py4j hands over of a Java exception."""

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


def a_row(
    case: str = "KAFKA-20734", version: str = "4.3.1", shown: int = 3, runs: int = 3, **changed: Any
) -> Row:
    values: dict[str, Any] = {
        "format": 1,
        "date": "2026-11-22",
        "case": case,
        "version": version,
        "client": "librdkafka",
        "transactions": "",
        "outcome": Outcome.REPRODUCED if shown else Outcome.NOT_REPRODUCED,
        "shown": shown,
        "runs": runs,
        "needed": 3,
        "controls": runs,
        "low": 0.0,
        "high": 1.0,
        "expected": True,
        "schedule": case_named(case).schedule,
        "seconds": 1.0,
        "linkflap": "0.1.0",
    }
    return Row(**values | changed)


def test_what_has_to_be_reproduced_again() -> None:
    rows = [
        a_row(version="4.3.0"),
        a_row(version="4.3.1", shown=2),
        a_row(version="4.2.0", shown=0),
        a_row(version="4.4.0-SNAPSHOT"),
        a_row(case="min-isr", shown=0),
    ]
    (known,) = of_rows(rows)
    assert (known.case.name, known.variant.kafka, known.shown, known.runs) == (
        "KAFKA-20734",
        "4.3.1",
        2,
        3,
    )


def test_what_is_stored_can_be_played_again() -> None:
    known = reproduced()
    assert {one.case.name for one in known} <= registry().keys()
    assert any(one.case.name == "KAFKA-20734" for one in known)
    assert all(one.shown for one in known)


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("kept-ids.toml", {'producer_ids = "keep"': 'producer_ids = "jump"'}),
        ("flap-storm.toml", {'producer_ids = "jump"': 'producer_ids = "negate"'}),
        ("mm2-isolation.toml", {"read_uncommitted-by-the-mirror": "read_committed"}),
    ],
)
def test_scenario_files_of_cases_are_scenarios(
    tmp_path: Path, file: str, changes: dict[str, str]
) -> None:
    path = tmp_path / file
    path.write_text(changed(file, "4.3.1", changes))
    made = scenario_file.read(path, seed=7)
    assert {cluster.kafka for cluster in made.topology.clusters} == {"4.3.1"}
    assert made.seed == 7, "each run draws its own"
    with pytest.raises(EnvironmentFailure, match="does not say 'something else'"):
        changed(file, "4.3.1", {"something else": ""})


def test_every_scenario_file_is_one_of_a_case() -> None:
    assert {path.name for path in FILES.iterdir()} == {
        "dead-source.toml",
        "flap-storm.toml",
        "kept-ids.toml",
        "mm2-isolation.toml",
    }


def test_what_a_verdict_says_of_a_case() -> None:
    checks = [
        {
            "name": "ghost-ack",
            "examined": {"A/native": 3, "B/native": 2},
            "kinds": {"ghost-ack": 2},
        },
        {"name": "lost-write", "examined": {}, "kinds": {}},
    ]
    found = of_verdict({"verdict": "invalid", "reason": "", "checks": checks})
    assert (found.verdict, found.anomalies, found.examined) == (
        "invalid",
        {"ghost-ack": {"ghost-ack": 2}},
        5,
    )
    assert found.kinds == {"ghost-ack/ghost-ack"}
    assert found.facts["anomalies"] == {"ghost-ack": {"ghost-ack": 2}}
