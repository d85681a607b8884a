"""The triggers of faults: their notation, and what each of them counts.

The world of a trigger: clusters, mirrors and clients as a run has them.

Triggers on a mirror's own reports, and on a promotion in progress.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from linkflap.chaos import triggers
from linkflap.chaos.scenarios import SCENARIOS, ScenarioRequest, scenario
from linkflap.chaos.triggers import (
    TRIGGERS,
    Condition,
    after,
    condition,
    counted,
    known,
    recorded_only,
    unknown,
)
from linkflap.harness.model.interference import Requests
from linkflap.harness.model.protocols import FaultWorld, MirrorStage
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.model.wait import until
from linkflap.topologies import parse

SPEC = FaultSpec(id="cut", fault="link-cut", target="A->B", at=0.0, duration=1.0)


def world(**clients: list[SimpleNamespace] | int) -> FaultWorld:
    answers = SimpleNamespace(
        **{name: lambda *_, value=value: value for name, value in clients.items()}
    )
    mirror = SimpleNamespace(lag=lambda: 7)
    return cast(
        FaultWorld,
        SimpleNamespace(clients=answers, mirrors={"A->B": mirror}, topics={"A.orders": 2}),
    )


@pytest.mark.parametrize(
    ("when", "waits"),
    [
        ("always", Condition()),
        ("open-transactions", Condition(triggers=(("open-transactions", None),))),
        ("open-transactions:3", Condition(triggers=(("open-transactions", 3),))),
        ("after:a", Condition(after=("a",))),
        ("after:a,b", Condition(after=("a", "b"))),
        (
            "after:a,b and mirror-behind",
            Condition(after=("a", "b"), triggers=(("mirror-behind", None),)),
        ),
        (
            "after:a and during:c and mirror-behind:50 and commit-in-flight",
            Condition(
                after=("a",),
                during=("c",),
                triggers=(("mirror-behind", 50), ("commit-in-flight", None)),
            ),
        ),
    ],
)
def test_condition_is_read_and_written_back(when: str, waits: Condition) -> None:
    assert condition(when) == waits
    assert str(waits) == when


def test_after() -> None:
    assert after("a", "b") == "after:a,b"
    assert after("a", once="mirror-behind") == "after:a and mirror-behind"


@pytest.mark.parametrize(
    ("when", "name"),
    [
        ("full-moon", "full-moon"),
        ("after:a and tide:3", "tide"),
        ("always:x", "always:x"),
        ("in-flight:Produce:0", "in-flight:Produce:0"),  # true before there is a request
    ],
)
def test_names_that_no_trigger_has(when: str, name: str) -> None:
    assert unknown(condition(when)) == name


@pytest.mark.parametrize(
    ("name", "asked", "value"),
    [
        ("open-transactions", "open_transactions", 3),
        ("commit-in-flight", "commits_in_flight", 3),
        ("transactions-ended", "transactions_ended", 3),
        ("under-way", "acknowledged_since", 3),
    ],
)
def test_trigger_is_true_from_its_least_count_on(name: str, asked: str, value: int) -> None:
    assert TRIGGERS[name](SPEC, world(**{asked: value}), value)
    assert not TRIGGERS[name](SPEC, world(**{asked: value}), value + 1)


def test_programs_that_have_stopped_themselves_are_counted() -> None:
    programs = [SimpleNamespace(any_suspended=True), SimpleNamespace(any_suspended=False)]
    assert TRIGGERS["program-stopped"](SPEC, world(programs=programs))
    assert not TRIGGERS["program-stopped"](SPEC, world(programs=programs), 2)
    assert not TRIGGERS["program-stopped"](SPEC, world(programs=[]))


def test_requests_are_counted_since_the_fault_began_to_wait() -> None:
    came = {"EndTxn": 7, "Fetch": 7}
    recorders = {"A": SimpleNamespace(requested=lambda what: came[what.api])}
    recorded = cast(FaultWorld, SimpleNamespace(deployment=SimpleNamespace(recorders=recorders)))
    waits = condition("after:cut and requested:EndTxn:2 and requested:Fetch")
    assert str(waits) == "after:cut and requested:EndTxn:2 and requested:Fetch"
    assert (unknown(waits), recorded_only(waits)) == (None, True)
    assert unknown(condition("requested:Nothing")) == "requested:Nothing"
    assert not recorded_only(condition("under-way:3"))
    holds = waits.watch(SPEC, recorded)
    seen = []
    for api in ("EndTxn", "Fetch", "EndTxn"):
        seen.append(holds())
        came[api] += 1
    assert (seen, holds()) == ([False, False, False], True)


def test_requests_of_one_id_or_partition_and_those_in_flight() -> None:
    when = "after:cut and requested:EndTxn of shop-1:2 and in-flight:Produce on A.orders/0:3"
    of_id = Requests(api="EndTxn", transactional_id="shop-1")
    in_flight = Requests(api="Produce", topic="A.orders", partition=0, in_flight=True)
    waits = condition(when)
    assert (str(waits), unknown(waits), recorded_only(waits)) == (when, None, True)
    every = [replace(SPEC, when=when), replace(SPEC, when="requested:Fetch")]
    assert counted(every) == (of_id, in_flight)
    for wrong in (
        "requested:Fetch of shop",
        "in-flight:EndTxn on A.orders",
        "requested:Produce on",
    ):
        assert unknown(condition(wrong)) == wrong
    came = {of_id: 7, in_flight: 3}
    recorders = {"A": SimpleNamespace(requested=lambda what: came[what])}
    recorded = cast(FaultWorld, SimpleNamespace(deployment=SimpleNamespace(recorders=recorders)))
    holds = waits.watch(SPEC, recorded)
    came[of_id] = 8
    assert not holds()
    came[of_id] = 9
    assert holds()
    came[in_flight] = 2
    assert not holds()


def test_a_mirror_is_behind_by_so_much() -> None:
    assert TRIGGERS["mirror-behind"](SPEC, world(), 7)
    assert not TRIGGERS["mirror-behind"](SPEC, world(), 8)


@pytest.mark.parametrize(
    ("read", "sampled", "least", "true"),
    [
        ({"A": 100, "B": 100}, {"g"}, None, True),
        ({"A": 100, "B": 99}, {"g"}, None, False),
        ({"A": 99, "B": 100}, {"g"}, None, False),
        ({"A": 100, "B": 100}, (), None, False),
        ({"A": 100, "B": 100}, {"another"}, None, False),
        ({"A": 9, "B": 8}, {"g"}, 8, True),
        ({"A": 9, "B": None}, {"g"}, 9, True),
        ({"A": 9, "B": None}, {"g"}, 10, False),
    ],
)
def test_seen_on_both_sides_needs_readers_and_groups_of_both_clusters(
    read: dict[str, int] | dict[str, int | None],
    sampled: set[str] | tuple[()],
    least: int | None,
    true: bool,
) -> None:
    clients = SimpleNamespace(
        read_on=read.__getitem__, groups_on=lambda cluster: frozenset("g" if cluster == "A" else "")
    )
    clusters = SimpleNamespace(clusters={"A": None, "B": None})
    here = cast(
        FaultWorld,
        SimpleNamespace(
            clients=clients, deployment=clusters, sampled_groups=lambda _cluster: frozenset(sampled)
        ),
    )
    asked = condition("seen-on-both-sides" + (f":{least}" if least else ""))
    assert asked.holds(SPEC, here) is true


def first_failover(name: str) -> FaultSpec | None:
    return next(
        (
            fault
            for fault in scenario(name, ScenarioRequest(seed=1)).schedule
            if fault.fault.startswith("failover-")
        ),
        None,
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_failover_of_a_scenario_strikes_before_something_was_mirrored_and_read(
    name: str,
) -> None:
    failover = first_failover(name)
    # these wait for their own subject
    if failover is None or name in ("retention", "partitions-added"):
        return
    assert [trigger for trigger, _ in condition(failover.when).triggers][:1] == [
        "seen-on-both-sides"
    ], failover


def test_all_triggers_of_a_condition_must_be_true() -> None:
    waits = condition("open-transactions:3 and mirror-behind:7")
    assert waits.holds(SPEC, world(open_transactions=3))
    assert not waits.holds(SPEC, world(open_transactions=2))


def test_lasting_trigger_that_was_true_is_not_evaluated_again() -> None:
    ended, open_ = [3, 5, 0], [0, 0, 1]
    clients = SimpleNamespace(
        transactions_ended=lambda: ended.pop(0), open_transactions=lambda cluster: open_.pop(0)
    )
    holds = condition("transactions-ended:5 and open-transactions").watch(
        SPEC, cast(FaultWorld, SimpleNamespace(clients=clients))
    )
    until(holds, within=60, what="both", every=0.005)
    assert (ended, open_) == ([0], [])


@pytest.mark.parametrize(
    ("name", "cluster"), [("open-partitions", "A"), ("open-at-destination", "B")]
)
def test_partitions_are_open_where_the_last_stable_offset_is_below_the_high_watermark(
    monkeypatch: pytest.MonkeyPatch, name: str, cluster: str
) -> None:
    asked: list[str] = []

    def answered(
        admin: str, partitions: list[TopicPartition], bound: str, *, within: float
    ) -> dict[TopicPartition, int]:
        asked.append(admin)
        return {tp: 10 if bound == "high" or tp[1] else 4 for tp in partitions}

    monkeypatch.setattr(triggers, "AdminClient", lambda settings: settings["bootstrap.servers"])
    monkeypatch.setattr(triggers, "answered_bounds", answered)
    here: Any = world()
    here.deployment = SimpleNamespace(
        clusters={name: SimpleNamespace(bootstrap=name) for name in "AB"}, topology=parse("A->B")
    )
    assert TRIGGERS[name](SPEC, here)
    assert not TRIGGERS[name](SPEC, here, 2)
    assert set(asked) == {cluster}


@pytest.mark.parametrize(
    ("starts", "ends", "true"),
    [
        ({0: 0, 1: 40}, {0: 50, 1: 90}, True),
        ({0: 0, 1: 41}, {0: 50, 1: 90}, False),
        ({0: 0, 1: 0}, {0: 50}, False),
        ({0: 0}, {0: 50, 1: 90}, False),
    ],
    ids=[
        "enough",
        "most is deleted at the source",
        "not at the destination yet",
        "the source does not answer",
    ],
)
def test_so_much_is_mirrored_of_what_the_source_still_has(
    monkeypatch: pytest.MonkeyPatch, starts: dict[int, int], ends: dict[int, int], true: bool
) -> None:
    known = {("A", "start"): starts, ("B", "high"): ends}
    monkeypatch.setattr(triggers, "AdminClient", lambda settings: settings["bootstrap.servers"])
    monkeypatch.setattr(
        triggers,
        "answered_bounds",
        lambda admin, partitions, bound, *, within: {
            (topic, n): known[admin, bound][n]
            for topic, n in partitions
            if n in known[admin, bound]
        },
    )
    here: Any = world()
    here.deployment = SimpleNamespace(
        clusters={name: SimpleNamespace(bootstrap=name) for name in "AB"}, topology=parse("A->B")
    )
    assert TRIGGERS["mirrored"](SPEC, here, 50) == true


@pytest.mark.parametrize(
    ("commits", "highs", "true"),
    [
        ({"g": {0: 70, 1: 10}}, {0: 20, 1: 10}, True),
        ({"g": {0: 69, 1: 10}}, {0: 20, 1: 10}, False),
        ({"g": {0: 10}, "h": {1: 60}}, {0: 10, 1: 10}, True),
        ({"g": {0: 70}}, {1: 10}, False),
        ({"g": {}}, {0: 10, 1: 10}, False),
        ({}, {0: 10, 1: 10}, False),
    ],
    ids=["enough", "too few", "another group", "no answer", "no commit", "no group"],
)
def test_a_group_is_ahead_of_the_mirror_by_what_it_committed(
    monkeypatch: pytest.MonkeyPatch,
    commits: dict[str, dict[int, int]],
    highs: dict[int, int],
    true: bool,
) -> None:
    monkeypatch.setattr(triggers, "AdminClient", lambda settings: settings["bootstrap.servers"])
    monkeypatch.setattr(
        triggers,
        "answered_bounds",
        lambda admin, partitions, bound, *, within: {
            (topic, n): highs[n]
            for topic, n in partitions
            if n in highs and (admin, bound) == ("B", "high")
        },
    )
    here: Any = world()
    here.sampled_groups = lambda cluster: frozenset(commits if cluster == "A" else ())
    here.group_offsets = lambda _, group: {
        ("A.orders", n): offset for n, offset in commits[group].items()
    }
    here.deployment = SimpleNamespace(
        clusters={name: SimpleNamespace(bootstrap=name) for name in "AB"}, topology=parse("A->B")
    )
    assert TRIGGERS["group-ahead"](SPEC, here, 50) == true
    on_a = FaultSpec(id="kill", fault="broker-kill", target="A/1", at=0.0, duration=1.0)
    assert not TRIGGERS["group-ahead"](on_a, here), "nothing is mirrored over a broker"


def test_partitions_of_other_homes_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failover the clients of A write to topics of A on B; topics that B does not have are
    not waited for."""
    monkeypatch.setattr(triggers, "AdminClient", lambda settings: settings["bootstrap.servers"])
    monkeypatch.setattr(
        triggers,
        "answered_bounds",
        lambda admin, partitions, bound, *, within: {
            tp: 10 if bound == "high" else 4 for tp in partitions if tp[0] == "A.orders"
        },
    )
    here: Any = world()
    here.topics = {"A.orders": 2, "B.orders": 2}
    here.deployment = SimpleNamespace(
        clusters={name: SimpleNamespace(bootstrap=name) for name in "AB"}, topology=parse("A->B")
    )
    on_b = FaultSpec(id="kill", fault="broker-kill", target="B/0", at=0.0, duration=1.0)
    assert TRIGGERS["open-partitions"](on_b, here, 2)
    assert not TRIGGERS["open-partitions"](on_b, here, 3)


