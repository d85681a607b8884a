"""Records that an unclean election took away are allowed to be absent, and no others: the smallest
history that is allowed, and the smallest just outside of it in each dimension.

The deposed leader of A had 1 2 | 3 4 at offsets 0 to 3, and the elected replica had only 1 2. The
election was at second 50; the new leader wrote 6 7 8 from offset 2 on. B mirrored A then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from linkflap.harness.guarantees import shadow
from linkflap.harness.model.faults import UNCLEAN
from linkflap.harness.model.verdict import Anomaly
from linkflap.spark_verify.facts.partition_facts import Loss, Window
from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.verdict.allowances import why_allowed
from tests.unit.checks.histories import (
    SECOND,
    Log,
    but,
    commit,
    poll,
    promoted,
    samples,
    send,
    view,
)
from tests.unit.checks.verdicts import findings

BEFORE, ELECTED, AFTER = 10 * SECOND, 50 * SECOND, 60 * SECOND
LOSS = Loss(
    cluster="A", topic="A.t", partition=0, start=2, end=4, elected=ELECTED,
    elected_epoch=2, records=((3, 2, 2, 5),),
)  # fmt: skip
NOW = [Log("A").data(1, 2, 6, 7, 8, pid=5), Log("B").data(1, 2, 6, 7, 8, pid=5)]
OLD = send(3, 4, acked=2, producer_id=5, invoked=BEFORE)
NEW = send(6, 7, 8, acked=2, producer_id=6, invoked=AFTER)


def lost(loss: Loss = LOSS) -> list[Window]:
    return [
        Window(id="f", fault=UNCLEAN, target="A", start=SECOND, end=AFTER + SECOND, lost=(loss,))
    ]


def judged(name: str, *views: PartitionView) -> list[tuple[str, str, int, bool]]:
    """Kind, cluster, offset, and whether it is allowed."""
    seen = views[0]
    return [
        (each.kind, each.cluster, each.offset, why_allowed(
            Anomaly(
                check=name, kind=each.kind, cluster=each.cluster, topic=seen.topic, partition=0,
                offset=each.offset, evidence=each.evidence,
            ),
            shadow.guarantee({}), "", seen.windows,
        ) is not None)
        for each in findings(name, *views)
    ]  # fmt: skip


def history(*sends: Send, reads: Sequence[Read] = (), **more: Any) -> PartitionView:
    fields: dict[str, Any] = {"windows": lost(), "mirror_kind": "shadow", "mirror": {}} | more
    return view(fields.pop("logs", NOW), sends=sends, reads=reads, **fields)


OUTSIDE: Mapping[str, Sequence[Send]] = {
    "sent after the election": [replace(OLD, invoked=AFTER)],
    "another record at a lost offset": [send(9, acked=3, producer_id=5, invoked=BEFORE)],
    "below what was lost": [send(9, acked=1, producer_id=5, invoked=BEFORE)],
    "behind what was lost": [send(9, acked=4, producer_id=5, invoked=BEFORE)],
    "a lost record at another offset": [send(4, acked=2, producer_id=5, invoked=BEFORE)],
    "on another cluster": [replace(OLD, cluster="B")],
    "one more": [OLD, send(9, acked=3, producer_id=5, invoked=BEFORE)],
}


@pytest.mark.parametrize(("epoch", "allowed"), [(1, True), (2, False)])
def test_unclean_election_lost_no_record_that_was_sent_under_its_leader(
    epoch: int, allowed: bool
) -> None:
    sampled = {"A": samples((2, 2), epochs=[epoch])}
    found = judged("lost-write", history(OLD, NEW, watermarks=sampled))
    assert found == [("lost-write", "A", 2, allowed)]


def test_acknowledged_records_that_were_lost_are_allowed() -> None:
    seen = history(OLD, NEW)
    assert judged("lost-write", seen) == [("lost-write", "A", 2, True)]
    assert judged("ghost-ack", seen) == [("ghost-ack", "A", 2, True)]
    assert judged("inconsistent-offset", seen) == [("inconsistent-offset", "A", 2, True)]


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("name", ["lost-write", "ghost-ack"])
def test_acknowledged_records_beside_the_lost_ones_are_violations(name: str, outside: str) -> None:
    promotions = [promoted(0, at=5 * SECOND)] if outside == "on another cluster" else []
    found = judged(name, history(*OUTSIDE[outside], NEW, promotions=promotions))
    assert [kind for kind, _, _, allowed in found if not allowed] == [name]


@pytest.mark.parametrize(
    "loss",
    [
        replace(LOSS, cluster="B"),
        replace(LOSS, partition=1),
        replace(LOSS, topic="A.u"),
        replace(LOSS, elected=BEFORE),
        replace(LOSS, records=((3, 2, 1, 5),)),
        replace(LOSS, records=((4, 2, 2, 5),)),
    ],
    ids=["another cluster", "partition", "topic", "an earlier election", "one less", "others"],
)
def test_another_loss_allows_nothing_of_it(loss: Loss) -> None:
    for name in ("lost-write", "ghost-ack", "inconsistent-offset"):
        found = judged(name, history(OLD, NEW, windows=lost(loss)))
        assert not all(allowed for *_, allowed in found), name


def test_a_record_of_the_new_leader_is_lost_though_the_fault_lost_its_offset() -> None:
    logs = [Log("A").data(1, 2, 6, pid=5).data(8, pid=5, at=4), Log("B").data(1, 2, 6, 8, pid=5)]
    found = judged("lost-write", history(OLD, NEW, logs=logs[:1]))
    assert sorted(found) == [("lost-write", "A", 2, True), ("lost-write", "A", 3, False)]


def early(*pairs: tuple[int, int], at: int = BEFORE, **more: Any) -> Read:
    return poll(*pairs, at=at, **more)


ALL = ((0, 1), (1, 2), (2, 3), (3, 4))
LATE = early((4, 8), at=AFTER)


GAP = replace(LOSS, records=((4, 3, 1, 5),), markers=((2, 7, 0, True),))
"""At offset 2 the deposed leader had a marker."""


def test_a_reader_may_have_got_what_was_lost_and_passes_what_replaced_it() -> None:
    for cluster in ("A", "B"):
        reads = [
            early((0, 1), (1, 2), (3, 4), cluster=cluster),
            replace(LATE, cluster=cluster),
        ]
        seen = history(NEW, reads=reads, windows=lost(GAP))
        assert judged("read-committed-visibility", seen) == [
            ("phantom-read", cluster, 3, True),
            ("hidden-committed", cluster, 2, True),
        ]
        assert judged("poll-continuity", seen) == [("internal-skip", cluster, 2, True)]


@pytest.mark.parametrize(
    ("cluster", "reads"),
    [
        ("A", [early(*ALL, at=AFTER)]),
        ("A", [early((2, 9), (3, 4))]),
        ("A", [early((1, 3))]),
        ("A", [early((4, 4))]),
        ("B", [early((2, 6), cluster="B", at=AFTER), early((3, 4), cluster="B", at=AFTER + 9)]),
    ],
    ids=["after the election", "another record", "below", "behind", "after B had what is new"],
)
def test_other_reads_are_violations(cluster: str, reads: Sequence[Read]) -> None:
    found = judged("read-committed-visibility", history(OLD, NEW, reads=reads))
    assert ("phantom-read", cluster, False) in {(k, c, allowed) for k, c, _, allowed in found}
    seen = judged("inconsistent-offset", history(OLD, NEW, reads=reads))
    assert not seen or cluster == "A" or not all(allowed for *_, allowed in seen)


def test_a_cluster_that_did_not_mirror_it_then_may_not_show_what_was_lost() -> None:
    away = [promoted(2, at=5 * SECOND)]
    logs = [NOW[0], Log("B").data(1, 2, pid=5)]
    reads = [early(*ALL, cluster="B", at=20 * SECOND)]
    found = judged(
        "read-committed-visibility", history(OLD, NEW, logs=logs, reads=reads, promotions=away)
    )
    assert ("phantom-read", "B", 2, False) in found


def test_readers_that_stood_below_may_not_pass_what_replaced_it() -> None:
    for reads in (
        [early((0, 1), (1, 2)), LATE],
        [
            early((0, 1), (1, 2), (3, 4), at=AFTER),
            replace(LATE, time=AFTER + 9, returned=AFTER + 10),
        ],
    ):
        seen = history(NEW, reads=reads, windows=lost(GAP))
        assert ("hidden-committed", "A", 2, False) in judged("read-committed-visibility", seen)
        assert not any(allowed for *_, allowed in judged("poll-continuity", seen))


def test_a_reader_may_not_skip_a_record_that_the_deposed_leader_had() -> None:
    reads = [early((0, 1), (1, 2), (3, 4)), LATE]
    found = judged("poll-continuity", history(OLD, NEW, reads=reads))
    assert found == [("internal-skip", "A", 2, False)]


def test_a_write_that_readers_stood_beyond_may_stay_unseen() -> None:
    ends = [
        poll(at=1, kind="assign", position=0), early(*ALL), LATE,
        poll(at=AFTER + 1, kind="drained", position=5),
    ]  # fmt: skip
    assert judged("unseen", history(OLD, NEW, reads=ends)) == [("unseen-write", "A", 2, True)]
    below = [ends[0], early((0, 1), (1, 2)), *ends[2:]]
    assert ("unseen-write", "A", 2, False) in judged("unseen", history(NEW, reads=below))


MARKED = replace(LOSS, start=1, records=((3, 2, 2, 5),), markers=((1, 7, 0, True),))
"""The COMMIT of 1, by producer 7, was lost too."""
UNENDED = [Log("A").txn(1, pid=7, end=None).data(6, 7, 8, pid=6)]


def test_a_transaction_whose_marker_was_lost_stays_open() -> None:
    done = commit(1, acked=0, producer_id=7, invoked=BEFORE)
    seen = history(done, logs=UNENDED, reads=[early((0, 1))], windows=lost(MARKED))
    assert judged("lost-write", seen) == [("lost-write", "A", 0, True)]
    assert judged("commit-aborted", seen) == [("commit-unmarked", "A", 0, True)]
    assert judged("read-committed-visibility", seen) == [("phantom-read", "A", 0, True)]
    assert judged("last-stable-offset", seen) == [("hanging-transaction", "A", 0, True)]
    torn = judged("torn-transaction", seen)
    assert torn == [("torn-transaction", "A", 0, True)]


def test_lost_marker_allows_only_the_open_transaction_of_its_own_producer() -> None:
    """Records of theirs have no payload id: one lost marker is not another one's."""
    logs = [Log("A").txn(-1, pid=7, end=None).txn(-1, pid=8, end=None).data(6, 7, pid=6)]
    of_7 = replace(MARKED, start=2, markers=((2, 7, 0, True),), records=((3, 3, 1, 5),))
    for loss, allowed in (
        (of_7, [True, False]),
        (replace(of_7, markers=((2, 8, 0, False),)), [False, True]),
        (replace(of_7, markers=((2, 7, 0, True), (3, 8, 0, True))), [True, True]),
        (replace(of_7, markers=((2, 7, 5, True),)), [False, False]),
    ):
        seen = history(logs=logs, windows=lost(loss), ended=10_000 * SECOND)
        found = judged("last-stable-offset", seen)
        assert [(offset, by) for _, _, offset, by in found] == [(0, allowed[0]), (1, allowed[1])]
    log = Log("A").txn(-1, pid=7, end=None).txn(-1, pid=8, end=None)
    log.txn(-1, pid=7, epoch=1).txn(-1, pid=8, epoch=1)
    found = judged("marker-pairing", history(logs=[log], windows=lost(of_7)))
    assert [(offset, by) for _, _, offset, by in found] == [(0, True), (1, False)]


