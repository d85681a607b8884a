"""internal-topics: the smallest histories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from linkflap.harness.log.coordinators import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    FORGOTTEN,
    GROUPS,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TRANSACTIONS,
    TransactionState,
)
from linkflap.harness.model.topology import MIRROR_STATE
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Examined
from linkflap.spark_verify.checks.finding_rows import examine
from linkflap.spark_verify.facts.partition_facts import Window
from linkflap.spark_verify.facts.view import PartitionView
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
    set_to,
    state,
    states,
    torn,
    transaction,
    twice,
    written,
)
from tests.unit.checks.histories import SECOND, Log, but, promoted, view
from tests.unit.checks.verdicts import Rejected

DONE = (ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT)
UNDONE = (ONGOING, PREPARE_ABORT, COMPLETE_ABORT)
DOWN = (Window(id="f", fault="broker-kill", target="A/1", start=-SECOND, end=SECOND),)


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
    "prepared again while a broker was down: the first append had failed": [
        but(coordinator(ONGOING, *[PREPARE_COMMIT] * 2, COMPLETE_COMMIT), windows=DOWN),
        data("commit"),
    ],
    "complete above the high watermark": [
        coordinator(*DONE, log=above(written(4), 3)), data(None),
    ],
    "transactions v2, the epochs used up: prepared with one id, complete with the next": [
        own(
            written(5),
            compacted={"A": 1},
            entries=[
                state(ONGOING, TOPIC_PARTITION, at=0, epoch=32766),
                state(PREPARE_COMMIT, TOPIC_PARTITION, at=1, epoch=32767, version=2, next_id=8),
                state(COMPLETE_COMMIT, at=2, pid=8, version=2),
                state(ONGOING, TOPIC_PARTITION, at=3, pid=8),
                state(PREPARE_ABORT, TOPIC_PARTITION, at=4, pid=8, epoch=1, version=2),
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
    "impossible-state": ([coordinator(ONGOING, PREPARE_COMMIT, COMPLETE_ABORT)], TRANSACTIONS, 3),
    "marker-unexplained": ([coordinator(ONGOING, partitions=()), data("commit")], "A.t", 1),
    "commit-missing": ([groups(3), sampled(3, 5)], "A.t", 5),
}
REJECTS = {kind: Rejected(seen[-1], "A", offset) for kind, (seen, _, offset) in SMALLEST.items()}
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
    "one of three has no marker, behind a compacted beginning": (
        [but(coordinator(*UNDONE, *DONE, *UNDONE), compacted={"A": 1}),
            data("commit", "abort", "abort")], "marker-missing", -1,
    ),
    "one of three has the other, behind a compacted beginning": (
        [but(coordinator(*UNDONE, *DONE, *UNDONE), compacted={"A": 1}),
            data("commit", "abort", "abort", "abort")], "outcome-disagreement", 5,
    ),
    "the first of two, which are not known to be complete, has the other": (
        [coordinator(*DONE, *DONE, log=above(written(6), 2)),
            view([Log("A", start=5).txn(2, pid=7, end="abort").txn(3, pid=7)])],
        "outcome-disagreement", 6,
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
    "a marker without an epoch says nothing of a deleted beginning": (
        [coordinator(*UNDONE), view([Log("A", start=5).txn(2, pid=7, marker_epoch=-1)])],
        "marker-unexplained", 6,
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


ID = state(EMPTY)
BEGUN = state(ONGOING, TOPIC_PARTITION, updated=5, started=5)
COMMITS = replace(BEGUN, state=PREPARE_COMMIT, updated=7)
COMMITTED = replace(COMMITS, state=COMPLETE_COMMIT, partitions=(), updated=8)
ABORTS = replace(COMMITS, state=PREPARE_ABORT)
ABORTED = replace(COMMITTED, state=COMPLETE_ABORT)
V2 = [
    replace(COMMITS, version=2, producer_epoch=1),
    replace(COMMITTED, version=2, producer_epoch=1),
]
USED_UP = [replace(BEGUN, producer_epoch=32766), replace(COMMITS, version=2, producer_epoch=32767,
    next_id=8), replace(COMMITTED, version=2, producer_id=8)]  # fmt: skip
EXPIRED = state(FORGOTTEN, pid=-1, epoch=-1, written=8 + 7 * 24 * 3600 * 1000)
OTHER = ("A.u", 1)
FOLLOWS = {
    "two transactions of one epoch (v1)": [ID, BEGUN, COMMITS, COMMITTED, replace(BEGUN,
        updated=9, started=9)],
    "more partitions": [ID, BEGUN, replace(BEGUN, partitions=(TOPIC_PARTITION, OTHER), updated=6)],
    "each end in the next epoch (v2)": [ID, BEGUN, *V2, replace(BEGUN, producer_epoch=1)],
    "v2: aborted, and nothing was ongoing": [
        ID, state(PREPARE_ABORT, epoch=1, updated=6, started=6, version=2),
        state(COMPLETE_ABORT, epoch=1, updated=7, started=6, version=2),
    ],
    "its timeout passed, or a successor came": [ID, BEGUN, replace(ABORTS, producer_epoch=1),
        replace(ABORTED, producer_epoch=1), state(EMPTY, epoch=2)],
    "a producer asks again for the same epoch": [ID, state(EMPTY, epoch=1), state(EMPTY, epoch=1)],
    "another timeout of a new producer": [ID, state(EMPTY, epoch=1, timeout=900_000)],
    "a new producer id when the epochs are used up": [state(EMPTY, epoch=32766), state(EMPTY,
        pid=8, previous_id=7)],
    "v2, used up: complete with the next producer id": USED_UP,
    "used up, and its timeout passed": [replace(BEGUN, producer_epoch=32766), replace(ABORTS,
        producer_epoch=32767), replace(ABORTED, producer_epoch=32767), state(EMPTY, pid=8)],
    "forgotten after a week, and known again": [ID, BEGUN, COMMITS, COMMITTED, EXPIRED,
        state(EMPTY, pid=8)],
}  # fmt: skip
DOES_NOT = {
    "committed, and complete as aborted": [ID, BEGUN, COMMITS, ABORTED],
    "aborted, and complete as committed": [ID, BEGUN, ABORTS, COMMITTED],
    "complete without being prepared": [ID, BEGUN, COMMITTED],
    "prepared, and nothing was ongoing": [ID, COMMITS],
    "v1: aborted, and nothing was ongoing": [ID, replace(ABORTS, partitions=(), started=7)],
    "aborted after commit was prepared": [ID, BEGUN, COMMITS, ABORTS],
    "a new producer while one is prepared": [ID, BEGUN, COMMITS, state(EMPTY, epoch=1)],
    "a new producer while one is ongoing": [ID, BEGUN, state(EMPTY, epoch=1)],
    "it begins again while it is prepared": [ID, BEGUN, COMMITS, BEGUN],
    "no beginning": [BEGUN],
    "the first epoch is not 0": [state(EMPTY, epoch=1)],
    "an epoch is left out": [ID, state(EMPTY, epoch=2)],
    "an epoch goes back": [ID, state(EMPTY, epoch=1), state(EMPTY)],
    "it begins in another epoch": [ID, replace(BEGUN, producer_epoch=1)],
    "v1: committed in another epoch": [ID, BEGUN, replace(COMMITS, producer_epoch=1)],
    "v2: committed in the same epoch": [ID, BEGUN, replace(V2[0], producer_epoch=0)],
    "aborted two epochs later": [ID, BEGUN, replace(ABORTS, version=2, producer_epoch=2)],
    "complete in another epoch": [ID, BEGUN, COMMITS, replace(COMMITTED, producer_epoch=1)],
    "prepared with another producer id": [ID, BEGUN, replace(COMMITS, producer_id=8)],
    "a new producer id, and epochs are left": [ID, state(EMPTY, pid=8)],
    "used up, and no new producer id": [state(EMPTY, epoch=32766), state(EMPTY, epoch=32767)],
    "the next producer id, and epochs are left": [ID, BEGUN, replace(V2[0], next_id=8)],
    "complete with another than the next producer id": [*USED_UP[:2], replace(USED_UP[2],
        producer_id=9)],
    "another previous producer id": [ID, replace(BEGUN, previous_id=6)],
    "a partition is lost while it is ongoing": [ID, BEGUN, replace(BEGUN, partitions=(OTHER,))],
    "prepared for fewer partitions": [ID, BEGUN, replace(COMMITS, partitions=())],
    "prepared for more partitions": [ID, BEGUN, replace(COMMITS, partitions=(TOPIC_PARTITION,
        OTHER))],
    "complete, with partitions": [ID, BEGUN, COMMITS, replace(COMMITTED,
        partitions=(TOPIC_PARTITION,))],
    "another timeout of an open transaction": [ID, BEGUN, replace(COMMITS, timeout=900_000)],
    "a timeout above the longest": [replace(ID, timeout=900_001)],
    "another start": [ID, BEGUN, replace(COMMITS, started=6)],
    "a start that is not its first record's": [ID, replace(BEGUN, started=4)],
    "Empty, with a transaction": [ID, state(EMPTY, epoch=1, started=5)],
    "another version when it is complete": [ID, BEGUN, COMMITS, replace(COMMITTED, version=1)],
    "begun with v2, committed with v1": [ID, replace(BEGUN, version=2), COMMITS],
    "the next producer id while it is ongoing": [ID, replace(BEGUN, next_id=8)],
    "the next producer id of a new one": [replace(ID, next_id=8)],
    "the next producer id when it is complete": [ID, BEGUN, COMMITS, replace(COMMITTED,
        next_id=8)],
    "forgotten too early": [ID, BEGUN, COMMITS, COMMITTED, replace(EXPIRED,
        written=EXPIRED.written - 1)],
    "forgotten while it is open": [ID, BEGUN, EXPIRED],
    "forgotten, and it goes on": [ID, BEGUN, COMMITS, COMMITTED, EXPIRED, BEGUN],
    "a state that is in no log": [ID, BEGUN, replace(COMMITS, state=7)],
    "one producer id of two transactional ids": [ID, replace(ID, transactional_id="u")],
}  # fmt: skip


def chain(of: Sequence[TransactionState]) -> PartitionView:
    """States of which those before the first Empty of epoch 0 were compacted."""
    seen = states(*of)
    begun = of[0].state == EMPTY or of[0].producer_epoch == 0
    return seen if begun and of[0].producer_epoch < 2 else but(seen, compacted={"A": 1})


@pytest.mark.parametrize("case", FOLLOWS)
def test_a_state_follows(case: str) -> None:
    assert judged(chain(FOLLOWS[case])) == ([], [])


@pytest.mark.parametrize("case", DOES_NOT)
def test_a_state_does_not_follow(case: str) -> None:
    wrong = DOES_NOT[case]
    found, _ = judged(chain(wrong))
    assert [each for each in found if each[0] == "impossible-state"] == [
        ("impossible-state", "A", TRANSACTIONS, len(wrong) - 1)
    ]


def timed(*each: tuple[int, int]) -> PartitionView:
    """A's states Empty, Ongoing and so on, each with the times when it was updated and written."""
    kinds = (ID, BEGUN, COMMITS, COMMITTED)
    return own(
        written(len(each)),
        entries=[
            replace(one, offset=n, updated=at, written=then, started=each[1][0] if n else -1)
            for n, (one, (at, then)) in enumerate(zip(kinds, each, strict=False))
        ],
    )