def test_a_change_is_held_against_what_was_there_when_the_fault_began_to_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = {("A.orders", 0): 4, ("A.orders", 1): 0}
    monkeypatch.setattr(triggers, "CHANGES", {"leader-epoch-changed": lambda *_: dict(now)})
    one, two = (
        condition(when).watch(SPEC, world())
        for when in ("leader-epoch-changed", "leader-epoch-changed:2")
    )
    assert not one()
    now["A.orders", 2] = 7
    assert not one(), "a partition that nobody asked of before has not changed"
    now["A.orders", 0] = 5
    assert (one(), two()) == (True, False)
    now["A.orders", 2] = 8
    assert two()
    assert not condition("leader-epoch-changed").holds(SPEC, world()), (
        "whoever begins to wait now waits for the next"
    )


def test_every_trigger_is_known_by_name() -> None:
    assert {"leader-epoch-changed", "mirror-holds", "open-transactions"} <= set(known())
    assert unknown(condition("leader-epoch-changed:2 and mirror-holds")) is None


class Telling:
    """A mirror that reports these states; None: it does not answer."""

    def __init__(self, *, held: int = 0, handing_over: bool = False, silent: bool = False) -> None:
        self._stage = None if silent else MirrorStage(held=held, handing_over=handing_over)

    def stage(self) -> MirrorStage | None:
        return self._stage