@pytest.mark.parametrize("commits", [True, False], ids=["COMMIT", "ABORT"])
@pytest.mark.parametrize("epoch", [0, 1], ids=["the same epoch", "a new epoch"])
def test_the_next_transaction_may_follow_one_whose_marker_was_lost(
    epoch: int, *, commits: bool
) -> None:
    log = Log("A").txn(1, pid=7, end=None).txn(6, pid=7, epoch=epoch)
    lost_marker = replace(MARKED, markers=((1, 7, 0, commits),))
    for marked, allowed in ((lost_marker, True), (replace(MARKED, markers=()), False)):
        seen = history(logs=[log], windows=lost(marked))
        assert judged("marker-pairing", seen) == [("marker-missing", "A", 0, allowed)]


BECAME = [
    Log(name).data(5).txn(1, 9, pid=7, end=None).txn(6, pid=7, epoch=1).data(8) for name in "AB"
]
"""The ABORT of 1 and 9 at offset 3 was lost, and the COMMIT of 6 ended them, too."""
ABORTED = replace(LOSS, start=3, records=(), markers=((3, 7, 0, False), (4, 7, 0, False)))


@pytest.mark.parametrize(
    ("marker", "allowed"), [(7, True), (8, False)], ids=["its own", "another producer's"]
)
@pytest.mark.parametrize("cluster", ["A", "B"])
def test_aborted_records_whose_marker_was_lost_may_become_visible(
    cluster: str, marker: int, *, allowed: bool
) -> None:
    sends = [
        commit(1, 9, acked=1, ending="abort", producer_id=7, invoked=BEFORE),
        commit(6, acked=3, producer_id=7, producer_epoch=1, invoked=AFTER),
    ]
    windows = lost(replace(ABORTED, markers=((3, marker, 0, False),)))
    late = [early((0, 5), (1, 1), (2, 9), (3, 6), cluster=cluster, at=AFTER)]
    seen = history(*sends, logs=BECAME, reads=late, windows=windows)
    assert judged("aborted-read", seen) == [("aborted-read", cluster, 1, allowed)]
    stood = early((0, 5), cluster=cluster, position=4)
    passed = replace(seen, reads=[stood, early((5, 8), cluster=cluster, at=AFTER)])
    hidden = judged("read-committed-visibility", passed)
    assert ("hidden-committed", cluster, 1, allowed) in hidden
    before = replace(seen, reads=[early((1, 1), (2, 9), cluster=cluster)])
    assert judged("aborted-read", before) == [("aborted-read", cluster, 1, False)]


