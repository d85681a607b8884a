"""order-equality: the smallest histories."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.facts.partition_facts import Window
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.read.payload_ids import named_by_content
from tests.unit.checks.histories import SECOND, Log, but, commit, promoted, send, view
from tests.unit.checks.round_trip import emptied
from tests.unit.checks.verdicts import Rejected, anomalies, findings, unjudged

NAME = "order-equality"
ACCEPTED = {
    "same": (view([Log("A").txn(1, 2, pid=7), Log("B").data(1, 2)]), {"B/mirrored": 2}),
    "aborted dropped": (
        view([Log("A").txn(9, pid=7, end="abort").txn(1, pid=7), Log("B").data(1)]),
        {"B/mirrored": 1},
    ),
    "other batches": (
        view([Log("A").data(1, 2, 3), Log("B").data(1).data(2, 3)]),
        {"B/mirrored": 3},
    ),
    "tail lost with A": (
        view([Log("A").data(1, 2), Log("B").data(1)], promotions=[promoted(1)]),
        {"B/mirrored": 1},
    ),
    "tail lost with A, which nobody took over from": (
        view([Log("A").data(1, 2), Log("B").data(1)], deaths={"A": 900 * SECOND}),
        {"B/mirrored": 1},
    ),
    "tail of what B wrote, lost with A, over which it came": (
        view(
            [Log("B").data(1, 2), Log("A").data(1, 2), Log("C").data(1)],
            topic="B.t",
            topology="B->A->C",
            deaths={"A": 900 * SECOND},
        ),
        {"A/mirrored": 2, "C/mirrored": 1},
    ),
    "native after": (
        view([Log("A").data(1), Log("B").data(1).data(8, pid=3)], promotions=[promoted(1)]),
        {"B/mirrored": 1},
    ),
    "mirror's own abort": (
        view(
            [Log("A").data(1, 2), Log("B").txn(1, 2, pid=5, end="abort").txn(1, 2, pid=5, epoch=1)]
        ),
        {"B/mirrored": 2},
    ),
    "held back by an open transaction": (
        view([Log("A").data(1).txn(9, pid=7, end=None).data(2), Log("B").data(1)]),
        {"B/mirrored": 1},
    ),
    "not ours": (view([Log("A").data(-1, 1), Log("B").data(-1, -1, 1)]), {"B/mirrored": 1}),
    "deleted at the beginning": (
        view([Log("A").data(1, 2, 3), Log("B", start=1).data(2, 3)]),
        {"B/mirrored": 2},
    ),
    "repeated, and the first copies deleted": (
        view([Log("A").data(1, 2, 3), Log("B", start=2).data(3, 2)]),
        {"B/mirrored": 1},
    ),
    "a segment that begins before the log does": (
        view([Log("A", start=1).data(2), Log("B", start=1).data(1, at=0).data(2)]),
        {"B/mirrored": 2},
    ),
    "deleted at the source, where offsets are kept": (
        view([Log("A", start=1).data(2), Log("B").data(1, 2)], mirror_kind="shadow"),
        {"B/mirrored": 1},
    ),
    "emptied, and copied back": (emptied(1, 2, 8), {"A/mirrored": 3, "B/mirrored": 2}),
    "repeated at the source": (view([Log("A").data(1, 1), Log("B").data(1, 1)]), {"B/mirrored": 2}),
}
REJECTS = {
    "mirror-hole": Rejected(view([Log("A").data(1, 2, 3), Log("B").data(1, 3)]), "B", 1),
    "mirror-inversion": Rejected(view([Log("A").data(1, 2), Log("B").data(2, 1)]), "B", 1),
    "mirror-divergence": Rejected(
        view([Log("A").data(1), Log("B").data(1, digest={1: 5})]), "B", 0
    ),
    "mirror-phantom": Rejected(view([Log("A").data(1), Log("B").data(1, 9)]), "B", 1),
    "mirrored-duplicate": Rejected(view([Log("A").data(1, 2), Log("B").data(1, 1, 2)]), "B", 1),
    "mirrored-aborted": Rejected(
        view([Log("A").txn(1, pid=7, end="abort"), Log("B").data(1)]), "B", 0
    ),
}


def test_a_batch_repeated_after_a_rewind_is_one_duplicate_and_keeps_the_order() -> None:
    seen = view([Log("A").data(1, 2, 3, 4), Log("B").data(1, 2, 3).data(2, 3, 4)])
    assert anomalies(NAME, seen) == [("mirrored-duplicate", "B", 3)]


@pytest.mark.parametrize(
    ("copied", "alone"),
    [
        ((1, 2, 3, 4, 3, 4, 5, 6), [False]),
        ((1, 2, 3, 4, 2, 3, 3, 4, 5, 6), [False, False]),
        ((1, 2, 3, 4, 3, 2, 3, 4, 5, 6), [False, False]),
        ((1, 2, 3, 4, 2, 5, 6), [True]),
        ((1, 2, 3, 4, 2, 3, 5, 6), [True]),
        ((1, 2, 3, 4, 3, 2, 5, 6), [False, True]),
        ((1, 2, 3, 4, 5, 6, 2), [True]),
        ((1, 2, 3, 4, 5, 6, 6), [False]),
    ],
)
def test_a_mirror_that_went_back_goes_on_from_there(
    copied: tuple[int, ...], alone: list[bool]
) -> None:
    logs = [Log("A").data(1, 2, 3, 4, 5, 6), Log("B").data(*copied)]
    seen = view(logs, drained=frozenset({"A->B"}))
    assert [f.evidence.get("alone", False) for f in findings(NAME, seen)] == alone
    at_once = view(logs, compacted={"B": 7}, drained=frozenset({"A->B"}))
    assert not any("alone" in f.evidence for f in findings(NAME, at_once))


def test_a_mirror_may_end_before_it_has_copied_everything_again() -> None:
    seen = view([Log("A").data(1, 2, 3, 4), Log("B").data(1, 2, 3, 4, 2)])
    assert [f.evidence.get("alone", False) for f in findings(NAME, seen)] == [False]


def test_aborted_records_that_were_mirrored_are_one_anomaly_where_payloads_follow() -> None:
    a = Log("A").txn(1, pid=7, end="abort").txn(9, 10, pid=7, end="abort")
    found = findings(NAME, view([a, Log("B").data(1, 9, 10)]))
    assert [(f.kind, f.offset, f.evidence["records"]) for f in found] == [
        ("mirrored-aborted", 0, 1),
        ("mirrored-aborted", 1, 2),
    ]


def test_an_open_transaction_mirrored_by_an_uncommitted_reader_is_found() -> None:
    assert anomalies(NAME, view([Log("A").txn(1, pid=7, end=None), Log("B").data(1)])) == [
        ("mirrored-aborted", "B", 0)
    ]


def test_a_tail_at_the_end_of_a_run_without_failover_is_not_judged() -> None:
    seen = view([Log("A").data(1, 2), Log("B").data(1)])
    assert anomalies(NAME, seen) == []
    assert "1 committed records of A not yet on B" in unjudged(NAME, seen)[0]


def test_a_tail_that_had_not_reached_a_dead_destination_is_not_due() -> None:
    logs = [Log("B").data(1, 2), Log("A").data(1)]
    seen = view(logs, topology="A<->B", topic="B.t", deaths={"A": SECOND})
    assert (anomalies(NAME, seen), unjudged(NAME, seen)) == ([], [])
    alive = view(logs, topology="A<->B", topic="B.t")
    assert "1 committed records of B not yet on A" in unjudged(NAME, alive)[0]


def test_a_hole_on_a_dead_destination_is_found() -> None:
    logs = [Log("B").data(1, 2, 3), Log("A").data(1, 3)]
    seen = view(logs, topology="A<->B", topic="B.t", deaths={"A": SECOND})
    assert anomalies(NAME, seen) == [("mirror-hole", "A", 1)]


def test_a_torn_log_is_not_judged() -> None:
    seen = view([Log("A").data(1, 2, 3), Log("B").data(1).torn()])
    assert anomalies(NAME, seen) == []
    assert unjudged(NAME, seen)


def test_a_deleted_log_start_makes_strangers_unjudged() -> None:
    seen = view([Log("A", start=1).data(2), Log("B").data(1, 2)])
    assert anomalies(NAME, seen) == []
    assert unjudged(NAME, seen)


@pytest.mark.parametrize(
    ("a", "compacted"), [(Log("A", start=1).data(2), {}), (Log("A").skip(1).data(2), {"A": 1})]
)
def test_but_where_offsets_are_kept_only_what_lies_below_is_left_out(
    a: Log, compacted: dict[str, int]
) -> None:
    for b, wrong in (
        (Log("B").data(1).data(2), []),
        (Log("B").data(1).data(2).data(9), [("mirror-phantom", "B", 2)]),
    ):
        seen = view([a, b], mirror_kind="shadow", compacted=compacted)
        assert (anomalies(NAME, seen), unjudged(NAME, seen)) == (wrong, [])


def test_with_nothing_left_to_compare_with_nothing_is_examined() -> None:
    seen = view([Log("A", start=2), Log("B").data(1).data(2)], mirror_kind="shadow")
    assert list(REGISTRY[NAME].kernel(seen)) == []


FLAP = Window(id="flap", fault="link-flap", target="A->B", start=SECOND, end=2 * SECOND)
REPEATED = (1, 2, 3, 2, 3, 4)
"""How a mirror copies 1 2 3 4 that had to start again at 2."""


def chain(b: tuple[int, ...], c: tuple[int, ...], *windows: Window, **mirror: str) -> PartitionView:
    """A->B->C, with the start of B's log deleted."""
    logs = [Log("A").data(1, 2, 3, 4), Log("B", start=6 - len(b)).data(*b), Log("C").data(*c)]
    return view(
        logs, topology="A->B->C", windows=windows, mirror={"delivery": "at-least-once"} | mirror
    )


