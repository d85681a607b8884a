"""Failover: turns mirrored partitions into normal ones of the destination, in steps that can each
be repeated after a kill.

settling: nothing is fetched from the source any more. The log is that of the longest live replica;
the others get its batches from the window or from that replica.

ending: open transactions are ended and producer ids are made safe, by the chosen strategies
(`open_transactions`).

handing-over: brokers with the complete log enter the ISR, which completes the pending reassignment.
One of them leads in a new epoch. With open_transactions=write-txn-markers it then writes the
markers.

handed-over: topics have the source's configs. Replicas that were down catch up on their own.

Until the handover only the shadow is in the ISR. Whatever dies before it, no partition becomes
writable.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Final

from linkflap.harness.mirrors.shadow import open_transactions
from linkflap.harness.mirrors.shadow.destination.client import Destination, MetadataSnapshot
from linkflap.harness.mirrors.shadow.destination.leader import Leader
from linkflap.harness.mirrors.shadow.destination.membership import Membership, change_isrs
from linkflap.harness.mirrors.shadow.destination.topics import Topics
from linkflap.harness.mirrors.shadow.group_offsets import GroupOffsets
from linkflap.harness.mirrors.shadow.journal import Phase
from linkflap.harness.mirrors.shadow.partition import MirroredLog, Partition
from linkflap.harness.mirrors.shadow.producer_id_advance import ProducerIdAdvance
from linkflap.harness.mirrors.shadow.settings import FIRST_BROKER_ID
from linkflap.harness.mirrors.shadow.source import Source
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.connection import Connections
from linkflap.harness.wire.requests import Topic, fetch, fetched

_READ_BYTES: Final = 1 << 20


class LongestReplica:
    """The longest live replica of each partition, over one connection per broker."""

    def __init__(self, mirrored: MirroredLog) -> None:
        self._log = mirrored
        self._connections = Connections()

    async def read(self, partition: Partition, offset: int, limit: int) -> bytes:
        """Batches from `offset` on, from the longest live replica; empty when it has none, or does
        not answer."""
        live = {
            broker: partition.agreed(f)
            for broker, f in partition.live().items()
            if broker in self._log.config.brokers
        }
        longest = max(live, key=lambda broker: live[broker], default=-1)
        if longest < 0 or live[longest] <= offset:
            return b""
        address = self._log.config.brokers[longest]
        ids = {name: topic_id for topic_id, name in self._log.names.items()}
        if partition.topic not in ids:
            return b""
        most = max(1, min(limit, _READ_BYTES))
        body = fetch(17, ids[partition.topic], partition.number, offset, most=most)
        try:
            return fetched(await self._connections.at(address).call("fetch", 17, body, within=3))
        except Unanswered:
            return b""

    def close(self) -> None:
        self._connections.close()


log = logging.getLogger(__name__)
WITHIN_SECONDS: Final = 60.0
LATE_SECONDS: Final = 10.0
"""How long the handover waits for a live broker that has not caught up yet."""
_LOOK: Final = 0.05
Live = Callable[[Partition], frozenset[int]]


class Handover:
    """The handover of all partitions of a mirror. A repeated run skips partitions that are already
    handed over."""

    def __init__(
        self,
        mirrored: MirroredLog,
        destination: Destination,
        topics: Topics,
        membership: Membership,
    ) -> None:
        self._log, self._destination = mirrored, destination
        self._topics, self._membership = topics, membership

    async def run(self, live: Live) -> None:
        """Returns when a real broker leads every partition. Raises DeadlineExceeded."""
        await self._log.steps.reach("handing-over")
        began, error, led = time.monotonic(), None, list(self._log.partitions.values())
        while True:
            try:
                here = await self._destination.picture()
                led = self._left(here)
                if not led:
                    await self._log.steps.reach("handed")
                    await self._bring_back()
                    await self._topics.restore_configs()
                    return
                # Missing topics: waits until they reappear or are known to be deleted
                # (`Topics.look`).
                there = [p for p in led if self._there(here, p.topic) is not None]
                await self._try(there, live, patient=time.monotonic() < began + LATE_SECONDS)
            except (Unanswered, EnvironmentFailure) as failure:
                log.warning("hand-over: %s", failure)
                error = failure
            if time.monotonic() > began + WITHIN_SECONDS:
                raise DeadlineExceeded(_late(led, error))
            await asyncio.sleep(_LOOK)

    def _left(self, here: MetadataSnapshot) -> list[Partition]:
        return [
            p for p in self._log.partitions.values() if not _handed(self._there(here, p.topic), p)
        ]

    def _there(self, here: MetadataSnapshot, name: str) -> Topic | None:
        """A topic that the mirror created. Another topic of its name must not be reassigned, and
        its leader says nothing about the handover."""
        topic = here.topics.get(name)
        return (
            topic
            if topic is not None
            and str(topic.id) == self._log.journal.notes.topics[name].destination_id
            else None
        )

    async def _try(self, partitions: Iterable[Partition], live: Live, *, patient: bool) -> None:
        wanted: dict[Partition, list[int]] = {}
        for partition in partitions:
            if partition.leader_epoch >= 0:
                self._stand(partition)
                wanted[partition] = self._whole(partition, live(partition), patient=patient)
        wanted = {partition: caught_up for partition, caught_up in wanted.items() if caught_up}
        if not wanted:
            return
        # Only to live brokers: with a dead one among its targets, the reassignment would never
        # complete.
        await self._destination.reassign(
            {(p.topic, p.number): caught_up for p, caught_up in wanted.items()}
        )
        await self._log.steps.reach("reassigned")
        here = await self._destination.picture()
        me = self._log.config.broker_id
        wanted = {
            partition: caught_up
            for partition, caught_up in wanted.items()
            if self._there(here, partition.topic) is not None
        }
        await change_isrs(
            self._membership,
            here,
            {partition: [me, *caught_up] for partition, caught_up in wanted.items()},
        )
        await self._log.steps.reach("in-sync")

    def _stand(self, partition: Partition) -> None:
        """A process that was restarted for the handover serves exactly the promoted log."""
        promoted = partition.note.promoted
        if partition.end != promoted:
            partition.truncate(promoted)
            partition.position = partition.served = partition.limit = promoted
            self._log.lead(partition, partition.leader_epoch)
            self._log.ring()

    def _whole(self, partition: Partition, alive: frozenset[int], *, patient: bool) -> list[int]:
        """The live brokers that have the complete promoted log. While `patient`, none until all
        live ones do."""
        followers = partition.live()
        end = partition.note.promoted
        home = self._topics.placement.replicas(partition.number, partition.topic)
        caught_up = [
            broker
            for broker in home
            if broker in alive and partition.agreed(followers.get(broker)) == end
        ]
        return [] if patient and len(caught_up) < len(alive) else caught_up

    async def _bring_back(self) -> None:
        """Reassigns replicas to the brokers that were down. The new leaders add them to the ISR
        once they have caught up."""
        wanted = {}
        here = await self._destination.picture()
        for topic, number in (*self._log.partitions, *self._log.lost):
            if topic in self._topics.gone or (there := self._there(here, topic)) is None:
                continue
            if set(there.partitions[number].replicas) != set(
                self._topics.placement.replicas(number, topic)
            ):
                wanted[topic, number] = self._topics.placement.replicas(number, topic)
        if wanted:
            await self._destination.reassign(wanted)


def _late(led: Sequence[Partition], error: Exception | None) -> str:
    if led:
        return (
            f"{', '.join(p.name for p in led[:5])} could not be handed over in {WITHIN_SECONDS:g} "
            "s; see the brokers' logs"
        )
    return (
        f"all partitions are handed over, but their configs or replicas were not restored within"
        f" {WITHIN_SECONDS:g} s ({error}); see the brokers' logs"
    )


def _handed(topic: Topic | None, partition: Partition) -> bool:
    led = None if topic is None else topic.partitions.get(partition.number)
    return (
        led is not None
        and 0 <= led.leader < FIRST_BROKER_ID
        and max(led.in_sync, default=FIRST_BROKER_ID) < FIRST_BROKER_ID
    )


STEP_SECONDS: Final = 60.0
GROUPS_SECONDS: Final = 2.0
WAKE_SECONDS: Final = 10.0
LEAVE_SECONDS: Final = 30.0
"""How long settling waits for a live broker that does not fetch: WAKE_SECONDS until a new leader
epoch is tried, LEAVE_SECONDS until it continues without that broker."""


class FailoverRun:
    """One failover of all partitions of a mirror."""

    def __init__(
        self,
        mirrored: MirroredLog,
        source: Source,
        destination: Destination,
        topics: Topics,
        membership: Membership,
        leader: Leader,
        groups: GroupOffsets,
    ) -> None:
        self._log, self._source, self._destination = mirrored, source, destination
        self._topics, self._membership, self._groups = topics, membership, groups
        self._leader = leader
        self._handover = Handover(mirrored, destination, topics, membership)
        self._longest = LongestReplica(mirrored)
        self._behind: dict[Partition, frozenset[int]] = {}
        self._began = 0.0

    async def run(self) -> None:
        """Returns when the failover is complete. Raises DeadlineExceeded when a step fails for too
        long."""
        if self._phase == "mirroring" and not self._source.lost:
            await self._last_commits(self._groups.sync(self._source.brokers))
        await self._source.stop()
        await self._known()
        self._leader.read_behind = self._longest.read
        for partition in self._log.partitions.values():
            partition.sealed = partition.sealed or "failing over"
        if self._phase == "mirroring":
            self._enter("settling")
        await self._log.steps.reach("settling")
        while self._phase in ("settling", "ending"):
            try:
                await self._end()
            except (Unanswered, EnvironmentFailure) as error:
                self._give_up_after(STEP_SECONDS, error)
                await asyncio.sleep(_LOOK)
        await self._handover.run(self.live)
        await open_transactions.write_abort_markers(self._log, self._destination)
        await ProducerIdAdvance(self._log, self._destination, self._membership).again()
        self._enter("handed-over")
        await self._log.steps.reach("handed-over")
        await self._membership.leave(within=5)
        self._longest.close()

    async def _end(self) -> None:
        """All steps before the handover. Can be repeated from its start when a broker does not
        answer."""
        await self.settled()
        await self._log.steps.reach("settled")
        if self._phase == "settling":
            for partition in self._log.partitions.values():
                partition.note.mirrored = partition.end
            self._enter("ending")
        await self._log.steps.reach("ending")
        await open_transactions.end(self, self._log, self._destination, self._membership)
        await self._log.steps.reach("ended")
        await self._last_commits(self._groups.clamp())
        for partition in self._log.partitions.values():
            partition.note.promoted = partition.end
        self._enter("handing-over")

    async def _known(self) -> None:
        """Returns when this process knows every mirrored partition. An earlier handover would leave
        the others without a leader."""
        while True:
            try:
                await self._topics.look()
                noted = self._log.journal.notes
                made = {name for name, note in noted.topics.items() if note.destination_id}
                wanted = {
                    (topic, number) for topic in made for number in noted.partitions.get(topic, ())
                }
                if missing := sorted(wanted - self._log.partitions.keys() - self._log.lost):
                    raise EnvironmentFailure(f"{missing[:5]} are not in the destination's metadata")
                return
            except (Unanswered, EnvironmentFailure) as error:
                self._give_up_after(STEP_SECONDS, error)
                await asyncio.sleep(_LOOK)

    def _give_up_after(self, seconds: float, error: Exception) -> None:
        self._began = self._began or time.monotonic()
        if isinstance(error, DeadlineExceeded) or time.monotonic() > self._began + seconds:
            raise DeadlineExceeded(
                f"the failover does not get past the phase {self._phase}: {error}"
            ) from error
        log.warning("failover, %s: %s", self._phase, error)

    @staticmethod
    async def _last_commits(work: Coroutine[None, None, None]) -> None:
        """Limits the time for group offsets, so that they do not delay the failover."""
        try:
            async with asyncio.timeout(GROUPS_SECONDS):
                await work
        except (TimeoutError, Unanswered) as error:
            log.warning("group offsets: %s", error or "no answer in time")

    @property
    def _phase(self) -> Phase:
        return self._log.journal.notes.phase

    def _enter(self, phase: Phase) -> None:
        self._log.journal.notes.phase = phase
        self._log.journal.save()
        self._began = 0.0
        log.info("failover: %s", phase)

    def live(self, partition: Partition) -> frozenset[int]:
        """The live brokers that a partition is assigned to, without those that were left behind."""
        alive = self._log.brokers & set(
            self._topics.placement.replicas(partition.number, partition.topic)
        )
        return frozenset(alive - self._behind.get(partition, frozenset()))

    async def settled(self) -> None:
        """Returns when every live replica of every partition has the complete log up to its current
        end.

        Raises DeadlineExceeded when no replica has made progress for STEP_SECONDS. Progress counts,
        not the total time, because a replica that was away may have much to copy.
        """
        began, woken = time.monotonic(), False
        moved, there = began, None
        while waiting := [p for p in self._log.partitions.values() if not self._settle(p)]:
            waited = time.monotonic() - began
            if there != (now := [[f.offset for f in p.followers.values()] for p in waiting]):
                moved, there = time.monotonic(), now
            if time.monotonic() > moved + STEP_SECONDS:
                raise DeadlineExceeded(
                    f"the replicas of {', '.join(p.name for p in waiting[:5])} have not caught up,"
                    f" and made no progress for {STEP_SECONDS:g} s; see the brokers' logs"
                )
            if waited > WAKE_SECONDS and not woken:
                woken = True
                self._wake(waiting)
            if waited > LEAVE_SECONDS:
                self._leave_behind(waiting)
            await asyncio.sleep(_LOOK)

    def _mute(self, partition: Partition) -> frozenset[int]:
        """Live brokers that do not fetch the partition: a failed replica stops fetching
        (AbstractFetcherThread.markPartitionFailed)."""
        if partition.leader_epoch < 0 or partition.raise_to >= 0:
            return frozenset()
        return self.live(partition) - partition.live().keys()

    def _wake(self, partitions: Iterable[Partition]) -> None:
        """A failed replica fetches again in a new leader epoch."""
        for partition in partitions:
            if mute := self._mute(partition):
                log.warning(
                    "%s: brokers %s do not fetch; a new leader epoch may wake them",
                    partition.name,
                    sorted(mute),
                )
                partition.raise_to = partition.leader_epoch + 1

    def _leave_behind(self, partitions: Iterable[Partition]) -> None:
        """A replica that does not fetch even then (a broken disk, for example) counts as dead. It
        truncates and catches up with the later leader."""
        for partition in partitions:
            mute = self._mute(partition)
            if mute and self.live(partition) > mute:
                log.error(
                    "%s: the failover goes on without brokers %s, which do not fetch; see their"
                    " logs",
                    partition.name,
                    sorted(mute),
                )
                self._behind[partition] = self._behind.get(partition, frozenset()) | mute

    def _settle(self, partition: Partition) -> bool:
        """Sets the log end of one partition. Returns whether all live replicas are there."""
        live, needed = partition.live(), self.live(partition)
        if (
            partition.leader_epoch < 0
            or partition.raise_to >= 0
            or not needed
            or not live.keys() >= needed
        ):
            return False
        # A broker that was away may have more, of a log that diverges from the mirrored one: it
        # truncates at its next fetch.
        offsets = {partition.agreed(live[broker]) for broker in needed}
        longest, lowest = max(offsets), min(offsets)
        # Batches in the window can still reach all replicas. Batches that only one replica has are
        # read from that replica.
        end = (
            max(longest, partition.position)
            if partition.window and lowest >= partition.window_start
            else longest
        )
        end = min(end, *self._ceilings(partition, end))
        if partition.position < 0:
            partition.position = partition.served = end
            self._log.lead(partition, partition.leader_epoch)
        if end != partition.end:
            log.info("%s settles at offset %d", partition.name, end)
            partition.truncate(end)
            partition.position = end
        # The shadow reads them from the longest replica as a consumer does, so only up to the high
        # watermark.
        partition.high_watermark = end
        self._log.ring()
        if {live[broker].offset for broker in needed} != {end}:
            return False
        partition.served = end
        # Forgets markers that were journaled but never reached a replica.
        partition.note.appended = [one for one in partition.note.appended if one[0] < end]
        return True

    def _ceilings(self, partition: Partition, end: int) -> list[int]:
        """Upper limits of the log end: records beyond the end that was settled before do not count,
        even if a replica comes back with them."""
        note, limits = partition.note, [partition.limit] if partition.limit >= 0 else []
        if self._phase == "ending":
            limits.append(max([note.mirrored, *(offset + 1 for offset, _ in note.appended)]))
        return limits or [end]
