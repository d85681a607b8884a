"""Sequences, sessions and producer ids, and breaks that compaction explains."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from linkflap.harness.cli.commands import linkflap
from tests.copied_logs import KIP_1279
from tests.kafka_log import COMMIT, batch, marker, mirror_pid_reset, ours, segment
from tests.unit.forensics_document import ONE, TWO, found, look


def test_a_sequence_that_continues_after_a_reset_is_found_and_a_new_one_is_not(
    tmp_path: Path,
) -> None:
    """A's producer ended at sequence 0, B's with the same id continues at 1: its first record was
    acknowledged and not appended."""
    mirrored, reset = batch(0, ONE, pid=1, epoch=0, seq=0), mirror_pid_reset(1)
    segment(tmp_path / "bad-0", [mirrored, reset, batch(2, ONE, pid=1, epoch=0, seq=1)])
    segment(tmp_path / "good-0", [mirrored, reset, batch(2, TWO, pid=1, epoch=0, seq=0)])
    document = look(tmp_path, code=1)
    assert found(document) == [("sequence-start", "bad", 0, 2)]
    assert document["cases"][0]["evidence"]["goes_on_from"] == 0


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


def test_sessions_that_outlive_a_failback_are_accepted(tmp_path: Path) -> None:
    """A's own sessions continue at sequences 2 and 5 after B's reset and A's."""
    assert look(KIP_1279 / "5-a-stopped" / "A", code=0)["cases"] == []


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


def test_sequences_that_break_where_compaction_took_batches_are_noted_and_no_finding(
    tmp_path: Path,
) -> None:
    segment(
        tmp_path / "t-0",
        [
            batch(3, ONE, pid=1, epoch=0, seq=3), batch(4, ONE, pid=1, epoch=0, seq=4),
            batch(9, ONE, pid=1, epoch=0, seq=9), batch(12, ONE, pid=2, epoch=0, seq=2),
        ],
    )  # fmt: skip
    assert look(tmp_path, code=0)["notes"] == [
        f"t-0: 3 sequences of {tmp_path.name} break where offsets are missing: compaction, or loss",
        f"9 offsets of {tmp_path.name}'s t-0 are missing, first 0: compaction, or loss",
    ]


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


def test_a_sequence_that_breaks_where_nothing_is_missing_is_reported_whatever_is_missing_elsewhere(
    tmp_path: Path,
) -> None:
    segment(
        tmp_path / "t-0",
        [batch(0, ONE), batch(5, ONE, pid=1, epoch=0, seq=0), batch(6, ONE, pid=1, epoch=0, seq=2)],
    )
    document = look(tmp_path, code=1)
    assert found(document) == [("sequence-gap", "t", 0, 6)]
    assert document["notes"] == [
        f"4 offsets of {tmp_path.name}'s t-0 are missing, first 1: compaction, or loss"
    ]


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
