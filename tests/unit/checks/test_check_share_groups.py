"""share-groups: the smallest histories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from linkflap.harness.model.history import SHARE_SAMPLER
from linkflap.spark_verify.facts.partition_facts import Awaited, Window
from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import (
    SECOND,
    Log,
    but,
    commit,
    ints,
    promoted,
    samples,
    send,
    view,
)
from tests.unit.checks.round_trip import ACKED, AWAY, trip
from tests.unit.checks.verdicts import Rejected, anomalies, findings, unjudged

NAME = "share-groups"
LOG = Log("A").txn(1, pid=7)
ABORTED = Log("A").txn(1, pid=7, end="abort")


def row(
    kind: str,
    *uids: int,
    at: int,
    member: str = "m1",
    position: int = -1,
    offset: int = 0,
    cluster: str = "A",
    isolation: str = "read_committed",
) -> Read:
    """A step of a member that took one second, `at` seconds, with records from an offset on."""
    return Read(
        reader=member, process=1, cluster=cluster, isolation=isolation, kind=kind, group="g",
        time=at * SECOND,
        returned=(at + 1) * SECOND, position=position, uids=ints(*uids),
        offsets=ints(*range(offset, offset + len(uids))),
    )  # fmt: skip


def answered(kind: str, *uids: int, at: int, member: str = "m1") -> list[Read]:
    """A member's request, and the confirmation in the same second."""
    confirmed = f"{kind.removesuffix('e')}ed"
    return [row(each, *uids, at=at, member=member) for each in (kind, confirmed)]


def shared(*rows: Read, log: Log = LOG, sends: Sequence[Send] = ()) -> PartitionView:
    return replace(view([log], sends=sends), shares=rows)