@pytest.mark.parametrize("b", [(3, 2, 3, 4), (2, 3, 4), (3, 4)])
def test_copies_that_a_cluster_on_the_way_has_deleted_are_unknown(
    b: tuple[int, ...],
) -> None:
    seen = chain(b, REPEATED, FLAP)
    allowed = [("mirrored-duplicate", "B", 4)] if b.count(3) > 1 else []
    assert anomalies(NAME, seen) == anomalies("duplicate", seen) == allowed
    assert any(
        "came again, out of order, or never: so may B have had them" in reason
        for reason in unjudged(NAME, seen)
    )
    assert anomalies("lost-write", seen) == []


def test_repeated_copy_without_a_fault_or_with_exactly_once_is_a_duplicate() -> None:
    for seen in (
        chain((2, 3, 4), REPEATED),
        chain((2, 3, 4), REPEATED, FLAP, delivery="exactly-once"),
    ):
        assert ("mirrored-duplicate", "C", 3) in anomalies(NAME, seen)
        assert ("mirrored-duplicate", "C", 3) in anomalies("duplicate", seen)


def test_repeat_after_as_many_records_as_were_deleted_is_a_duplicate() -> None:
    """B has deleted 1: 2 and 4 cannot have been before it."""
    logs = [Log("A").data(1, 2, 3, 4), Log("B", start=1).data(2, 3, 4), Log("C").data(1, 2, 4, 2)]
    seen = view(logs, topology="A->B->C", windows=[FLAP])
    assert anomalies(NAME, seen) == [("mirrored-duplicate", "C", 3), ("mirror-hole", "C", 2)]
    logs[2] = Log("C").data(1, 2, 4, 3)
    assert anomalies(NAME, view(logs, topology="A->B->C", windows=[FLAP])) == [
        ("mirror-inversion", "C", 3)
    ]


