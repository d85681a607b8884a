"""Honest failure: a real run that is valid, then copies of it with one thing changed, each of which
must be called what it is.

One recorded run (3 brokers in B, so that replicas can disagree), and one Spark job for all of its
copies.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from linkflap.harness.model.verdict import Anomaly, Verdict
from linkflap.spark_verify.verdict.judge import Judgement
from linkflap.spark_verify.verify import verify
from tests import mutations, run_copy
from tests.run_copy import Site

pytestmark = pytest.mark.spark

MUTATIONS = {
    how.__name__: how
    for how in (
        mutations.one_byte,
        mutations.interior_batch,
        mutations.repeated_batch,
        mutations.commit_to_abort,
        mutations.commit_removed,
        mutations.producer_id_in_use,
        mutations.emptied_history,
        mutations.shown_tail,
        mutations.unseen_tail,
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