GIVEN = row("acquire", 1, at=10, position=1)
ACCEPTED_ROWS = (GIVEN, *answered("accept", 1, at=12))
DONE = row("settled", at=50, position=1)
ACCEPTED = {
    "given and accepted": (shared(*ACCEPTED_ROWS, DONE), {"A/native": 1}),
    "accepted, and the answer lost": (shared(*ACCEPTED_ROWS[:2], DONE), {"A/native": 1}),
    "rejected": (
        shared(GIVEN, *answered("reject", 1, at=12), DONE),
        {"A/native": 1},
    ),
    "released, and given again": (
        shared(
            GIVEN,
            *answered("release", 1, at=12),
            row("acquire", 1, at=14, member="m2", position=2),
            *answered("accept", 1, at=16, member="m2"),
            DONE,
        ),
        {"A/native": 1},
    ),
    "renewed, and accepted after that": (
        shared(
            GIVEN,
            *answered("renew", 1, at=12),
            row("acquire", 1, at=14, position=1),
            *answered("accept", 1, at=16),
            DONE,
        ),
        {"A/native": 1},
    ),
    "handed over late by a member whose lock had run out": (
        shared(
            *ACCEPTED_ROWS,
            row("acquire", 1, at=20, member="m2", position=1),
            row("accept", 1, at=22, member="m2"),
            DONE,
        ),
        {"A/native": 1},
    ),
    "handed over late by a member whose lock had run out, before the other one accepted it": (
        shared(
            replace(GIVEN, position=2),
            row("acquire", 1, at=11, member="m2", position=1),
            *answered("accept", 1, at=14),
            DONE,
        ),
        {"A/native": 1},
    ),
    "given to another member when the lock of the first, which was killed, had run out": (
        shared(
            GIVEN,
            row("acquire", 1, at=27, member="m2", position=2),
            *answered("accept", 1, at=29, member="m2"),
            DONE,
            sends=[send(1, acked=0, invoked=8 * SECOND)],
        ),
        {"A/native": 1},
    ),
    "given to another member at once, when the first had left": (
        shared(
            GIVEN,
            row("acquire", 1, at=13, member="m2", position=1),
            *answered("accept", 1, at=15, member="m2"),
            replace(DONE, reader="m2"),
            sends=[send(1, acked=0, invoked=8 * SECOND)],
        ),
        {"A/native": 1},
    ),
    "released, the answer lost, and given to another member": (
        shared(
            GIVEN,
            row("release", 1, at=12),
            row("acquire", 1, at=13, member="m2", position=2),
            *answered("accept", 1, at=15, member="m2"),
            DONE,
            sends=[send(1, acked=0, invoked=8 * SECOND)],
        ),
        {"A/native": 1},
    ),
    "given up after many deliveries": (
        shared(
            *(row("acquire", 1, at=10 * n, position=n) for n in range(1, 4)),
            row("settled", at=70, position=1),
        ),
        {"A/native": 1},
    ),
    "aborted, and the group reads uncommitted": (
        shared(
            row("acquire", 1, at=10, position=1, isolation="read_uncommitted"),
            row("accept", 1, at=12),
            DONE,
            log=ABORTED,
        ),
        {"A/native": 1},
    ),
    "the start offset lags behind what was accepted": (
        shared(*ACCEPTED_ROWS, row("settled", at=50, position=0)),
        {"A/native": 1},
    ),
}
STALE = (row("acquire", 1, at=20, member="m2", position=2), row("accept", 1, at=22, member="m2"))
EARLY = [send(1, acked=0, invoked=8 * SECOND)]
ACCEPTED |= {
    "given to its owner again, which had renewed it": (
        shared(
            GIVEN,
            row("renew", 1, at=12),
            row("acquire", 1, at=13, position=1),
            *answered("accept", 1, at=15),
            DONE,
            sends=EARLY,
        ),
        {"A/native": 1},
    ),
    "given to its owner again, whose lock may have expired": (
        shared(
            GIVEN,
            row("acquire", 1, at=24, position=2),
            *answered("accept", 1, at=26),
            DONE,
            sends=EARLY,
        ),
        {"A/native": 1},
    ),
}
REJECTS = {
    "delivered-again": Rejected(
        shared(
            *ACCEPTED_ROWS,
            row("acquire", 1, at=20, position=2),
            *answered("accept", 1, at=22),
            DONE,
        ),
        "A",
        0,
    ),
    "never-delivered": Rejected(shared(DONE), "A", 0),
    "never-acknowledged": Rejected(shared(GIVEN, *answered("release", 1, at=12), DONE), "A", 0),
    "unacquired-acknowledgement": Rejected(
        shared(
            GIVEN,
            *answered("accept", 1, at=12, member="m2"),
            DONE,
        ),
        "A",
        0,
    ),
    "wrong-delivery-count": Rejected(
        shared(row("acquire", 1, at=10, position=6), *ACCEPTED_ROWS[1:], DONE), "A", 0
    ),
    "wrong-start-offset": Rejected(
        shared(*ACCEPTED_ROWS, row("settled", at=50, position=3)), "A", 3
    ),
}


KILLED = Window(id="kill", fault="broker-kill", target="A/1", start=5 * SECOND, end=30 * SECOND)
PAUSED = replace(KILLED, id="pause", fault="broker-pause")


def disturbed(seen: PartitionView, window: Window = KILLED) -> PartitionView:
    """The same while a broker of A was killed, or during another fault."""
    facts = seen.partition_facts
    changed = replace(facts, facts=replace(facts.facts, windows=(window,)))
    return replace(seen, partition_facts=changed)