def test_a_record_that_a_deleted_copy_may_have_overtaken_is_not_certainly_lost() -> None:
    """B had 1 2 1 2 3, and C has only the first 2: what is left of B's log does not show whether 1
    was lost."""
    logs = [Log("A").data(1, 2, 3), Log("B", start=2).data(1, 2, 3), Log("C").data(2)]
    seen = view(logs, topology="A->B->C", windows=[FLAP], sends=[send(1, 2, 3, acked=0)])
    assert [anomalies(name, seen) for name in (NAME, "lost-write")] == [[], []]
    assert len(unjudged("lost-write", seen)) == 1


@pytest.mark.parametrize(("windows", "holes"), [((FLAP,), 0), ((), 1)])
def test_the_first_record_left_may_be_the_last_of_several_copies_at_the_source(
    windows: tuple[Window, ...], holes: int
) -> None:
    """B has 1 again behind 3, and what is left of C begins with 1: all before its second copy may
    be deleted there. Without a fault no mirror repeats."""
    logs = [Log("A").data(1, 2, 3, 4), Log("B").data(1, 2, 3, 1, 4), Log("C", start=4).data(1, 4)]
    found = anomalies(NAME, view(logs, topology="A->B->C", windows=windows))
    assert [kind for kind, _, _ in found].count("mirror-hole") == holes


