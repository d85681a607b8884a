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
from collections.abc import Coroutine, Iterable
from typing import Final

from linkflap.harness.mirrors.shadow.destination.client import Destination
from linkflap.harness.mirrors.shadow.destination.leader import Leader
from linkflap.harness.mirrors.shadow.destination.membership import Membership
from linkflap.harness.mirrors.shadow.destination.topics import Topics
from linkflap.harness.mirrors.shadow.failover import markers, open_transactions
from linkflap.harness.mirrors.shadow.failover.handover import Handover
from linkflap.harness.mirrors.shadow.failover.longest_replica import LongestReplica
from linkflap.harness.mirrors.shadow.failover.producer_id_advance import ProducerIdAdvance
from linkflap.harness.mirrors.shadow.group_offsets import GroupOffsets
from linkflap.harness.mirrors.shadow.journal import Phase
from linkflap.harness.mirrors.shadow.log.mirrored_log import MirroredLog
from linkflap.harness.mirrors.shadow.log.partition import Partition
from linkflap.harness.mirrors.shadow.source.fetch import Source
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure
from linkflap.harness.wire.connection import Unanswered

log = logging.getLogger(__name__)
STEP_SECONDS: Final = 60.0
GROUPS_SECONDS: Final = 2.0
WAKE_SECONDS: Final = 10.0
LEAVE_SECONDS: Final = 30.0
"""How long settling waits for a live broker that does not fetch: WAKE_SECONDS until a new leader
epoch is tried, LEAVE_SECONDS until it continues without that broker."""
_LOOK: Final = 0.05


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
        self._log, self._source, self._destination, self._topics = (
            mirrored,
            source,
            destination,
            topics,
        )
        self._membership, self._leader, self._groups = membership, leader, groups
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
        await markers.write(self._log, self._destination)
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
        """Returns when this process knows every mirrored partition. It must not hand over before,
        because the others would be left without a leader."""
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
