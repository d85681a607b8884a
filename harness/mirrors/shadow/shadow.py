"""One shadow: joins the destination cluster, follows the source's topics, and mirrors until a
failover is requested."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any, Final

from linkflap.harness.mirrors.shadow.destination.client import Destination
from linkflap.harness.mirrors.shadow.destination.leader import Leader
from linkflap.harness.mirrors.shadow.destination.listeners import Listeners
from linkflap.harness.mirrors.shadow.destination.membership import Membership
from linkflap.harness.mirrors.shadow.destination.topics import Evictions, Topics
from linkflap.harness.mirrors.shadow.failback import Takeover
from linkflap.harness.mirrors.shadow.failover import FailoverRun
from linkflap.harness.mirrors.shadow.group_offsets import GroupOffsets
from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.mirrors.shadow.partition import MirroredLog, Partition
from linkflap.harness.mirrors.shadow.producer_id_advance import ProducerIdAdvance
from linkflap.harness.mirrors.shadow.settings import Config
from linkflap.harness.mirrors.shadow.source import Source
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.wire.access import Unanswered

log = logging.getLogger(__name__)
LOOK_SECONDS: Final = 0.25
FOLLOW_SECONDS: Final = 1.0
SOURCE_SECONDS: Final = 20.0
"""How long a shadow that mirrors nothing yet waits for its source."""
LEARN_SECONDS: Final = 5.0
"""How long a restarted shadow waits until all live followers have reported their log ends."""


class Shadow:
    """The work of the process. `run` raises InputError or EnvironmentFailure."""

    def __init__(self, config: Config, folder: Path) -> None:
        self.journal = Journal(folder, first="taking-over" if config.takes_over else "mirroring")
        self.log = MirroredLog(config, self.journal)
        self.source = Source(self.log)
        self.destination = Destination(list(config.brokers.values()), config.controllers)
        self.membership = Membership(config, self.journal)
        self.topics = Topics(self.log, self.destination, self.membership)
        self.groups = GroupOffsets(self.log)
        self._jump = ProducerIdAdvance(self.log, self.destination, self.membership)
        self._strays = Evictions(self.log, self.destination, self.membership)
        self.takeover = Takeover(
            self.log, self.source, self.destination, self.topics, self.membership, self.groups
        )
        leader = Leader(self.log, self.source.read_behind)
        self.failover = FailoverRun(
            self.log,
            self.source,
            self.destination,
            self.topics,
            self.membership,
            leader,
            self.groups,
        )
        self._listeners = Listeners(self.log, leader)
        self._wants_failover = asyncio.Event()
        self._led_since: dict[tuple[str, int], float] = {}

    def fail_over(self) -> None:
        """Requests the failover. Does nothing when it has already been requested."""
        self._wants_failover.set()

    def replicated(self, partition: Partition) -> int:
        """The offset up to which all live replicas have the partition; -1 while one of them has not
        reported its own."""
        live, needed = partition.live(), self.failover.live(partition)
        if not needed or not live.keys() >= needed:
            return -1
        return min(live[broker].offset for broker in needed)

    async def run(self) -> None:
        """Mirrors, then fails over on request; returns when the failover is complete."""
        if self.journal.notes.phase == "handed-over":
            return
        if self.journal.fresh:
            await self.destination.make_internal_topics()
        taking_over = self.journal.notes.phase == "taking-over"
        if taking_over and not await self._planned():
            return
        await self._listeners.start()
        await self.membership.join()
        await self.log.steps.reach("registered")
        work: list[asyncio.Task[Any]] = []
        try:
            if taking_over:
                work.append(asyncio.create_task(self.takeover.run()))
                await _done(work[0], self.membership.beating, self._listeners.refused)
            await self._mirror(work)
        finally:
            for task in work:
                task.cancel()
            self.groups.close()
            self.takeover.close()
            self._listeners.close()
            self.membership.close()
            self.destination.close()

    async def _mirror(self, work: list[asyncio.Task[Any]]) -> None:
        """Mirrors until a failover is requested, then fails over. Adds the tasks that it starts to
        `work`."""
        tending = asyncio.create_task(self._tend())
        following = asyncio.create_task(self._follow())
        syncing = asyncio.create_task(self.groups.keep(self.source.brokers))
        jumping = asyncio.create_task(self._jump.keep())
        work += [tending, following, syncing, jumping]
        if self.journal.notes.phase == "mirroring":
            asked = asyncio.create_task(self._wants_failover.wait())
            beating, refused = self.membership.beating, self._listeners.refused
            await _done(asked, following, syncing, jumping, tending, beating, refused)
        for task in (following, syncing, jumping):
            task.cancel()
        # or they would interfere with the failover
        await asyncio.wait([following, syncing, jumping])
        work.append(asyncio.create_task(self.failover.run()))
        await _done(work[-1], tending, self.membership.beating, self._listeners.refused)

    async def _planned(self) -> bool:
        """Plans the takeover. Returns False when a failover is requested before anything was
        changed: then there is nothing to hand over."""
        plan = asyncio.create_task(self.takeover.plan())
        asked = asyncio.create_task(self._wants_failover.wait())
        await asyncio.wait([plan, asked], return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if plan.done():
            plan.result()
            return True
        plan.cancel()
        await asyncio.wait([plan])
        if self.takeover.planned:
            return True
        self.journal.notes.phase = "handed-over"
        self.journal.save()
        return False

    async def _follow(self) -> None:
        """Keeps the destination's topics equal to the source's, and polls the source. Raises
        EnvironmentFailure when the source has never answered."""
        deadline = time.monotonic() + SOURCE_SECONDS
        while True:
            try:
                found = await self.source.picture()
                await self.topics.follow(found, self.source.nodes)
                self.source.poll()
            except (Unanswered, EnvironmentFailure) as error:
                log.warning("source or destination did not answer: %s", error)
                if (
                    not self.source.brokers
                    and not self.journal.notes.topics
                    and time.monotonic() > deadline
                ):
                    config = self.log.config
                    raise EnvironmentFailure(
                        f"the source of {config.link} does not answer at "
                        f"{', '.join(config.source)}; start it, or repair the link"
                    ) from error
            await asyncio.sleep(FOLLOW_SECONDS if self.log.partitions else LOOK_SECONDS)

    async def _tend(self) -> None:
        """Keeps leadership, live brokers and leader epochs up to date."""
        while True:
            try:
                await self._strays.evict(await self.topics.look())
                if self.journal.notes.phase == "mirroring":  # a failover finds the ends itself
                    self._learn()
                if any(
                    p.raise_to >= 0 and p.leader_epoch >= 0 for p in self.log.partitions.values()
                ):
                    await self.membership.raise_epochs()
                    continue
            except (Unanswered, EnvironmentFailure, TimeoutError) as error:
                log.warning("destination did not answer: %s", error)
            await asyncio.sleep(LOOK_SECONDS)

    def _learn(self) -> None:
        """Finds the log ends of partitions that this process has not served yet: the log end of the
        longest live follower."""
        for tp, partition in self.log.partitions.items():
            if partition.leader_epoch < 0 or partition.position >= 0:
                self._led_since.pop(tp, None)
                continue
            since = self._led_since.setdefault(tp, time.monotonic())
            live = partition.live()
            everyone = self.log.brokers & set(
                self.topics.placement.replicas(partition.number, partition.topic)
            )
            if live and (live.keys() >= everyone or time.monotonic() > since + LEARN_SECONDS):
                self._learned(partition, max(follower.offset for follower in live.values()))

    def _learned(self, partition: Partition, end: int) -> None:
        log.info("%s: the longest follower ends at offset %d", partition.name, end)
        partition.position = partition.served = end
        self.log.lead(partition, partition.leader_epoch)


async def _done(work: asyncio.Task[Any], *beside: asyncio.Future[Any]) -> None:
    """Returns when `work` is done. Raises the exception of the first task that fails."""
    left = {work, *beside}
    while not work.done():
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled():
                task.result()