HOUR = 3600 * 1000
TIMES = {
    "each later": ([(1, 2), (3, 4), (5, 6), (7, 8)], -1),
    "all in one millisecond": ([(1, 1), (1, 1), (1, 1), (1, 1)], -1),
    "complete before it was prepared": ([(1, 2), (3, 4), (5, 6), (4, 8)], 3),
    "prepared before it began": ([(1, 2), (3, 4), (2, 6)], 2),
    "begun before it was known": ([(1, 2), (0, 4)], 1),
    "updated after it was written": ([(1, 2), (3, 4), (5, 6), (9, 8)], 3),
    "the first, updated after it was written": ([(3, 2), (3, 4)], 0),
}


@pytest.mark.parametrize("case", TIMES)
def test_a_state_is_updated_after_the_one_before_it_and_before_it_is_written(case: str) -> None:
    times, wrong = TIMES[case]
    found = [("impossible-state", "A", TRANSACTIONS, wrong)] if wrong >= 0 else []
    assert judged(timed(*times)) == (found, [])
    assert judged(but(timed(*times), recorded=False)) == ([], [])
    assert judged(but(timed(*times), **fault("clock-skew", "A/1", 0))) == ([], [])
    assert judged(but(timed(*times), **fault("clock-skew", "B/1", 0))) == (found, [])


