"""A reversal truncates a cluster's log: what clients see meanwhile belongs to one log generation or
the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

import pytest

from linkflap.spark_verify.checks.base import Examined
from linkflap.spark_verify.checks.parts.generations import every, marks_in, reads_in
from linkflap.spark_verify.checks.read_committed_visibility import kernel
from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import PartitionView, Watermarks
from tests.unit.checks.clients import commit, poll
from tests.unit.checks.histories import reversed_, view
from tests.unit.checks.logs import SECOND, Log, ints
from tests.unit.checks.round_trip import ACKED, before, on_a, on_b, trip, truncation
from tests.unit.checks.verdicts import anomalies

LASTS = replace(reversed_("A->B", at=600), end=640 * SECOND)
TRUNCATED = replace(truncation(), time=620 * SECOND)
OLD, NEW = poll((2, 3), at=610 * SECOND), poll((2, 4), (3, 5), at=630 * SECOND)
EMPTY = poll(at=625 * SECOND, position=3)


class Logs(TypedDict, total=False):
    """Logs of a round trip that a test replaces."""

    logs: Sequence[Log]
    earlier: Sequence[Log]


def during(
    *reads: Read, watermarks: Mapping[str, Watermarks] | None = None, **rest: Unpack[Logs]
) -> PartitionView:
    return trip(
        windows=[LASTS], truncations=[TRUNCATED], reads=reads, watermarks=watermarks, **rest
    )


def of_a(seen: PartitionView) -> list[list[tuple[int, ...]]]:
    """(offset, payload) of the records read in each log generation of A."""
    generations = [generation for generation in every(seen) if generation.cluster == "A"]
    got = [
        [(o, u) for r in reads_in(seen, generation) for o, u in zip(r.offsets, r.uids, strict=True)]
        for generation in generations
    ]
    return [[tuple(map(int, pair)) for pair in each] for each in got]


def spanning(*pairs: tuple[int, int]) -> Read:
    return replace(poll(*pairs), time=615 * SECOND, returned=625 * SECOND)


@pytest.mark.parametrize(
    ("reads", "old", "new"),
    [
        ([OLD], [(2, 3)], []),
        ([NEW], [], [(2, 4), (3, 5)]),
        ([OLD, NEW], [(2, 3)], [(2, 4), (3, 5)]),
        ([spanning((0, 1), (2, 3))], [(0, 1), (2, 3)], []),
        ([spanning((1, 2), (2, 4))], [], [(1, 2), (2, 4)]),
        ([spanning((2, 3), (3, 5))], [(2, 3)], [(3, 5)]),
        # It had fetched that before the truncation and returned it afterwards.
        (
            [poll((1, 2), at=622 * SECOND), poll((2, 3), at=623 * SECOND), NEW],
            [(1, 2), (2, 3)],
            [(2, 4), (3, 5)],
        ),
        # The mirror had copied that before the harness read the truncation in the mirror's journal.
        ([poll((2, 4), at=618 * SECOND), poll((3, 5), at=619 * SECOND)], [], [(2, 4), (3, 5)]),
        # Not an old record: it had looked at the log end, or got what replaced it.
        ([EMPTY, poll((2, 3), at=630 * SECOND)], [], [(2, 3)]),
        ([NEW, poll((2, 3), at=635 * SECOND)], [], [(2, 4), (3, 5), (2, 3)]),
        ([poll((2, 9), at=610 * SECOND)], [(2, 9)], []),
        ([poll((2, 9), at=630 * SECOND)], [], [(2, 9)]),
    ],
)
def test_a_record_that_a_reader_got_is_of_one_log_generation(
    reads: list[Read], old: list[tuple[int, int]], new: list[tuple[int, int]]
) -> None:
    assert of_a(during(*reads)) == [old, new]


def test_each_consumer_sees_the_truncation_by_itself() -> None:
    late = [poll((1, 2), at=622 * SECOND, reader="s"), poll((2, 3), at=623 * SECOND, reader="s")]
    assert of_a(during(poll((2, 4), at=621 * SECOND), *late)) == [[(1, 2), (2, 3)], [(2, 4)]]


def test_a_transaction_may_end_otherwise_in_either() -> None:
    """A transaction committed in the tail was open where the logs diverge, and the new owner has
    aborted it."""
    a, b = (
        log.data(1).data(2, pid=7, transactional=True).marker("abort", pid=7)
        for log in (Log("A"), Log("B"))
    )
    old = (
        Log("A")
        .data(1)
        .data(2, pid=7, transactional=True)
        .marker("commit", pid=7)
        .taken("1-away", at=510)
    )
    got = [poll((1, 2), at=623 * SECOND)]
    assert anomalies("aborted-read", during(*got, logs=[a, b], earlier=[old])) == []
    assert anomalies(
        "aborted-read", during(EMPTY, poll((1, 2), at=630 * SECOND), logs=[a, b], earlier=[old])
    ) == [("aborted-read", "A", 1)]


@pytest.mark.parametrize("at", [610, 630])
def test_another_payload_is_seen_whenever_it_was_got(at: int) -> None:
    seen = during(poll((2, 9), at=at * SECOND))
    assert anomalies("read-committed-visibility", seen) == [("phantom-read", "A", 2)]
    assert anomalies("inconsistent-offset", seen) == [("inconsistent-offset", "A", 2)]


@pytest.mark.parametrize(("at", "pairs"), [(610, ((1, 2), (0, 1))), (630, ((3, 5), (2, 4)))])
def test_a_reader_that_went_back_while_it_lasted(
    at: int, pairs: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    one, two = (poll(pair, at=(at + n) * SECOND) for n, pair in enumerate(pairs))
    assert anomalies("poll-continuity", during(one, two)) == [("poll-regression", "A", pairs[1][0])]


def test_a_record_of_the_tail_that_came_back_is_none_that_was_left_over() -> None:
    assert anomalies(
        "read-committed-visibility", during(OLD, NEW, poll((2, 3), at=635 * SECOND))
    ) == [("phantom-read", "A", 2)]


def test_without_a_truncation_written_down_the_reversal_lasts_to_its_end() -> None:
    seen = trip(windows=[LASTS], truncations=[], reads=[OLD, NEW])
    assert of_a(seen) == [[(2, 3)], [(2, 4), (3, 5)]]
    assert anomalies("read-committed-visibility", seen) == []


def test_reads_of_b_during_the_reversal_are_of_b_only() -> None:
    seen = during(
        poll((2, 4), cluster="B", at=610 * SECOND), poll((3, 5), cluster="B", at=630 * SECOND)
    )
    assert of_a(seen) == [[], []]
    assert anomalies("read-committed-visibility", seen) == []


def marks(*rows: tuple[int, int, int, int]) -> Watermarks:
    """(second, LSO, high watermark, leader epoch) of samples of A; each sample takes a second."""
    time, lso, high, epoch = (ints(*column) for column in zip(*rows, strict=True))
    ones = ints(*[1] * len(rows))
    return Watermarks(
        time=time * SECOND, returned=(time + 1) * SECOND, leader=ones, log_start=ones - 1,
        last_stable=lso, high_watermark=high, leader_epoch=epoch,
    )  # fmt: skip


def sampled(
    *rows: tuple[int, int, int, int], earlier: Sequence[Log] | None = None
) -> PartitionView:
    rest: Logs = {} if earlier is None else {"earlier": earlier}
    return during(watermarks={"A": marks(*rows)}, **rest)


def highs(seen: PartitionView) -> list[list[int]]:
    generations = [generation for generation in every(seen) if generation.cluster == "A"]
    found = [marks_in(seen, generation) for generation in generations]
    assert None not in found
    return [[int(high) for high in each.high_watermark] for each in found if each is not None]


@pytest.mark.parametrize(
    ("rows", "old", "new"),
    [
        ([(610, 3, 3, 0), (630, 2, 2, 3)], [3], [2]),
        ([(610, 3, 3, 0), (618, 3, 3, 3), (630, 4, 4, 3)], [3, 3], [4]),
        # It was recorded a moment later, or earlier, than it happened.
        ([(610, 3, 3, 3), (612, 2, 2, 3), (630, 4, 4, 3)], [3], [2, 4]),
        ([(622, 3, 3, 3), (624, 2, 2, 3), (630, 4, 4, 3)], [3], [2, 4]),
        # A request that was in flight when it was recorded, and the next sample has another epoch.
        ([(607, 4, 4, 0), (609, 3, 3, 0), (620, 3, 3, 0), (622, 2, 2, 3)], [4, 3, 3], [2]),
        ([(607, 4, 4, 0), (609, 3, 3, 0), (620, 4, 4, 3), (622, 4, 4, 3)], [4, 3], [4, 4]),
        # One or two later samples that repeat the one before: the log was truncated, and its high
        # watermark was not corrected yet.
        ([(610, 3, 3, 0), (622, 3, 3, 0), (624, 2, 2, 3)], [3, 3], [2]),
        ([(610, 3, 3, 0), (622, 3, 3, 0), (624, 3, 3, 0), (626, 2, 2, 3)], [3, 3, 3], [2]),
        ([(610, 3, 3, 0), (622, 4, 4, 0), (624, 2, 2, 3)], [3], [4, 2]),
        # It was truncated in steps.
        ([(607, 4, 4, 3), (609, 3, 3, 3), (612, 2, 2, 3), (622, 2, 2, 3)], [4, 3], [2, 2]),
        # A step back in an earlier epoch does not belong to it.
        ([(605, 3, 3, 0), (607, 2, 2, 0), (618, 3, 3, 3), (622, 2, 2, 3)], [3, 2, 3], [2]),
    ],
)
def test_a_sample_is_of_one_log_generation(
    rows: list[tuple[int, int, int, int]], old: list[int], new: list[int]
) -> None:
    assert highs(sampled(*rows)) == [old, new]


def test_a_log_may_be_truncated_in_steps_until_it_is_written_down() -> None:
    steps = ((605, 4, 4, 0), (607, 3, 3, 0), (609, 2, 2, 1), (622, 2, 2, 3), (630, 4, 4, 3))
    assert anomalies("last-stable-offset", sampled(*steps)) == []
    reopened = ((605, 4, 4, 0), (607, 1, 3, 0), (609, 1, 3, 0), (622, 2, 2, 3), (630, 4, 4, 3))
    found = {kind for kind, *_ in anomalies("last-stable-offset", sampled(*reopened))}
    assert "lso-regression" not in found, "what it is by the bytes, another anomaly says"
    deeper = ((605, 4, 4, 0), (607, 1, 1, 0), (622, 2, 2, 3), (630, 4, 4, 3))
    found = {kind for kind, *_ in anomalies("last-stable-offset", sampled(*deeper))}
    assert "high-watermark-regression" in found


def test_a_log_may_be_truncated_between_the_two_requests_of_a_sample() -> None:
    across = ((610, 3, 3, 3), (618, 3, 2, 3), (624, 2, 2, 3), (630, 4, 4, 3))
    assert highs(sampled(*across)) == [[3], [2, 2, 4]]
    assert anomalies("last-stable-offset", sampled(*across)) == []
    twice = ((610, 3, 3, 3), (618, 3, 2, 3), (624, 3, 2, 3), (630, 4, 2, 3))
    found = {kind for kind, *_ in anomalies("last-stable-offset", sampled(*twice))}
    assert "lso-above-high-watermark" in found


def test_samples_are_judged_while_it_lasts() -> None:
    name = "last-stable-offset"
    assert (
        anomalies(name, sampled((605, 3, 3, 0), (610, 3, 3, 0), (622, 2, 2, 3), (630, 4, 4, 3)))
        == []
    )
    for rows, kind, at in (
        ([(605, 2, 2, 0), (607, 9, 3, 0), (609, 9, 3, 0)], "lso-above-high-watermark", 9),
        ([(605, 3, 3, 0), (607, 1, 3, 0), (609, 3, 3, 0)], "lso-regression", 1),
        ([(622, 2, 2, 3), (626, 9, 4, 3), (630, 9, 4, 3)], "lso-above-high-watermark", 9),
        ([(622, 2, 2, 3), (626, 4, 4, 3), (630, 3, 4, 3)], "lso-mismatch", 3),
        ([(622, 2, 2, 3), (626, 4, 4, 3), (630, 3, 3, 3)], "high-watermark-regression", 3),
    ):
        assert (kind, "A", at) in anomalies(name, sampled(*rows)), rows


def test_no_capture_has_a_marker_appended_before_the_truncation() -> None:
    """A transaction was open when A died; A was restarted, and its coordinator appended an ABORT
    after the capture."""
    old = Log("A").data(1).data(2).txn(3, pid=7, end=None).taken("1-reverse-600", at=605)
    rows = [(606, 2, 3, 0), (610, 2, 3, 0), (612, 4, 4, 0), (622, 2, 2, 3)]
    assert anomalies("last-stable-offset", sampled(*rows, earlier=[old])) == []
    # The log is truncated in steps: a later sample is below the end of the capture again.
    steps = [(606, 2, 3, 0), (612, 4, 4, 0), (614, 2, 2, 1), (622, 2, 2, 3)]
    assert anomalies("last-stable-offset", sampled(*steps, earlier=[old])) == []
    wrong = [(606, 2, 3, 0), (608, 3, 3, 0), (610, 3, 3, 0)]
    assert ("lso-mismatch", "A", 3) in anomalies(
        "last-stable-offset", sampled(*wrong, earlier=[old])
    )


def test_a_capture_from_before_a_restart_judges_no_sample_of_what_was_appended_since() -> None:
    """A was captured when it was lost; it came back by itself, and its coordinator appended an
    ABORT, long before the reversal."""
    old = Log("A").data(1).data(2).txn(3, pid=7, end=None).taken("1-away", at=510)
    name = "last-stable-offset"
    first, after = [(505, 2, 3, 0), (508, 2, 3, 0)], [(622, 2, 2, 3), (630, 4, 4, 3)]
    assert anomalies(name, sampled(*first, (560, 4, 4, 0), *after, earlier=[old])) == []
    assert (
        anomalies(name, sampled(*first, (560, 4, 4, 0), (570, 4, 4, 0), *after, earlier=[old]))
        == []
    )
    # As long as nothing was appended, the capture is what was sampled.
    late = [(560, 3, 3, 0), (570, 3, 3, 0)]
    assert ("lso-mismatch", "A", 3) in anomalies(
        name, sampled(*first, *late, *after, earlier=[old])
    )
    early = [(505, 3, 3, 0), (508, 3, 3, 0)]
    assert ("lso-mismatch", "A", 3) in anomalies(name, sampled(*early, *after, earlier=[old]))
    high = [(505, 2, 4, 0), (508, 2, 4, 0)]
    found = {kind for kind, *_ in anomalies(name, sampled(*high, *after, earlier=[old]))}
    assert "high-watermark-above-log" in found


@pytest.mark.parametrize(
    ("at", "of", "found"),
    [
        (610, commit(3, cluster="A"), []),
        (610, commit(3, cluster="A", outcome="info"), []),
        # A died before that was read, and what its client was refused stays unread.
        (505, commit(3, cluster="A"), [("phantom-read", "A", 2)]),
        (610, commit(3, cluster="A", outcome="fail"), [("phantom-read", "A", 2)]),
        (610, commit(3, cluster="A", ending="abort"), [("phantom-read", "A", 2)]),
        (610, commit(3, cluster="B"), [("phantom-read", "A", 2)]),
        (610, None, [("phantom-read", "A", 2)]),
    ],
)
def test_a_commit_appended_before_the_truncation_is_no_phantom(
    at: int, of: Send | None, found: list[tuple[str, str, int]]
) -> None:
    """A transaction was open when A died; A was restarted for a failback, and its coordinator
    appended the COMMIT after the capture."""
    old = Log("A").data(1).data(2).txn(3, pid=7, end=None).taken("1-away", at=510)
    sends = [*ACKED[:1], *ACKED[2:], *([] if of is None else [of])]
    seen = trip(
        windows=[LASTS],
        truncations=[TRUNCATED],
        reads=[poll((2, 3), at=at * SECOND)],
        earlier=[old],
        sends=sends,
    )
    assert anomalies("read-committed-visibility", seen) == found
    examined = [f for f in kernel(seen) if isinstance(f, Examined) and f.cluster == "A"]
    assert bool(examined) == bool(found), "what cannot be judged is not examined"


def test_a_log_that_was_never_truncated_has_one_generation() -> None:
    seen = view([on_a(), on_b()], reads=[OLD, NEW])
    assert of_a(seen) == [[(2, 3), (2, 4), (3, 5)]]
    assert before().end == 3
