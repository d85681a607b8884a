"""Events as values, on disk, and against the run and each other; what mirrors promise, and older
names of kinds."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec
import pytest

from linkflap.chaos.cases import results
from linkflap.harness import mirrors
from linkflap.harness.guarantees import DECLARATIONS, declared
from linkflap.harness.model.errors import InputError
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
from linkflap.harness.model.guarantee import Guarantee
from linkflap.harness.model.history import EventRow
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.model.verdict import Anomaly, Document, Verdict
from linkflap.harness.rundir import RunReader, RunWriter, with_current_kinds
from linkflap.harness.rundir.files import RENAMED
from linkflap.recording.run_end import orphaned, stop_mirrors
from linkflap.recording.world import RunWorld
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.facts.partition_facts import Description
from linkflap.spark_verify.inspect.explain import explain
from linkflap.spark_verify.read.plan import plan
from linkflap.suite.folder import Plan, RunResult, SuiteFolder
from linkflap.topologies import parse
from tests.events import append_row, event
from tests.unit.recorded_run import run

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests" / "data" / "events" / "recorded.jsonl"
"""For each kind, and each of its forms, a line that some version of linkflap recorded."""
NEVER_KEPT = {
    "proxy-rebuilt",
    "mirror-lag",
    "topic-given-up",
    "broker-died",
    "recorder-died",
    "service-died",
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


def test_row_leaves_out_none_only_where_none_is_the_default() -> None:
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
def test_subject_that_is_no_link_is_refused(name: str) -> None:
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


def test_of_thousands_of_unknown_kinds_some_are_named(writer: RunWriter) -> None:
    for number in range(1000):
        append_row(writer.root, f"kind-{number:03}", "A")
    writer.close("finished")
    _, (damage,) = RunReader(writer.root).events()
    assert "kind-019 (1), and 980 more; judge it" in damage.reason


def test_an_event_that_does_not_fit_its_kind_is_damage_and_says_where(writer: RunWriter) -> None:
    append_row(writer.root, "captured", "A", moment=3)
    writer.close("finished")
    events, (damage,) = RunReader(writer.root).events()
    assert (events, damage.reason) == (
        [],
        "a captured of A that cannot be read: Expected `str`, got `int` - at `$.moment`",
    )


# Events that contradict the run or each other: what they concern is unknown, and the run's
# damage names them.


WHERE = {"cluster": "A", "topic": "A.t", "partition": 0}
ROW = {"topic": "A.t", "partition": 0, "mirrored": 9, "promoted": 9}


Said = tuple[str, str, dict[str, Any]]
"""Kind, subject and data of an event."""


def reasons(tmp_path: Path, *events: Said, arrows: str = "A->B") -> list[str]:
    """The damage of events.jsonl, in the plan of a run with these events."""
    recorded = run()
    scenario = replace(recorded.scenario, topology=parse(arrows))
    writer = RunWriter(tmp_path / "run", replace(recorded, scenario=scenario))
    for kind, subject, data in events:
        append_row(
            writer.root,
            kind,
            subject,
            **{"drained": True, **data} if kind == "mirror-stopped" else data,
        )
    writer.close("finished")
    return [d.reason for d in plan(tmp_path / "run").damage if d.path == "events.jsonl"]


@pytest.mark.parametrize(
    ("noted", "contradicts"),
    [
        ([{**ROW, "cut": 3, "cut_from": 5}], ""),
        ([{**ROW, "cut": -1, "cut_from": -1}, "torn"], ""),
        ([{**ROW, "cut": 3, "cut_from": 5000}], "its mirror (3, 5000) (offset, end)"),
        ([{**ROW, "cut": 2, "cut_from": 5}], "its mirror (2, 5) (offset, end)"),
    ],
    ids=["the same", "nothing truncated", "another end", "another offset"],
)
def test_a_truncation_that_its_mirrors_journal_contradicts_is_damage(
    tmp_path: Path, noted: list[object], contradicts: str
) -> None:
    truncated = ("truncation", "B->A", {**WHERE, "offset": 3, "end": 5})
    stopped = ("mirror-stopped", "B->A", {"partitions": noted})
    said = [r for r in reasons(tmp_path, truncated, stopped) if r.startswith("a truncation ")]
    wanted = f"a truncation of A.t-0 on A says (3, 5), {contradicts}"
    assert said == ([wanted] if contradicts else [])


CHAIN = "A.t-0 on B was truncated from 5 to 3 for a failback, and C mirrors it: what C and its "


@pytest.mark.parametrize(("cluster", "end", "unclear"), [("B", 5, True), ("B", 3, False)])
def test_a_truncation_of_what_another_mirror_copies(
    tmp_path: Path, cluster: str, end: int, unclear: bool
) -> None:
    truncated = ("truncation", "A->B", {**WHERE, "cluster": cluster, "offset": 3, "end": end})
    assert any(CHAIN in r for r in reasons(tmp_path, truncated, arrows="A->B->C")) is unclear
    assert not any(CHAIN in r for r in reasons(tmp_path / "pair", truncated))


@pytest.mark.parametrize("kind", ["promotion", "truncation"])
def test_a_cluster_that_the_run_does_not_have(tmp_path: Path, kind: str) -> None:
    event = (kind, "B->A", {**WHERE, "cluster": "C", "offset": 3, "end": 5})
    assert f"a {kind} is of cluster 'C', and the run has A, B" in reasons(tmp_path, event)


def test_a_failover_that_was_refused_and_the_source_that_it_had_killed(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", run())
    began = writer.write(event("fault-start", "A->B", id="failover", fault="failover-forced"))
    refused: dict[str, Any] = {
        "kind": "forced",
        "error": "INVALID_CLUSTER_MIRROR_STATES",
        "code": 145,
        "seconds": 60.0,
    }
    written = writer.write(event("failover-refused", "A->B", **refused))
    writer.close("finished")
    facts = plan(tmp_path / "run").facts
    assert facts.refusals == (written,)
    assert facts.deaths == {"A": began.time}, "what was open there can be ended by nobody"


@pytest.mark.parametrize(
    ("fault", "promoted", "dead"),
    [
        ("failover-forced", False, True),
        ("failover-forced", True, True),
        ("failover-planned", False, False),
    ],
    ids=["killed, and nothing was promoted", "promoted", "drained, and nothing was promoted"],
)
def test_the_source_of_a_forced_failover_is_dead(
    tmp_path: Path, fault: str, promoted: bool, dead: bool
) -> None:
    writer = RunWriter(tmp_path / "run", run())
    began = writer.write(event("fault-start", "A->B", id="failover", fault=fault))
    if promoted:
        writer.write(
            event("failover", "A->B", kind="forced", fault_time=began.time, open_transactions=1)
        )
    writer.close("finished")
    assert plan(tmp_path / "run").facts.deaths == ({"A": began.time} if dead else {})


def described(**changed: str) -> Said:
    row = {
        "topic": "A.orders",
        "partition": 0,
        "state": "MIRRORING",
        "mirrors": True,
        "lag": 3,
    } | changed
    return ("mirror-described", "A->B", {"asked": 5, "rows": [row]})


def test_description_of_a_mirror_becomes_a_fact(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", run())
    kind, subject, data = described()
    answered = writer.write(event(kind, subject, **data))
    writer.close("finished")
    (facts,) = (
        facts
        for key, facts in plan(tmp_path / "run").partition_facts.items()
        if key == ("A.orders", 0)
    )
    wanted = Description(
        link="A->B", state="MIRRORING", mirrors=True, lag=3, asked=5, returned=answered.time
    )
    assert facts.descriptions == (wanted,)


def test_unreadable_description_of_a_mirror_is_reported(tmp_path: Path) -> None:
    said = reasons(tmp_path, described(lag="much"))
    assert [
        reason
        for reason in said
        if reason.startswith("a mirror-described of A->B that cannot be read")
    ]


# Which clusters have transactions that nobody can end any more when a run ends.


def world(*links: str, dead: str, died: list[str]) -> RunWorld:
    """Mirrors over these links, each into a running cluster; of `died`, the mirrors are dead."""
    mirrors = {
        link: SimpleNamespace(
            link=LinkSpec(source=link[0], destination=link[1]), alive=link not in died
        )
        for link in links
    }
    running = [mirror for mirror in mirrors.values() if mirror.alive]
    able = [mirror for mirror in running if mirror.link.source not in dead]
    return cast(
        RunWorld, SimpleNamespace(mirrors=mirrors, running_mirrors=running, able_mirrors=able)
    )


@pytest.mark.parametrize(
    ("links", "dead", "died", "found"),
    [
        pytest.param(["AB"], "A", [], "B", id="pair"),
        pytest.param(["AB", "BC", "CD"], "A", [], "BCD", id="chain"),
        pytest.param(["AB", "BC", "CD"], "B", [], "CD", id="its middle"),
        pytest.param(["AB", "BC", "CD"], "", [], "", id="healthy"),
        pytest.param(["AB", "BC", "CD"], "", ["BC"], "CD", id="a mirror died"),
        pytest.param(["AC", "BC", "CD"], "A", [], "CD", id="fan-in"),
        pytest.param(["AB", "AC"], "A", [], "BC", id="fan-out"),
        pytest.param(["BC"], "A", [], "", id="stopped"),
        pytest.param(["AB", "BA"], "", [], "", id="both"),
        pytest.param(["AB", "BC", "CA"], "A", [], "BC", id="ring"),
    ],
)
def test_clusters_behind_what_is_dead_are_orphaned(
    links: list[str], dead: str, died: list[str], found: str
) -> None:
    seen = world(*links, dead=dead, died=died)
    assert (
        "".join(name for name in "ABCD" if name not in dead and orphaned(seen, name, died)) == found
    )


def test_mirrors_that_lost_a_cluster_are_killed_after_all_others_were_stopped() -> None:
    """A mirror that leads its destination's partitions must outlive those that mirror from
    there."""
    seen, ends = world("AB", "BC", "CD", dead="B", died=["AB"]), list[str]()
    for name, mirror in seen.mirrors.items():
        stub = cast(SimpleNamespace, mirror)
        stub.stop = partial(ends.append, f"{name} stopped")
        stub.crash = partial(ends.append, f"{name} killed")
    stop_mirrors(seen)
    assert ends == ["CD stopped", "BC killed"]


# What mirrors promise: declared once, written to run.json, and all that the verifier reads.


PROMISED = Guarantee(equality="records", offsets_kept=True, producer_ids="replaced")


def written(folder: Path, mirror: MirrorSpec) -> Path:
    """A run directory of a run with this mirror."""
    began = run()
    RunWriter(folder, replace(began, scenario=replace(began.scenario, mirror=mirror))).close(
        "finished"
    )
    return folder


@pytest.mark.parametrize("kind", sorted(mirrors.MIRRORS.keys() - {mirrors.BY_COMMAND}))
def test_every_mirror_declares_its_guarantee_and_all_of_its_options(kind: str) -> None:
    resolved = mirrors.resolve(MirrorSpec(kind=kind))
    assert resolved.guarantee == DECLARATIONS[kind]({})
    assert resolved.guarantee == DECLARATIONS[kind](resolved.resolved), (
        "defaults are what the guarantee takes them to be"
    )
    assert resolved.options == {}
    assert resolved.resolved


def test_a_guarantee_comes_back_from_run_json_as_it_was_declared(tmp_path: Path) -> None:
    promised = replace(PROMISED, group_offsets_by="its group task")
    spec = MirrorSpec(kind="another team's", options={"speed": 3}, declared=promised)
    assert RunReader(written(tmp_path / "run", spec)).run.scenario.mirror == spec
    assert plan(tmp_path / "run").facts.mirror.guarantee == promised


@pytest.mark.parametrize("options", [{"delivery": "exactly-once"}, {"delivery": "at-least-once"}])
def test_runs_from_before_guarantees_were_written_have_that_of_their_kind(
    tmp_path: Path, options: dict[str, str]
) -> None:
    mirror = RunReader(
        written(tmp_path / "run", MirrorSpec(kind="mm2", options=options))
    ).run.scenario.mirror
    assert mirror.guarantee.delivery == options["delivery"]
    assert mirror == declared(MirrorSpec(kind="mm2", options=options))


@pytest.mark.parametrize(
    ("kind", "by"),
    [("mm2", "MirrorCheckpointConnector"), ("shadow", None), ("another team's", None)],
)
def test_a_guarantee_from_before_it_named_what_carries_groups_has_that_of_its_kind(
    tmp_path: Path, kind: str, by: str | None
) -> None:
    mirror = RunReader(
        written(tmp_path / "run", MirrorSpec(kind=kind, declared=PROMISED))
    ).run.scenario.mirror
    assert mirror.guarantee == replace(PROMISED, group_offsets_by=by)


def test_a_mirror_that_is_not_known_and_declares_nothing_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", MirrorSpec(kind="mine"))
    with pytest.raises(
        InputError, match=r"run\.json has the mirror .mine. without its guarantee.*add scenario"
    ):
        RunReader(folder)


def test_a_guarantee_that_cannot_be_is_no_guarantee(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", MirrorSpec(kind="mine", declared=PROMISED))
    content = msgspec.json.decode((folder / "run.json").read_bytes())
    content["scenario"]["mirror"]["declared"]["equality"] = "roughly"
    (folder / "run.json").write_bytes(msgspec.json.encode(content))
    with pytest.raises(InputError, match="Invalid enum value 'roughly'"):
        RunReader(folder)


def test_the_verifier_names_no_kind_of_mirror() -> None:
    names = [*mirrors.MIRRORS, "cluster-mirroring", r"Mirror\w+Connector", r"\.internal"]
    kinds = re.compile(rf"""["']({"|".join(names)})["']""")
    sources = (Path(__file__).parents[2] / "spark_verify").rglob("*.py")
    assert [
        f"{path.name}: {found}" for path in sources for found in kinds.findall(path.read_text())
    ] == []


# What older versions of linkflap stored is read with today's names of anomaly kinds.


ANOMALIES: Final = {kind.name.encode() for check in REGISTRY.values() for kind in check.anomalies}


def aged(path: Path) -> None:
    """The file as an older linkflap wrote it."""
    content = path.read_bytes()
    for old, new in RENAMED.items():
        content = content.replace(new, old)
    assert content != path.read_bytes()
    path.write_bytes(content)


def test_every_new_name_is_a_kind_and_no_old_one_is() -> None:
    assert set(RENAMED.values()) <= ANOMALIES
    assert not set(RENAMED) & ANOMALIES


def test_keys_values_and_signatures_are_renamed_and_longer_names_are_not() -> None:
    old = {
        "kind": "tail-not-cut",
        "kinds": {"cut-not-made": 2},
        "failed": ["x:skipped-by-cut"],
        "at": "not-skipped-by-cut-2",
    }
    assert json.loads(with_current_kinds(json.dumps(old).encode())) == {
        "kind": "tail-not-truncated",
        "kinds": {"truncation-not-made": 2},
        "failed": ["x:skipped-by-truncation"],
        "at": "not-skipped-by-cut-2",
    }


def test_an_allowance_of_an_older_run_is_that_of_the_kind_today(tmp_path: Path) -> None:
    run = written(tmp_path / "run", MirrorSpec(kind="shadow"))
    spec = RunReader(run).run.scenario.mirror
    run = written(tmp_path / "declared", spec)
    aged(run / "run.json")
    assert RunReader(run).run.scenario.mirror.guarantee.allowed == spec.guarantee.allowed
    assert "skipped-by-truncation" in {line.kind for line in spec.guarantee.allowed}


def test_results_of_an_older_suite_are_of_the_kinds_of_today(tmp_path: Path) -> None:
    folder = SuiteFolder.create(
        tmp_path / "suite", Plan(name="smoke", seed=7, seconds=60, runs=1, jobs=1)
    )
    folder.append(
        RunResult(number=0, verdict="invalid", kinds=("truncation-accounting:tail-not-truncated",))
    )
    aged(folder.root / "results.jsonl")
    assert SuiteFolder.open(folder.root).results == folder.results


def test_stored_results_of_cases_have_the_kinds_of_today(tmp_path: Path) -> None:
    stored = tmp_path / "RS4-truncate-once.jsonl"
    shutil.copy(results.STORED / stored.name, stored)
    before = results.load(tmp_path)
    text = stored.read_text().replace('"facts":{', '"facts":{"kind":"cut-not-made",', 1)
    stored.write_text(text)
    assert results.load(tmp_path)[0].facts == {"kind": "truncation-not-made", **before[0].facts}


def test_an_anomaly_of_an_older_verdict_is_explained_as_the_kind_of_today(tmp_path: Path) -> None:
    run = written(tmp_path / "run", MirrorSpec(kind="shadow"))
    found = Anomaly(
        check="poll-continuity",
        kind="skipped-by-truncation",
        cluster="A",
        topic="t",
        partition=0,
        offset=1,
    )
    document = Document(verdict=Verdict.INVALID, run=str(run), anomalies=(found,))
    (run / "verdict.json").write_bytes(msgspec.json.encode(document))
    today = explain(run, "1")
    aged(run / "verdict.json")
    assert explain(run, "1") == today
    assert "log was truncated below" in today.meaning
