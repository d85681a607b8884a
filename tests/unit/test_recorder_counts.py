"""Requests that the recorder of a cluster counts without reading them."""

from __future__ import annotations

import struct
from pathlib import Path

import msgspec

from linkflap.harness.rundir import Run, RunWriter
from linkflap.harness.wire.messages import LENGTH
from linkflap.harness.wire.recorder.connection import WireConnection
from linkflap.harness.wire.recorder.history import WireHistory
from linkflap.harness.wire.recorder.interferences import Interferences
from linkflap.harness.wire.recorder.settings import REPORT, Report, Settings, read_report
from tests.recorder_rig import Wire, batch, wire
from tests.scenarios import ALONE, scenario_of

__all__ = ["wire"]


def forwarded(root: Path, *asked: tuple[int, int]) -> Report:
    """The report about requests of these APIs and versions, after they have passed."""
    writer, report = RunWriter(root / "run", Run.begun(scenario_of(ALONE), "process")), Report()
    settings = Settings(cluster="A", number=0, root=str(root), topics=frozenset({"t"}), listens={})
    rows = writer.operations("wire-A"), writer.polls("wire-A")
    history = WireHistory(settings, *rows, report)
    program = WireConnection(history, Interferences())
    for key, version in asked:
        frame = struct.pack(">hhih", key, version, 5, -1) + b"\xff" * 30
        sent = LENGTH.pack(len(frame)) + frame
        program.requests.feed(memoryview(sent))
        assert program.requests.taken() == sent
    writer.close("finished")
    (root / REPORT).write_bytes(msgspec.json.encode(report))
    read = read_report(root)
    assert read is not None
    return read


def test_requests_that_the_history_does_not_need_are_counted_by_api_and_version(
    tmp_path: Path,
) -> None:
    report = forwarded(tmp_path, (18, 4), (18, 4), (36, 2), (999, 3), (-1, -1), (0, 99), (22, 99))
    assert report.forwarded_unread == {
        "ApiVersions v4": 2,
        "SaslAuthenticate v2": 1,
        "API 999 v3": 1,
        "API -1 v-1": 1,
    }
    assert report.unread == {"produce v99": 1, "init_producer_id v99": 1}


def test_a_client_that_requests_every_api_and_version_takes_no_memory(tmp_path: Path) -> None:
    report = forwarded(tmp_path, *((key, key % 7) for key in range(100, 2**15, 11)))
    counts = report.forwarded_unread
    assert len(counts) == 101
    assert sum(counts.values()) == report.requests == len(range(100, 2**15, 11))
    assert counts["others"] == report.requests - 100


def test_batches_without_an_id_and_an_answer_are_counted_until_they_come_again(wire: Wire) -> None:
    idempotent, first, second, third = (wire.connection() for _ in range(4))
    made = [batch(b"%d" % n, who=None) for n in range(3)]
    wire.produce(idempotent, batch(b"x"))
    for each in made:
        wire.produce(first, each)
    wire.produce(first, made[0], acks=0)
    wire.written(first, wire.produce(first, batch(b"y", who=None)), 0)
    idempotent.ended()
    first.ended()
    assert wire.report.unanswered == 3
    asked = wire.produce(second, made[0])
    assert wire.report.unanswered == 2
    wire.written(second, asked, 7)
    wire.produce(third, made[1])
    third.ended()
    second.ended()
    assert wire.report.unanswered == 2