REJECTS["unproven-redelivery"] = Rejected(
    disturbed(shared(*ACCEPTED_ROWS, *STALE, DONE), PAUSED), "A", 0
)
HELD = (GIVEN, row("acquire", 1, at=11, member="m2", position=2))
SENT = [send(1, acked=0, invoked=8 * SECOND)]
WRONG = {
    "delivered to another member, and the first one could accept it after that": (
        shared(*HELD, *answered("accept", 1, at=14), DONE),
        ("delivered-again", 0),
    ),
    "delivered to another member too soon for any lock to have run out": (
        shared(*HELD, row("accept", 1, at=14), DONE, sends=SENT),
        ("delivered-again", 0),
    ),
    "delivered to two members in the same moment": (
        shared(GIVEN, replace(GIVEN, reader="m2"), *ACCEPTED_ROWS[1:], DONE, sends=SENT),
        ("delivered-again", 0),
    ),
    "delivered to another member as soon as the first one had accepted it": (
        shared(*ACCEPTED_ROWS, row("acquire", 1, at=15, member="m2", position=1), DONE, sends=SENT),
        ("delivered-again", 0),
    ),
    "delivered to another member, and the first one could release it after that": (
        shared(
            *HELD,
            *answered("release", 1, at=14),
            row("acquire", 1, at=16, position=2),
            row("accepted", 1, at=18),
            DONE,
        ),
        ("delivered-again", 0),
    ),
    "accepted by one member, and then rejected by another": (
        shared(
            *ACCEPTED_ROWS,
            row("acquire", 1, at=11, member="m2", position=1),
            row("rejected", 1, at=12, member="m2"),
            DONE,
        ),
        ("delivered-again", 0),
    ),
    "accepted twice by one member": (
        shared(*ACCEPTED_ROWS, row("accepted", 1, at=12), DONE),
        ("delivered-again", 0),
    ),
    "released with confirmation after its end": (
        shared(
            *ACCEPTED_ROWS,
            row("acquire", 1, at=11, member="m2", position=1),
            row("released", 1, at=14, member="m2"),
            DONE,
        ),
        ("delivered-again", 0),
    ),
    "accepted and released in one request": (
        shared(*ACCEPTED_ROWS, *answered("release", 1, at=12), DONE),
        ("delivered-again", 0),
    ),
    "delivered after its end, with a higher delivery count": (
        shared(*ACCEPTED_ROWS, *STALE, DONE),
        ("delivered-again", 0),
    ),
    "delivered after its end, to a member that had got what was sent later": (
        shared(
            *ACCEPTED_ROWS,
            row("acquire", 2, at=16, member="m2", position=1, offset=2),
            row("acquire", 1, at=20, member="m2", position=1),
            row("settled", at=50, position=1),
            log=Log("A").txn(1, pid=7).data(2),
            sends=[send(2, acked=2, invoked=14 * SECOND, returned=15 * SECOND)],
        ),
        ("delivered-again", 0),
    ),
    "delivered and accepted below the start offset": (
        shared(
            row("acquire", 1, at=3, position=1),
            row("accept", 1, at=5),
            row("settled", at=7, position=1),
            *ACCEPTED_ROWS,
            DONE,
        ),
        ("delivered-again", 0),
    ),
    "delivered twice in one poll": (
        shared(
            replace(row("acquire", 1, 1, at=10, position=1), offsets=ints(0, 0)),
            *ACCEPTED_ROWS[1:],
            DONE,
        ),
        ("delivered-again", 0),
    ),
    "delivered twice in one poll, and once more after its end": (
        shared(
            replace(row("acquire", 1, 1, at=10, position=1), offsets=ints(0, 0)),
            *ACCEPTED_ROWS[1:],
            *STALE,
            DONE,
        ),
        ("delivered-again", 0),
    ),
    "its lock had expired": (
        shared(GIVEN, *answered("accept", 1, at=40), DONE),
        ("unacquired-acknowledgement", 0),
    ),
    "it had released it before": (
        shared(
            GIVEN,
            *answered("release", 1, at=12),
            *answered("accept", 1, at=14),
            DONE,
        ),
        ("unacquired-acknowledgement", 0),
    ),
    "the count did not rise after a release": (
        shared(
            GIVEN,
            *answered("release", 1, at=12),
            *(
                replace(r, time=r.time + 5 * SECOND, returned=r.returned + 5 * SECOND)
                for r in ACCEPTED_ROWS
            ),
            DONE,
        ),
        ("wrong-delivery-count", 0),
    ),
    "the start offset went back": (
        shared(
            *ACCEPTED_ROWS, row("settled", at=40, position=1), row("settled", at=50, position=0)
        ),
        ("wrong-start-offset", 0),
    ),
    "given only after the group was done with it": (
        shared(row("settled", at=8, position=1), *ACCEPTED_ROWS[:2]),
        ("never-delivered", 0),
    ),
    "accepted only after the group was done with it": (
        shared(
            row("acquire", 1, at=3, position=1),
            row("settled", at=8, position=1),
            row("accept", 1, at=12),
        ),
        ("never-acknowledged", 0),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_rejects_too(case: str) -> None:
    seen, (kind, offset) = WRONG[case]
    assert anomalies(NAME, seen) == [(kind, "A", offset)]


@pytest.mark.parametrize(
    "seen",
    [
        WRONG["delivered to another member, and the first one could accept it after that"][0],
        WRONG["delivered to another member too soon for any lock to have run out"][0],
        shared(
            *ACCEPTED_ROWS,
            row("settled", at=14, position=1),
            row("settled", at=20, position=0),
            row("settled", at=50, position=1),
        ),
    ],
    ids=[
        "the member that got it first had lost its connection",
        "or the one that got it next",
        "a suspended coordinator answered",
    ],
)
def test_a_fault_of_the_cluster_explains(seen: PartitionView) -> None:
    assert anomalies(NAME, seen)
    assert anomalies(NAME, disturbed(seen)) == []


AFTER_ITS_OWN_END = shared(*ACCEPTED_ROWS, row("acquire", 1, at=20, position=1), DONE)
NEWER = WRONG["delivered after its end, to a member that had got what was sent later"][0]
HIGHER = shared(*ACCEPTED_ROWS, *STALE, DONE)
NOT_RISEN = WRONG["the count did not rise after a release"][0]


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        (AFTER_ITS_OWN_END, "delivered-again"),
        (NEWER, "delivered-again"),
        (NOT_RISEN, "wrong-delivery-count"),
        (HIGHER, "delivered-again"),
    ],
    ids=["after its own end", "after a newer record", "count not risen", "count higher"],
)
def test_a_redelivery_that_a_fault_may_have_delayed_is_reported_and_allowed(
    seen: PartitionView, kind: str
) -> None:
    """A killed broker answers no more: only a count that a new leader began anew is not proven."""
    epochs = samples(*[(1, 1)] * 40, epochs=[0] * 6 + [1] * 34)
    assert anomalies(NAME, seen) == [(kind, "A", 0)]
    unproven = [("unproven-redelivery", "A", 0)]
    for window, found in ((KILLED, [(kind, "A", 0)]), (PAUSED, unproven)):
        one = unproven if seen is HIGHER else found
        assert anomalies(NAME, disturbed(seen, window)) == one
        elected = replace(disturbed(seen, window), watermarks={"A": epochs})
        assert anomalies(NAME, elected) == one
    assert anomalies(NAME, replace(seen, watermarks={"A": epochs})) == unproven


