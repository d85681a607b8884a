"""last-stable-offset: the smallest histories, and the closed form against a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkflap.harness.log.coordinators import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    FORGOTTEN,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)
from linkflap.harness.model.events import FailoverRefused
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import PartialFinding, Unjudged
from linkflap.spark_verify.checks.log_model.logs import (
    high_watermarks_of,
    read,
    recompute_last_stable,
)
from linkflap.spark_verify.facts.partition_facts import (
    LogTruncation,
    MirrorStop,
    ReplicaSample,
    Window,
)
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.coordinator_logs import TOPIC_PARTITION, set_to, state, states
from tests.unit.checks.histories import (
    ENDED,
    SECOND,
    History,
    Log,
    but,
    commit,
    ints,
    mirror_stop,
    promoted,
    samples,
    send,
    view,
)
from tests.unit.checks.verdicts import (
    Rejected,
    anomalies,
    findings,
    unjudged,
)


def replica(
    *ends: int,
    broker: int = 2,
    high: Sequence[int] = (2, 2, 2, 2),
    epochs: Sequence[int] | None = None,
    truncations: Sequence[LogTruncation] = (),
    windows: Sequence[Window] = (),
    leaders: Sequence[int] | None = None,
    stops: Sequence[MirrorStop] = (),
    every: float = 0.5,
    cluster: str = "A",
) -> PartitionView:
    """Ends of one replica of a log that broker 1 leads, each so many seconds from second 1.1 on;
    and high watermarks, one each second from second 1 on."""
    asked = [SECOND + int(number * every * SECOND) + SECOND // 10 for number in range(len(ends))]
    return view(
        [Log("A").data(1, 2)],
        watermarks={
            cluster: replace(
                samples(*((mark, mark) for mark in high), epochs=epochs),
                leader=ints(*(leaders or [1] * len(high))),
            )
        },
        windows=windows,
        truncations=truncations,
        stops=stops,
        replica_samples=[
            ReplicaSample(
                cluster=cluster,
                broker=broker,
                log_start=0,
                log_end=end,
                asked=at,
                returned=at + SECOND // 10,
            )
            for at, end in zip(asked, ends, strict=True)
        ],
    )


def stop(at: int, truncated: Sequence[tuple[int, int]] = ()) -> MirrorStop:
    """A mirror's end in the log, which truncated it or did not."""
    return mirror_stop(2, 2, link="B->A", time=at * SECOND, truncated=truncated)


def fault(name: str, target: str, at: int) -> Window:
    """A fault of one second."""
    return Window(id="f", fault=name, target=target, start=at * SECOND, end=(at + 1) * SECOND)


REPLICAS_ACCEPTED = {
    "an old leader that a partition kept from learning it appended, and truncates": (
        replica(
            1,
            2,
            1,
            windows=[fault("partition", "A/3", 0)],
        ),
        {"A/native": 4},
    ),
    "an epoch with two leaders: one of the names is old": (
        replica(2, 1, broker=1, leaders=(1, 1, 1, 2)),
        {"A/native": 4},
    ),
    "a replica that grows": (replica(0, 1, 2), {"A/native": 4}),
    "a replica lost what was not committed": (
        replica(1, 2, 1, high=(1, 1, 1, 2)),
        {"A/native": 4},
    ),
    "a replica had not fetched from this leader before": (replica(2, 1), {"A/native": 4}),
    "another leader's records, before the election": (
        replica(1, 2, 1, high=(1, 1, 2, 2), epochs=(0, 0, 1, 1)),
        {"A/native": 4},
    ),
    "an unclean election took it": (
        replica(1, 2, 1, windows=[fault("unclean-election", "A", 2)]),
        {"A/native": 4},
    ),
    "its own broker was paused when it grew, and may have led without knowing better": (
        replica(1, 2, 1, windows=[fault("broker-pause", "A/2", 0)]),
        {"A/native": 4},
    ),
    "the leader is unknown": (replica(1, 2, 1, epochs=(-1, -1, -1, -1)), {"A/native": 4}),
    "a mirror truncated the log": (
        replica(
            1,
            2,
            1,
            truncations=[LogTruncation(link="B->A", cluster="A", offset=1, end=2, time=2 * SECOND)],
        ),
        {"A/native": 4},
    ),
    "a mirror truncated the log when it stopped": (
        replica(1, 2, 1, stops=[stop(2, truncated=[(2, 1)])]),
        {"A/native": 4},
    ),
    "the leader before appended what it still had to send, without knowing of the election": (
        replica(1, 1, 2, 1, high=(1, 1, 2, 2), epochs=(0, 1, 1, 1), leaders=(2, 1, 1, 1)),
        {"A/native": 4},
    ),
    "the leader's replica lost what was not committed": (
        replica(2, 1, broker=1, high=(1, 1, 1, 2)),
        {"A/native": 4},
    ),
}


