"""Syncs consumer group offsets over the link, with KIP-1279's clamp (discussion, VK12): no consumer
may start beyond the end of the mirrored log.

The offset committed on the destination is at least its log start offset, and at most min(the offset
committed on the source, the destination's log end). Commits may move backwards while the mirror
runs. Groups that are active on the destination are not synced. Nothing is synced after a failover,
which clamps once more to the ends at which it leaves the logs.

A group stays active until its coordinator removes its members. After a cluster crash, that takes
until the session timeout of members that died with it. So a mirror back to such a cluster counts as
started only once its groups are synced, or after `PATIENCE_SECONDS`. The journal keeps the groups
that a failover left unsynced (`Notes.unsynced`).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Final

from linkflap.harness.mirrors.shadow.partition import MirroredLog, Partition
from linkflap.harness.model.security import beside
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.connection import AnyOf, Connection, Connections
from linkflap.harness.wire.messages import Error
from linkflap.harness.wire.requests import by_topic

log = logging.getLogger(__name__)
SYNC_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 50.0
"""How long a mirror back waits for active groups: the default session timeout of consumers, 45 s,
and a margin."""
_IDLE: Final = ("Empty", "Dead", "")
Committed = dict[TopicPartition, int]


class Coordinators:
    """The group coordinators of one cluster, found through any of its brokers."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._nodes = AnyOf(addresses)
        self._entered_as = self._nodes.addresses[0]
        self._known = Connections()

    async def states(self, brokers: Iterable[str]) -> dict[str, str]:
        """Group -> state, for consumer groups on these brokers. Raises Unanswered when one does not
        answer."""
        body = messages.request("list_groups", 4).ListGroupsRequest()
        found: dict[str, str] = {}
        for address in list(brokers):  # a copy: its owner changes it while this awaits answers
            answer = await self._known.at(address).call("list_groups", 4, body, within=3)
            if answer.error_code != Error.none:
                raise Unanswered(f"{address} did not list its groups: {answer.error_code.name}")
            found |= {
                str(g.group_id): str(g.group_state)
                for g in answer.groups
                if g.protocol_type in ("consumer", "")
            }
        return found

    async def _coordinator(self, group: str) -> Connection:
        body = messages.request("find_coordinator", 4).FindCoordinatorRequest(
            key_type=0, coordinator_keys=(group,)
        )
        result = (await self._nodes.call("find_coordinator", 4, body, within=3)).coordinators[0]
        if result.error_code != Error.none:
            raise Unanswered(f"group {group} has no coordinator: {result.error_code.name}")
        return self._known.at(beside(self._entered_as, f"{result.host}:{result.port}"))

    async def committed(self, group: str) -> Committed:
        """All committed offsets of a group."""
        m = messages.request("offset_fetch", 8)
        body = m.OffsetFetchRequest(
            groups=(m.OffsetFetchRequestGroup(group_id=group, topics=None),), require_stable=False
        )
        (result,) = (
            await (await self._coordinator(group)).call("offset_fetch", 8, body, within=3)
        ).groups
        if result.error_code != Error.none:
            raise Unanswered(f"the offsets of group {group} are unknown: {result.error_code.name}")
        return {
            (str(t.name), int(p.partition_index)): int(p.committed_offset)
            for t in result.topics
            for p in t.partitions
            if p.error_code == Error.none and p.committed_offset >= 0
        }

    async def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> Committed:
        """Commits without being a member, which the coordinator refuses once the group is active.
        Returns the offsets that it accepted."""
        m = messages.request("offset_commit", 8)
        topics = tuple(
            m.OffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    m.OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=offsets[topic, number],
                        committed_metadata="",
                    )
                    for number in numbers
                ),
            )
            for topic, numbers in by_topic(offsets).items()
        )
        body = m.OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics
        )
        answer = await (await self._coordinator(group)).call("offset_commit", 8, body, within=3)
        result = {
            (str(t.name), int(p.partition_index)): p.error_code
            for t in answer.topics
            for p in t.partitions
        }
        refused = {error.name for error in result.values() if error != Error.none}
        if refused:
            log.info("group %s: commit refused: %s", group, ", ".join(sorted(refused)))
        return {tp: offset for tp, offset in offsets.items() if result.get(tp) == Error.none}

    def close(self) -> None:
        self._nodes.close()
        self._known.close()