def test_an_answer_of_a_leader_that_lives_may_come_after_those_of_the_next_one() -> None:
    """A broker that stops, or that led until the killed one came back, hands the partition over."""
    once = samples(*[(1, 1)] * 40, epochs=[0] * 6 + [1] * 34)
    back = samples(*[(1, 1)] * 40, epochs=[0] * 6 + [1] * 6 + [2] * 28)
    unproven = [("unproven-redelivery", "A", 0)]
    stopped = disturbed(AFTER_ITS_OWN_END, replace(KILLED, fault="broker-restart"))
    assert anomalies(NAME, stopped) == [("delivered-again", "A", 0)]
    assert anomalies(NAME, replace(stopped, watermarks={"A": once})) == unproven
    assert (
        anomalies(NAME, replace(disturbed(AFTER_ITS_OWN_END), watermarks={"A": back})) == unproven
    )


@pytest.mark.parametrize(
    ("target", "start", "end", "explains"),
    [
        ("A/1", -10, -5, False),
        ("A/1", -10, -4, True),
        ("A/1", 21, 30, True),
        ("A/1", 22, 30, False),
        ("B/1", 5, 30, False),
    ],
    ids=["16 s before", "15 s before", "until it was delivered", "after that", "elsewhere"],
)
def test_a_fault_explains_what_its_cluster_delivered_until_15_s_after_it(
    target: str, start: int, end: int, explains: bool
) -> None:
    """First delivered at 11 s, again at 21 s."""
    window = replace(PAUSED, target=target, start=start * SECOND, end=end * SECOND)
    kind = "unproven-redelivery" if explains else "delivered-again"
    assert anomalies(NAME, disturbed(HIGHER, window)) == [(kind, "A", 0)]