NAME = "last-stable-offset"
FOUND = [("high-watermark-ahead", "B", 1)]


def led(
    *highs: int,
    ends: Sequence[int],
    leaders: Sequence[int] | None = None,
    epochs: Sequence[int] | None = None,
    beside: float = 0.1,
    **rest: Any,
) -> PartitionView:
    """High watermarks of B's partition, one each second from second 1 on, led by a mirror; and the
    ends of broker 2's log, each right after one of them."""
    return view(
        [Log("A").data(1, 2), Log("B").data(1, 2)],
        mirror_kind="shadow",
        topology="A->B:3",
        watermarks={
            "B": replace(
                samples(*((high, high) for high in highs), epochs=epochs),
                leader=ints(*(leaders or [1000] * len(highs))),
            )
        },
        replica_samples=[
            ReplicaSample(
                cluster="B", broker=2, log_start=0, log_end=end,
                asked=int((at + beside) * SECOND), returned=int((at + beside) * SECOND) + 1,
            )
            for at, end in enumerate(ends, start=1)
        ],
        **rest,
    )  # fmt: skip


def test_a_follower_in_sync_has_what_readers_were_shown() -> None:
    assert anomalies(NAME, led(0, 1, 2, 2, ends=[0, 1, 2, 2])) == []
    assert anomalies(NAME, led(0, 1, 2, 2, ends=[0, 1, 1, 2])) == FOUND


FAULT = Window(id="f", fault="broker-pause", target="B/2", start=SECOND, end=2 * SECOND)


@pytest.mark.parametrize(
    "history",
    [
        led(0, 1, 2, 2, ends=[0, 0, 0, 2]),
        led(0, 0, 1, 1, 1, 2, 2, ends=[0, 1, 1, 1, 1, 1, 2]),
        led(0, 1, 2, 2, ends=[0, 1, 1, 2], leaders=[1, 1, 1, 1]),
        led(0, 1, 2, 2, ends=[0, 1, 1, 2], leaders=[1000, 1000, 1000, 3]),
        led(0, 1, 2, 2, ends=[0, 1, 1, 2], epochs=[4, 5, 5, 5]),
        led(0, 1, 2, 1, ends=[0, 1, 1, 1], epochs=[4, 4, 4, 5]),
        led(0, 1, 2, 2, ends=[0, 1, 1, 2], windows=[FAULT]),
        led(0, 1, 2, 2, ends=[0, 1, 1, 2], stops=[replace(stop(3, [(2, 1)]), cluster="B")]),
    ],
    ids=[
        "it never fetched",
        "it had not fetched for seconds",
        "a broker leads",
        "the mirror led no more",
        "a new leader epoch",
        "the log was truncated",
        "a fault of its broker",
        "its mirror's end truncated it",
    ],
)
def test_high_watermark_ahead_is_not_found_without_proof(history: PartitionView) -> None:
    assert "high-watermark-ahead" not in [kind for kind, *_ in anomalies(NAME, history)]


OPEN = Log("A").txn(1, pid=7, end=None)
SINCE = ENDED // 1_000_000
GOES_ON = [state(ONGOING, TOPIC_PARTITION, timeout=900_000, updated=SINCE, started=SINCE)]
COMMITTED = [*GOES_ON, replace(GOES_ON[0], state=COMPLETE_COMMIT, partitions=())]