def test_a_chain_is_compared_hop_by_hop() -> None:
    seen = view(
        [Log("A").data(1, 2, 3), Log("B").data(1, 2, 3), Log("C").data(1, 3)], topology="A->B->C"
    )
    assert anomalies(NAME, seen) == [("mirror-hole", "C", 1)]


def test_a_missing_log_is_not_judged() -> None:
    assert "no log of B" in unjudged(NAME, view([Log("A").data(1)]))[0]


def test_neighbours_that_diverge_are_one_anomaly() -> None:
    seen = view(
        [Log("A").data(1, 2, 3, 4, 5), Log("B").data(1, 2, 3, 4, 5, digest={1: 5, 2: 5, 4: 5})]
    )
    assert [(f.kind, f.offset, f.evidence["records"]) for f in findings(NAME, seen)] == [
        ("mirror-divergence", 0, 2),
        ("mirror-divergence", 3, 1),
    ]


def test_clients_on_a_cluster_without_a_promotion_are_not_taken_for_a_mirror() -> None:
    logs, sends = [Log("A").data(1), Log("B").data(1).data(8)], [send(1), send(8, cluster="B")]
    assert anomalies(NAME, view(logs, sends=sends)) == []
    assert "no promotion was recorded" in unjudged(NAME, view(logs, sends=sends))[0]
    assert anomalies(NAME, view(logs, sends=sends[:1])) == [("mirror-phantom", "B", 1)]
    assert unjudged(NAME, view(logs, sends=sends, promotions=[promoted(1)])) == []


def test_a_commit_that_did_not_cross_takes_its_records_along_and_makes_no_hole() -> None:
    """A's marker is above what B has: B must abort its part of the transaction, although later
    records are there."""
    begun = Log("A").data(1, pid=7, transactional=True).data(2)
    a = begun.marker("commit", pid=7)
    b = Log("B").data(1, pid=7, transactional=True).data(2).marker("abort", pid=7)
    assert anomalies(NAME, view([a, b], promotions=[promoted(2)], mirror_kind="shadow")) == []
    crossed = Log("A").data(1, pid=7, transactional=True).marker("commit", pid=7).data(2)
    lost = Log("B").data(1, pid=7, transactional=True).marker("abort", pid=7).data(2)
    assert anomalies(
        NAME, view([crossed, lost], promotions=[promoted(3)], mirror_kind="shadow")
    ) == [("mirror-hole", "B", 2)]