def test_an_unproven_redelivery_names_the_fault() -> None:
    (found,) = findings(NAME, disturbed(NOT_RISEN, PAUSED))
    assert (found.kind, found.evidence["returned"], found.evidence["witness"]) == (
        "unproven-redelivery",
        16 * SECOND,
        "their delivery count is 1, as before a release; broker-pause (pause)",
    )


@pytest.mark.parametrize("window", [KILLED, PAUSED])
def test_a_member_may_hand_over_late_what_it_had_fetched_before(window: Window) -> None:
    late = row("acquire", 1, at=20, member="m2", position=1)
    assert anomalies(NAME, disturbed(shared(*ACCEPTED_ROWS, late, DONE), window)) == []


def test_a_link_that_breaks_explains_nothing_and_a_path_of_clients_does() -> None:
    seen = WRONG["delivered to another member too soon for any lock to have run out"][0]
    for target, found in (("A->B", [("delivered-again", "A", 0)]), ("*->A", [])):
        down = replace(KILLED, fault="link-cut", target=target)
        assert anomalies(NAME, disturbed(seen, down)) == found


@pytest.mark.parametrize(
    ("fault", "target", "explains"),
    [
        ("partitions-added", "A", False),
        ("records-deleted", "A", False),
        ("mirror-kill", "A->B", False),
        ("mirror-kill", "B->A", True),
        ("leadership-move", "A", True),
    ],
)
def test_faults_that_only_change_topics_or_end_a_mirror_explain_nothing(
    fault: str, target: str, explains: bool
) -> None:
    seen = WRONG["delivered to another member too soon for any lock to have run out"][0]
    found = [] if explains else [("delivered-again", "A", 0)]
    window = replace(KILLED, fault=fault, target=target)
    assert anomalies(NAME, disturbed(seen, window)) == found


@pytest.mark.parametrize(
    ("epochs", "found"),
    [
        ([0] * 10 + [1] * 20, []),
        ([0] * 25 + [1] * 5, [("delivered-again", "A", 0)]),
        ([-1] * 10 + [1] * 20, [("delivered-again", "A", 0)]),
    ],
    ids=["between both deliveries", "long after them", "unknown before them"],
)
def test_a_new_leader_epoch_without_a_fault_explains_what_is_around_it(
    epochs: Sequence[int], found: Sequence[tuple[str, str, int]]
) -> None:
    seen = WRONG["delivered to another member too soon for any lock to have run out"][0]
    marks = samples(*[(1, 1)] * len(epochs), epochs=epochs)
    assert anomalies(NAME, replace(seen, watermarks={"A": marks})) == found


def test_a_start_offset_that_stays_behind_is_wrong_whatever_happened() -> None:
    seen, _ = WRONG["the start offset went back"]
    assert anomalies(NAME, disturbed(seen)) == [("wrong-start-offset", "A", 0)]


def test_deleted_records_need_not_be_delivered_to_pass_the_start_offset() -> None:
    """The start offset follows the log's: what a member still has is not delivered again."""
    deleted = Log("A").data(1).data(2)
    seen = shared(row("settled", at=5, position=1), GIVEN, row("accepted", 1, at=12), log=deleted)
    (replica,) = seen.replicas
    assert anomalies(NAME, seen)[0][0] == "delivered-again"
    kept = replace(replica, log_start=1)
    assert ("delivered-again", "A", 0) not in anomalies(NAME, replace(seen, replicas=(kept,)))