def truncated_back(truncated: list[tuple[int, int]], *marks: tuple[int, int]) -> PartitionView:
    """B had 1 and 2 when it was sampled; the mirror truncated 2 when it ended, and B's clients
    wrote 3 there."""
    stop = mirror_stop(2, 1, time=501 * SECOND, truncated=truncated)
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
            watermarks={"A": samples((0, 1), every=ENDED)},
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
    "high-watermark-ahead": Rejected(led(0, 1, 2, 2, ends=[0, 1, 1, 2]), "B", 1),
    "replica-end-regression": Rejected(replica(1, 2, 1), "A", 1),
    "log-start-regression": Rejected(begins(2, 1), "A", 1),
    "log-start-above-lso": Rejected(begins(0, 3), "A", 3),
    "lso-above-high-watermark": Rejected(
        view([Log("A").data(1, 2, 3)], watermarks={"A": samples((3, 2), (3, 2))}),
        "A",
        3,
        only=("lso-mismatch",),
    ),
    "lso-regression": Rejected(
        view([Log("A").data(1, 2)], watermarks={"A": samples((2, 2), (1, 2))}),
        "A",
        1,
        only=("lso-mismatch",),
    ),
    "high-watermark-regression": Rejected(
        view([Log("A").data(1, 2, 3)], watermarks={"A": samples((2, 3), (2, 2))}), "A", 2
    ),
    "lso-mismatch": Rejected(view([OPEN], watermarks={"A": samples((0, 1), (1, 1))}), "A", 1),
    "high-watermark-above-log": Rejected(
        view([Log("A").data(1)], watermarks={"A": samples((1, 2))}), "A", 1
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


def test_a_log_start_is_compared_with_the_last_one_that_was_reported() -> None:
    assert anomalies(NAME, begins(2, -1, 1)) == [("log-start-regression", "A", 1)]
    assert anomalies(NAME, begins(2, -1, 1, epochs=[0, 0, 1])) == []


@pytest.mark.parametrize(("high", "found"), [(1, []), (2, [("high-watermark-above-log", "A", 1)])])
def test_no_high_watermark_is_above_what_was_sent_later(
    high: int, found: list[tuple[str, str, int]]
) -> None:
    sends = [send(1, acked=0, invoked=0), send(2, acked=1, invoked=9 * SECOND)]
    log, marks = Log("A").data(1, 2), {"A": samples((high, high))}
    assert anomalies(NAME, view([log], sends=sends, watermarks=marks)) == found


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
    truncated = mirror_stop(2, 1, time=at * SECOND, truncated=((2, 1),))
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


LONG_LOG = (2,) * 50


def test_a_leader_without_writes_is_judged_by_what_it_had() -> None:
    """The sampler records it every few seconds, also in the epoch in which it leads."""
    idle = replica(
        *(2, 2, 2, 0), broker=2, high=(1, 2, 2, 2), epochs=(0, 1, 1, 1), leaders=(1, 2, 2, 2)
    )
    assert anomalies(NAME, idle) == [("replica-end-regression", "A", 0)]


def test_the_leaders_own_replica_needs_no_earlier_sample() -> None:
    assert anomalies(NAME, replica(2, 1, broker=1)) == [("replica-end-regression", "A", 1)]


@pytest.mark.parametrize(
    "history",
    [
        replica(1, 2, 1, epochs=(0, 0, 1, 1)),
        replica(1, 2, 1, epochs=(0, 0, 1, 1), leaders=(1, 1, 3, 3)),
        replica(1, 2, 1, windows=[fault("broker-pause", "A/3", 0)]),
        replica(1, 2, 2, 1, windows=[fault("broker-kill", "A/2", 2)]),
        replica(1, 2, 1, leaders=(-1, 1, 1, 1)),
        replica(1, 2, 3, 1, windows=[fault("broker-pause", "A/2", 2)]),
        replica(1, 2, 1, every=15, high=LONG_LOG, windows=[fault("broker-pause", "A/2", 13)]),
        replica(1, 1, 2, 1, every=15, high=LONG_LOG, windows=[fault("partition", "A/2", 2)]),
        replica(1, 1, 2, 1, every=15, high=LONG_LOG, windows=[fault("unclean-election", "A", 2)]),
        replica(1, 2, 1, stops=[stop(2)]),
    ],
    ids=[
        "a new epoch",
        "another leader",
        "another broker was paused",
        "killed after it had them",
        "the first sample of an epoch has no name",
        "grew again after its broker was paused",
        "its broker was paused when it knew the leader",
        "long after a partition",
        "long after an unclean election",
        "a mirror stopped and truncated nothing",
    ],
)
def test_no_election_or_restart_takes_committed_records(history: PartitionView) -> None:
    assert anomalies(NAME, history) == [("replica-end-regression", "A", 1)]


@pytest.mark.parametrize(
    ("on", "found"), [("A", []), ("B", [("replica-end-regression", "B", 1)])], ids=["A", "B"]
)
def test_a_mirror_follows_an_unclean_election_of_its_source(on: str, found: list[object]) -> None:
    """On B itself it is over soon; B may follow the one of A at any time."""
    history = replica(
        1, 1, 2, 1, every=15, high=LONG_LOG, cluster="B", windows=[fault("unclean-election", on, 2)]
    )
    assert anomalies(NAME, history) == found


class Last(TypedDict, total=False):
    """The other fields of a state."""

    pid: int
    epoch: int
    timeout: int
    started: int


BEGAN = ENDED // 1_000_000
"""When the transactions here began, in milliseconds."""
LONG = 900_000


def open_for(seconds: int, **rest: Unpack[History]) -> PartitionView:
    """A has a transaction of producer 7 in epoch 2 that is open at the end, so long after it was
    written."""
    given: History = {"watermarks": {"A": samples((0, 1))}, "ended": ENDED + seconds * SECOND}
    return view([Log("A").txn(1, pid=7, epoch=2, end=None)], **(given | rest))


def last(
    kind: int, *, at: int = BEGAN, log: Log | None = None, **rest: Unpack[Last]
) -> PartitionView:
    """The coordinator's last state of a transactional id: of that transaction, unless the rest says
    otherwise. `at` is when it was written."""
    given: Last = {"pid": 7, "epoch": 2, "timeout": LONG, "started": BEGAN}
    partitions = () if kind in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT) else (TOPIC_PARTITION,)
    return states(state(kind, *partitions, updated=at, **(given | rest)), log=log)


