"""Faults of mirrors that run inside brokers: what bites, what does not, and the errors for other
mirrors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.chaos.faults import FAULTS, mirrors
from linkflap.chaos.faults.mirrors import MirrorSourceMoved
from linkflap.harness.model.errors import DeadlineExceeded, FaultError, InputError
from linkflap.harness.model.protocols import Administered, PlayedVerbs, World
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec
from linkflap.harness.model.topology import LinkSpec
from linkflap.topologies import parse


@dataclass
class AdministeredByRule:
    """A mirror that runs inside brokers, and obeys."""

    spec: MirrorSpec = field(default_factory=lambda: MirrorSpec(kind="cluster-mirroring"))
    link: LinkSpec = field(default_factory=lambda: LinkSpec(source="A", destination="B"))
    alive: bool = True
    played: PlayedVerbs | None = field(default_factory=lambda: PlayedVerbs(asked=6, changed=2))
    addresses: Sequence[str] = ("p:1", "p:2")
    deaf: bool = False

    def coordinator(self) -> int | None:
        return 2

    def source_addresses(self) -> Sequence[str]:
        return self.addresses

    def move_source(self, addresses: Sequence[str]) -> None:
        if not self.deaf or self.addresses[0].startswith("p"):
            self.addresses = tuple(addresses)

    def play_verbs(self, seed: str, steps: int) -> PlayedVerbs:
        if self.played is None:
            raise DeadlineExceeded("not all is MIRRORING")
        return self.played

    def resume_all(self) -> Sequence[str]:
        if self.deaf:
            raise DeadlineExceeded("x is PAUSED")
        return ["A.x"]


@dataclass
class Proxies:
    wanted: list[str] = field(default_factory=list)

    def cut(self, *, owner: str) -> None:
        self.wanted.append(owner)

    def restore(self, *, owner: str) -> None:
        if owner in self.wanted:
            self.wanted.remove(owner)


def world(mirror: object, proxies: Proxies | None = None) -> World:
    def cluster(name: str) -> SimpleNamespace:
        brokers = {1: SimpleNamespace(client_address=f"{name}:9", state="running")}
        return SimpleNamespace(name=name, bootstrap=name, brokers=brokers)

    deployment = SimpleNamespace(
        links={"A->B": proxies or Proxies()},
        clusters={name: cluster(name) for name in "AB"},
        topology=parse("A->B"),
    )
    return cast(
        World,
        SimpleNamespace(
            deployment=deployment,
            mirrors={"A->B": mirror},
            topics={"A.x": 1},
            stopping=True,
            recorder=None,
        ),
    )


def spec(fault: str, target: str = "A->B") -> FaultSpec:
    return FaultSpec(id="f", fault=fault, target=target, at=0, duration=1)


@pytest.mark.parametrize(
    ("played", "bit"),
    [
        (PlayedVerbs(asked=6, changed=2), True),
        (PlayedVerbs(asked=1, changed=0, wrong="pause was refused"), True),
        (PlayedVerbs(asked=1, changed=0, unanswered="pause: NO_ANSWER"), False),
    ],
)
def test_verbs_bite_where_one_changed_something_or_was_wrong(
    played: PlayedVerbs, bit: bool
) -> None:
    fault = FAULTS["mirror-verbs"](spec("mirror-verbs"), world(AdministeredByRule(played=played)))
    fault.inject()
    bite = fault.bite()
    assert bite.bit is bit
    assert cast(dict[str, object], bite.measured)["asked"] == played.asked
    assert fault.heal() == ["1 topics are mirrored"]


def test_verbs_are_not_asked_of_a_mirror_that_does_not_mirror_and_a_paused_topic_is_no_heal() -> (
    None
):
    fault = FAULTS["mirror-verbs"](spec("mirror-verbs"), world(AdministeredByRule(played=None)))
    with pytest.raises(FaultError, match="not all is MIRRORING; no verb was asked for"):
        fault.inject()
    assert not fault.bite().bit
    assert fault.heal() == ["no verb was asked for"]
    fault = FAULTS["mirror-verbs"](spec("mirror-verbs"), world(AdministeredByRule(deaf=True)))
    fault.inject()
    with pytest.raises(FaultError, match="x is PAUSED"):
        fault.heal()


def test_a_source_move_bites_once_later_records_are_mirrored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = {"A": 5, "B": 5}

    def bounds(self: MirrorSourceMoved, address: str) -> Mapping[tuple[str, int], int]:
        return {("A.x", 0): ends[address]}

    monkeypatch.setattr(MirrorSourceMoved, "_ends", bounds)
    mirror, proxies = AdministeredByRule(), Proxies()
    fault = FAULTS["mirror-source-moved"](spec("mirror-source-moved"), world(mirror, proxies))
    fault.inject()
    assert (mirror.addresses, proxies.wanted) == (("A:9",), ["f"])
    assert not fault.bite().bit, "nothing was written since the cut"
    ends["A"] = 7
    assert not fault.bite().bit, "it has not arrived"
    ends["B"] = 7
    assert fault.bite().bit
    checked = fault.heal()
    assert (mirror.addresses, proxies.wanted) == (("p:1", "p:2"), [])
    assert checked == ["the mirror's source is p:1, p:2 again", "1 partitions caught up"]


def test_a_mirror_that_keeps_the_new_addresses_or_never_catches_up_is_not_healed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        MirrorSourceMoved, "_ends", lambda self, address: {("A.x", 0): 9 if address == "A" else 1}
    )
    monkeypatch.setattr(mirrors, "CROSSES_WITHIN", 0.05)
    for deaf, words in (
        (True, "names A:9 as its source, not p:1, p:2"),
        (False, "what A has to be on B"),
    ):
        fault = FAULTS["mirror-source-moved"](
            spec("mirror-source-moved"), world(AdministeredByRule(deaf=deaf))
        )
        fault.inject()
        with pytest.raises(FaultError, match=words):
            fault.heal()


def test_who_coordinates_a_mirror_is_asked_of_the_one_that_leads_to_the_cluster() -> None:
    assert FAULTS["mirror-coordinator-loss"].applies_to("B", parse("A->B")) is None
    assert mirrors.mirror_to("B", world(AdministeredByRule())).coordinator() == 2
    with pytest.raises(FaultError, match="leads to cluster A by now"):
        mirrors.mirror_to("A", world(AdministeredByRule()))
    with pytest.raises(FaultError, match="leads to cluster B by now"):
        mirrors.mirror_to("B", world(AdministeredByRule(alive=False)))


def test_a_mirror_that_is_a_process_is_refused_in_one_sentence() -> None:
    process = SimpleNamespace(spec=MirrorSpec(kind="shadow"), alive=True)
    assert not isinstance(process, Administered)
    for name in ("mirror-verbs", "mirror-source-moved"):
        with pytest.raises(InputError, match="asks a mirror for what shadow has not"):
            FAULTS[name](spec(name), world(process))
        with pytest.raises(
            InputError, match=r"targets the mirror 'B->A', but the mirrors are A->B"
        ):
            FAULTS[name](spec(name, "B->A"), world(AdministeredByRule()))
