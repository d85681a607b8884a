"""Copies of a real, valid run with one thing changed, missing or cut short: each is called what it
is, and none is called valid."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from linkflap.cli.commands import linkflap
from linkflap.harness.model import errors
from linkflap.harness.model.verdict import Anomaly, Verdict
from linkflap.spark_verify.verdict.judge import Judgement
from linkflap.spark_verify.verify import VERDICT_FILE, verify
from tests import run_copy
from tests.kafka_log import batches_in, field_of
from tests.run_copy import TOPIC, Copy, Site

pytestmark = pytest.mark.spark


# Honest failure: a real run that is valid, then copies of it with one thing changed, each of
# which must be called what it is.
#
# One recorded run (3 brokers in B, so that replicas can disagree), and one Spark job for all of
# its copies.


MUTATIONS = {
    how.__name__: how
    for how in (
        run_copy.one_byte,
        run_copy.interior_batch,
        run_copy.repeated_batch,
        run_copy.commit_to_abort,
        run_copy.commit_removed,
        run_copy.producer_id_in_use,
        run_copy.emptied_history,
        run_copy.shown_tail,
        run_copy.unseen_tail,
    )
}


SEQUENCES = {"sequence-start", "sequence-repeat", "sequence-gap"}
"""What a batch under another's producer id, or once more, does to the sequence numbers of that
id."""
NOT_VISIBLE = {"aborted-read", "phantom-read", "lost-write", "torn-transaction"}
"""What else is true of an acknowledged commit, which readers got, when one of its partitions says
ABORT."""


@pytest.fixture(scope="module")
def judged(
    recorded: Path, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> tuple[dict[str, Judgement], dict[str, Site]]:
    """name -> (judgement, place of the mutation); the untouched run is "recorded"."""
    folder = tmp_path_factory.mktemp("mutated")
    sites = {}
    for name, how in MUTATIONS.items():
        run = run_copy.copy(recorded, folder / name)
        sites[name] = how(run)
        run.seal()
    judgements = verify([recorded, *(folder / name for name in MUTATIONS)], spark=spark)
    return {
        judgement.folder.name if judgement.folder != recorded else "recorded": judgement
        for judgement in judgements
    }, sites


@pytest.fixture
def of(
    judged: tuple[dict[str, Judgement], dict[str, Site]],
) -> Callable[[str], tuple[Judgement, Site]]:
    """The judgement and the place of one mutation."""
    judgements, sites = judged
    return lambda name: (judgements[name], cast(Site, sites.get(name)))


def anomalies(judgement: Judgement, kind: str) -> list[Anomaly]:
    """All of them: the document shows the first of each kind, and a batch of many operations is
    lost in many pieces."""
    return [a for a in judgement.anomalies if a.kind == kind and not a.allowed]


def at(site: Site) -> Callable[[Anomaly], bool]:
    return lambda a: (
        (a.cluster, a.partition, a.offset) == (site.cluster, site.partition, site.offset)
    )


def kinds(judgement: Judgement) -> set[str]:
    """Every kind of anomaly that is not allowed."""
    return {a.kind for a in judgement.anomalies if not a.allowed}


def assert_lost(judgement: Judgement, site: Site) -> None:
    """What was acknowledged of the batch is lost, exactly, and named where A had acknowledged
    it."""
    lost = anomalies(judgement, "lost-write")
    assert site.promised
    uid, offset = next(iter(site.promised.items()))
    first = min(lost, key=lambda a: a.offset)
    assert (first.cluster, first.partition, first.offset, first.evidence["uid"]) == (
        "A",
        site.partition,
        offset,
        uid,
    )
    named = [
        u
        for a in lost
        for u in range(
            cast(int, a.evidence["uid"]),
            cast(int, a.evidence["uid"]) + cast(int, a.evidence["records"]),
        )
    ]
    assert sorted(named) == sorted(site.promised)


def rpo(judgement: Judgement) -> Any:
    return judgement.failovers[0].rpo_records


def test_the_run_itself_is_valid(of: Callable[[str], tuple[Judgement, Site]]) -> None:
    judgement, _ = of("recorded")
    assert judgement.verdict == Verdict.VALID, judgement.checks
    # MirrorMaker 2 moves offsets and does not describe itself, and nothing reads in transactions or
    # share groups.
    idle = {c.name for c in judgement.checks if not sum(c.examined.values())}
    assert idle == {
        "byte-equality", "record-equality", "truncation-accounting", "write-cycles", "exactly-once",
        "program-copies",
        "mirror-states", "share-groups", "topic-sync",
    }  # fmt: skip


def test_one_byte_of_one_replica_is_a_disagreement_and_names_the_record(
    of: Callable[[str], tuple[Judgement, Site]],
) -> None:
    judgement, site = of("one_byte")
    assert judgement.verdict == Verdict.INVALID
    (found,) = anomalies(judgement, "replica-disagreement")
    assert at(site)(found)
    assert cast(list[int], found.evidence["batch"])[0] < site.offset, "not the first of its batch"
    (uid,) = site.uids
    assert found.evidence["changed"] == [{"offset": site.offset, "uid": uid, "fields": ["value"]}]


def test_an_interior_batch_that_is_gone_is_a_lost_write(
    of: Callable[[str], tuple[Judgement, Site]],
) -> None:
    judgement, site = of("interior_batch")
    assert judgement.verdict == Verdict.INVALID
    assert_lost(judgement, site)


def test_a_native_batch_that_is_there_twice_is_a_duplicate(
    of: Callable[[str], tuple[Judgement, Site]],
) -> None:
    judgement, site = of("repeated_batch")
    assert judgement.verdict == Verdict.INVALID
    assert any(map(at(site), anomalies(judgement, "duplicate")))
    assert kinds(judgement) <= {"duplicate", *SEQUENCES}, kinds(judgement)


def test_a_commit_that_became_an_abort(of: Callable[[str], tuple[Judgement, Site]]) -> None:
    judgement, site = of("commit_to_abort")
    assert judgement.verdict == Verdict.INVALID
    assert any(map(at(site), anomalies(judgement, "commit-aborted")))
    # The coordinator, whose log was not changed, says that it committed.
    assert kinds(judgement) <= {"commit-aborted", "outcome-disagreement", *NOT_VISIBLE}, kinds(
        judgement
    )


def test_a_commit_marker_that_is_gone(of: Callable[[str], tuple[Judgement, Site]]) -> None:
    judgement, site = of("commit_removed")
    assert judgement.verdict == Verdict.INVALID
    named = [*anomalies(judgement, "marker-missing"), *anomalies(judgement, "commit-unmarked")]
    assert any(map(at(site), named))
    # What is left is closed by the producer's next COMMIT, so that nothing is hidden; samples of
    # the LSO had seen the marker.
    assert kinds(judgement) <= {"marker-missing", "commit-unmarked", "lso-mismatch"}, kinds(
        judgement
    )


def test_a_producer_id_in_use(of: Callable[[str], tuple[Judgement, Site]]) -> None:
    judgement, site = of("producer_id_in_use")
    assert judgement.verdict == Verdict.INVALID
    assert any(map(at(site), anomalies(judgement, "producer-id-collision")))
    # Stale: where the transaction of that epoch was over by then. The id may be a transactional
    # producer's.
    assert kinds(judgement) <= {
        "producer-id-collision",
        "stale-data",
        "not-transactional",
        *SEQUENCES,
    }, kinds(judgement)


def test_an_emptied_history_is_unknown(of: Callable[[str], tuple[Judgement, Site]]) -> None:
    judgement, _ = of("emptied_history")
    assert judgement.verdict == Verdict.UNKNOWN


def test_a_tail_that_nobody_had_seen_is_the_recovery_point(
    of: Callable[[str], tuple[Judgement, Site]],
) -> None:
    judgement, site = of("unseen_tail")
    assert anomalies(judgement, "lost-write") == []
    assert judgement.verdict == Verdict.VALID, [
        c for c in judgement.checks if c.verdict is not Verdict.VALID
    ]
    before, _ = of("recorded")
    assert rpo(judgement) == rpo(before) + len(site.uids)


def test_a_tail_that_was_shown_is_a_lost_write(of: Callable[[str], tuple[Judgement, Site]]) -> None:
    judgement, site = of("shown_tail")
    assert judgement.verdict == Verdict.INVALID
    assert_lost(judgement, site)


# Torn run directories: copies of a real, valid run with something missing or cut short.
#
# None may be called valid, the reason names what is wrong, and nothing may be called a
# violation that the missing part made up. Only bytes prove a violation: a batch whose CRC is
# wrong.


@dataclass(frozen=True, slots=True, kw_only=True)
class Torn:
    """A damaged copy: what the reason must name, and the worst verdict that is allowed."""

    named: str
    verdict: Verdict = Verdict.UNKNOWN


def events_missing(run: Copy) -> Torn:
    (run.root / "events.jsonl").unlink()
    return Torn(named="events.jsonl")


def events_end_early(run: Copy) -> Torn:
    shorten(run.root / "events.jsonl", at=len((run.root / "events.jsonl").read_bytes()) // 2)
    return Torn(named="events.jsonl")


def operations_missing(run: Copy) -> Torn:
    path = next(run.root.glob("operations/transactional-*.jsonl"))
    path.unlink()
    return Torn(named=f"operations/{path.name}")


def all_operations_missing(run: Copy) -> Torn:
    for path in run.root.glob("operations/*.jsonl"):
        path.unlink()
    return Torn(named="operations/")


def half_a_line(run: Copy) -> Torn:
    path = next(run.root.glob("operations/transactional-*.jsonl"))
    shorten(path, at=path.stat().st_size - 20)
    return Torn(named=f"operations/{path.name}")


def polls_with_a_gap(run: Copy) -> Torn:
    """A line in the middle of a reader's file is unreadable: that must not look as if the reader
    had skipped records."""
    path = next(
        path
        for path in sorted(run.root.glob("polls/*.jsonl"))
        if len(path.read_bytes().splitlines()) > 20
    )
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:10], b'{"time":\n', *lines[11:]]))
    return Torn(named=f"polls/{path.name}")


def watermarks_missing(run: Copy) -> Torn:
    (run.root / "watermarks" / "B.jsonl").unlink()
    return Torn(named="watermarks/B.jsonl")


def bounds_of_a_missing(run: Copy) -> Torn:
    (run.root / "captures" / "1-failover" / "bounds.json").unlink()
    return Torn(named="captures/1-failover/bounds.json")


def bounds_of_b_missing(run: Copy) -> Torn:
    (run.root / "captures" / "2-end" / "bounds.json").unlink()
    return Torn(named="captures/2-end/bounds.json")


def a_segment_missing(run: Copy) -> Torn:
    path = run.replicas("B", 0)[0]
    path.unlink()
    return Torn(named=str(path.relative_to(run.root)))


def the_middle_segment_missing(run: Copy) -> Torn:
    """A replica of three segments without the middle one: its records are not lost."""
    for path in run.replicas("B", 0):
        batches = batches_in(path)
        third = len(batches) // 3
        for part in (batches[:third], batches[third : 2 * third], batches[2 * third :]):
            base = field_of(part[0][1], "base_offset")
            (path.parent / f"{base:020}.log").write_bytes(b"".join(data for _, data in part))
    run.seal()
    gone = [sorted(path.parent.glob("*.log"))[1] for path in run.replicas("B", 0)[::3]]
    for path in gone:
        path.unlink()
    return Torn(named=str(gone[0].relative_to(run.root)))


def half_a_batch_of_one_replica(run: Copy) -> Torn:
    path = run.replicas("B", 0)[1]
    shorten(path, at=path.stat().st_size - 30)
    return Torn(named=f"{TOPIC}-0/{path.name}")


def half_a_batch_of_all_replicas(run: Copy) -> Torn:
    paths = run.replicas("B", 0)
    for path in paths:
        shorten(path, at=path.stat().st_size - 30)
    return Torn(named=f"{TOPIC}-0/{paths[0].name}")


def half_a_batch_of_the_dead(run: Copy) -> Torn:
    (path,) = run.replicas("A", 0)
    shorten(path, at=path.stat().st_size - 30)
    return Torn(named=f"{TOPIC}-0/{path.name}")


def a_corrupt_batch(run: Copy) -> Torn:
    path = run.replicas("B", 0)[0]
    position, data = batches_in(path)[3]
    content = bytearray(path.read_bytes())
    content[position + len(data) - 5] ^= 1
    path.write_bytes(content)
    return Torn(named="corrupt-batch", verdict=Verdict.INVALID)


def a_segment_cut_between_batches(run: Copy) -> Torn:
    """With digests, as runs have them: the rest of every replica is sound."""
    run_copy.seal(run.root, digests=True)
    for path in run.replicas("B", 0):
        shorten(path, at=batches_in(path)[3][0])
    return Torn(named=f"{TOPIC}-0/{path.name}: has ")


def one_byte_of_a_segment(run: Copy) -> Torn:
    """The bytes are not the captured ones: Kafka did not write a wrong CRC."""
    run_copy.seal(run.root, digests=True)
    a_corrupt_batch(run)
    return Torn(named="has other bytes than when the run ended")


def no_capture_at_all(run: Copy) -> Torn:
    """The run directory of a harness that was killed before logs were captured."""
    for path in run.root.glob("captures/*/*/*/*/*.log"):
        path.unlink()
    for path in run.root.glob("captures/*/bounds.json"):
        path.unlink()
    still_running(run)
    return Torn(named="captures")


def one_partition_not_captured(run: Copy) -> Torn:
    for path in run.root.glob("captures/*/bounds.json"):
        rows = [
            row
            for row in json.loads(path.read_bytes())
            if (row["cluster"], row["topic"], row["partition"]) != ("B", TOPIC, 1)
        ]
        path.write_text(json.dumps(rows))
    run.seal()
    return Torn(named=f"no log of {TOPIC}-1 on B was captured")


def still_running(run: Copy) -> Torn:
    """As after kill -9 of the harness: no end, no manifest."""
    content = json.loads((run.root / "run.json").read_bytes())
    (run.root / "run.json").write_text(json.dumps(content | {"status": "running", "ended": 0}))
    (run.root / "manifest.json").unlink()
    return Torn(named="run.json: the run never ended")


def manifest_missing(run: Copy) -> Torn:
    (run.root / "manifest.json").unlink()
    return Torn(named="manifest.json")


def a_stale_verdict(run: Copy) -> Torn:
    """A verdict.json from before the damage says valid."""
    (run.root / VERDICT_FILE).write_text(json.dumps({"verdict": "valid", "reason": ""}))
    return half_a_line(run)


def shorten(path: Path, *, at: int) -> None:
    path.write_bytes(path.read_bytes()[:at])


TEARS = {
    how.__name__: how
    for how in (
        events_missing,
        events_end_early,
        operations_missing,
        all_operations_missing,
        half_a_line,
        polls_with_a_gap,
        watermarks_missing,
        bounds_of_a_missing,
        bounds_of_b_missing,
        a_segment_missing,
        the_middle_segment_missing,
        half_a_batch_of_one_replica,
        half_a_batch_of_all_replicas,
        half_a_batch_of_the_dead,
        a_corrupt_batch,
        a_segment_cut_between_batches,
        one_byte_of_a_segment,
        no_capture_at_all,
        one_partition_not_captured,
        still_running,
        manifest_missing,
        a_stale_verdict,
    )
}


@pytest.fixture(scope="module")
def torn(
    recorded: Path, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> dict[str, tuple[Judgement, Torn]]:
    """name -> (judgement, the damage), of all copies in one job."""
    folder = tmp_path_factory.mktemp("torn")
    expected = {name: how(run_copy.copy(recorded, folder / name)) for name, how in TEARS.items()}
    judgements = verify([folder / name for name in TEARS], spark=spark)
    return {j.folder.name: (j, expected[j.folder.name]) for j in judgements}


@pytest.mark.parametrize("name", TEARS)
def test_a_torn_run_is_never_valid_and_the_reason_names_what_is_wrong(
    torn: dict[str, tuple[Judgement, Torn]], name: str
) -> None:
    judgement, expected = torn[name]
    found = [(a.check, a.kind, a.offset) for a in judgement.anomalies if not a.allowed]
    assert judgement.verdict is expected.verdict, (found, judgement.document["reason"])
    assert any(expected.named in check.reason for check in judgement.checks), judgement.document[
        "reason"
    ]
    written = json.loads((judgement.folder / VERDICT_FILE).read_bytes())
    assert written["verdict"] == expected.verdict


def test_what_is_damaged_is_said_in_the_runs_own_check(
    torn: dict[str, tuple[Judgement, Torn]],
) -> None:
    for judgement, _ in torn.values():
        recording = next(check for check in judgement.checks if check.name == "recording")
        assert recording.verdict is Verdict.UNKNOWN, judgement.folder


def test_no_check_is_valid_that_had_something_due_and_examined_nothing(
    torn: dict[str, tuple[Judgement, Torn]],
) -> None:
    for judgement, _ in torn.values():
        for check in judgement.checks:
            if check.verdict is Verdict.VALID and not sum(check.examined.values()):
                assert check.reason, (judgement.folder, check)


def test_the_command_prints_one_document_and_exits_with_unknown(
    torn: dict[str, tuple[Judgement, Torn]],
) -> None:
    judgement, expected = torn["half_a_line"]
    done = CliRunner().invoke(
        linkflap, ["verify", str(judgement.folder), "--json"], standalone_mode=False
    )
    assert done.return_value == errors.UNKNOWN, done.output
    document = json.loads(done.stdout)
    assert document["verdict"] == "unknown"
    assert expected.named in document["reason"]
