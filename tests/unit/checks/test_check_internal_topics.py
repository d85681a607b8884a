"""internal-topics: the smallest histories."""

from __future__ import annotations

import pytest

from linkflap.harness.log.coordinators import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    GROUPS,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TRANSACTIONS,
)
from linkflap.harness.model.topology import MIRROR_STATE
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Examined
from linkflap.spark_verify.spark.job import examine
from tests.unit.checks.coordinator_logs import (
    CHECK,
    TOPIC_PARTITION,
    above,
    acknowledged,
    cleaned,
    coordinator,
    data,
    fault,
    groups,
    judged,
    led_again,
    own,
    sampled,
    second,
    state,
    torn,
    transaction,
    twice,
    written,
)
from tests.unit.checks.histories import but, promoted, view
from tests.unit.checks.logs import Log
from tests.unit.checks.verdicts import Rejected

DONE = (ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT)
UNDONE = (ONGOING, PREPARE_ABORT, COMPLETE_ABORT)


ACCEPTED = {
    "committed, and so the partition says": [coordinator(*DONE), data("commit")],
    "aborted, and so the partition says": [coordinator(*UNDONE), data("abort")],
    "many of one epoch, in their order": [coordinator(*DONE, *UNDONE, *DONE),
        data("commit", "abort", "commit")],
    "a marker written again by a coordinator that got no answer": [coordinator(*DONE),
        twice("commit")],
    "a marker written again, and then other outcomes": [
        coordinator(*DONE, *DONE, *UNDONE), twice("commit", then=("commit", "abort")),
    ],
    "two markers alike, the second of a transaction without data here": [coordinator(*DONE, *DONE),
        twice("commit")],
    "a marker written again behind a deleted beginning": [
        coordinator(*UNDONE, *DONE, *DONE), twice("commit", then=("commit",), start=5),
    ],
    "killed before the markers were written": [coordinator(ONGOING, PREPARE_COMMIT), data(None)],
    "killed before that was written down": [coordinator(ONGOING, PREPARE_COMMIT), data("commit")],
    "killed while it was open": [coordinator(ONGOING), data(None)],
    "prepared again by a coordinator that moved": [coordinator(ONGOING, *[PREPARE_COMMIT] * 2,
        COMPLETE_COMMIT), data("commit")],
    "complete above the high watermark": [
        coordinator(*DONE, log=above(written(3), 2)), data(None),
    ],
    "transactions v2, the epochs used up: prepared with one id, complete with the next": [
        own(
            written(5),
            entries=[
                state(ONGOING, TOPIC_PARTITION, at=0, epoch=32766),
                state(PREPARE_COMMIT, TOPIC_PARTITION, at=1, epoch=32767),
                state(COMPLETE_COMMIT, at=2, pid=8),
                state(ONGOING, TOPIC_PARTITION, at=3, pid=8),
                state(PREPARE_ABORT, TOPIC_PARTITION, at=4, pid=8, epoch=1),
            ],
        ),
        view([Log("A").txn(1, pid=7, epoch=32766, marker_epoch=32767).txn(2, pid=8, end="abort",
            marker_epoch=1)]),
    ],
    "of a deleted beginning": [coordinator(*DONE, *UNDONE),
        view([Log("A", start=5).txn(2, pid=7, end="abort")])],
    "of a partition from whose middle a cleaner took a transaction": [
        coordinator(*DONE, *UNDONE, *DONE), cleaned("commit"),
    ],
    "of a coordinator's log whose beginning is compacted": [
        but(coordinator(*UNDONE), compacted={"A": 1}), data("commit", "abort"),
    ],
    "a commit that was seen": [groups(3, 5), sampled(3, 3, 5)],
    "a commit that went back": [groups(5, 3), sampled(5, 3)],
    "an earlier commit again, of a leader that wrote later": [groups(3, 5, 6,
        log=led_again(0, 0, 2)), sampled(3, 5, 3, 5, 6)],
    "an earlier commit again, once a broker was killed": [groups(3, 5),
        sampled(3, 5, 3, 5, **fault("broker-kill", "A/1", 2))],
    "an earlier commit again, once all of them were": [groups(3, 5),
        sampled(5, 3, **fault("failover-forced", "A->B", 1))],
    "a commit that was acknowledged": [groups(3, 5), acknowledged(3)],
    "acknowledged, and its transaction has no marker yet": [groups(3, log=transaction(None)),
        acknowledged(3)],
    "replicas agree": [own([written(2), second(1, 2)])],
    "torn above the high watermark": [own(above(written(2), 1))],
    "a cleaner's gap": [own(written(1).skip(1).data(-1), compacted={"A": 2})],
    "the tail of a leader that was deposed": [
        own([written(1).data(-1, leader_epoch=3), second(1).data(-1, crc=5)], "__cluster_metadata")
    ],
}  # fmt: skip
SMALLEST = {
    "corrupt-batch": ([own(written(1, crc_ok=False))], TRANSACTIONS, 0),
    "log-disorder": ([own(written(1).data(-1, at=0))], TRANSACTIONS, 0),
    "replica-disagreement": ([own([written(1), second(1, crc=9)])], TRANSACTIONS, 0),
    "replica-missing": ([own([written(2), above(second(1), 2)])], TRANSACTIONS, 1),
    "leader-epoch-regression": (
        [own(Log("A").data(-1, leader_epoch=2).data(-1, leader_epoch=1))],
        TRANSACTIONS,
        1,
    ),
    "offsets-missing": ([own(written(1).skip(1).data(-1))], TRANSACTIONS, 1),
    "ends-early": ([own(above(written(1), 2))], TRANSACTIONS, 1),
    "outcome-disagreement": ([coordinator(*DONE), data("abort")], "A.t", 1),
    "marker-missing": ([coordinator(*DONE), data(None)], "A.t", -1),
    "marker-unexplained": ([coordinator(ONGOING, partitions=()), data("commit")], "A.t", 1),
    "commit-missing": ([groups(3), sampled(3, 5)], "A.t", 5),
}
REJECTS = {
    kind: Rejected(view=seen[-1], cluster="A", offset=offset)
    for kind, (seen, _, offset) in SMALLEST.items()
}
"""The partition in which each is found; some need the coordinator's partition too."""
NEIGHBOURS = {
    "a second outcome of one epoch": ([coordinator(*DONE, *UNDONE), data("commit", "commit")],
        "outcome-disagreement", 3),
    "the first of two has no marker": ([coordinator(*DONE, *UNDONE), data("abort")],
        "marker-missing", -1),
    "the last outcome behind a deleted beginning": (
        [coordinator(*DONE, *UNDONE), view([Log("A", start=5).txn(2, pid=7, end="commit")])],
        "outcome-disagreement", 6,
    ),
    "the last outcome above a cleaner's checkpoint": (
        [coordinator(*DONE, *UNDONE, *DONE), cleaned("abort")], "outcome-disagreement", 5,
    ),
    "a marker more than was decided": ([coordinator(*DONE), data("commit", "commit")],
        "marker-unexplained", 3),
    "the other marker again": (
        [coordinator(*DONE), view([Log("A").txn(1, pid=7).marker("abort", pid=7)])],
        "marker-unexplained", 2,
    ),
    "a marker of an epoch that nobody had": (
        [coordinator(*DONE, epoch=1, partitions=()), data("commit")], "marker-unexplained", 1,
    ),
    "acknowledged and not written": ([groups(3), acknowledged(4)], "commit-missing", 4),
    "acknowledged and aborted": ([groups(3, log=transaction("abort")), acknowledged(3)],
        "commit-missing", 3),
    "sampled in a transaction that is open": ([groups(3, log=transaction(None)), sampled(3)],
        "commit-missing", 3),
    "written in another order": ([groups(5, 3), sampled(3, 5)], "commit-missing", 5),
    "an earlier commit again, of the one leader": ([groups(3, 5), sampled(3, 5, 3)],
        "commit-missing", 3),
    "an earlier commit again, of the leader that wrote the later one": (
        [groups(3, 5, log=led_again(0, 2)), sampled(3, 5, 3)], "commit-missing", 3,
    ),
    "an earlier commit again, before the fault": (
        [groups(3, 5), sampled(3, 5, 3, **fault("broker-kill", "A/1", 3))], "commit-missing", 3,
    ),
    "an earlier commit again, and the other cluster's brokers were killed": (
        [groups(3, 5), sampled(5, 3, **fault("failover-forced", "B->A", 0))], "commit-missing", 3,
    ),
    "not written, and another leader wrote later": ([groups(3, 6, log=led_again(0, 2)),
        sampled(3, 5)], "commit-missing", 5),
    "not written, and a broker was killed": (
        [groups(3, 6), sampled(3, 5, **fault("broker-kill", "A/1", 0))], "commit-missing", 5,
    ),
    "nothing of the group, and a broker was killed": (
        [own(written(1), GROUPS), sampled(3, **fault("broker-kill", "A/1", 0))], "commit-missing",
        3,
    ),
    "nothing of the group": ([own(written(1), GROUPS), sampled(3)], "commit-missing", 3),
}  # fmt: skip


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case: str) -> None:
    assert judged(*ACCEPTED[case]) == ([], [])