def test_wrong_clocks_of_brokers_explain_up_to_two_hours() -> None:
    skewed = fault("clock-skew", "A/1", 0)
    for back, found in ((2 * HOUR, []), (2 * HOUR + 1, ["impossible-state"])):
        seen = but(timed((1, 1), (3 * HOUR, 3 * HOUR), (3 * HOUR - back, 3 * HOUR)), **skewed)
        assert [kind for kind, *_ in judged(seen)[0]] == found


def test_a_cleaner_leaves_the_last_state_and_what_follows_is_held_against_it() -> None:
    left = [COMMITS, COMMITTED, BEGUN]
    assert judged(but(states(*left), compacted={"A": 1})) == ([], [])
    assert judged(but(states(*left), compacted={"A": 3})) == ([], [])
    wrong = [COMMITS, ABORTED, BEGUN]
    assert judged(but(states(*wrong), compacted={"A": 1}))[0][0][0] == "impossible-state"
    assert judged(but(states(*wrong), compacted={"A": 2})) == ([], [])


FAILED = [ID, BEGUN, COMMITS, ABORTS, ABORTED]
"""The append of PrepareCommit failed: the coordinator aborted after that."""


def test_an_append_that_failed_counts_for_nothing_once_brokers_were_down() -> None:
    now = [replace(each, updated=2000, written=2000, started=each.started) for each in FAILED]
    now[1:] = [replace(each, started=2000) for each in now[1:]]
    wrong = [("impossible-state", "A", TRANSACTIONS, 3)]
    assert judged(but(states(*now), windows=DOWN)) == ([], [])
    assert judged(states(*now))[0] == wrong
    before = tuple(replace(w, start=2 * SECOND, end=9 * SECOND) for w in DOWN)
    assert judged(but(states(*now), windows=before)) == ([], [])
    later = tuple(replace(w, start=3 * SECOND, end=9 * SECOND) for w in DOWN)
    elsewhere = tuple(replace(w, target="B/1") for w in DOWN)
    for windows in (later, elsewhere):
        assert judged(but(states(*now), windows=windows))[0] == wrong
    moved = Log("A").data(-1).data(-1).data(-1).data(-1, leader_epoch=1).data(-1, leader_epoch=1)
    assert judged(but(states(*now, log=moved), windows=DOWN))[0] == wrong