def test_brokers_may_have_another_limit() -> None:
    seen = shared(row("acquire", 1, at=10, position=6), *ACCEPTED_ROWS[1:], DONE)
    facts = seen.partition_facts
    clusters = tuple(
        replace(c, config={"group.share.delivery.count.limit": "7"})
        for c in facts.facts.topology.clusters
    )
    topology = replace(facts.facts.topology, clusters=clusters)
    changed = replace(facts, facts=replace(facts.facts, topology=topology))
    assert anomalies(NAME, replace(seen, partition_facts=changed)) == []


GENERAL = {
    "another record at its offset": (
        "inconsistent-offset",
        "inconsistent-offset",
        shared(row("acquire", 9, at=10, position=1)),
        0,
    ),
    "behind the end of the log": (
        "read-committed-visibility",
        "phantom-read",
        shared(row("acquire", 1, at=10, position=1, offset=70)),
        70,
    ),
    "at a marker, although it reads uncommitted": (
        "read-committed-visibility",
        "phantom-read",
        shared(row("acquire", 1, at=10, position=1, offset=1, isolation="read_uncommitted")),
        1,
    ),
    "aborted": (
        "aborted-read",
        "aborted-read",
        shared(row("acquire", 1, at=10, position=1), log=ABORTED),
        0,
    ),
    "aborted, as its producer knows": (
        "aborted-read",
        "aborted-read",
        shared(
            row("acquire", 1, at=10, position=1),
            log=Log("A").data(1),
            sends=[commit(1, acked=0, ending="abort")],
        ),
        0,
    ),
    "before its commit was requested": (
        "uncommitted-read",
        "uncommitted-read",
        shared(row("acquire", 1, at=10, position=1), sends=[commit(1, asked=12 * SECOND)]),
        0,
    ),
}


@pytest.mark.parametrize("case", GENERAL)
def test_the_checks_of_all_readers_judge_what_was_acquired(case: str) -> None:
    name, kind, seen, offset = GENERAL[case]
    assert anomalies(name, seen) == [(kind, "A", offset)]
    assert anomalies(name, shared(row("acquire", 1, at=14, position=1), sends=seen.sends[:0])) == []


def test_a_redelivered_record_names_the_member_that_had_confirmed_it() -> None:
    again = (
        row("acquire", 1, at=20, member="m2", position=2),
        row("released", 1, at=22, member="m2"),
    )
    (found,) = findings(NAME, shared(*ACCEPTED_ROWS, *again, DONE))
    assert (found.kind, found.evidence["reader"], found.evidence["witness"]) == (
        "delivered-again",
        "m2",
        "m1 had ended them",
    )


def test_a_group_without_reported_progress_leaves_its_partition_unjudged() -> None:
    assert unjudged(NAME, shared(*ACCEPTED_ROWS)) == [
        "no member of share group g reported how far it is done with A.t-0"
    ]


def test_a_committed_record_behind_the_start_offset_that_was_not_delivered_is_unknown() -> None:
    seen = shared(*ACCEPTED_ROWS, DONE, log=Log("A").txn(1, pid=7).data(2))
    assert unjudged(NAME, seen) == [
        "share group g was not given all of A.t-0 of A in time: first 2"
    ]
    assert anomalies(NAME, seen) == []


def test_a_partition_without_deliveries_to_a_share_group_is_unknown() -> None:
    client = Awaited(
        client="group g", kind="share", cluster="A", home="A", since=0, until=0, within=0,
        group="g",
    )  # fmt: skip
    said = ["share group g was not given all of A.t-0 of A in time: first 0"]
    assert unjudged(NAME, but(shared(), awaited=(client,))) == said
    for other, log, deaths in (
        (replace(client, kind="group"), LOG, {}),
        (replace(client, topics=frozenset({"A.other"})), LOG, {}),
        (client, Log("A").txn(1, pid=7, end="abort"), {}),
        (client, Log("A").data(-1), {}),
        (client, LOG, {"A": 50 * SECOND}),
    ):
        assert unjudged(NAME, but(shared(log=log), awaited=(other,), deaths=deaths)) == []
    assert unjudged(NAME, but(shared(*ACCEPTED_ROWS, DONE), awaited=(client,))) == []


