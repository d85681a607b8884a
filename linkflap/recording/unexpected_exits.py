"""Unexpected exits: brokers, mirrors, recorders and services that ended although no fault of the
schedule ended them.

The run continues, because the rest is worth judging, but it does not count as finished. For a
broker the exit status and the last lines of its log are reported."""

from __future__ import annotations

import contextlib
import signal
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from linkflap.chaos.faults import OF_CLIENTS
from linkflap.harness.model import interrupts
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.events import BrokerDied, MirrorCrashed, RecorderDied, ServiceDied
from linkflap.harness.model.faults import Target
from linkflap.harness.model.protocols import Broker, ClusterService, FaultWorld
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.wait import now
from linkflap.recording.world import RunWorld
from linkflap.report.progress import Counters, Progress

_LAST: Final = 2
_WIDTH: Final = 120


class UnexpectedExits:
    """Polled by the run's own thread. `under_way` returns the faults that may have something broken
    now. `found` gets one sentence for each exit; `clusters` are those whose brokers exited,
    `mirrors` the links whose mirrors did, `recorders` the clusters whose recorders did."""

    def __init__(
        self, world: FaultWorld, under_way: Callable[[], Sequence[FaultSpec]], found: list[str]
    ) -> None:
        self._world, self._under_way, self._found = world, under_way, found
        self._seen: set[str] = set()
        self.clusters: set[str] = set()
        self.mirrors: set[str] = set()
        self.recorders: set[str] = set()
        self._was_alive: set[str] = set()

    def all_started(self) -> None:
        """From now on every mirror is expected to run."""
        self._was_alive = set(self._world.mirrors)

    def look(self) -> Sequence[str]:
        """The exits that are new since the last look; each is also an event."""
        # A fault that began or ended while we looked may be why: what was under way before and what
        # is now both count.
        before = self._under_way()
        brokers = [
            b
            for cluster in self._world.deployment.clusters.values()
            for b in cluster.brokers.values()
        ]
        gone = [
            (b, f"{b.cluster}/{b.id}")
            for b in brokers
            if b.state == "stopped" and f"{b.cluster}/{b.id}" not in self._seen
        ]
        alive = {name for name, mirror in list(self._world.mirrors.items()) if mirror.alive}
        ended = sorted(self._was_alive - alive - self._seen)
        self._was_alive |= alive
        services = self._dead_services()
        faults = [*before, *self._under_way()]
        reported: list[str] = []
        for broker, name in gone:
            if not any(ends_broker(fault, name) for fault in faults):
                reported.append(self._broker_died(broker, name))
                self._seen.add(name)
                self.clusters.add(broker.cluster)
        for link in ended:
            if any(ends_mirror(fault, link) for fault in faults):
                # it may be dead when nothing is left of the fault, its failover reversed
                self._was_alive.discard(link)
            else:
                self._world.recorder.write(MirrorCrashed(link=link, by="itself"))
                reported.append(
                    f"the mirror of {link} died by itself; see its log among the run's logs"
                )
                self._seen.add(link)
                self.mirrors.add(link)
        reported += self._recorders_died()
        reported += self._services_died(services, faults)
        self._found.extend(reported)
        return reported

    def _recorders_died(self) -> Sequence[str]:
        reported = []
        for cluster, recorder in self._world.deployment.recorders.items():
            if not recorder.alive and cluster not in self.recorders:
                self.recorders.add(cluster)
                words = tuple(recorder.last_words(lines=_LAST))
                self._world.recorder.write(RecorderDied(cluster=cluster, last_words=words))
                reported.append(f"the recorder of {cluster} died by itself; see {recorder.log}")
        return reported

    def _dead_services(self) -> Mapping[str, ClusterService]:
        """Those that were not reported."""
        services = self._world.deployment.cluster_services.items()
        return {name: each for name, each in services if name not in self._seen and not each.alive}

    def _services_died(
        self, dead: Mapping[str, ClusterService], faults: Sequence[FaultSpec]
    ) -> Iterator[str]:
        ended = {fault.target for fault in faults if fault.name.of_service}
        for name, service in dead.items():
            if name in ended:
                continue
            self._seen.add(name)
            status = service.exit_status
            self._world.recorder.write(
                ServiceDied(
                    cluster=service.cluster,
                    service=service.name,
                    status=status,
                    last_words=tuple(service.last_words(lines=_LAST)),
                )
            )
            yield (
                f"service {service.name} of {service.cluster} died by itself "
                f"({how(status, starved=None)}); see {service.log}"
            )

    def _broker_died(self, broker: Broker, name: str) -> str:
        status, starved = broker.exit_status, _starved(broker)
        words = [
            textwrap.shorten(line, _WIDTH, placeholder=" …")
            for line in broker.last_words(lines=_LAST)
        ]
        self._world.recorder.write(
            BrokerDied(
                broker=name,
                by="itself",
                status=status,
                out_of_memory=starved,
                last_words=tuple(words),
            )
        )
        text = f"its last words: {' | '.join(words)}; see" if words else "see"
        return f"broker {name} died by itself ({how(status, starved=starved)}); {text} {broker.log}"


