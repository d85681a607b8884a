"""standby-isolation: the smallest histories."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from linkflap.harness.model.events import FailoverRefused
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Found, PartialFinding
from linkflap.spark_verify.facts.partition_facts import Description, LogTruncation, Window
from linkflap.spark_verify.facts.sends_and_reads import Send
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import SECOND, History, Log, promoted, send, view
from tests.unit.checks.round_trip import ACKED, emptied, on_b, trip
from tests.unit.checks.verdicts import Rejected, anomalies, findings, unjudged

NAME = "standby-isolation"
CHECK = REGISTRY[NAME]


def at(second: int, *uids: int, acked: int, cluster: str = "B") -> Send:
    return send(
        *uids, acked=acked, cluster=cluster, invoked=second * SECOND, returned=second * SECOND + 1
    )


A = Log("A").data(1)
REFUSED = FailoverRefused(link="A->B", mode="forced", error="NOT_STOPPED", code=145, seconds=60.0)
GIVEN_UP = Window(
    id="f", fault="failover-forced", target="A->B", start=SECOND, end=2 * SECOND, took_effect=False
)


def refused(b: Log, a: Log = A, **rest: Unpack[History]) -> PartitionView:
    """The failover over A->B was refused at every request, unless the rest says otherwise."""
    given: History = {"mirror_kind": "cluster-mirroring", "refusals": [REFUSED]}
    return view([a, b], **(given | rest))


def reset() -> Log:
    return Log("B").data(1).marker("reset", pid=-1)


def said(*, promoted: bool, second: int = 10) -> Description:
    return Description(
        link="A->B", state="STOPPED", mirrors=False, lag=-1, asked=second * SECOND,
        returned=second * SECOND + 1, promoted=promoted,
    )  # fmt: skip


ACCEPTED = {
    "only the mirror": (view([A, Log("B").data(1)], sends=[send(1, acked=0)]), {"B/mirrored": 1}),
    "after the promotion": (
        view(
            [A, Log("B").data(1).data(9)],
            sends=[send(1, acked=0), at(502, 9, acked=1)],
            promotions=[promoted(1)],
        ),
        {"B/mirrored": 1},
    ),
    "there and back": (trip(), {"A/mirrored": 2, "B/mirrored": 2}),
    "refused, and nothing changed": (refused(Log("B").data(1)), {"B/mirrored": 1}),
    "refused, and the reset is its source's": (
        refused(reset(), Log("A").data(1).marker("reset", pid=-1)), {"B/mirrored": 1},
    ),
    "refused, and the source has deleted what the reset was mirrored from": (
        refused(reset().data(3), Log("A", start=2).data(3)), {"B/mirrored": 2},
    ),
    "refused, and the source has compacted what the reset was mirrored from": (
        refused(reset().data(3), Log("A").data(1).skip(1).data(3), compacted={"A": 2}),
        {"B/mirrored": 2},
    ),
    "refused, and reported as stopped in between": (
        refused(Log("B").data(1), descriptions=[said(promoted=False)]), {"B/mirrored": 1},
    ),
    "it took place, and its promotion was not recorded": (
        refused(reset(), refusals=[], windows=[replace(GIVEN_UP, took_effect=True)]),
        {"B/mirrored": 1},
    ),
    "not refused: it is promoted": (
        refused(reset(), refusals=[], windows=[GIVEN_UP], promotions=[promoted(2)]),
        {"B/mirrored": 1},
    ),
    "reported as promoted before it was asked to fail over": (
        refused(
            Log("B").data(1), refusals=[], windows=[GIVEN_UP],
            descriptions=[said(promoted=True, second=0)],
        ),
        {"B/mirrored": 1},
    ),
}  # fmt: skip
REJECTS = {
    "partial-promotion": Rejected(refused(reset()), "B", 1),
    "standby-write": Rejected(
        view([A, Log("B").data(9)], sends=[send(1, acked=0), at(7, 9, acked=0)]), "B", 0
    ),
    "circular-mirror": Rejected(
        view([Log("A").data(9), Log("B").data(9)], sends=[at(7, 9, acked=0)]),
        "A",
        0,
        only=("standby-write",),
    ),
}


def test_a_failover_that_failed_and_took_effect() -> None:
    aborted = Log("A").data(1, pid=7, transactional=True)
    abort = Log("B").data(1, pid=7, transactional=True).marker("abort", pid=7)
    for seen, offset in (
        (refused(abort, aborted), 1),
        (refused(reset(), Log("A").data(1).data(2)), 1),
        (refused(reset(), refusals=[], windows=[GIVEN_UP]), 1),
        (refused(Log("B").data(1), descriptions=[said(promoted=True)]), 1),
    ):
        assert ("partial-promotion", "B", offset) in anomalies(NAME, seen)


def test_how_many_partitions_a_refused_failover_promoted() -> None:
    promoted_, left = (
        replace(next(f for f in CHECK.kernel(refused(log)) if isinstance(f, PartialFinding)),
            topic="A.t", partition=n)
        for n, log in enumerate((reset(), Log("B").data(1)))
    )  # fmt: skip
    assert CHECK.combine is not None
    (one,) = CHECK.combine([left, promoted_])
    assert isinstance(one.found, Found)
    assert (one.partition, one.found.offset) == (0, 1)
    evidence = one.found.evidence
    assert (evidence["promoted"], evidence["partitions"], evidence["extent"]) == (1, 2, "partial")
    assert evidence["how"] == "was refused with NOT_STOPPED (145)"
    (alone,) = CHECK.combine([promoted_])
    assert isinstance(alone.found, Found)
    assert alone.found.evidence["extent"] == "full"
    assert list(CHECK.combine([left])) == []
    done = replace(left, data={**left.data, "took_place": True})
    assert list(CHECK.combine([done, promoted_])) == []


def test_an_acknowledgement_from_before_the_promotion_whatever_became_of_it() -> None:
    seen = view([A, Log("B").data(1)], sends=[at(7, 9, acked=5)], promotions=[promoted(1)])
    assert [(f.offset, f.evidence["how"]) for f in findings(NAME, seen)] == [
        (5, "acknowledged while it was mirrored")
    ]


def test_a_write_to_the_old_home_while_it_follows() -> None:
    late = at(650, 9, acked=4, cluster="A")
    assert anomalies(NAME, trip(sends=[*ACKED, late])) == [("standby-write", "A", 4)]


def test_a_record_of_its_own_in_an_era_that_is_mirrored() -> None:
    own = Log("A").data(1).data(2).data(9, leader_epoch=3).data(5, crc=55, leader_epoch=3)
    seen = trip(logs=[own, on_b()], sends=[*ACKED, at(590, 9, acked=2, cluster="A")])
    assert [(f.offset, f.evidence["how"]) for f in findings(NAME, seen)] == [
        (2, "in an era that is mirrored")
    ]


def test_a_promotion_that_was_not_written_down_proves_nothing() -> None:
    away = Window(id="f", fault="failover-forced", target="A->B", start=SECOND, end=2 * SECOND)
    seen = view([A, Log("B").data(9)], sends=[at(7, 9, acked=0)], windows=[away])
    assert anomalies(NAME, seen) == []
    assert set(unjudged(NAME, seen)) == {
        "B acknowledged writes to A.t but no promotion was recorded"
    }


def followed(link: str, offset: int, *, at: int) -> LogTruncation:
    cluster = link[-1]
    return LogTruncation(
        link=link, cluster=cluster, offset=offset, end=offset + 1, time=at * SECOND
    )


def test_a_cluster_that_was_made_to_follow_one_that_follows_it() -> None:
    seen = view(
        [A, Log("B").data(1)], mirror_kind="shadow", truncations=[followed("B->A", 1, at=600)]
    )
    assert [(f.kind, f.cluster, f.offset, f.evidence["through"]) for f in findings(NAME, seen)] == [
        ("circular-mirror", "A", 1, ["B", "A"])
    ]


def test_a_circle_over_three_clusters() -> None:
    logs = [Log(name).data(1) for name in "ABC"]
    seen = view(
        logs, topology="A->B->C", mirror_kind="shadow", truncations=[followed("C->A", 1, at=600)]
    )
    assert anomalies(NAME, seen) == [("circular-mirror", "A", 1)]


def test_the_second_reversal_without_a_promotion_in_between() -> None:
    truncations = [followed("B->A", 2, at=600), followed("A->B", 3, at=650)]
    assert anomalies(NAME, trip(truncations=truncations)) == [("circular-mirror", "B", 3)]
    assert anomalies(NAME, trip(truncations=[truncations[0], followed("A->B", 4, at=800)])) == []


def test_record_written_before_a_log_was_emptied_may_come_back() -> None:
    assert anomalies(NAME, emptied(1, 2, 8)) == []


def test_a_write_to_a_log_that_was_emptied_to_follow() -> None:
    late = at(650, 7, cluster="A", acked=2)
    assert ("standby-write", "A", 2) in anomalies(
        NAME, emptied(1, 2, 7, 8, sends=[send(1, 2, 3, acked=0), late])
    )