@pytest.mark.parametrize("kind", SMALLEST)
def test_rejects(kind: str) -> None:
    seen, topic, offset = SMALLEST[kind]
    found, _ = judged(*seen)
    assert (kind, "A", topic, offset) in found
    others = {k for k, *_ in found} - {kind}
    assert others <= {"ends-early"}, found


@pytest.mark.parametrize("case", NEIGHBOURS)
def test_rejects_the_neighbours_too(case: str) -> None:
    seen, kind, offset = NEIGHBOURS[case]
    assert judged(*seen) == ([(kind, "A", "A.t", offset)], [])


def test_below_the_high_watermark_a_torn_log_is_unknown_and_no_coordinator_is_believed() -> None:
    seen = coordinator(*DONE, log=torn(written(3)))
    assert judged(seen, data("abort")) == (
        [],
        [f"the log of {TRANSACTIONS}-0 on A/1 is torn from offset 3 on"],
    )


def test_a_log_with_a_hole_says_of_no_transaction_how_it_ended() -> None:
    seen = coordinator(*DONE, log=written(1).skip(1).data(-1))
    assert judged(seen, data("abort")) == ([("offsets-missing", "A", TRANSACTIONS, 1)], [])


def test_commits_of_a_transaction_count_when_it_committed() -> None:
    for end, lost in (("commit", []), ("abort", [("commit-missing", "A", "A.t", 3)])):
        log = Log("A").txn(-1, pid=9, end=end)
        found, _ = judged(groups(3, log=log), sampled(3))
        assert found == lost


