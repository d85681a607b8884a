"""Forensics: every kind of fault is found from the bytes alone, intact logs have none, and exit
codes tell which.

The output of linkflap inspect on a folder of logs, as a document.

Sequences, sessions and producer ids, and breaks that compaction explains.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from linkflap.cli.commands import linkflap
from tests.copied_logs import BAD, KIP_1279, sound
from tests.faithful.clusters import State
from tests.faithful.coordinators import COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT, value_of
from tests.kafka_log import (
    ABORT,
    COMMIT,
    batch,
    batches_in,
    changed,
    marker,
    mirror_pid_reset,
    ours,
    record,
    rewrite,
    segment,
)

ONE, TWO = [record(b"one")], [record(b"two"), record(b"three")]


def look(*folders: Path, code: int) -> dict[str, Any]:
    """The document; checks the exit code."""
    result = CliRunner().invoke(
        linkflap, ["forensics", "--json", *map(str, folders)], standalone_mode=False
    )
    assert result.exception is None, result.output
    assert result.return_value == code, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def found(document: dict[str, Any]) -> list[tuple[str, str, int, int]]:
    return [(c["kind"], c["topic"], c["partition"], c["offset"]) for c in document["cases"]]


def test_sound_logs_have_no_findings(tmp_path: Path) -> None:
    for partition in range(3):
        sound(tmp_path / f"orders-{partition}")
    document = look(tmp_path, code=0)
    assert document["cases"] == document["unreadable"] == []
    assert document["looked"]["partitions"] == 3
    assert document["looked"]["batches"] == 18


FAULTS = {
    "sequence-gap": ([batch(0, ONE, pid=1, epoch=0, seq=0), batch(1, ONE, pid=1, epoch=0, seq=2)],
        1),
    "sequence-start": ([mirror_pid_reset(0), batch(1, ONE, pid=1, epoch=0, seq=3)], 1),
    "sequence-repeat": ([batch(0, TWO, pid=1, epoch=0, seq=0),
        batch(2, ONE, pid=1, epoch=0, seq=1)], 2),
    "epoch-regression": ([batch(0, ONE, pid=1, epoch=4, seq=0),
        batch(1, ONE, pid=1, epoch=3, seq=0)], 1),
    "leader-epoch-regression": ([batch(0, ONE, leader_epoch=3), batch(1, ONE, leader_epoch=2)], 1),
    "producer-id-shared": ([batch(0, TWO, pid=1, epoch=0, seq=0),
        batch(2, ONE, pid=1, epoch=0, seq=0)], 2),
    "transaction-left-open": (
        [batch(0, ONE, pid=1, epoch=0, seq=0, transactional=True), batch(1, TWO),
            mirror_pid_reset(3), batch(4, ONE)],
        0,
    ),
    "not-transactional": (
        [
            batch(0, ONE, pid=1, epoch=0, seq=0, transactional=True),
            batch(1, ONE, pid=1, epoch=0, seq=1),
            marker(2, COMMIT, pid=1, epoch=0),
        ],
        1,
    ),
    "open-transaction": ([batch(0, ONE, pid=1, epoch=0, seq=0, transactional=True), batch(1, TWO)],
        0),
    "marker-epoch": ([batch(0, ONE, pid=1, epoch=2, seq=0, transactional=True),
        marker(1, COMMIT, pid=1, epoch=1)], 1),
    "stale-data": (
        [
            batch(0, ONE, pid=1, epoch=0, seq=0, transactional=True),
            marker(1, COMMIT, pid=1, epoch=1),
            batch(2, ONE, pid=1, epoch=0, seq=1, transactional=True),
            marker(3, COMMIT, pid=1, epoch=2),
        ],
        2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_found_with_the_batches_that_show_it(tmp_path: Path, kind: str) -> None:
    data, offset = FAULTS[kind]
    segment(tmp_path / "orders-0", data)
    sound(tmp_path / "fine-0")
    document = look(tmp_path, code=1)
    assert found(document) == [(kind, "orders", 0, offset)]
    (case,) = document["cases"]
    assert case["meaning"]
    rows = case["batches"]
    assert {r["base_offset"] for r in rows} >= {offset}
    assert all(r["file"] == "orders-0/00000000000000000000.log" for r in rows)
    assert [r["position"] for r in rows] == [p for p, _ in batches_in(tmp_path / rows[0]["file"])][
        : len(rows)
    ]


def test_the_age_of_an_open_transaction_is_up_to_the_newest_record_of_the_cluster(
    tmp_path: Path,
) -> None:
    segment(
        tmp_path / "t-0",
        [batch(0, [record(b"a", timestamp=1_000_000)], pid=5, epoch=0, seq=0, transactional=True)],
    )
    segment(tmp_path / "t-1", [batch(0, [record(b"b", timestamp=1_090_500)])])
    document = look(tmp_path, code=1)
    assert document["cases"][0]["evidence"]["open_seconds"] == 90.5


def test_brokers_that_compacted_by_themselves_are_no_disagreement(tmp_path: Path) -> None:
    every = [batch(n, ONE, pid=1, epoch=0, seq=n) for n in range(4)]
    segment(tmp_path / "1" / "t-0", every)
    segment(tmp_path / "2" / "t-0", [every[0], *every[2:]])
    assert found(look(tmp_path, code=1)) == [("replica-missing", "t", 0, 1)]
    (tmp_path / "2" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    (note,) = look(tmp_path, code=0)["notes"]
    assert note.endswith("are missing, first 1: compaction")


def test_two_batches_of_one_log_at_one_offset_are_both_shown(tmp_path: Path) -> None:
    path = segment(tmp_path / "t-0", [batch(0, ONE, pid=1, epoch=0, seq=0), batch(1, ONE)])
    segment(tmp_path / "t-0", [batch(1, TWO)], base_offset=1)
    (reuse,) = (c for c in look(tmp_path, code=1)["cases"] if c["kind"] == "epoch-reuse")
    assert reuse["evidence"]["batches_of_the_log"] == [2, 3]
    shown = [(r["file"], r["position"]) for r in reuse["batches"] if r["base_offset"] == 1]
    assert shown == [
        ("t-0/00000000000000000000.log", batches_in(path)[1][0]),
        ("t-0/00000000000000000001.log", 0),
    ]


def test_replicas_that_differ_are_shown_side_by_side(tmp_path: Path) -> None:
    for broker in ("1", "2", "3"):
        path = sound(tmp_path / broker / "orders-0")
    data = [each for _, each in batches_in(path)]
    rewrite(path, [data[0], changed(data[1], pid=9), *data[2:]])
    document = look(tmp_path, code=1)
    kinds = {kind for kind, *_ in found(document)}
    assert "replica-disagreement" in kinds
    case = next(c for c in document["cases"] if c["kind"] == "replica-disagreement")
    assert {r["log"].rpartition("/")[2] for r in case["batches"]} >= {"3"}
    assert len({r["log"] for r in case["batches"]}) == 2
    assert {r["producer_id"] for r in case["batches"] if r["base_offset"] == 2} == {7, 9}


@pytest.mark.parametrize("what", BAD)
def test_bad_files_never_count_as_nothing(tmp_path: Path, what: str) -> None:
    sound(tmp_path / "fine-0")
    spoil, said = BAD[what]
    spoil(sound(tmp_path / "orders-0"))
    wrong = {"corrupt-batch": 1, "overlapping": 1}.get(what, 2)
    document = look(tmp_path, code=wrong)
    assert document["looked"]["partitions"] == 2
    if wrong == 1:
        assert {c["topic"] for c in document["cases"]} == {"orders"}
    else:
        assert any(said in line and "orders-0" in line for line in document["unreadable"])


def test_the_real_logs_have_what_their_readme_says(tmp_path: Path) -> None:
    before = look(KIP_1279 / "1-before-stop" / "A", KIP_1279 / "1-before-stop" / "B", code=1)
    assert [
        (c["cluster"], *rest) for c, rest in zip(before["cases"], found(before), strict=True)
    ] == [
        (cluster, "open-transaction", "tx", partition, offset)
        for cluster in "AB"
        for partition, offset in ((0, 16), (1, 6))
    ]
    for moment in ("2-after-stop", "3-diverged"):
        assert found(look(KIP_1279 / moment / "B", code=0)) == []
    assert found(look(KIP_1279 / "3-diverged" / "A", code=0)) == []
    for moment in ("4-after-failback", "5-a-stopped"):
        assert found(look(KIP_1279 / moment / "A", KIP_1279 / moment / "B", code=0)) == []


def test_the_plain_text_has_one_section_for_each(tmp_path: Path) -> None:
    segment(tmp_path / "orders-0", FAULTS["sequence-gap"][0])
    result = CliRunner().invoke(linkflap, ["forensics", str(tmp_path)], standalone_mode=False)
    lines = result.stdout.splitlines()
    assert lines[0].startswith("1. sequence-gap  ")
    assert lines[0].endswith("orders-0 @ 1")
    assert any(
        line.strip().startswith(">") and "orders-0/00000000000000000000.log" in line
        for line in lines
    )
    assert lines[-1].startswith("1 things found, 0 parts unreadable, in 1 partitions")


def test_topics_can_be_chosen(tmp_path: Path) -> None:
    segment(tmp_path / "orders-0", FAULTS["sequence-gap"][0])
    sound(tmp_path / "fine-0")
    result = CliRunner().invoke(
        linkflap, ["forensics", "--topics", "fi.*", str(tmp_path)], standalone_mode=False
    )
    assert result.return_value == 0
    refused = CliRunner().invoke(
        linkflap, ["forensics", "--topics", "(", str(tmp_path)], standalone_mode=False
    )
    assert "is not a regular expression" in str(refused.exception)


def test_the_header_of_a_corrupt_batch_proves_nothing(tmp_path: Path) -> None:
    """The changed byte is in its sequence number: the batches around it are intact."""
    path = segment(tmp_path / "orders-0", [batch(n, ONE, pid=1, epoch=0, seq=n) for n in range(4)])
    data = bytearray(path.read_bytes())
    data[batches_in(path)[1][0] + 53] ^= 1
    path.write_bytes(bytes(data))
    assert found(look(tmp_path, code=1)) == [("corrupt-batch", "orders", 0, 1)]


def coordinated(tmp_path: Path, *states: int, end: int = COMMIT) -> Path:
    """A transaction of orders-0, and its coordinator's entries."""
    data = batch(0, ONE, pid=7, epoch=0, seq=0, transactional=True)
    segment(tmp_path / "orders-0", [data, marker(1, end, pid=7, epoch=0)])
    output = [
        value_of(
            "t",
            State(
                pid=7, epoch=0, state=kind, spots=(("orders", 0),) if 0 < kind < 4 else (),
                started=0 if kind else -1, previous=7,
            ),
            0,
        )
        for kind in (EMPTY, *states)
    ]  # fmt: skip
    segment(
        tmp_path / "__transaction_state-0",
        [batch(n, [record(v, key=k)]) for n, (k, v) in enumerate(output)],
    )
    return tmp_path


