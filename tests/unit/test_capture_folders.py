"""Logs that linkflap did not record: what is found in folders, and which promotions the bytes
show.

Folders of captured logs that lack segments, or whose checkpoints are impossible.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from linkflap.harness.capture import folders as capture_folders
from linkflap.harness.capture.folders import bounds, folders
from linkflap.harness.capture.logs_named import Folder
from linkflap.harness.capture.promotions_from_bytes import promotions_in
from linkflap.harness.log import batches
from linkflap.harness.log.batches import ReplicaLog
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.events import Event, Promotion
from linkflap.harness.model.topology import LinkSpec, TopicPartition
from linkflap.harness.model.verdict import Verdict
from linkflap.harness.rundir import RunReader
from linkflap.spark_verify.read.plan import plan
from linkflap.spark_verify.verdict.judge import Judgement
from tests.copied_logs import KIP_1279, asked, judged, sound
from tests.kafka_log import (
    ABORT,
    batch,
    batches_in,
    marker,
    mirror_pid_reset,
    record,
    rewrite,
    segment,
)

THERE, BACK = LinkSpec(source="A", destination="B"), LinkSpec(source="B", destination="A")


def where_found(found: list[Folder]) -> list[tuple[int, str, int]]:
    return [(f.broker, f.topic, f.partition) for f in found]


def test_a_log_directory_and_a_folder_of_brokers_are_both_read(tmp_path: Path) -> None:
    sound(tmp_path / "one" / "orders-0")
    sound(tmp_path / "one" / "orders-10")
    (tmp_path / "one" / "meta.properties").write_text("version=1\nnode.id=4\n")
    for broker in ("1", "2", "spare"):
        sound(tmp_path / "two" / broker / "a.b-c-7")
    assert where_found(folders("A", tmp_path / "one")) == [(4, "orders", 0), (4, "orders", 10)]
    assert where_found(folders("A", tmp_path / "two")) == [
        (1, "a.b-c", 7),
        (2, "a.b-c", 7),
        (0, "a.b-c", 7),
    ]


def log_directory(folder: Path, *partitions: str, **properties: object) -> None:
    for partition in partitions:
        sound(folder / partition)
    lines = [f"{name.replace('_', '.')}={value}" for name, value in properties.items()]
    (folder / "meta.properties").write_text("\n".join(["version=1", *lines, ""]))


def test_two_disks_of_one_broker_are_one_broker(tmp_path: Path) -> None:
    log_directory(tmp_path / "d1", "orders-0", node_id=1, cluster_id="x")
    log_directory(tmp_path / "d2", "orders-1", node_id=1, cluster_id="x")
    assert where_found(folders("A", tmp_path)) == [(1, "orders", 0), (1, "orders", 1)]


def test_two_folders_of_one_node_id_are_refused_and_named(tmp_path: Path) -> None:
    for name in ("kafka-1", "kafka-2"):
        log_directory(tmp_path / name, "orders-0", "orders-1", node_id=1)
    with pytest.raises(InputError, match=r"kafka-1 and .*kafka-2 both have orders-0 and node.id=1"):
        folders("A", tmp_path)


def test_folders_of_two_clusters_are_refused_and_named(tmp_path: Path) -> None:
    log_directory(tmp_path / "one", "orders-0", node_id=1, cluster_id="x")
    log_directory(tmp_path / "two", "orders-0", node_id=2, cluster_id="y")
    with pytest.raises(InputError, match=r"one is of the cluster x, and .*two of y"):
        folders("A", tmp_path)


def test_folders_whose_names_end_alike_are_refused_and_named(tmp_path: Path) -> None:
    for name in ("east-1", "west-1"):
        sound(tmp_path / name / "orders-0")
    refused = r"west-1 has no meta.properties .* broker 1 by its name, which .*east-1 is by its"
    with pytest.raises(InputError, match=rf"{refused} name; copy meta.properties"):
        folders("A", tmp_path)
    log_directory(tmp_path / "east-1", "orders-0", broker_id=1)
    with pytest.raises(InputError, match=f"{refused} meta.properties; copy meta.properties"):
        folders("A", tmp_path)
    log_directory(tmp_path / "east-1", "orders-0", broker_id=2)
    assert where_found(folders("A", tmp_path)) == [(2, "orders", 0), (1, "orders", 0)]
    log_directory(tmp_path / "west-1", "orders-0", broker_id=1)
    assert where_found(folders("A", tmp_path)) == [(2, "orders", 0), (1, "orders", 0)]


def test_folders_without_a_number_get_those_that_are_free(tmp_path: Path) -> None:
    for name in ("east", "kafka-0", "west"):
        sound(tmp_path / name / "orders-0")
    assert [broker for broker, *_ in where_found(folders("A", tmp_path))] == [1, 0, 2]


def test_log_directories_are_found_at_any_depth(tmp_path: Path) -> None:
    for broker in (1, 2):
        sound(tmp_path / f"kafka{broker}" / "data" / "orders-0")
    sound(tmp_path / "kafka-3" / "var" / "data" / "orders-0")
    (tmp_path / "kafka1" / "again").symlink_to(tmp_path)
    assert sorted(where_found(folders("A", tmp_path))) == [(n, "orders", 0) for n in (1, 2, 3)]


def test_folders_without_partitions_are_refused(tmp_path: Path) -> None:
    (tmp_path / "orders-0.3f1a-delete").mkdir()
    with pytest.raises(InputError, match="no partition folder"):
        folders("A", tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        folders("A", tmp_path / "nowhere")


def test_bounds_come_from_checkpoints_or_from_the_common_part_of_replicas(tmp_path: Path) -> None:
    for broker in ("1", "2"):
        sound(tmp_path / broker / "orders-0")
    segment(tmp_path / "2" / "orders-0", [batch(0, [record(b"one"), record(b"two")])])
    by_broker = bounds(folders("A", tmp_path))
    assert [(b.broker, b.high_watermark, b.high_watermark_from) for b in by_broker] == [
        (1, 2, "recomputed"),
        (2, 2, "recomputed"),
    ]
    (tmp_path / "1" / "replication-offset-checkpoint").write_text("0\n1\norders 0 6\n")
    (tmp_path / "1" / "log-start-offset-checkpoint").write_text("0\n1\norders 0 4\n")
    by_broker = bounds(folders("A", tmp_path))
    assert [(b.high_watermark, b.high_watermark_from, b.log_start) for b in by_broker] == [
        (6, "copied", 4),
        (2, "copied", 0),
    ]
    (tmp_path / "1" / ".kafka_cleanshutdown").touch()
    by_broker = bounds(folders("A", tmp_path))
    assert [b.high_watermark_from for b in by_broker] == ["checkpoint", "copied"]


def logs(
    tmp_path: Path, **by_cluster: list[bytes]
) -> list[tuple[TopicPartition, dict[str, ReplicaLog]]]:
    return [
        (
            ("t", 0),
            {
                name: batches.scan([segment(tmp_path / name, data)])
                for name, data in by_cluster.items()
            },
        )
    ]


def recorded(events: list[Event]) -> list[tuple[str, str, int]]:
    return [(e.subject, e.cluster, e.offset) for e in events if isinstance(e, Promotion)]


DATA = batch(0, [record(b"one"), record(b"two")])
STOPPED = [
    DATA,
    marker(2, ABORT, pid=1, epoch=0, leader_epoch=5),
    mirror_pid_reset(3, leader_epoch=5),
]


def test_a_reset_and_the_markers_of_its_epoch_begin_the_destinations_own_records(
    tmp_path: Path,
) -> None:
    events, _ = promotions_in(logs(tmp_path, A=[DATA], B=STOPPED), [THERE], {})
    assert recorded(events) == [("A->B", "B", 2)]


def test_a_marker_of_an_earlier_epoch_was_mirrored(tmp_path: Path) -> None:
    own = [
        DATA,
        marker(2, ABORT, pid=1, epoch=0, leader_epoch=4),
        mirror_pid_reset(3, leader_epoch=5),
    ]
    events, _ = promotions_in(logs(tmp_path, A=own[:2], B=own), [THERE], {})
    assert recorded(events) == [("A->B", "B", 3)]


def test_a_reset_that_the_source_has_too_came_over_the_link(tmp_path: Path) -> None:
    events, _ = promotions_in(logs(tmp_path, A=STOPPED, B=STOPPED), [THERE], {})
    assert events == []


def test_a_control_record_of_another_type_is_no_promotion(tmp_path: Path) -> None:
    strange = mirror_pid_reset(3, leader_epoch=5)
    from tests.kafka_log import with_marker_kind

    events, _ = promotions_in(
        logs(tmp_path, A=[DATA], B=[DATA, with_marker_kind(strange, 6)]), [THERE], {}
    )
    assert events == []


def test_links_both_ways_take_turns_and_the_bytes_show_the_reversal(tmp_path: Path) -> None:
    again = [
        *STOPPED,
        batch(4, [record(b"three")], leader_epoch=5),
        mirror_pid_reset(5, leader_epoch=9),
    ]
    events, ended = promotions_in(logs(tmp_path, A=again, B=again[:4]), [THERE, BACK], {})
    assert recorded(events) == [("A->B", "B", 2), ("B->A", "A", 5)]
    assert [e.kind for e in events] == [
        "promotion",
        "fault-start",
        "mirror-started",
        "fault-end",
        "promotion",
    ]
    times = [e.time for e in events]
    assert times == sorted(times)
    assert ended >= times[-1]


def test_a_cluster_that_was_given_up_and_does_not_follow_was_not_turned_round(
    tmp_path: Path,
) -> None:
    own = [DATA, batch(2, [record(b"tail")])]
    events, _ = promotions_in(logs(tmp_path, A=own, B=STOPPED), [THERE, BACK], {})
    assert [e.kind for e in events] == ["promotion"]


def test_declared_promotions_override_those_in_the_bytes(tmp_path: Path) -> None:
    events, _ = promotions_in(logs(tmp_path, A=[DATA], B=STOPPED), [THERE], {("B", "t", 0): [4]})
    assert recorded(events) == [("A->B", "B", 4)]


def test_a_run_directory_of_links_touches_no_log(tmp_path: Path) -> None:
    source = sound(tmp_path / "A" / "orders-0")
    sound(tmp_path / "B" / "orders-0")
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    judged(tmp_path / "run", asked({"A": tmp_path / "A", "B": tmp_path / "B"}, "A->B"))
    assert {p: p.stat().st_mtime_ns for p in before if p != tmp_path} == {
        p: t for p, t in before.items() if p != tmp_path
    }
    link = tmp_path / "run" / "captures" / "1-copied" / "A" / "0" / "orders-0"
    assert link.is_symlink()
    assert (link / source.name).samefile(source)


def test_a_plan_of_copied_logs_has_homes_and_no_damage(tmp_path: Path) -> None:
    for cluster in "AB":
        for topic in ("orders-0", "B.own-0", "__consumer_offsets-3"):
            sound(tmp_path / cluster / topic)
    wanted = asked(
        {"A": tmp_path / "A", "B": tmp_path / "B"}, "A->B", promotions={("B", "orders", 0): [6]}
    )
    judged(tmp_path / "run", wanted)
    planned = plan(tmp_path / "run")
    assert planned.facts.homes == {"orders": "A", "B.own": "B"}
    assert {(c.bounds.cluster, c.bounds.topic) for c in planned.replicas} == {
        (c, t) for c in "AB" for t in ("orders", "B.own")
    }
    assert [(p.cluster, p.offset, p.kind) for p in planned.promotions["orders", 0]] == [
        ("B", 6, "forced")
    ]
    assert planned.facts_of("orders", 0).home == "A"
    assert planned.damage == []
    assert not RunReader(tmp_path / "run").run.recorded


def test_names_that_fit_nothing_are_refused(tmp_path: Path) -> None:
    where = {name: KIP_1279 / "1-before-stop" / name for name in "AB"}
    for wanted, said in (
        (asked(where), "which of A, B was mirrored"),
        (asked(where, "A->C"), "names C"),
        (asked(where, "A->B", promotions={("B", "tx", 9): [1]}), "of which there is no log"),
        (asked(where, "A->B", promotions={("A", "tx", 0): [1]}), "to which no link leads"),
        (asked({**where, "B": where["A"]}, "A->B"), "among the logs of A and of B"),
        (asked({**where, "A": KIP_1279 / "1-before-stop"}, "A->B"), "among the logs of A and of B"),
    ):
        with pytest.raises(InputError, match=said):
            judged(tmp_path / "run", wanted)
    assert not (tmp_path / "run").exists()


def test_brokers_that_are_called_as_partitions_are_brokers(tmp_path: Path) -> None:
    for broker in ("kafka-1", "kafka-2"):
        sound(tmp_path / broker / "orders-0")
    (tmp_path / "kafka-3" / "orders-0").mkdir(parents=True)
    (tmp_path / "kafka-3" / "stranger-7").mkdir()
    assert where_found(folders("A", tmp_path)) == [
        (1, "orders", 0),
        (2, "orders", 0),
        (3, "orders", 0),
    ]


def test_a_partition_without_a_segment_is_one_beside_others(tmp_path: Path) -> None:
    sound(tmp_path / "orders-0")
    (tmp_path / "orders-1").mkdir()
    (tmp_path / "other-0").mkdir()
    (tmp_path / "fresh-0").mkdir()
    (tmp_path / "fresh-0" / "partition.metadata").touch()
    assert [f.path.name for f in folders("A", tmp_path)] == [
        "fresh-0",
        "orders-0",
        "orders-1",
        "other-0",
    ]


def test_folders_that_are_only_called_as_partitions_are_none(tmp_path: Path) -> None:
    for name in ("polkit-1", "dbus-1/system-1"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "daemon.log").write_text("started\n")
    with pytest.raises(InputError, match="no partition folder"):
        folders("A", tmp_path)


def test_lines_of_a_checkpoint_that_are_none_are_left(tmp_path: Path) -> None:
    sound(tmp_path / "orders-0")
    (tmp_path / "log-start-offset-checkpoint").write_text(
        "0\n3\norders x 4\norders 0 -4\n\norders 0 4\n"
    )
    assert [b.log_start for b in bounds(folders("A", tmp_path))] == [4]


@pytest.mark.parametrize(
    "note",
    [b"0\n1\norders 0 \xff\n", b"0\n1\norders 0 " + b"9" * 5000, b"0\n1\norders 0 " + b"9" * 19],
)
def test_numbers_of_a_checkpoint_that_no_offset_has_are_left(tmp_path: Path, note: bytes) -> None:
    sound(tmp_path / "orders-0")
    names = ("log-start", "replication", "cleaner", "recovery-point")
    for name in names:
        (tmp_path / f"{name}-offset-checkpoint").write_bytes(note)
    (tmp_path / "meta.properties").write_bytes(b"\xff\nnode.id=7\n")
    assert [(b.broker, b.log_start) for b in bounds(folders("A", tmp_path))] == [(7, 0)]


@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", "meta.properties"])
def test_notes_of_a_broker_that_are_no_files_are_not_opened(tmp_path: Path, name: str) -> None:
    sound(tmp_path / "orders-0")
    os.mkfifo(tmp_path / name)
    assert [b.log_start for b in bounds(folders("A", tmp_path))] == [0]


def test_links_in_a_circle_are_followed_once(tmp_path: Path) -> None:
    sound(tmp_path / "orders-0")
    for number in range(60):
        for name in (f"kafka-{number}", f"data{number}"):
            (tmp_path / name).mkdir()
            for back in range(20):
                (tmp_path / name / f"kafka-{back}").symlink_to(tmp_path)
    began = time.monotonic()
    assert [f.path for f in folders("A", tmp_path)] == [tmp_path / "orders-0"]
    assert time.monotonic() - began < 10


def test_more_folders_than_brokers_have_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_folders, "_MOST_FOLDERS", 20)
    for number in range(30):
        sound(tmp_path / f"orders-{number}")
    with pytest.raises(InputError, match="has more than 20 folders; give a Kafka log directory"):
        folders("A", tmp_path)


def test_a_log_start_behind_the_end_of_the_log_is_named_and_not_believed(tmp_path: Path) -> None:
    for cluster in "AB":
        path = sound(tmp_path / cluster / "orders-0")
    data = [each for _, each in batches_in(path)]
    rewrite(path, [*data[:1], *data[2:]])
    (tmp_path / "B" / "log-start-offset-checkpoint").write_text("0\n1\norders 0 1000000000\n")
    judgement = judged(tmp_path / "run", asked({name: tmp_path / name for name in "AB"}, "A->B"))
    assert judgement.verdict is not Verdict.VALID
    assert "log start 1000000000, and the log ends at 10" in next(
        c.reason for c in judgement.checks if c.name == "recording"
    )
    assert [c.bounds.log_start for c in plan(tmp_path / "run").replicas] == [0, 0]


def test_a_log_start_at_the_end_of_a_log_and_one_of_an_empty_log_are_believed(
    tmp_path: Path,
) -> None:
    sound(tmp_path / "A" / "orders-0")
    segment(tmp_path / "A" / "orders-1", [])
    (tmp_path / "A" / "log-start-offset-checkpoint").write_text("0\n2\norders 0 10\norders 1 10\n")
    judged(tmp_path / "run", asked({"A": tmp_path / "A"}))
    assert [(c.bounds.log_start, c.damage) for c in plan(tmp_path / "run").replicas] == [
        (10, ()),
        (10, ()),
    ]


def test_a_segment_that_is_gone_since_it_was_listed_is_named(tmp_path: Path) -> None:
    for cluster in "AB":
        sound(tmp_path / cluster / "fine-0")
        path = sound(tmp_path / cluster / "orders-0")
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    judgement = judged(tmp_path / "run", asked({name: tmp_path / name for name in "AB"}, "A->B"))
    assert judgement.verdict is Verdict.UNKNOWN
    assert "unreadable-file" in next(c.reason for c in judgement.checks if c.name == "recording")


def test_a_promotion_beyond_the_end_of_its_log_is_refused(tmp_path: Path) -> None:
    for cluster in "AB":
        sound(tmp_path / cluster / "orders-0")
    logs = {name: tmp_path / name for name in "AB"}
    for offset in (0, 10):
        wanted = asked(logs, "A->B", promotions={("B", "orders", 0): [offset]})
        capture_folders.record(tmp_path / f"run-{offset}", wanted, "")
    beyond = asked(logs, "A->B", promotions={("B", "orders", 0): [4, 11]})
    with pytest.raises(InputError, match=r"--promotion B:orders-0=11 is beyond the end .* is 10;"):
        capture_folders.record(tmp_path / "run", beyond, "")
    (tmp_path / "B" / "replication-offset-checkpoint").write_text("0\n1\norders 0 12\n")
    capture_folders.record(tmp_path / "run", beyond, "")


def test_two_folders_of_one_cluster_are_no_mirrors_of_each_other(tmp_path: Path) -> None:
    for broker, name in enumerate("AB"):
        log_directory(tmp_path / name, "orders-0", node_id=broker, cluster_id="x")
    wanted = asked({name: tmp_path / name for name in "AB"}, "A->B")
    with pytest.raises(InputError, match=r"A and B are one cluster \(cluster.id x\)"):
        capture_folders.record(tmp_path / "run", wanted, "")
    log_directory(tmp_path / "B", "orders-0", node_id=1, cluster_id="y")
    capture_folders.record(tmp_path / "run", wanted, "")


@dataclass(frozen=True)
class Garbage:
    """A checkpoint file, whether its content matters for a sound log, and what is said of it."""

    name: str
    content: str
    matters: bool
    said: str


GARBAGE = {
    "no offset": Garbage("replication", "0\n1\norders 0 x\n", True, "line 3 is none of its format"),
    "another version": Garbage("log-start", "7\n0\n", True, "line 1 is none of its format"),
    "no text": Garbage("log-start", "\0\0\0", True, "line 1 is none"),
    "cut off": Garbage("replication", "0\n2\nother 0 3\n", True, "it has 1 lines of offsets"),
    "of another line": Garbage("replication", "0\n2\norders 0 10\no\n", False, "line 4 is none"),
    "of a log without holes": Garbage("cleaner", "x", False, "line 1 is none"),
    "that nothing is read from": Garbage("recovery-point", "x", False, "line 1 is none"),
}


@pytest.mark.parametrize("case", GARBAGE)
def test_a_checkpoint_that_cannot_be_read_is_said_and_unknown_where_it_matters(
    tmp_path: Path, case: str
) -> None:
    for cluster in "AB":
        sound(tmp_path / cluster / "orders-0")
    given = GARBAGE[case]
    wanted = asked({name: tmp_path / name for name in "AB"}, "A->B")
    name = f"{given.name}-offset-checkpoint"
    for content in ("", "0\n0\n"):
        (tmp_path / "B" / name).write_text(content)
        whole = judged(tmp_path / f"whole{len(content)}", wanted)
        assert (whole.verdict, recording_of(whole)) == (Verdict.VALID, "")
    (tmp_path / "B" / name).write_text(given.content)
    judgement = judged(tmp_path / "run", wanted)
    assert judgement.verdict is (Verdict.UNKNOWN if given.matters else Verdict.VALID)
    assert f"B/0: its broker's {name} cannot be read: {given.said}" in recording_of(judgement)


def recording_of(judgement: Judgement) -> str:
    return next(check.reason for check in judgement.checks if check.name == "recording")


def test_a_cleaner_s_checkpoint_matters_where_offsets_are_missing(tmp_path: Path) -> None:
    path = sound(tmp_path / "A" / "orders-0")
    data = [each for _, each in batches_in(path)]
    segment(path.parent, [batch(10, [record(b"last")])], base_offset=10)
    (tmp_path / "A" / "cleaner-offset-checkpoint").write_text("x")
    (whole,) = bounds(folders("A", tmp_path / "A"))
    assert (whole.compacted, [matters for _, matters in whole.unreadable]) == (0, [False])
    rewrite(path, [*data[:1], *data[2:]])
    (cleaned,) = bounds(folders("A", tmp_path / "A"))
    assert (cleaned.compacted, [matters for _, matters in cleaned.unreadable]) == (10, [True])