def test_a_poll_skips_what_was_aborted_when_it_was_made() -> None:
    log = Log("A").data(5).txn(1, 9, pid=7, end=None).data(4).txn(6, pid=7, epoch=1)
    loss = replace(ABORTED, start=4, end=6, markers=((4, 7, 0, False),))
    for at, isolation, allowed in (
        (BEFORE, "read_committed", True),
        (BEFORE, "read_uncommitted", False),
        (AFTER, "read_committed", False),
    ):
        polls = [early((0, 5), (3, 4), at=at, isolation=isolation)]
        seen = history(logs=[log], reads=polls, windows=lost(loss))
        assert judged("poll-continuity", seen) == [("internal-skip", "A", 1, allowed)]


def test_an_aborted_transaction_that_became_visible_in_one_partition_is_not_torn() -> None:
    one = commit(1, 9, acked=1, ending="abort", producer_id=7, invoked=BEFORE)
    other = replace(one, first_uid=11)
    aborted = replace(
        history(other, logs=[Log("A").txn(11, 12, pid=7, end="abort")], topic="A.u"), reads=()
    )
    for loss, found in ((ABORTED, []), (replace(ABORTED, markers=()), ["torn-transaction"])):
        seen = history(
            one, logs=BECAME[:1], windows=lost(loss), reads=[early((1, 1), (2, 9), at=AFTER)]
        )
        assert [kind for kind, *_ in judged("torn-transaction", seen, aborted)] == found