HANGS, LINGERS = [("hanging-transaction", "A", 0)], [("lingering-transaction", "A", 0)]


@pytest.mark.parametrize(
    ("state_", "seconds", "found"),
    [
        (last(ONGOING), 80, LINGERS),
        (last(ONGOING), 899, LINGERS),
        # Behind the timeout are the coordinator's interval, and 5 s.
        (last(ONGOING), 915, LINGERS),
        (last(ONGOING), 916, HANGS),
        (last(ONGOING, timeout=10_000), 25, LINGERS),
        (last(ONGOING, timeout=10_000), 26, HANGS),
        (last(ONGOING, started=BEGAN - 600_000), 400, HANGS),
        # It has only begun.
        (last(ONGOING), 9, []),
        (last(PREPARE_COMMIT, epoch=3), 13, LINGERS),
        (last(PREPARE_COMMIT), 13, LINGERS),
        (last(PREPARE_ABORT, epoch=3), 16, HANGS),
        # At once: nobody will end it.
        (last(EMPTY), 1, HANGS),
        (last(COMPLETE_COMMIT), 4, HANGS),
        (last(COMPLETE_ABORT, epoch=3), 4, HANGS),
        (last(FORGOTTEN), 1, HANGS),
        (last(ONGOING, pid=8), 1, HANGS),
        (last(ONGOING, epoch=3), 1, HANGS),
        (last(ONGOING, epoch=1), 1, HANGS),
        (last(PREPARE_COMMIT, epoch=1), 1, HANGS),
        (states(state(ONGOING, ("A.t", 1), pid=7, epoch=2, timeout=LONG)), 1, HANGS),
    ],
)  # fmt: skip
def test_the_coordinator_decides_where_its_log_is_there(
    state_: PartitionView, seconds: int, found: list[tuple[str, str, int]]
) -> None:
    assert anomalies(NAME, open_for(seconds), state_) == found


def test_the_last_state_of_an_id_counts() -> None:
    began = state(ONGOING, TOPIC_PARTITION, pid=7, epoch=2, timeout=LONG, started=BEGAN)
    ended = state(COMPLETE_COMMIT, pid=7, epoch=2, timeout=LONG, started=BEGAN)
    assert anomalies(NAME, open_for(80), states(began, ended)) == HANGS
    assert anomalies(NAME, open_for(80), states(ended, began)) == LINGERS
    other = replace(ended, transactional_id="u", producer_id=8)
    assert anomalies(NAME, open_for(80), states(began, other)) == LINGERS


def test_without_the_coordinators_log_the_brokers_longest_timeout_decides() -> None:
    assert anomalies(NAME, open_for(80)) == LINGERS
    assert anomalies(NAME, open_for(914)) == LINGERS
    assert anomalies(NAME, open_for(916)) == HANGS
    short = set_to(open_for(80), "transaction.max.timeout.ms", 60_000)
    assert anomalies(NAME, short) == HANGS
    swept = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    assert anomalies(NAME, set_to(open_for(916), swept, 60_000)) == LINGERS
    elsewhere = replace(last(COMPLETE_COMMIT), replicas=[])
    assert anomalies(NAME, open_for(80), elsewhere) == LINGERS