def test_internal_topics_are_examined_and_omissions_are_reported(tmp_path: Path) -> None:
    sound(coordinated(tmp_path, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT) / "__other-3")
    document = look(tmp_path, code=0)
    assert {line.split(":")[0].split(" ")[1] for line in document["files"]} == {
        "orders-0",
        "__transaction_state-0",
    }
    assert [line.split(" ")[1] for line in document["left_out"]] == ["__other-3"]


def test_a_marker_that_the_coordinator_did_not_decide_is_found(tmp_path: Path) -> None:
    assert found(
        look(coordinated(tmp_path, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT, end=ABORT), code=1)
    ) == [("outcome-disagreement", "orders", 0, 1)]


def test_a_hole_and_a_torn_end_of_kafkas_own_topics_are_seen(tmp_path: Path) -> None:
    path = (
        coordinated(tmp_path, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT)
        / "__transaction_state-0"
        / f"{0:020}.log"
    )
    *first, second, third = (data for _, data in batches_in(path))
    rewrite(path, [*first, third])
    assert found(look(tmp_path, code=1)) == [("offsets-missing", "__transaction_state", 0, 2)]
    rewrite(path, [*first, second, third[:-5]])
    assert any("__transaction_state-0" in line for line in look(tmp_path, code=2)["unreadable"])