@pytest.mark.parametrize(
    "markers",
    [(), ((1, 8, 0, True),), ((1, 7, 0, False),)],
    ids=["no marker", "another producer's", "an ABORT"],
)
def test_without_its_own_lost_marker_an_open_transaction_is_a_violation(
    markers: tuple[tuple[int, int, int, bool], ...],
) -> None:
    done = commit(1, acked=0, producer_id=7, invoked=BEFORE)
    windows = lost(replace(MARKED, markers=markers))
    seen = history(done, logs=UNENDED, reads=[early((0, 1))], windows=windows)
    for name in ("lost-write", "commit-aborted", "read-committed-visibility", "torn-transaction"):
        assert [allowed for *_, allowed in judged(name, seen)] == [False], name


def test_a_sample_of_the_deposed_leaders_log_is_no_violation() -> None:
    logs = [Log("A").data(1, 2, pid=5).txn(6, 7, pid=6, end=None)]
    old: dict[str, Any] = {
        "watermarks": {"A": samples((2, 2), (4, 4), epochs=(1, 1))},
        "logs": logs,
    }
    assert judged("last-stable-offset", history(**old))[:1] == [("lso-mismatch", "A", 4, True)]
    for outside in (
        replace(LOSS, elected=SECOND),
        replace(LOSS, elected_epoch=1),
        replace(LOSS, start=2, end=3),
    ):
        found = judged("last-stable-offset", history(**old, windows=lost(outside)))
        assert ("lso-mismatch", "A", 4, False) in found