def clamped(committed: int, partition: Partition, end: int) -> int:
    """The offset to commit on the destination for an offset committed on the source."""
    return max(min(partition.start, end), min(committed, end))


def reached(partition: Partition) -> int | None:
    """The offset up to which the destination has a partition. None while that is unknown, as after
    a start."""
    live = partition.live()
    if not live or partition.end < 0:
        return None
    # Never below the high watermark, even when a follower comes back that is far behind.
    return max(
        partition.high_watermark,
        min(partition.end, *(follower.offset for follower in live.values())),
    )


class GroupOffsets:
    """Syncs the offsets of the groups whose names match the option `groups`."""

    def __init__(self, mirrored: MirroredLog) -> None:
        self._log = mirrored
        self._wanted = (
            re.compile(mirrored.config.options.groups) if mirrored.config.options.groups else None
        )
        self._there = Coordinators(mirrored.config.source)
        self._here = Coordinators(mirrored.config.brokers.values())
        self._last: dict[str, Committed] = {}
        self.synced = self._wanted is None
        """Whether each group had the right offsets on the destination when they were last
        compared."""

    async def keep(self, source_brokers: Mapping[int, str]) -> None:
        """Syncs every second. Its owner keeps `source_brokers` up to date."""
        while self._wanted:
            try:
                await self.sync(source_brokers)
            except Unanswered as error:
                log.info("group offsets: %s", error)
            await asyncio.sleep(SYNC_SECONDS)

    async def sync(self, source_brokers: Mapping[int, str]) -> None:
        """Syncs once. Raises Unanswered when either side does not answer."""
        if self._wanted is None or not source_brokers:
            return
        there = await self._there.states(source_brokers.values())
        here = await self._idle()
        unsynced: dict[str, str] = {}
        known = True
        for group in there:
            if not self._wanted.fullmatch(group):
                continue
            state, offsets = here.get(group, ""), self._offsets(await self._there.committed(group))
            known = known and None not in offsets.values()
            committed = {tp: offset for tp, offset in offsets.items() if offset is not None}
            if state in _IDLE:
                known = await self._sync(group, committed) and known
            elif committed.items() - (await self._here.committed(group)).items():
                unsynced[group] = state
        self._note(unsynced)
        self.synced = known and not unsynced

    def _note(self, unsynced: Mapping[str, str]) -> None:
        notes = self._log.journal.notes
        for group in unsynced.keys() - notes.unsynced.keys():
            log.warning(
                "group %s is not synced: it is %s on the destination", group, unsynced[group]
            )
        notes.unsynced = dict(unsynced)  # the first step of a failover saves the journal

    def _offsets(self, committed: Committed) -> dict[TopicPartition, int | None]:
        """The offsets to commit for mirrored partitions; None where the destination's log end is
        not known yet."""
        ends = {
            tp: reached(partition)
            for tp in committed
            if (partition := self._log.partitions.get(tp)) is not None
        }
        return {
            tp: None if end is None else clamped(committed[tp], self._log.partitions[tp], end)
            for tp, end in ends.items()
        }

    async def _idle(self) -> dict[str, str]:
        live = [
            address
            for broker, address in self._log.config.brokers.items()
            if broker in self._log.brokers
        ]
        return await self._here.states(live)

    async def _sync(self, group: str, offsets: Committed) -> bool:
        """Commits the offsets that have changed. Returns whether all of them are committed now."""
        known = self._last.setdefault(group, {})
        news = {tp: offset for tp, offset in offsets.items() if known.get(tp) != offset}
        if news:
            known |= await self._here.commit(group, news)
        return offsets.items() <= known.items()

    async def clamp(self) -> None:
        """Moves commits beyond the log ends back to them, once a failover has settled the ends.
        Raises Unanswered."""
        if self._wanted is None:
            return
        for group, state in (await self._idle()).items():
            if state in _IDLE and self._wanted.fullmatch(group):
                committed = await self._here.committed(group)
                beyond = {
                    tp: partition.end
                    for tp, offset in committed.items()
                    if (partition := self._log.partitions.get(tp)) is not None
                    and offset > partition.end >= 0
                }
                if beyond:
                    log.info("group %s: commits beyond the log end are reset: %s", group, beyond)
                    await self._here.commit(group, beyond)

    def close(self) -> None:
        self._there.close()
        self._here.close()
