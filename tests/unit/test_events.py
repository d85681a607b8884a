"""Events as values: each kind is a class, and its form on disk does not change."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from linkflap.harness.model.events import (
    KINDS,
    Captured,
    ClientsMoved,
    FaultStart,
    MirrorStopped,
    Note,
    Phase,
    Promotion,
    of_kind,
    read,
    stamped,
)
from linkflap.harness.model.history import EventRow
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.rundir import RunReader, RunWriter
from tests.events import append_row
from tests.unit.recorded_run import run

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests" / "data" / "events" / "recorded.jsonl"
"""For each kind, and each of its forms, a line that some version of linkflap recorded."""
NEVER_KEPT = {
    "proxy-rebuilt",
    "mirror-lag",
    "topic-given-up",
    "broker-died",
    "client-crash",
    "producer-replaced",
    "not-ended",
    "note",
}
"""Rare kinds, without a recorded line."""


def kept() -> list[EventRow]:
    return [msgspec.json.decode(line, type=EventRow) for line in KEPT.read_bytes().splitlines()]


@pytest.mark.parametrize("row", kept(), ids=lambda row: f"{row.kind}-{len(row.data)}")
def test_a_recorded_event_is_read_without_loss_and_written_as_it_was(row: EventRow) -> None:
    event = read(row)
    assert (event.time, event.kind, event.subject) == (row.time, row.kind, row.subject)
    assert event.row == row


def test_lines_are_kept_of_every_kind_that_is_not_rare() -> None:
    assert Counter(row.kind for row in kept()).keys() == KINDS.keys() - NEVER_KEPT


def test_a_kind_is_called_as_its_class() -> None:
    assert {kind: "".join(part.title() for part in kind.split("-")) for kind in KINDS} == {
        kind: cls.__name__ for kind, cls in KINDS.items()
    }


def test_every_kind_is_written_somewhere() -> None:
    sources = [
        path
        for part in ("linkflap", "harness", "chaos")
        for path in (ROOT / part).rglob("*.py")
        if "model/events" not in str(path)
    ]
    written = set(re.findall(r"\b[A-Z]\w+", "\n".join(path.read_text() for path in sources)))
    assert {cls.__name__ for cls in KINDS.values()} - written == {"Note"}, (
        "notes are for faults and mirrors of others"
    )


def test_a_misspelt_field_is_refused_and_so_is_a_missing_one() -> None:
    with pytest.raises(TypeError, match="ofset"):
        Promotion(link="A->B", cluster="B", topic="A.t", partition=0, offset=1, ofset=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="to"):
        ClientsMoved(cluster="A")  # type: ignore[call-arg]


def test_what_is_none_by_default_is_left_out_and_what_is_none_otherwise_is_not() -> None:
    assert MirrorStopped(link="A->B", drained=True).row.data == {"drained": True}
    row = EventRow(
        time=1, kind="mirror-lag", subject="A->B", data={"reported": None, "measured": 3}
    )
    assert read(row).row == row


def test_the_duration_of_a_fault_is_written_as_for() -> None:
    start = FaultStart(target="A->B", id="f", fault="latency", duration=2.0)
    assert start.row.data == {"id": "f", "fault": "latency", "for": 2.0}


def test_an_event_is_stamped_once() -> None:
    at = stamped(Phase(name="work"))
    assert at.time > 0
    assert stamped(at) is at


@pytest.mark.parametrize("name", ["A", "A->", "->B", "A->B->C", ""])
def test_what_is_no_link_is_not_read_as_one(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{name!r} is no link; links are written A->B")):
        read(EventRow(time=1, kind="mirror-crashed", subject=name, data={"by": "itself"}))


def test_a_link_is_parsed_in_one_way() -> None:
    link = LinkSpec.parse("us-east->eu")
    assert (link.source, link.destination, link.name, link.reverse.name) == (
        "us-east",
        "eu",
        "us-east->eu",
        "eu->us-east",
    )


@pytest.fixture
def writer(tmp_path: Path) -> RunWriter:
    return RunWriter(tmp_path / "run", run())


def test_written_text_is_read_back(writer: RunWriter) -> None:
    written = writer.write(Captured(cluster="A", moment="end", replicas=2))
    writer.close("finished")
    events, damage = RunReader(writer.root).events()
    assert (of_kind(events, Captured), damage) == ([written], [])


def test_a_note_of_a_users_own_says_whatever_it_wants(writer: RunWriter) -> None:
    writer.write(Note(about="A->B", name="quota", data={"bytes": 3, "time": 1, "subject": "x"}))
    writer.close("finished")
    (note,), damage = RunReader(writer.root).events()
    assert (note.kind, note.subject, damage) == ("note", "A->B", [])
    assert of_kind([note], Note)[0].data == {"bytes": 3, "time": 1, "subject": "x"}


def test_kinds_of_a_newer_linkflap_are_named_in_one_sentence_and_the_rest_is_read(
    writer: RunWriter,
) -> None:
    append_row(writer.root, "mirror-resharded", "A->B", into=3)
    append_row(writer.root, "mirror-resharded", "A->B", into=4)
    append_row(writer.root, "clock-skew", "A", seconds=1.0)
    writer.write(Phase(name="work"))
    writer.close("finished")
    events, (damage,) = RunReader(writer.root).events()
    version = RunReader(writer.root).run.linkflap
    assert [event.kind for event in events] == ["phase"]
    assert damage.path == "events.jsonl"
    assert (
        damage.reason == "it has kinds of events that this linkflap does not know: clock-skew (1),"
        f" mirror-resharded (2); judge it with linkflap {version}, which recorded it"
    )


def test_an_event_that_does_not_fit_its_kind_is_damage_and_says_where(writer: RunWriter) -> None:
    append_row(writer.root, "captured", "A", moment=3)
    writer.close("finished")
    events, (damage,) = RunReader(writer.root).events()
    assert (events, damage.reason) == (
        [],
        "a captured of A that cannot be read: Expected `str`, got `int` - at `$.moment`",
    )