def shares(*rows: tuple[str, int, int, Sequence[int]]) -> list[Read]:
    """Steps of a share group's member: kind, second, position, and payloads by offset."""
    now, old = {0: 1, 1: 2, 2: 6, 3: 7, 4: 8}, {3: 4}
    return [
        replace(
            poll(
                *((n, (old if at < 50 else {}).get(n, now[n])) for n in offsets),
                kind=kind, at=at * SECOND, position=position, group="g",
            ),
            time=at * SECOND,
        )
        for kind, at, position, offsets in rows
    ]  # fmt: skip


def done(at: int, *offsets: int) -> list[tuple[str, int, int, Sequence[int]]]:
    return [(kind, at, 1, offsets) for kind in ("acquire", "accept", "accepted")]


def test_a_share_group_that_had_passed_what_was_lost_is_not_given_what_replaced_it() -> None:
    def found(*rows: tuple[str, int, int, Sequence[int]]) -> list[tuple[str, str, int, bool]]:
        seen = replace(history(NEW, windows=lost(GAP)), shares=shares(*rows))
        return judged("share-groups", seen)

    late = [*done(60, 4), ("settled", 70, 5, ())]
    passed = [*done(10, 0, 1, 3), ("settled", 20, 4, ())]
    assert found(*passed, *late) == [("never-delivered", "A", 2, True)]
    below = [*done(10, 0, 1), ("settled", 20, 2, ()), *late]
    assert found(*below) == [("never-delivered", "A", 2, False)]


def test_a_run_of_an_older_version_lost_the_first_that_was_acknowledged_at_each_offset() -> None:
    older = lost(replace(LOSS, records=None))
    assert judged("lost-write", history(OLD, NEW, windows=older)) == [("lost-write", "A", 2, True)]
    second = send(9, acked=3, invoked=BEFORE + 1)
    found = judged("lost-write", history(OLD, second, NEW, windows=older))
    assert sorted(found) == [("lost-write", "A", 2, True), ("lost-write", "A", 3, False)]
    after = judged("ghost-ack", history(replace(OLD, invoked=AFTER), NEW, windows=older))
    assert [allowed for *_, allowed in after] == [False]


@pytest.mark.parametrize(("producer", "explained"), [(5, True), (9, False)])
def test_acknowledged_records_of_a_program_are_lost_by_offset_and_producer(
    producer: int, explained: bool
) -> None:
    """The list of the loss has no payload ids of a program's records."""
    nameless = replace(LOSS, records=((-1, 2, 2, producer),))
    seen = view(NOW, sends=[OLD, NEW], windows=lost(nameless))
    seen = but(seen, programs=frozenset({"A.t"}), wired=frozenset({"A.t"}))
    for check in ("lost-write", "ghost-ack"):
        (found,) = findings(check, seen)
        assert ("lost_by" in found.evidence) == explained