def test_markers_that_a_mirror_brought_or_wrote_are_no_coordinators_own() -> None:
    log = Log("B").txn(1, pid=7, end="commit").txn(2, pid=7, end="abort")
    states = own(Log("B").data(-1), entries=[state(ONGOING, at=0)])
    mirrored = view([log], mirror_kind="shadow", promotions=[promoted(4)])
    assert judged(states, mirrored) == ([], [])
    native = view([log], mirror_kind="shadow", promotions=[promoted(2)])
    assert judged(states, native)[0] == [("marker-unexplained", "B", "A.t", 3)]


def test_batches_of_internal_topics_are_counted_as_examined() -> None:
    rows = examine(CHECK, own([written(2), second(1, 2)]))
    assert sum(r.count for r in rows if r.finding == "examined") == 4
    assert [f for f in CHECK.kernel(data("commit")) if isinstance(f, Examined)] == []


def test_no_other_check_looks_at_them() -> None:
    corrupt = own(written(1, crc_ok=False))
    assert {name for name, check in REGISTRY.items() if examine(check, corrupt)} == {
        "internal-topics"
    }


def test_where_a_cluster_keeps_the_states_of_its_mirrors_is_held_to_its_bytes_too() -> None:
    assert judged(own([written(2), second(1, 2)], MIRROR_STATE)) == ([], [])
    assert judged(own(written(1).skip(1).data(-1), MIRROR_STATE)) == (
        [("offsets-missing", "A", MIRROR_STATE, 1)],
        [],
    )