def test_share_group_may_begin_anywhere_on_another_cluster() -> None:
    """It is not asked for the records of the cluster that it left."""
    there = [
        row("acquire", 1, at=60, cluster="B", position=1),
        row("accept", 1, at=62, cluster="B"),
    ]
    seen = replace(
        view([Log("A").txn(1, pid=7).data(2), Log("B").txn(1, pid=7)]),
        shares=(*ACCEPTED_ROWS, *there, row("settled", at=70, position=1, cluster="B")),
    )
    assert anomalies(NAME, seen) == []
    assert unjudged(NAME, seen) == []


ON_B = [
    row(kind, 9, at=at, cluster="B", offset=2, position=1)
    for kind, at in (("acquire", 60), ("accept", 62), ("accepted", 62))
] + [row("settled", at=70, position=3, cluster="B")]
"""The group on B, where it begins at 2."""


def after_a_failover(*rows: Read) -> list[tuple[str, str, int]]:
    seen = view(
        [Log("A").txn(1, pid=7).data(2), Log("B").txn(1, pid=7).data(9)],
        promotions=[promoted(2, at=50 * SECOND)],
    )
    return anomalies(NAME, replace(seen, shares=rows))


@pytest.mark.parametrize(
    "before",
    [
        ACCEPTED_ROWS,
        ACCEPTED_ROWS[:2],
        (GIVEN, *answered("reject", 1, at=12)),
        (replace(GIVEN, position=3),),
    ],
    ids=["accepted", "accepted, the answer lost", "rejected", "given up"],
)
def test_a_group_that_begins_behind_what_it_was_done_with_elsewhere(before: Sequence[Read]) -> None:
    """A mirror had copied its start offset."""
    assert after_a_failover(*before, *ON_B) == []
    # it began before that: a broker left it out
    first = [row(kind, 1, at=55, cluster="B", position=1) for kind in ("acquire", "accept")]
    assert after_a_failover(*before, *first, *ON_B) == []


@pytest.mark.parametrize(
    "before",
    [
        (),
        (GIVEN,),
        (GIVEN, *answered("release", 1, at=12)),
        [replace(r, group="other") for r in ACCEPTED_ROWS],
        [replace(r, uids=ints(*r.uids + 1)) for r in ACCEPTED_ROWS],
        [replace(r, offsets=r.offsets, cluster="B", time=80 * SECOND) for r in ACCEPTED_ROWS[1:2]],
    ],
    ids=["not given", "not ended", "released", "another group", "another record", "here, later"],
)
def test_a_group_that_begins_behind_what_it_was_never_done_with(before: Sequence[Read]) -> None:
    assert after_a_failover(*before, *ON_B) == [("never-delivered", "B", 0)]


def test_records_that_a_group_left_out_behind_its_first_delivery_were_due() -> None:
    """B's group begins at 0, and gets 1 of the other transaction and 9, and not 2 between them."""
    logs = [Log("A").data(1).data(2), Log("B").data(1).data(2).data(9)]
    rows = [
        row(kind, *uids, at=at, offset=offset, cluster=cluster, position=1)
        for cluster, at, offset, uids in (
            ("A", 10, 0, (1, 2)),
            ("B", 60, 0, (1,)),
            ("B", 64, 2, (9,)),
        )
        for kind in ("acquire", "accept")
    ]
    seen = replace(
        view(logs, promotions=[promoted(2, at=50 * SECOND)]),
        shares=(*rows, row("settled", at=70, position=3, cluster="B")),
    )
    assert anomalies(NAME, seen) == [("never-delivered", "B", 1)]