def test_a_coordinator_that_was_down_looks_again_once_it_is_back() -> None:
    until = ENDED + 950 * SECOND
    down = Window(id="f", fault="broker-kill", target="A/1", start=ENDED, end=until)
    assert anomalies(NAME, open_for(960, windows=[down]), last(ONGOING)) == LINGERS
    assert anomalies(NAME, open_for(970, windows=[down]), last(ONGOING)) == HANGS


def test_a_coordinators_log_with_a_hole_does_not_decide() -> None:
    hole = last(COMPLETE_COMMIT, log=Log("A").skip(1).data(-1))
    hole = replace(hole, replicas=[replace(r, log_start=0) for r in hole.replicas])
    assert anomalies(NAME, open_for(80), hole) == []
    check = REGISTRY[NAME]
    partials = [
        replace(f, topic=seen.topic, partition=seen.partition)
        for seen in (open_for(80), hole)
        for f in check.kernel(seen)
        if isinstance(f, PartialFinding)
    ]
    assert check.combine is not None
    (one,) = check.combine(partials)
    assert isinstance(one.found, Unjudged)
    assert anomalies(NAME, open_for(916), hole) == HANGS


@pytest.mark.parametrize(
    "knows_not",
    [
        [but(last(COMPLETE_COMMIT), partition=1)],
        [last(COMPLETE_COMMIT), but(last(EMPTY, pid=8), partition=2)],
        [set_to(last(COMPLETE_COMMIT), "transaction.state.log.num.partitions", 2)],
        [last(COMPLETE_COMMIT, log=Log("A").taken("1-failover", at=999))],
    ],
    ids=["the first partition", "one in the middle", "the last one", "copied before it began"],
)
def test_missing_or_older_coordinator_log_may_know_the_open_transaction(
    knows_not: Sequence[PartitionView],
) -> None:
    assert anomalies(NAME, open_for(80), *knows_not) == []
    (reason,) = unjudged(NAME, open_for(80), *knows_not)
    assert reason.startswith("the coordinator's log cannot say")
    assert anomalies(NAME, open_for(916), *knows_not) == HANGS


@pytest.mark.parametrize(
    ("written", "seconds", "found"),
    [(1, 80, LINGERS), (1, 816, HANGS), (1, 814, LINGERS), (9000, 80, LINGERS), (9000, 817, HANGS)],
)
def test_timestamps_that_a_program_chose_make_no_transaction_older_or_younger(
    written: int, seconds: int, found: list[tuple[str, str, int]]
) -> None:
    """Sampled at 900 s without, at 901 s with the record, at 902 s without a high watermark."""
    log = Log("A").data(1, pid=7, epoch=2, transactional=True, written=written * SECOND)
    marks = samples((0, 0), (0, 1), (-1, -1), every=SECOND)
    marks = replace(marks, time=marks.time + 899 * SECOND, returned=marks.returned + 899 * SECOND)
    one = view([log], watermarks={"A": marks}, ended=(900 + 100 + seconds) * SECOND)
    assert anomalies(NAME, one) == found


def test_mirrored_transaction_times_out_by_settings_of_its_source() -> None:
    b = Log("B").txn(1, pid=7, end=None)
    marks = {"B": samples((0, 1))}
    mirrored = view([b], watermarks=marks, mirror_kind="shadow", ended=ENDED + 80 * SECOND)
    longest = "transaction.max.timeout.ms"
    there = [("lingering-transaction", "B", 0)]
    assert anomalies(NAME, set_to(mirrored, longest, 60_000, on="B")) == there
    there = [("hanging-transaction", "B", 0)]
    assert anomalies(NAME, set_to(mirrored, longest, 60_000, on="A")) == there


def test_transaction_aborted_during_the_capture_is_not_hanging() -> None:
    """Its coordinator does that by itself; clients have finished by then."""
    now = (ENDED + 80 * SECOND) // 1_000_000
    assert anomalies(NAME, open_for(80), last(COMPLETE_ABORT, at=now - 1000)) == []
    assert anomalies(NAME, open_for(80), last(COMPLETE_ABORT, at=now - 3000)) == HANGS
    assert anomalies(NAME, open_for(80), last(COMPLETE_COMMIT, at=now - 1000)) == HANGS
    aborted = state(COMPLETE_ABORT, pid=7, epoch=3, timeout=LONG, updated=now - 1000)
    for partition, found in ((TOPIC_PARTITION, []), (("A.t", 1), HANGS)):
        prepared = replace(aborted, state=PREPARE_ABORT, partitions=(partition,))
        assert anomalies(NAME, open_for(80), states(prepared, aborted)) == found


