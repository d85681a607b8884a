"""partition: a broker and its peers of the same cluster lose sight of each other, while clients,
links and mirrors see them all.

Breaks    replication and the quorum, not the clients: a leader that nobody follows, a follower that
          is fenced and serves on, a controller without a majority. `both` cuts both ways; `out`
          only connections that the broker opens to its peers (it cannot fetch, vote or send
          heartbeats; they can fetch from it), `in` only those that they open to it.
Bite      measured from inside the containers: round trips in the cut direction are not answered,
          those in the other are.
Heal      round trips in both directions are answered, it is in the ISR of every partition that it
          holds.

Partitions that overlap add up, and each heal ends its own alone: what another still cuts stays cut,
and is not asked. One that cuts nothing but what another cuts already has no bite, because there is
none to be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from linkflap.chaos.faults.broker_parts import ANSWERS_WITHIN, HEALS_WITHIN, UNANSWERED_WITHIN
from linkflap.chaos.faults.confined import ConfinedFault, confines_of
from linkflap.chaos.faults.settings import number
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.faults import Target
from linkflap.harness.model.protocols import Bite, Broker, Confines, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.side_by_side import side_by_side
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.wait import until

_SEEN_WITHIN: Final = 60.0


class Partition(ConfinedFault):
    """Cuts a broker off from its peers; options direction (both, out, in) and peer (a broker's
    number; 0: all)."""

    defaults: ClassVar[Mapping[str, Option]] = {"direction": "both|out|in", "peer": 0}
    abouts: ClassVar[Mapping[str, str]] = {
        "direction": "both, what comes in, or what goes out",
        "peer": "number of the one broker that it is cut off from; 0: all",
    }

    def __init__(self, spec: FaultSpec, world: World) -> None:
        super().__init__(spec, world)
        broker, peer = self._parts.broker, int(number(self._values, "peer"))
        others = [
            other
            for number, other in self._parts.cluster.brokers.items()
            if number != broker.id and peer in (0, number)
        ]
        if not others:
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) needs a peer of {spec.target}: another broker of"
                " its cluster"
            )
        self._peers: Mapping[int, tuple[Broker, Confines]] = {
            other.id: (other, confines_of(other, spec)) for other in others
        }
        self._out, self._in = (self._values["direction"] in ("both", way) for way in ("out", "in"))
        self._asked = others[0].id
        self._answered_before = False

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        reason = super().applies_to(target, topology)
        name = Target.parse(target).cluster
        if reason is None and topology.cluster(name).brokers == 1:
            return f"{target!r} has no peer: cluster {name} has one broker, and needs two or more"
        return reason

    def take_down(self, broker: Broker) -> None:
        self._asked = next((peer for peer in self._peers if not self._hidden(peer)), self._asked)
        trips = self._round_trips(within=ANSWERS_WITHIN)
        cut = self._cut_by_others(self._asked)
        self._answered_before = not self._hidden(self._asked) and all(
            trip or was for trip, was in zip(trips, cut, strict=True)
        )
        cuts: list[Callable[[], None]] = []
        if self._out:
            addresses = [
                address for peer, _ in self._peers.values() for address in peer.inner_addresses
            ]
            cuts.append(lambda: self.confines.block(self._id, addresses))
        if self._in:
            cuts += [self._cut_in(confines, broker) for _, confines in self._peers.values()]
        side_by_side(cuts)

    def _cut_in(self, confines: Confines, broker: Broker) -> Callable[[], None]:
        return lambda: confines.block(self._id, broker.inner_addresses)

    def _cut_by_others(self, number: int) -> tuple[bool, bool]:
        """Whether another partition fault cuts the way to a peer, and the way back."""
        peer, there = self._peers[number]
        ways = ((self.confines, peer), (there, self._parts.broker))
        out, back = (
            any(
                owner != self._id and to.inner_addresses[0] in held
                for owner, held in at.blocks.items()
            )
            for at, to in ways
        )
        return out, back

    def _hidden(self, number: int) -> bool:
        """Whether the effect of this fault on a peer cannot be seen, because another fault has the
        same effect already."""
        out, back = self._cut_by_others(number)
        return (self._out and out) or (self._in and back)

    def _round_trips(self, *, within: float, number: int = 0) -> tuple[float | None, float | None]:
        """Seconds of a round trip from the broker to a peer, and from the peer to the broker; None
        without an answer."""
        peer, there = self._peers[number or self._asked]
        found: dict[str, float | None] = {}

        def out() -> None:
            found["out"] = self.confines.round_trip(peer.inner_addresses[0], within=within)

        def back() -> None:
            found["in"] = there.round_trip(self._parts.broker.inner_addresses[0], within=within)

        side_by_side((out, back))
        return found["out"], found["in"]

    def bite(self) -> Bite:
        expected = {
            "out": "silence" if self._out else "an answer",
            "in": "silence" if self._in else "an answer",
        }
        return self._parts.bite(
            "round trips between the broker and a peer", expected, self.measure, within=_SEEN_WITHIN
        )

    def measure(self) -> tuple[bool, object]:
        out, back = self._round_trips(within=UNANSWERED_WITHIN)
        others_out, others_in = self._cut_by_others(self._asked)
        as_cut = (out is None) is (self._out or others_out) and (back is None) is (
            self._in or others_in
        )
        return self._answered_before and as_cut, {
            "before": self._answered_before,
            "out": _word(out),
            "in": _word(back),
        }

    def let_go(self) -> Sequence[str]:
        touched = [self.confines, *(confines for _, confines in self._peers.values())]
        side_by_side(_uncut(confines, self._id) for confines in touched)
        if any(
            broker.state != "running"
            for broker in (self._parts.broker, *(peer for peer, _ in self._peers.values()))
        ):
            return [
                "no direction cut",
                "round trips between peers not asked: one of them does not run",
            ]
        if not all(confines.connected for confines in touched):
            return [
                "no direction cut",
                "round trips between peers not asked: one of them is on no network",
            ]
        until(self._healed, within=HEALS_WITHIN, what="peers to answer each other")
        if any(any(self._cut_by_others(number)) for number in self._peers):
            return [
                "its own rules gone",
                (
                    f"peers answer each other where {', '.join(self.cut_by_others())} does not cut "
                    "them"
                ),
            ]
        return ["no direction cut", "peers answer each other in both directions"]

    def _healed(self) -> bool:
        """Whether every path answers that no other partition fault cuts now. Other faults may begin
        and end during the check."""
        for peer in self._peers:
            trips = self._round_trips(within=ANSWERS_WITHIN, number=peer)
            if not all(
                trip or cut for trip, cut in zip(trips, self._cut_by_others(peer), strict=True)
            ):
                return False
        return True


def _uncut(confines: Confines, owner: str) -> Callable[[], None]:
    return lambda: confines.unblock(owner)


def _word(seconds: float | None) -> str:
    return "silence" if seconds is None else "an answer"
