"""The contract of every registered fault: it documents itself, refuse wrong targets, report its
bite truthfully, heal safely."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from linkflap.chaos.faults import FAULTS, IN_CONTAINERS, check_options, links
from linkflap.harness.model.errors import FaultError, InputError
from linkflap.harness.model.protocols import FaultWorld
from linkflap.harness.model.scenario import FaultSpec, Option
from tests.idle_world import PAIR, IdleLink, IdleMirror, Recorder, world

LINK_FAULTS = sorted(name for name in FAULTS if name.startswith("link-"))
BROKER_FAULTS = sorted(name for name in FAULTS if name.startswith("broker-"))
CLUSTER_FAULTS = [
    "client-kill",
    "client-pause",
    "controller-loss",
    "coordinator-loss",
    "leadership-move",
    "mirror-coordinator-loss",
    "partitions-added",
    "program-delayed",
    "program-downgraded",
    "program-pause",
    "program-refused",
    "program-repeated",
    "program-throttled",
    "program-unanswered",
    "records-deleted",
    "rolling-restart",
    "rolling-upgrade",
    "topic-recreated",
]
OF_THREE_BROKERS = ["unclean-election"]


def spec(fault: str, *, target: str = "A->B", **options: Option) -> FaultSpec:
    return FaultSpec(id="f", fault=fault, target=target, at=0, duration=1, options=options)


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_says_what_it_is(name: str) -> None:
    fault: Any = FAULTS[name]
    header = inspect.getdoc(fault) or ""
    assert header.partition("\n\n")[0].endswith(".")
    assert isinstance(fault.restores, bool)
    assert "\nBreaks " in header or "\nDoes " in header
    assert all(f"\n{part} " in header for part in ("Bite", "Heal"))


@pytest.mark.parametrize("name", sorted(FAULTS))
@pytest.mark.parametrize(
    "target", ["", "A", "A->", "->B", "A->C", "C->A", "A/0", "A/4", "A/x", "C/1", "*->C", "A->B->A"]
)
def test_a_target_that_does_not_exist_is_refused_in_one_sentence(name: str, target: str) -> None:
    reason = FAULTS[name].applies_to(target, PAIR)
    if target == "A" and name in (*CLUSTER_FAULTS, *OF_THREE_BROKERS):
        assert reason is None
        return
    assert reason, (
        f"applies_to({target!r}, …) returned None: {name} has no such target; return why. "
        "For a fault of clusters, add it to CLUSTER_FAULTS here"
    )
    assert "\n" not in reason
    assert repr(target) in reason or target in reason


@pytest.mark.parametrize("name", LINK_FAULTS)
def test_link_faults_take_links_their_reverses_and_client_paths(name: str) -> None:
    assert [
        FAULTS[name].applies_to(target, PAIR) for target in ("A->B", "B->A", "*->A", "*->B")
    ] == [None] * 4
    assert FAULTS[name].applies_to("A/1", PAIR)


@pytest.mark.parametrize("name", BROKER_FAULTS)
def test_broker_faults_take_brokers(name: str) -> None:
    assert [FAULTS[name].applies_to(target, PAIR) for target in ("A/1", "A/3", "B/1")] == [None] * 3
    assert FAULTS[name].applies_to("A->B", PAIR)


@pytest.mark.parametrize("name", CLUSTER_FAULTS)
def test_cluster_faults_take_clusters(name: str) -> None:
    assert [FAULTS[name].applies_to(target, PAIR) for target in ("A", "B")] == [None] * 2


@pytest.mark.parametrize("name", OF_THREE_BROKERS)
def test_faults_of_clusters_of_three_take_no_smaller_ones(name: str) -> None:
    assert FAULTS[name].applies_to("A", PAIR) is None
    assert "cluster B has 1 broker" in str(FAULTS[name].applies_to("B", PAIR))


def test_a_partition_needs_a_peer() -> None:
    assert [FAULTS["partition"].applies_to(target, PAIR) for target in ("A/1", "A/3")] == [None] * 2
    assert "cluster B has one broker, and needs two or more" in str(
        FAULTS["partition"].applies_to("B/1", PAIR)
    )


@pytest.mark.parametrize("name", sorted(IN_CONTAINERS))
def test_container_faults_are_refused_without_containers(name: str) -> None:
    brokers = {
        number: SimpleNamespace(id=number, state="running", confines=None) for number in (1, 2)
    }
    deployment = SimpleNamespace(
        clusters={"A": SimpleNamespace(name="A", brokers=brokers)}, topology=PAIR
    )
    nowhere = cast(
        FaultWorld, SimpleNamespace(deployment=deployment, recorder=Recorder(), stopping=True)
    )
    with pytest.raises(InputError, match="run it with --runtime docker"):
        FAULTS[name](spec(name, target="A/1"), nowhere)


@pytest.mark.parametrize("name", ["mirror-kill", "failover-planned", "failover-forced"])
def test_faults_of_mirrors_take_links_and_their_reverses(name: str) -> None:
    assert [FAULTS[name].applies_to(target, PAIR) for target in ("A->B", "B->A")] == [None] * 2


@pytest.mark.parametrize("name", LINK_FAULTS)
def test_a_fault_that_is_not_applied_has_not_bitten(name: str) -> None:
    link = IdleLink()
    fault = FAULTS[name](spec(name), world(link))
    fault.inject()
    bite = fault.bite()
    fault.heal()
    assert (bite.bit, bool(bite.observable), bool(bite.measured), bool(bite.expected)) == (
        False,
        True,
        True,
        True,
    )


@pytest.mark.parametrize("name", LINK_FAULTS)
def test_silence_that_was_there_before_is_no_bite(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "ANSWERS_WITHIN", 0.05)
    link = IdleLink(answer=None)
    fault = FAULTS[name](spec(name), world(link))
    fault.inject()
    assert not fault.bite().bit
    link.answer = 0.001
    fault.heal()


@dataclass
class SlowLink(IdleLink):
    """A link that a busy machine serves slowly, except for the third transfer, and that a toxic
    slows to 70 KB/s."""

    fastest: float = 5e6
    transfers: int = 0

    def transfer(self, *, size: int, within: float) -> float | None:
        self.transfers += 1
        return 70e3 if self.wanted else self.fastest if self.transfers == 3 else 20e3


@pytest.mark.parametrize(("fastest", "bites"), [(5e6, True), (60e3, False)])
def test_a_bandwidth_is_compared_with_the_link_at_its_fastest(
    fastest: float, bites: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "WITHIN", 0.2)
    slow = SlowLink(fastest=fastest)
    around = world(slow, stopping=False)
    fault = FAULTS["link-bandwidth"](spec("link-bandwidth", rate=73), around)
    fault.inject()
    assert slow.transfers >= 3
    monkeypatch.setattr(around, "stopping", True)  # one measurement of the bite is enough
    assert fault.bite().bit == bites


@pytest.mark.parametrize("name", LINK_FAULTS)
def test_a_link_fault_heals_twice_and_without_having_been_injected(name: str) -> None:
    link = IdleLink(wanted=["another"])
    assert FAULTS[name](spec(name), world(link)).heal()
    fault = FAULTS[name](spec(name), world(link))
    fault.inject()
    assert fault.heal() == fault.heal()
    assert link.wanted == ["another"]


@pytest.mark.parametrize("name", LINK_FAULTS)
@pytest.mark.parametrize(
    "broken",
    [{"sticky": True, "wanted": ["f"]}, {"enabled": False}, {"answer": None}, {"answer": 0.9}],
)
def test_a_link_that_does_not_get_well_is_a_fault_error(
    name: str, broken: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "HEALS_WITHIN", 0.05)
    with pytest.raises(FaultError, match="to be normal after fault f"):
        FAULTS[name](spec(name), world(IdleLink(**broken))).heal()


def test_a_worker_that_lives_on_is_no_bite_and_is_not_started_again() -> None:
    mirror = IdleMirror()
    fault = FAULTS["mirror-kill"](spec("mirror-kill"), world(IdleLink(), mirror))
    fault.inject()
    assert not fault.bite().bit
    assert fault.heal() == fault.heal()
    assert mirror.restarts == 0


def test_a_worker_that_was_dead_before_is_no_bite() -> None:
    fault = FAULTS["mirror-kill"](spec("mirror-kill"), world(IdleLink(), IdleMirror(alive=False)))
    fault.inject()
    assert not fault.bite().bit
    with pytest.raises(FaultError, match="ended again"):
        fault.heal()


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("link-cut", {"depth": 1}, "has no option 'depth'; it has no options"),
        ("link-latency", {"latency": 10, "jitter": 10}, "the latency must be more than the jitter"),
        ("link-bandwidth", {"rate": 0}, "a whole number of 1 or more"),
        ("link-half-open", {"stalled": "both"}, "give one of responses, requests"),
        ("link-flap", {"down": 0}, "a number of 0.01 or more"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_broken(
    name: str, options: dict[str, Option], said: str
) -> None:
    wrong = FaultSpec(id="f", fault=name, target="A->B", at=0, duration=1, options=options)
    with pytest.raises(InputError, match=said):
        FAULTS[name](wrong, world(IdleLink()))


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_an_unknown_option_is_found_without_a_world(name: str) -> None:
    check_options(spec(name))
    with pytest.raises(InputError, match="has no option 'colour'"):
        check_options(spec(name, colour=1))
