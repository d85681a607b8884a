"""partition: a broker and its peers of the same cluster lose sight of each other, while clients, links and mirrors see them all.

Breaks    replication and the quorum, not the clients: a leader that nobody follows, a follower that is fenced and serves on, a
          controller without a majority. `both` cuts both ways; `out` only connections that the broker opens to its peers
          (it cannot fetch, vote or send heartbeats; they can fetch from it), `in` only those that they open to it.
Bite      measured from inside the containers: round trips in the cut direction are not answered, those in the other are.
Heal      round trips in both directions are answered, it is in the ISR of every partition that it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from chaos.faults.broker_parts import ANSWERS_WITHIN, HEALS_WITHIN, UNANSWERED_WITHIN
from chaos.faults.confined import ConfinedFault, confines_of
from chaos.faults.settings import number
from harness.model.errors import InputError
from harness.model.protocols import Bite, Broker, Confines, World
from harness.model.scenario import FaultSpec, Option
from harness.model.side_by_side import side_by_side
from harness.model.topology import Topology
from harness.model.wait import until

_SEEN_WITHIN: Final = 60.0


class Partition(ConfinedFault):
    """Cuts a broker off from its peers; options direction (both, out, in) and peer (0: all, else one broker's number)."""

    defaults: ClassVar[Mapping[str, Option]] = {"direction": "both|out|in", "peer": 0}

    def __init__(self, spec: FaultSpec, world: World) -> None:
        super().__init__(spec, world)
        broker, peer = self._parts.broker, int(number(self._values, "peer"))
        others = [other for number, other in self._parts.cluster.brokers.items() if number != broker.id and peer in (0, number)]
        if not others:
            raise InputError(f"fault {spec.id!r} ({spec.fault}) needs a peer of {spec.target}: another broker of its cluster")
        self._peers: Mapping[int, tuple[Broker, Confines]] = {other.id: (other, confines_of(other, spec)) for other in others}
        self._out, self._in = (self._values["direction"] in ("both", way) for way in ("out", "in"))
        self._answered_before = False

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        reason = super().applies_to(target, topology)
        name = target.partition("/")[0]
        if reason is None and topology.cluster(name).brokers == 1:
            return f"{target!r} has no peer: cluster {name} has one broker, and needs two or more"
        return reason

    def take_down(self, broker: Broker) -> None:
        self._answered_before = all(self._round_trips(within=ANSWERS_WITHIN))
        cuts: list[Callable[[], None]] = []
        if self._out:
            addresses = [address for peer, _ in self._peers.values() for address in peer.inner_addresses]
            cuts.append(lambda: self.confines.block(addresses))
        if self._in:
            cuts += [_cut(confines, broker) for _, confines in self._peers.values()]
        side_by_side(cuts)

    def _round_trips(self, *, within: float) -> tuple[float | None, float | None]:
        """Seconds from the broker to its first peer, and from that to the broker; None where nothing answers."""
        peer, there = next(iter(self._peers.values()))
        found: dict[str, float | None] = {}

        def out() -> None:
            found["out"] = self.confines.round_trip(peer.inner_addresses[0], within=within)

        def back() -> None:
            found["in"] = there.round_trip(self._parts.broker.inner_addresses[0], within=within)

        side_by_side((out, back))
        return found["out"], found["in"]

    def bite(self) -> Bite:
        expected = {"out": "silence" if self._out else "an answer", "in": "silence" if self._in else "an answer"}
        return self._parts.bite("round trips between the broker and a peer", expected, self.measure, within=_SEEN_WITHIN)

    def measure(self) -> tuple[bool, object]:
        out, back = self._round_trips(within=UNANSWERED_WITHIN)
        as_cut = (out is None) is self._out and (back is None) is self._in
        return self._answered_before and as_cut, {"before": self._answered_before, "out": _word(out), "in": _word(back)}

    def let_go(self) -> Sequence[str]:
        side_by_side([self.confines.unblock, *(confines.unblock for _, confines in self._peers.values())])
        if any(broker.state != "running" for broker in (self._parts.broker, *(peer for peer, _ in self._peers.values()))):
            return ["no direction cut", "round trips between peers not asked: one of them does not run"]
        until(lambda: all(self._round_trips(within=ANSWERS_WITHIN)), within=HEALS_WITHIN, what="peers to answer each other")
        return ["no direction cut", "peers answer each other in both directions"]


def _cut(confines: Confines, broker: Broker) -> Callable[[], None]:
    return lambda: confines.block(broker.inner_addresses)


def _word(seconds: float | None) -> str:
    return "silence" if seconds is None else "an answer"