def test_a_record_whose_commit_has_not_crossed_yet_is_behind_and_no_hole() -> None:
    """The record after it is in no transaction: B shows that one, but not yet this record. No
    cluster was promoted."""
    a = Log("A").data(1, pid=7, transactional=True).data(2).marker("commit", pid=7)
    b = Log("B").data(1, pid=7, transactional=True).data(2)
    sent = [commit(1, acked=0), send(2, acked=1)]
    seen = view([a, b], sends=sent, mirror_kind="shadow")
    assert (anomalies(NAME, seen), anomalies("lost-write", seen)) == ([], [])
    ended = Log("B").data(1, pid=7, transactional=True).data(2).marker("abort", pid=7)
    assert anomalies(NAME, view([a, ended], sends=sent, mirror_kind="shadow")) == [
        ("mirror-hole", "B", 1)
    ]


@pytest.mark.parametrize(
    ("on_a", "kind", "offset"),
    [
        ((1, 8), "mirror-hole", 1),
        ((1, 2, 3, 8), "mirror-phantom", 2),
        ((2, 1, 8), "mirror-inversion", 1),
    ],
)
def test_records_copied_back_are_compared_with_the_new_owner(
    on_a: tuple[int, ...], kind: str, offset: int
) -> None:
    assert (kind, "A", offset) in anomalies(NAME, emptied(*on_a))


def by_contents(a: Log, b: Log, *windows: Window) -> PartitionView:
    """What a program wrote on A, and a mirror copied to B: payload id -1 where contents do not tell
    which record it is."""
    return but(view([a, b], windows=windows), programs=frozenset({"A.t"}))


def test_records_that_contents_do_not_tell_apart_are_not_missing() -> None:
    """Two with one content, on a destination that has lost its beginning."""
    same = {2: 5, 3: 5, -1: 5}
    a = Log("A").data(1, 2, 3, 4, digest=same)
    assert anomalies(NAME, by_contents(a, Log("B", start=1).data(-1, -1, 4, digest=same))) == []
    assert anomalies(NAME, by_contents(a, Log("B", start=2).data(-1, 4, digest=same))) == []
    lost = by_contents(a, Log("B", start=1).data(-1, 4, digest=same))
    assert anomalies(NAME, lost) == [("mirror-hole", "B", 2)]


@pytest.mark.parametrize(("count", "wrong"), [(3, []), (16, [("mirror-hole", "B", 1)])])
def test_repeats_that_a_mirror_is_allowed_hide_no_loss(
    count: int, wrong: list[tuple[str, str, int]]
) -> None:
    """The mirror went back, and wrote 1 and 3 again; what came in place of 2 is of nobody. Of a log
    of few records nobody can tell: A may have deleted others that were the same."""
    a = Log("A", start=5).data(*range(1, count + 1))
    b = Log("B").data(1, -1, 3, 1, 2, *range(3, count + 1), digest={-1: 5})
    found = set(anomalies(NAME, by_contents(a, b, FLAP)))
    assert found == {("mirrored-duplicate", "B", 3), ("mirrored-duplicate", "B", 5), *wrong}
    back = by_contents(a, Log("B").data(1, 2, 1, 2, *range(3, count + 1)), FLAP)
    assert {kind for kind, *_ in anomalies(NAME, back)} == {"mirrored-duplicate"}


def test_a_source_has_deleted_no_more_records_than_offsets() -> None:
    a, gone = Log("A", start=1).data(2, 3), {-1: 5, -2: 6}
    assert anomalies(NAME, by_contents(a, Log("B").data(-1, 2, 3, digest=gone))) == []
    more = by_contents(a, Log("B").data(-1, 2, 3, -2, digest=gone))
    assert anomalies(NAME, more) == [("mirror-phantom", "B", 3)]