def _starved(broker: Broker) -> bool | None:
    """Whether a broker ended because its container was out of memory; None where that cannot be
    seen."""
    with contextlib.suppress(EnvironmentFailure):
        return broker.confines.memory().killed if broker.confines else None
    return None


def how(status: int | None, *, starved: bool | None) -> str:
    """An exit status in words, as shells and engines number it: 128 and the signal's number for one
    that was killed."""
    if status is None:
        return "exit status unknown"
    if status >= 0:
        return f"exit status {status}"
    ended = f"exit status {128 - status}, {_signal(-status)}"
    if -status != signal.SIGKILL:
        return ended
    if starved is None:
        return f"{ended}, which is also what a kernel out of memory sends"
    return f"{ended}, {'because' if starved else 'not because'} its container was out of memory"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ends_broker(fault: FaultSpec, broker: str) -> bool:
    """Whether a fault of this kind may have stopped the broker `A/1`."""
    if fault.fault in OF_CLIENTS:
        return False
    cluster = Target.parse(broker).cluster
    return fault.target in (broker, cluster) or (
        # One that is reversed finds brokers dead, and starts them.
        (fault.name.fails_over or fault.name.reverses) and fault.on.source == cluster
    )


def ends_mirror(fault: FaultSpec, link: str) -> bool:
    """Whether a fault of this kind may have stopped the mirror of a link."""
    return fault.target == link and (fault.name.fails_over or fault.name.of_mirror)


LAG_EVERY = 1_000_000_000


COUNT_EVERY = 500_000_000
"""Nanoseconds between two checks of the clients' progress: each asks every process of clients."""


class Ticker:
    """Looks who died and whether there is room to write on, and tells the display what clients have
    done and how far mirrors are behind; cheap enough for a wait."""

    def __init__(self, world: RunWorld, progress: Progress, exits: UnexpectedExits) -> None:
        self._world, self._progress, self._exits = world, progress, exits
        self._counted = self._asked = 0
        self._noted: set[tuple[str, int]] = set()

    @property
    def recorders_died(self) -> bool:
        """Whether a recorder has died, so that what clients do is no longer recorded."""
        return bool(self._exits.recorders)

    def __call__(self) -> bool:
        """Always False, so that it can stand in a condition. Raises EnvironmentFailure when nothing
        can be written any more, and when linkflap's own links lead nowhere."""
        if interrupts.asked():
            raise KeyboardInterrupt  # the signal's own was lost in a callback of some library
        self._world.recorder.check()
        if broken := self._world.deployment.broken():
            raise EnvironmentFailure(broken)
        for exit_ in self._exits.look():
            self._progress.note(exit_)
        for died in self._world.clients.deaths():
            if (died.event.process, died.event.pid) not in self._noted:
                self._noted.add((died.event.process, died.event.pid))
                self._progress.note(died.sentence)
        if now() - self._counted >= COUNT_EVERY:
            self._counted = now()
            done = self._world.clients.progress()
            read = done.read_committed + done.read_uncommitted
            self._progress.counters(
                Counters(
                    acknowledged=done.acknowledged, aborted=done.aborted, open=done.open, read=read
                )
            )
        if now() - self._asked >= LAG_EVERY:
            self._asked = now()
            # A reversal adds a mirror from another thread, and a lag takes a while to ask for.
            for name, mirror in list(self._world.mirrors.items()):
                self._progress.lag(name, mirror.lag() if mirror.alive else None)
        return False