def staged(mirror: object, **more: object) -> FaultWorld:
    return cast(FaultWorld, SimpleNamespace(mirrors={"A->B": mirror}, **more))


def test_mirror_status_triggers_faults_on_its_link_and_destination() -> None:
    assert TRIGGERS["mirror-holds"](SPEC, staged(Telling(held=70)), 70)
    assert not TRIGGERS["mirror-holds"](SPEC, staged(Telling(held=70)), 71)
    assert not TRIGGERS["mirror-holds"](SPEC, staged(Telling()))
    assert TRIGGERS["handing-over"](SPEC, staged(Telling(handing_over=True)))
    on_b = FaultSpec(id="pause", fault="broker-pause", target="B/1", at=0.0, duration=1.0)
    assert TRIGGERS["handing-over"](on_b, staged(Telling(handing_over=True)))
    to_b = FaultSpec(id="slow", fault="link-latency", target="*->B", at=0.0, duration=1.0)
    assert TRIGGERS["handing-over"](to_b, staged(Telling(handing_over=True)))
    on_a = FaultSpec(id="pause", fault="broker-pause", target="A/1", at=0.0, duration=1.0)
    assert not TRIGGERS["handing-over"](on_a, staged(Telling(handing_over=True)))
    for name in ("mirror-holds", "handing-over", "partly-promoted"):
        world = staged(
            Telling(silent=True), deployment=SimpleNamespace(clusters={"B": None}), topics={}
        )
        assert not TRIGGERS[name](SPEC, world), "a mirror that does not answer"
        assert not TRIGGERS[name](SPEC, staged(SimpleNamespace(), deployment=world.deployment)), (
            "one that cannot be asked"
        )


@pytest.mark.parametrize(
    ("leaders", "least", "true"),
    [
        ({0: 1, 1: 1001}, 1, True),
        ({0: 1, 1: 2}, 1, False),
        ({0: 1001, 1: 1001}, 1, False),
        ({0: 1}, 1, True),
        ({0: 1, 1: 1001}, 2, False),
        ({}, 1, False),
    ],
)
def test_partly_promoted_is_between_the_first_and_the_last_partition(
    monkeypatch: pytest.MonkeyPatch, leaders: dict[int, int], least: int, true: bool
) -> None:
    monkeypatch.setattr(
        triggers, "_leaders", lambda *_: {("A.orders", n): leader for n, leader in leaders.items()}
    )
    deployment = SimpleNamespace(clusters={"B": SimpleNamespace(brokers={1: None, 2: None})})
    topics = {"A.orders": 2, "B.orders": 9}
    assert (
        TRIGGERS["partly-promoted"](
            SPEC, staged(Telling(handing_over=True), deployment=deployment, topics=topics), least
        )
        is true
    )
    assert not TRIGGERS["partly-promoted"](
        SPEC, staged(Telling(), deployment=deployment, topics=topics), least
    )