@pytest.mark.parametrize(("count", "wrong"), [(3, []), (20, [("mirrored-aborted", "B", 9)])])
def test_an_aborted_record_is_not_taken_for_a_deleted_one(
    count: int, wrong: list[tuple[str, str, int]]
) -> None:
    """Of a log of few records nobody can tell."""
    first, last = (1, 2, 3), range(4, count + 1)
    a = Log("A", start=50).data(*first).txn(99, pid=7, end="abort").data(*last)
    b = Log("B", start=5).data(-1, *first, 99, *last, digest={-1: 5})
    seen = by_contents(a, b, FLAP)
    assert anomalies(NAME, seen) == wrong
    assert bool(unjudged(NAME, seen)) != bool(wrong)


def copied(a: Log, b: Log, *, delivery: str = "exactly-once", **compacted: int) -> PartitionView:
    """Copied logs, whose records have no payload ids."""
    seen = but(view([a, b], mirror={"delivery": delivery}, compacted=compacted), recorded=False)
    nameless = [
        replace(r, records=replace(r.records, uid=np.full(len(r.records), -1, np.int64)))
        for r in seen.replicas
    ]
    return named_by_content(replace(seen, replicas=tuple(nameless)))


SAME = {1: 5, 2: 5}


def test_equal_contents_after_a_cleaner_are_unjudged() -> None:
    """A had 1 2 before, the other way round."""
    a = Log("A").skip(2).data(1, 2, 3)
    seen = copied(a, Log("B").data(2, 1).data(1, 2, 3), A=2)
    assert [anomalies(name, seen) for name in (NAME, "duplicate")] == [[], []]
    assert unjudged(NAME, seen)


def test_cleaner_explains_no_more_holes_than_it_took_records() -> None:
    a, twice = Log("A").skip(1).data(1, 3, digest=SAME), {1: 5, 2: 5, 4: 5}
    accepted = copied(a, Log("B").data(1, 2, 3, digest=twice), A=1)
    assert (anomalies(NAME, accepted), len(unjudged(NAME, accepted))) == ([], 1)
    rejected = copied(a, Log("B").data(1, 2, 4, 3, digest=twice), A=1)
    assert anomalies(NAME, rejected) == [("mirror-hole", "B", 2)]


def test_record_that_fits_no_missing_offset_is_a_phantom() -> None:
    """Whether a mirror has repeated something or not: 9 was never on A, whose key 5 comes later."""
    keys = {1: 5, 9: 5}
    b = Log("B").data(9, 1, keys=keys)
    for offsets, wrong in ((1, []), (0, [("mirror-phantom", "B", 0)])):
        a = Log("A").skip(offsets).data(1, keys=keys)
        for delivery in ("exactly-once", "at-least-once"):
            assert anomalies(NAME, copied(a, b, delivery=delivery, A=1)) == wrong


def test_repeat_of_a_copied_mirror_is_wrong_only_if_it_promised_exactly_once() -> None:
    """It went back behind 4, and wrote again 2, which A had before it; the first 2 is gone from
    B."""
    keys = {1: 5, 2: 6, 3: 6, 4: 7}
    a = Log("A").skip(1).data(1, keys=keys).data(3, 4, keys=keys)
    b = Log("B").skip(1).data(1, keys=keys).skip(1).data(2, 1, 3, 4, keys=keys)
    found = anomalies(NAME, copied(a, b, delivery="at-least-once", A=3, B=4))
    assert found == []
    assert anomalies(NAME, copied(a, b, delivery="exactly-once", A=3, B=4)) != []


def test_the_first_record_of_a_compacted_source_comes_first() -> None:
    """A cleaner took something behind it."""
    a, other = Log("A").data(1).skip(1).data(3), {-1: 5}
    accepted = by_contents(a, Log("B").data(1, -1, 3, digest=other))
    assert anomalies(NAME, but(accepted, compacted={"A": 2})) == []
    rejected = by_contents(a, Log("B").data(-1, 1, 3, digest=other))
    assert anomalies(NAME, but(rejected, compacted={"A": 2})) == [("mirror-hole", "B", 0)]