def test_a_lingering_transaction_says_until_when() -> None:
    (one,) = findings(NAME, open_for(80), last(ONGOING))
    assert one.evidence["open_seconds"] == 80
    assert one.evidence["until"] == "for 900 s at most"
    assert one.evidence["why"] == "its coordinator ends it: t is Ongoing"


@pytest.mark.parametrize("dead", ["A", "B"])
def test_transaction_that_only_a_dead_cluster_could_end_is_lingering(dead: str) -> None:
    """C mirrors B, which mirrors A, and was not promoted."""
    logs = [Log("A").txn(1, pid=7), Log("B").txn(1, pid=7), Log("C").txn(1, pid=7, end=None)]
    given: History = {
        "topology": "A->B->C", "mirror_kind": "shadow", "watermarks": {"C": samples((0, 1))},
        "ended": ENDED + 2000 * SECOND,
    }  # fmt: skip
    seen = view(logs, **given)
    assert anomalies(NAME, seen) == [("hanging-transaction", "C", 0)]
    (one,) = findings(NAME, but(seen, deaths={dead: ENDED}))
    assert (one.kind, one.cluster) == ("lingering-transaction", "C")
    assert one.evidence["until"] == f"until C is promoted, for {dead} is dead"


@pytest.mark.parametrize(
    ("kind", "found"), [("shadow", [("hanging-transaction", "B", 1)]), ("mm2", [])]
)
def test_a_transaction_left_open_by_an_offset_keeping_mirror_hangs(
    kind: str, found: list[tuple[str, str, int]]
) -> None:
    """MirrorMaker 2 writes its own transactions, which a coordinator on B ends."""
    b = Log("B").data(1).txn(2, pid=7, end=None)
    seen = view([b], promotions=[promoted(2)], watermarks={"B": samples((1, 2))}, mirror_kind=kind)
    assert anomalies(NAME, seen) == found


@pytest.mark.parametrize(
    ("kind", "mirror", "dead", "found"),
    [
        ("forced", "shadow", "A", [("hanging-transaction", "B", 0)]),
        ("planned", "shadow", "", []),
        ("forced", "shadow", "", []),
        ("forced", "mm2", "A", []),
    ],
    ids=["source dead", "source alive", "source alive again", "the transaction is the mirror's"],
)
def test_a_refused_failover_leaves_the_dead_sources_transactions_open(
    kind: Literal["planned", "forced"], mirror: str, dead: str, found: list[tuple[str, str, int]]
) -> None:
    """At once, not only after the timeout: no coordinator is left that could end it."""
    refusal = FailoverRefused(link="A->B", mode=kind, error="NOT_STOPPED", code=145, seconds=60.0)
    logs = [Log("A").txn(1, pid=7), Log("B").txn(1, pid=7, end=None)]
    seen = view(
        logs,
        watermarks={"B": samples((0, 1))},
        mirror_kind=mirror,
        refusals=[refusal],
        deaths={dead: ENDED} if dead else {},
    )
    assert anomalies(NAME, seen) == found
    for each in findings(NAME, seen):
        assert each.evidence["refused_over"] == "A->B"
        assert each.evidence["mirrored"]


@pytest.mark.parametrize(
    ("link", "found"),
    [
        ("A->B", [("hanging-transaction", "B", 0), ("hanging-transaction", "C", 0)]),
        ("B->C", [("hanging-transaction", "C", 0)]),
        ("C->D", []),
    ],
)
def test_refused_failover_leaves_transactions_open_down_the_chain(
    link: str, found: list[tuple[str, str, int]]
) -> None:
    refusal = FailoverRefused(link=link, mode="forced", error="NOT_STOPPED", code=145, seconds=60.0)
    logs = [Log("A").txn(1, pid=7), *(Log(name).txn(1, pid=7, end=None) for name in "BC")]
    marks = {name: samples((0, 1)) for name in "BC"}
    seen = view(
        logs,
        watermarks=marks,
        mirror_kind="shadow",
        refusals=[refusal],
        deaths={link[0]: ENDED},
        topology="A->B->C",
    )
    assert sorted(anomalies(NAME, seen)) == found
