"""Copies of a real, valid run with one thing changed, missing or cut short: each is called what it
is, and none is called valid."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

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
# which must be called what it is. The mutation matrix does this with every kind of change to
# faithful runs; here, the run and its bytes are Kafka's own.
#
# One recorded run (3 brokers in B, so that replicas can disagree), and one Spark job for all of
# its copies.


MUTATIONS = {
    how.__name__: how
    for how in (run_copy.one_byte, run_copy.interior_batch, run_copy.emptied_history)
}


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


def test_an_emptied_history_is_unknown(of: Callable[[str], tuple[Judgement, Site]]) -> None:
    judgement, _ = of("emptied_history")
    assert judgement.verdict == Verdict.UNKNOWN


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


def no_capture_at_all(run: Copy) -> Torn:
    """The run directory of a harness that was killed before logs were captured."""
    for path in run.root.glob("captures/*/*/*/*/*.log"):
        path.unlink()
    for path in run.root.glob("captures/*/bounds.json"):
        path.unlink()
    still_running(run)
    return Torn(named="captures")


def still_running(run: Copy) -> Torn:
    """As after kill -9 of the harness: no end, no manifest."""
    content = json.loads((run.root / "run.json").read_bytes())
    (run.root / "run.json").write_text(json.dumps(content | {"status": "running", "ended": 0}))
    (run.root / "manifest.json").unlink()
    return Torn(named="run.json: the run never ended")


def a_stale_verdict(run: Copy) -> Torn:
    """A verdict.json from before the damage says valid."""
    (run.root / VERDICT_FILE).write_text(json.dumps({"verdict": "valid", "reason": ""}))
    return half_a_line(run)


def shorten(path: Path, *, at: int) -> None:
    path.write_bytes(path.read_bytes()[:at])


TEARS = {
    how.__name__: how
    for how in (
        polls_with_a_gap,
        the_middle_segment_missing,
        half_a_batch_of_all_replicas,
        half_a_batch_of_the_dead,
        a_corrupt_batch,
        no_capture_at_all,
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
    judgement, expected = torn["a_stale_verdict"]
    done = CliRunner().invoke(
        linkflap, ["verify", str(judgement.folder), "--json"], standalone_mode=False
    )
    assert done.return_value == errors.UNKNOWN, done.output
    document = json.loads(done.stdout)
    assert document["verdict"] == "unknown"
    assert expected.named in document["reason"]