def test_a_first_sequence_above_zero_cannot_be_known(tmp_path: Path) -> None:
    segment(tmp_path / "orders-0", [batch(0, ONE), batch(1, ONE, pid=1, epoch=0, seq=3)])
    (line,) = look(tmp_path, code=2)["unknown"]
    assert line.startswith("orders-0: sequence-start: 1 producers of ")


def test_a_mirrored_batch_that_is_there_again_is_found_behind_a_reset(tmp_path: Path) -> None:
    own = batch(2, TWO, pid=1, epoch=0, seq=0)
    segment(
        tmp_path / "bad-0",
        [
            batch(0, ONE, pid=1, epoch=0, seq=0),
            mirror_pid_reset(1),
            own,
            batch(4, ONE, pid=1, epoch=0, seq=0),
        ],
    )
    assert ("sequence-repeat", "bad", 0, 4) in found(look(tmp_path, code=1))


def test_an_id_that_is_transactional_in_one_partition_and_not_in_another_has_two_owners(
    tmp_path: Path,
) -> None:
    segment(tmp_path / "t-0", [batch(0, ONE, pid=5, epoch=0, seq=0)])
    segment(
        tmp_path / "t-1",
        [
            batch(0, ONE, pid=5, epoch=0, seq=0, transactional=True),
            marker(1, COMMIT, pid=5, epoch=0),
        ],
    )
    document = look(tmp_path, code=1)
    assert found(document) == [("producer-id-shared", "t", 0, 0)]
    assert document["cases"][0]["evidence"]["transactional_at"] == "t-1@0"
    assert len(document["cases"][0]["batches"]) == 2


