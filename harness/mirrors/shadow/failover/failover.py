"""Failover: from following the source to a destination of its own, in steps that can each be
repeated after a kill.

    settling      nothing is read any more; the longest live replica is the log, the others get it
                  from the window or from it
    ending        open transactions are ended by the chosen rule (`endings`), producer ids are made
                  safe as chosen
    handing-over  brokers that have all of it enter the ISR: the pending reassignment completes, one
                  of them leads in a new epoch and is asked for markers, where that is the rule
    handed-over   configs are the source's, replicas that were down come back by themselves

Until the hand-over the shadow is the only one in the ISR: whatever dies before it, no partition is
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
"""How long a settling waits for a live broker that does not fetch: until it is woken, and until it
is done without."""
_LOOK: Final = 0.05


class Failover:
    """One failover of all partitions of a mirror. `step` is what it is at, for those who wait."""

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
        """Returns when the destination stands by itself. Raises DeadlineExceeded where it cannot go
        on."""
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
        """What comes before the hand-over; all of it can be done again when a broker did not answer
        in the middle."""
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
        """Returns when this process has taken in every partition that it mirrors: else others would
        be left without a leader."""
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
                f"the failover stands still at {self._phase}: {error}"
            ) from error
        log.warning("failover, %s: %s", self._phase, error)

    @staticmethod
    async def _last_commits(work: Coroutine[None, None, None]) -> None:
        """Group offsets hold no failover up."""
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
        """The brokers that should have a partition and are alive, without those that were left
        behind."""
        alive = self._log.brokers & set(
            self._topics.placement.replicas(partition.number, partition.topic)
        )
        return frozenset(alive - self._behind.get(partition, frozenset()))

    async def settled(self) -> None:
        """Returns when every live replica of every partition has the whole log as it ends now.

        Raises DeadlineExceeded when none of them has come any further for a while: one that was
        away may have much to copy.
        """
        began, woken = time.monotonic(), False
        moved, there = began, None
        while waiting := [p for p in self._log.partitions.values() if not self._settle(p)]:
            waited = time.monotonic() - began
            if there != (now := [[f.offset for f in p.followers.values()] for p in waiting]):
                moved, there = time.monotonic(), now
            if time.monotonic() > moved + STEP_SECONDS:
                raise DeadlineExceeded(
                    f"the replicas of {', '.join(p.name for p in waiting[:5])} have not settled and"
                    f" stood still for {STEP_SECONDS:g} s; see the brokers' logs"
                )
            if waited > WAKE_SECONDS and not woken:
                woken = True
                self._wake(waiting)
            if waited > LEAVE_SECONDS:
                self._leave_behind(waiting)
            await asyncio.sleep(_LOOK)

    def _mute(self, partition: Partition) -> frozenset[int]:
        """Brokers that live and do not fetch it: a replica that failed is silent
        (AbstractFetcherThread.markPartitionFailed)."""
        if partition.leader_epoch < 0 or partition.raise_to >= 0:
            return frozenset()
        return self.live(partition) - partition.live().keys()

    def _wake(self, partitions: Iterable[Partition]) -> None:
        """A failed replica tries again in a new leader epoch."""
        for partition in partitions:
            if mute := self._mute(partition):
                log.warning(
                    "%s: brokers %s do not fetch; a new leader epoch may wake them",
                    partition.name,
                    sorted(mute),
                )
                partition.raise_to = partition.leader_epoch + 1

    def _leave_behind(self, partitions: Iterable[Partition]) -> None:
        """What does not wake (a broken disk, say) counts as dead: whoever leads afterwards has it
        truncate and catch up."""
        for partition in partitions:
            mute = self._mute(partition)
            if mute and self.live(partition) > mute:
                log.error(
                    "%s goes on without brokers %s, which do not fetch it; see their logs",
                    partition.name,
                    sorted(mute),
                )
                self._behind[partition] = self._behind.get(partition, frozenset()) | mute

    def _settle(self, partition: Partition) -> bool:
        """One look at one partition: sets where its log ends, and says whether all live replicas
        are there."""
        live, needed = partition.live(), self.live(partition)
        if (
            partition.leader_epoch < 0
            or partition.raise_to >= 0
            or not needed
            or not live.keys() >= needed
        ):
            return False
        # A broker that was away may have more, of a log that is not ours any more: it truncates at
        # its next fetch.
        offsets = {partition.agreed(live[broker]) for broker in needed}
        longest, lowest = max(offsets), min(offsets)
        # What is in the window can still be given to all; what only some broker has, from that
        # broker.
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
        # The others read it from the longest as consumers do, so up to the high watermark.
        partition.high_watermark = end
        self._log.ring()
        if {live[broker].offset for broker in needed} != {end}:
            return False
        partition.served = end
        # What was noted and never reached a replica was not appended.
        partition.note.appended = [one for one in partition.note.appended if one[0] < end]
        return True

    def _ceilings(self, partition: Partition, end: int) -> list[int]:
        """Where the log may end at most: whoever comes back with more after it was settled is
        late."""
        note, limits = partition.note, [partition.limit] if partition.limit >= 0 else []
        if self._phase == "ending":
            limits.append(max([note.mirrored, *(offset + 1 for offset, _ in note.appended)]))
        return limits or [end]