def test_without_a_history_it_is_unknown_whether_an_append_failed() -> None:
    found, unknown = judged(but(states(*FAILED), recorded=False))
    assert found == []
    assert len(unknown) == 1
    assert "PrepareAbort of t at offset 3" in unknown[0]


def test_recorded_settings_of_brokers_decide_about_expiration_and_timeout() -> None:
    soon = [ID, state(FORGOTTEN, pid=-1, epoch=-1, written=2000)]
    assert judged(set_to(states(*soon), "transactional.id.expiration.ms", 2000)) == ([], [])
    assert judged(but(states(*soon), recorded=False)) == ([], [])
    slow = replace(ID, timeout=1_000_000)
    assert judged(set_to(states(slow), "transaction.max.timeout.ms", 1_000_000)) == ([], [])


def test_kafka_4_0_0_raises_the_epoch_twice() -> None:
    twice_ = states(ID, BEGUN, replace(ABORTS, version=2, producer_epoch=2))
    assert judged(set_to(twice_, kafka="4.0.0")) == ([], [])
    assert judged(set_to(twice_, kafka="4.0.1"))[0] != []


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
    seen = coordinator(*DONE, log=torn(written(4)))
    assert judged(seen, data("abort")) == (
        [],
        [f"the log of {TRANSACTIONS}-0 on A/1 is torn from offset 4 on"],
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
    states = own(Log("B").data(-1), entries=[state(EMPTY, at=0)])
    mirrored = view([log], mirror_kind="shadow", promotions=[promoted(4)])
    assert judged(states, mirrored) == ([], [])
    native = view([log], mirror_kind="shadow", promotions=[promoted(2)])
    assert judged(states, native)[0] == [("marker-unexplained", "B", "A.t", 3)]


def test_batches_of_internal_topics_are_counted_as_examined() -> None:
    rows = examine(CHECK, own([written(2), second(1, 2)]))
    assert sum(r.count for r in rows if r.finding == "examined") == 4
    assert [f for f in CHECK.kernel(data("commit")) if isinstance(f, Examined)] == []


def test_damage_of_an_internal_topic_is_reported_by_one_check() -> None:
    corrupt = own(written(1, crc_ok=False))
    rows = {name: examine(check, corrupt) for name, check in REGISTRY.items()}
    found = {name for name, some in rows.items() if any(r.finding == "found" for r in some)}
    assert found == {"internal-topics"}


def test_gap_in_the_mirror_state_topic_is_found() -> None:
    assert judged(own([written(2), second(1, 2)], MIRROR_STATE)) == ([], [])
    assert judged(own(written(1).skip(1).data(-1), MIRROR_STATE)) == (
        [("offsets-missing", "A", MIRROR_STATE, 1)],
        [],
    )