def test_accepted_also_if_compaction_left_only_a_marker_before(tmp_path: Path) -> None:
    """Transactions before KIP-890: an aborted or committed transaction's producer id continues in
    the next."""
    kept = [
        marker(2, COMMIT, pid=1, epoch=0),
        batch(3, ONE, pid=1, epoch=0, seq=2, transactional=True),
    ]
    segment(tmp_path / "t-0", [*kept, marker(4, COMMIT, pid=1, epoch=0)])
    assert [n.partition(" ")[0] for n in look(tmp_path, code=0)["notes"]] == ["t-0:", "2"]
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    assert look(tmp_path, code=0)["notes"][0].endswith("'s t-0 are missing, first 0: compaction")


def test_offsets_that_are_missing_are_noted_though_no_sequence_breaks(tmp_path: Path) -> None:
    """A marker is lost: the next transaction of its producer has its offset."""
    data = [
        batch(0, TWO, pid=1, epoch=0, seq=0, transactional=True),
        batch(3, ONE, pid=1, epoch=0, seq=2, transactional=True),
    ]
    segment(tmp_path / "t-0", [*data, marker(4, COMMIT, pid=1, epoch=0)])
    assert look(tmp_path, code=0)["notes"] == [
        f"1 offsets of {tmp_path.name}'s t-0 are missing, first 2: compaction, or loss"
    ]
    output = (
        CliRunner().invoke(linkflap, ["forensics", str(tmp_path)], standalone_mode=False).stdout
    )
    assert "not counted: 1 offsets of" in output


@pytest.mark.parametrize(("name", "part", "code"), [
    ("log-start", "unreadable", 2), ("recovery-point", "notes", 0),
])  # fmt: skip
def test_a_checkpoint_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, part: str, code: int
) -> None:
    segment(tmp_path / "t-0", [batch(0, ONE)])
    (tmp_path / f"{name}-offset-checkpoint").write_text("garbage")
    said = f"its broker's {name}-offset-checkpoint cannot be read: line 1 is malformed"
    assert [each.partition(": ")[2] for each in look(tmp_path, code=code)[part]] == [said]


def test_a_sequence_of_0_in_disorder_does_not_end_the_search(tmp_path: Path) -> None:
    """The batch at that offset is another producer's."""
    segment(
        tmp_path / "t-0",
        [batch(0, TWO), batch(2, ONE, pid=1, epoch=0, seq=0), batch(0, TWO, pid=1, epoch=0, seq=0)],
    )
    assert ("producer-id-shared", "t", 0, 0) in found(look(tmp_path, code=1))


def test_a_relay_that_writes_several_clients_records_with_one_id_is_sound(tmp_path: Path) -> None:
    """MirrorMaker 2: one transaction of its own has the records of many client operations."""
    relayed = [
        batch(0, [ours(1 << 40, 1), ours(2 << 40, 2)], pid=3, epoch=0, seq=0, transactional=True),
        batch(2, [ours(3 << 40, 3)], pid=3, epoch=0, seq=2, transactional=True),
        marker(3, COMMIT, pid=3, epoch=0),
    ]
    segment(tmp_path / "orders-0", relayed)
    assert look(tmp_path, code=0)["cases"] == []