def test_the_rest_of_a_cluster_that_was_given_up_is_not_waited_for() -> None:
    """The members stayed on A, which was killed; a group that came to B and was given nothing there
    is unknown."""
    there = Log("B").txn(1, pid=7)
    for promotions, said in (([promoted(2, at=80 * SECOND)], []), ([], ["of A in time: first 2"])):
        seen = replace(
            view([Log("A").txn(1, pid=7).data(2), there], promotions=promotions),
            shares=(*ACCEPTED_ROWS, DONE),
        )
        assert [r.rpartition("A.t-0 ")[2] for r in unjudged(NAME, seen)] == said
    client = Awaited(
        client="group g", kind="share", cluster="B", home="A", since=0, until=0, within=0,
        group="g",
    )  # fmt: skip
    seen = replace(
        view([LOG, there], promotions=[promoted(2, at=80 * SECOND)]), shares=(*ACCEPTED_ROWS, DONE)
    )
    assert unjudged(NAME, but(seen, awaited=(client,))) == [
        "share group g was not given all of A.t-0 of B in time: first 0"
    ]


@pytest.mark.parametrize("position", [1, 2])
def test_second_delivery_to_the_owner_of_a_record_is_found(position: int) -> None:
    again = row("acquire", 1, at=14, position=position)
    for rows in ([GIVEN, again], [*ACCEPTED_ROWS, again]):
        seen = shared(*rows, row("accept", 1, at=16), DONE, sends=EARLY)
        assert anomalies(NAME, seen) == [("delivered-again", "A", 0)]


def test_a_delivery_to_one_member_counts_once() -> None:
    # Nobody knows how long ago the record was sent.
    given = [row("acquire", 1, at=at, position=1) for at in (10, 90)]
    seen = shared(*given, row("accept", 1, at=92), row("settled", at=95, position=1))
    assert anomalies(NAME, seen) == [("delivered-again", "A", 0)]


def test_a_start_offset_is_not_above_the_high_watermark_that_is_sampled_next() -> None:
    seen = shared(*ACCEPTED_ROWS, row("settled", at=14, position=2))
    for high, found in ((1, [("wrong-start-offset", "A", 2)]), (2, [])):
        marks = samples(*[(high, high)] * 20)
        assert anomalies(NAME, replace(seen, watermarks={"A": marks})) == found
        # A new leader may answer less at first.
        new = samples(*[(high, high)] * 20, epochs=[0] * 14 + [1] * 6)
        assert anomalies(NAME, replace(seen, watermarks={"A": new})) == []


def sampled(at: int, position: int, cluster: str = "A") -> Read:
    """A start offset of a program's group that linkflap sampled."""
    return row("settled", at=at, member=SHARE_SAMPLER, position=position, cluster=cluster)


def test_a_program_s_group_is_judged_where_its_members_last_were() -> None:
    """Start offsets are sampled on both clusters; on B the second of three records is left out."""
    got = [row("acquire", n, at=at, offset=n - 1, cluster="B") for n, at in ((1, 60), (3, 64))]
    on_b = [sampled(62, 1, "B"), sampled(70, 3, "B")]
    seen = view(
        [Log("A").txn(1, pid=7), Log("B").data(1).data(2).data(3)],
        promotions=[promoted(0, at=50 * SECOND)],
    )
    for last in (69, 71):
        rows = (*ACCEPTED_ROWS, *got, *on_b, sampled(last, 1))
        found = anomalies(NAME, replace(seen, shares=rows))
        assert ("never-delivered", "B", 1) in found


@pytest.mark.parametrize("position", [3, 4])
def test_a_truncation_does_not_take_back_a_start_offset(position: int) -> None:
    """A's group was done with the three records of A's first log; the next one has two."""
    logs = [Log(cluster).data(1).data(2) for cluster in ("A", "B")]
    seen = trip(logs=logs, promotions=[AWAY], sends=ACKED[:2])
    rows = (row("acquire", 1, 2, 3, at=10, position=1), sampled(14, 3), sampled(900, position))
    wrong = [("wrong-start-offset", "A", 4)] if position == 4 else []
    assert anomalies(NAME, replace(seen, shares=rows)) == wrong
