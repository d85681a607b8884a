"""last-stable-offset: the smallest histories, and the closed form against a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkflap.harness.log.coordinators import COMPLETE_COMMIT, ONGOING
from linkflap.spark_verify.checks.parts.last_stable import high_watermarks_of, recompute_last_stable
from linkflap.spark_verify.checks.parts.logs import read
from linkflap.spark_verify.facts.partition_facts import MirrorStop
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.clients import commit
from tests.unit.checks.coordinator_logs import TOPIC_PARTITION, state, states
from tests.unit.checks.histories import promoted, samples, view
from tests.unit.checks.logs import ENDED, SECOND, Log, ints
from tests.unit.checks.replica_histories import REPLICAS_ACCEPTED, replica
from tests.unit.checks.test_high_watermark_ahead import led
from tests.unit.checks.verdicts import (
    Rejected,
    anomalies,
    assert_accepted,
    assert_rejected,
)

NAME = "last-stable-offset"
OPEN = Log("A").txn(1, pid=7, end=None)
SINCE = ENDED // 1_000_000
GOES_ON = [state(ONGOING, TOPIC_PARTITION, timeout=900_000, updated=SINCE, started=SINCE)]
COMMITTED = [*GOES_ON, replace(GOES_ON[0], state=COMPLETE_COMMIT, partitions=())]


def truncated_back(truncated: list[tuple[int, int]], *marks: tuple[int, int]) -> PartitionView:
    """B had 1 and 2 when it was sampled; the mirror truncated 2 when it ended, and B's clients
    wrote 3 there."""
    stop = MirrorStop(
        link="A->B",
        cluster="B",
        time=501 * SECOND,
        mirrored=2,
        promoted=1,
        truncated=truncated,
        appended=(),
    )
    return view(
        [Log("B").data(1).txn(3, pid=7)],
        promotions=[promoted(1)],
        stops=[stop],
        watermarks={"B": samples(*marks)},
        mirror_kind="shadow",
    )


ACCEPTED = {
    "follows the markers": (
        view([Log("A").txn(1, pid=7)], watermarks={"A": samples((0, 0), (0, 1), (2, 2))}),
        {"A/native": 3},
    ),
    "LSO asked before the high watermark": (
        view([Log("A").data(1, 2)], watermarks={"A": samples((0, 0), (1, 2))}),
        {"A/native": 2},
    ),
    "LSO asked after the high watermark": (
        view([Log("A").data(1, 2)], watermarks={"A": samples((2, 1), (2, 2))}),
        {"A/native": 2},
    ),
    "a new leader begins lower": (
        view(
            [Log("A").data(1, 2)],
            watermarks={"A": samples((2, 2), (1, 1), (2, 2), epochs=[0, 1, 1])},
        ),
        {"A/native": 3},
    ),
    "no answer": (
        view([Log("A").data(1)], watermarks={"A": samples((-1, -1), (1, 1))}),
        {"A/native": 1},
    ),
    "open, of a client whose clock is behind": (
        view(
            [Log("A").data(1, pid=7, transactional=True, written=0)],
            sends=[commit(1, ending="open", invoked=ENDED - SECOND)],
            watermarks={"A": samples((0, 1))},
        ),
        {"A/native": 1},
    ),
    "a high watermark of what a mirror truncated since": (
        truncated_back([(2, 1)], (2, 2)),
        {"B/native": 1},
    ),
    "began in what retention has deleted since": (
        view([Log("A", start=2).data(3)], watermarks={"A": samples((0, 2), (3, 3))}),
        {"A/native": 2},
    ),
    "began in what a cleaner has taken since": (
        view(
            [Log("A").skip(2).data(3)],
            watermarks={"A": samples((0, 2), (3, 3))},
            compacted={"A": 2},
        ),
        {"A/native": 2},
    ),
    "open when A died": (
        view(
            [Log("A").txn(1, pid=7, end=None)],
            promotions=[promoted(0)],
            watermarks={"A": samples((0, 1))},
            ended=ENDED + 900 * SECOND,
        ),
        {"A/native": 1},
    ),
}


def begins(
    *starts: int, epochs: Sequence[int] | None = None, last_stable: int = 2
) -> PartitionView:
    """A log of two records, and samples of its start, one a second."""
    marks = samples(*[(last_stable, 2)] * len(starts), epochs=epochs)
    return view([Log("A").data(1, 2)], watermarks={"A": replace(marks, log_start=ints(*starts))})


ACCEPTED |= {
    "its beginning is deleted": (begins(0, 1, 2, 2), {"A/native": 4}),
    "a new leader has deleted less": (begins(0, 2, 1, epochs=[0, 0, 1]), {"A/native": 3}),
    "a start that nobody answered": (begins(1, -1, 1), {"A/native": 3}),
    "a new leader's start is above the LSO that the old one answered": (
        begins(0, 3, epochs=[0, 1]),
        {"A/native": 2},
    ),
}
ACCEPTED |= REPLICAS_ACCEPTED
REJECTS = {
    "high-watermark-ahead": Rejected(
        view=led(0, 1, 2, 2, ends=[0, 1, 1, 2]), cluster="B", offset=1
    ),
    "replica-end-regression": Rejected(view=replica(1, 2, 1), cluster="A", offset=1),
    "log-start-regression": Rejected(view=begins(2, 1), cluster="A", offset=1),
    "log-start-above-lso": Rejected(view=begins(0, 3), cluster="A", offset=3),
    "lso-above-high-watermark": Rejected(
        view=view([Log("A").data(1, 2, 3)], watermarks={"A": samples((3, 2), (3, 2))}),
        cluster="A",
        offset=3,
        only=("lso-mismatch",),
    ),
    "lso-regression": Rejected(
        view=view([Log("A").data(1, 2)], watermarks={"A": samples((2, 2), (1, 2))}),
        cluster="A",
        offset=1,
        only=("lso-mismatch",),
    ),
    "high-watermark-regression": Rejected(
        view=view([Log("A").data(1, 2, 3)], watermarks={"A": samples((2, 3), (2, 2))}),
        cluster="A",
        offset=2,
    ),
    "lso-mismatch": Rejected(
        view=view([OPEN], watermarks={"A": samples((0, 1), (1, 1))}), cluster="A", offset=1
    ),
    "high-watermark-above-log": Rejected(
        view=view([Log("A").data(1)], watermarks={"A": samples((1, 2))}), cluster="A", offset=1
    ),
    "hanging-transaction": Rejected(
        view=view([OPEN], watermarks={"A": samples((0, 1))}, ended=ENDED + 80 * SECOND),
        beside=(states(*COMMITTED),),
        cluster="A",
        offset=0,
    ),
    "lingering-transaction": Rejected(
        view=view([OPEN], watermarks={"A": samples((0, 1))}, ended=ENDED + 80 * SECOND),
        beside=(states(*GOES_ON),),
        cluster="A",
        offset=0,
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case: str) -> None:
    seen, counted = ACCEPTED[case]
    assert_accepted(NAME, seen, counted=counted)


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind: str) -> None:
    assert_rejected(NAME, kind, REJECTS[kind])


@pytest.mark.parametrize(
    "log", [Log("A", start=2).txn(3, pid=7, end=None), Log("A").skip(2).txn(3, pid=7, end=None)]
)
def test_the_rest_of_a_shortened_log_is_judged(log: Log) -> None:
    one = view(
        [log], watermarks={"A": samples((2, 3), (3, 3))}, compacted={} if log.start else {"A": 2}
    )
    assert anomalies(NAME, one) == [("lso-mismatch", "A", 3)]


def test_a_stable_offset_that_lags_behind_its_markers() -> None:
    seen = view([Log("A").txn(1, pid=7)], watermarks={"A": samples((0, 2), (0, 2), (2, 2))})
    assert anomalies(NAME, seen) == [("lso-mismatch", "A", 0)]


def test_brokers_that_are_blind_to_negative_producer_ids() -> None:
    """They take a transactional batch for plain data; by the bytes it is open until its marker."""
    b = Log("B").txn(1, pid=-9)
    assert (
        anomalies(NAME, view([b], watermarks={"B": samples((0, 1), (2, 2))}, mirror_kind="shadow"))
        == []
    )
    seen = view([b], watermarks={"B": samples((1, 1), (2, 2))}, mirror_kind="shadow")
    assert anomalies(NAME, seen) == [("lso-mismatch", "B", 1)]


@pytest.mark.parametrize(
    ("truncated", "marks", "found"),
    [
        ([], [(2, 2)], [("lso-mismatch", "B", 2)]),
        ([(3, 2)], [(2, 2), (2, 2)], [("lso-mismatch", "B", 2)]),
        ([(2, 1)], [(0, 1), (0, 1), (1, 1)], [("lso-mismatch", "B", 0)]),
    ],
    ids=["nothing was truncated", "truncated above it", "below the truncation"],
)
def test_changes_that_no_truncation_explains(
    truncated: list[tuple[int, int]],
    marks: list[tuple[int, int]],
    found: list[tuple[str, str, int]],
) -> None:
    assert anomalies(NAME, truncated_back(truncated, *marks))[:1] == found


def test_unknown_epochs_under_a_broker_fault_are_not_compared() -> None:
    from linkflap.spark_verify.facts.partition_facts import Window

    seen = view(
        [Log("A").data(1, 2)],
        watermarks={"A": samples((2, 2), (1, 1), (2, 2), epochs=[-1, -1, -1])},
        windows=[Window(id="f", fault="broker-kill", target="A/1", start=0, end=5 * SECOND)],
    )
    assert [kind for kind, _, _ in anomalies(NAME, seen) if kind.endswith("regression")] == []


@pytest.mark.parametrize(("at", "found"), [(5, ["high-watermark-regression"]), (2, [])])
def test_unknown_epochs_are_not_compared_when_a_mirror_ended_between_them(
    at: int, found: list[str]
) -> None:
    """The mirror truncates what it mirrored too far, and the partition gets another leader; samples
    without an epoch cannot tell."""
    truncated = MirrorStop(
        link="A->B",
        cluster="B",
        time=at * SECOND,
        mirrored=2,
        promoted=1,
        truncated=((2, 1),),
        appended=(),
    )
    seen = view(
        [Log("A").data(1, 2), Log("B").data(1)],
        stops=[truncated],
        watermarks={"B": samples((1, 2), (1, 1), epochs=[-1, -1])},
    )
    assert [kind for kind, _, _ in anomalies(NAME, seen) if kind.endswith("regression")] == found
    known = {"B": samples((1, 2), (1, 1), epochs=[0, 0])}
    assert "high-watermark-regression" in [
        kind for kind, _, _ in anomalies(NAME, replace(seen, watermarks=known))
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["data", "commit", "abort", "plain"])),
        max_size=25,
    )
)
def test_the_closed_form_is_the_search(steps: list[tuple[int, str]]) -> None:
    """For every value: the interval of high watermarks that `high_watermarks_of` gives is exactly
    where `recompute` gives that value."""
    log = Log("A")
    for n, (pid, step) in enumerate(steps):
        if step == "data":
            log.data(n, pid=pid, transactional=True)
        elif step == "plain":
            log.data(n)
        else:
            log.marker(step, pid=pid)
    whole = read(log.replica())
    searched = np.array([recompute_last_stable(whole, h) for h in range(log.end + 1)])
    first, last = high_watermarks_of(whole, ints(*range(log.end + 1)))
    for value in range(log.end + 1):
        at = np.flatnonzero(searched == value)
        closed = [h for h in range(log.end + 1) if first[value] <= h <= last[value]]
        assert closed == at.tolist()
