"""Failback, on the destination's side: takes over existing topics that another mirror once copied
from there.

plan: reads and journals ids, leader epochs and failback points. Changes nothing, so invalid input
    does no harm.
claim: adds the shadow to the replicas. It fetches at the log end as a follower, and so enters the
    ISR.
lead: elects the preferred leader: the shadow. It narrows the ISR to itself at once.
truncate: replicas with more than the failback point learn that from `diverging_epoch` (KIP-595),
    and truncate.

There is one race. From the claim until the ISR is narrowed, real brokers are in the ISR. If the
shadow dies in that window, one of them leads again, with its complete log. Nothing has been
truncated by then, because followers get answers only once the shadow is alone in the ISR. The
takeover is then repeated from its plan. After the window only the shadow can lead.

The transaction coordinator of such a cluster may still owe markers for transactions that were open
when the cluster failed. A shadow closes its connections, so it retries until a real broker leads,
after the failover. It then writes an ABORT, which has no effect if the transaction was truncated.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Final

from linkflap.harness.mirrors.shadow.destination.client import Destination, MetadataSnapshot
from linkflap.harness.mirrors.shadow.destination.membership import Membership
from linkflap.harness.mirrors.shadow.destination.topics import (
    WHILE_MIRRORED,
    Topics,
    refuse_taken,
    topic_configs,
)
from linkflap.harness.mirrors.shadow.group_offsets import GroupOffsets
from linkflap.harness.mirrors.shadow.journal import TopicNote
from linkflap.harness.mirrors.shadow.partition import (
    NONE,
    Entry,
    Lineage,
    MirroredLog,
    Partition,
    parting,
)
from linkflap.harness.mirrors.shadow.settings import FIRST_BROKER_ID, TakenPartition, TakenTopic
from linkflap.harness.mirrors.shadow.source import Source
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure, InputError
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.connection import Connection, Connections
from linkflap.harness.wire.messages import Error, Message
from linkflap.harness.wire.requests import LATEST, Led, by_topic, replica_offsets

_WAIT: Final = timedelta(milliseconds=20)


async def epochs_of(
    leader: Connection, latest: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[Lineage, int]]:
    """Partition -> (its leader epochs, its log end). `latest`: partition -> its current leader
    epoch.

    OffsetForLeaderEpoch returns the end of one epoch at a time. So the epochs are requested from
    the newest to the oldest, for all partitions at once. Raises Unanswered.
    """
    ends: dict[TopicPartition, list[Entry]] = {tp: [] for tp in latest}
    asked = dict(latest)
    while asked:
        answers = await _epoch_ends(leader, asked)
        asked = {
            tp: below
            for tp, entry in answers.items()
            if (below := _note(ends[tp], entry, asked[tp])) >= 0
        }
    return {tp: _lineage(found) for tp, found in ends.items()}


def _note(ends: list[Entry], entry: Entry, asked: int) -> int:
    """Adds (epoch, its end offset). Returns the epoch to request next, or NONE when all are
    known."""
    epoch, end = entry
    if epoch == NONE:
        # Either above all epochs of the leader, which has written nothing in its newest one, or
        # below them.
        return NONE if ends else asked - 1
    if len(ends) > 1 and end >= ends[-1][1]:
        # No such epoch: the answer is the start of the oldest one. Only the newest epoch can be
        # empty.
        return NONE
    ends.append(entry)
    return epoch - 1 if end > 0 else NONE


def _lineage(ends: list[Entry]) -> tuple[Lineage, int]:
    """The lineage of (epoch, end) entries in descending order: each epoch begins where the one
    before it ends. And the log end."""
    lineage = Lineage()
    start = 0
    for epoch, end in reversed(ends):
        lineage.begin(epoch, start)
        start = end
    return lineage, start


async def _epoch_ends(
    leader: Connection, asked: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Entry]:
    m = messages.request("offset_for_leader_epoch", 4)
    topics = tuple(
        m.OffsetForLeaderTopic(
            topic=topic,
            partitions=tuple(
                m.OffsetForLeaderPartition(
                    partition=number, current_leader_epoch=-1, leader_epoch=asked[topic, number]
                )
                for number in numbers
            ),
        )
        for topic, numbers in by_topic(asked).items()
    )
    answer = await leader.call(
        "offset_for_leader_epoch", 4, m.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
    )
    found: dict[TopicPartition, Entry] = {}
    for topic in answer.topics:
        for row in topic.partitions:
            _check(
                row,
                f"{leader.address} did not return the leader epochs of"
                f" {topic.topic}-{row.partition}",
            )
            found[str(topic.topic), int(row.partition)] = int(row.leader_epoch), int(row.end_offset)
    return found


async def claim(
    leader: Connection,
    ids: Mapping[str, Message],
    tps: Iterable[TopicPartition],
    *,
    broker: int,
    epoch: int,
) -> None:
    """Fetches once at the log ends of these partitions, as follower `broker` with broker epoch
    `epoch`.

    Ignores a refusal (the leader may not know its new replica yet): the ISR shows the result.
    Raises Unanswered.
    """
    ends = await replica_offsets(leader, tps, LATEST, replica=broker)
    m = messages.request("fetch", 17)
    topics = tuple(
        m.FetchTopic(
            topic_id=ids[topic],
            partitions=tuple(
                m.FetchPartition(
                    partition=number,
                    fetch_offset=ends[topic, number],
                    log_start_offset=0,
                    partition_max_bytes=1,
                )
                for number in numbers
            ),
        )
        for topic, numbers in by_topic(ends).items()
    )
    if not topics:
        await asyncio.sleep(_WAIT.total_seconds())
        return
    body = m.FetchRequest(
        replica_state=m.ReplicaState(replica_id=broker, replica_epoch=epoch),
        max_wait=_WAIT,
        min_bytes=1,
        max_bytes=1,
        topics=topics,
        forgotten_topics_data=(),
    )
    await leader.call("fetch", 17, body)


def _check(row: Message, what: str) -> None:
    if row.error_code != Error.none:
        raise Unanswered(f"{what}: {row.error_code.name}")


def failback_point(name: str, left: TakenPartition, ours: Lineage, end: int, *, rule: str) -> int:
    """The failback point of one log, by `rule`. `left` is the partition as its mirror left it;
    `ours` and `end` are this log's leader epochs and end.

    offset: the last mirrored offset (KIP-1279 in February 2026). Records that were written later
    and never mirrored are lost. It is only right if everything below is unchanged since it was
    mirrored. If this log has lost part of that (an unclean election), the two logs would differ
    below the failback point, so it is an error.

    epoch: the last mirror epoch (KIP-1279 since March 2026, A10): the end of that epoch here, then
    the epoch check against the other cluster's log. Records that were never mirrored are lost as
    with `offset`. Records that this log has lost are mirrored back.

    Raises InputError for that error.
    """
    mirrored = Lineage(left.epochs)
    mirrored.truncate(left.end)
    common = parting(ours, end, mirrored, left.end) if mirrored.entries else min(left.end, end)
    if rule == "epoch":
        return common
    if common < left.end:
        raise InputError(
            f"{name} was mirrored up to offset {left.end}, but its log on the destination differs "
            f"from offset {common} on; set failback_point to epoch, and these records are mirrored "
            "back from the other cluster"
        )
    return left.end


Logs = dict[TopicPartition, tuple[Lineage, int]]


def refuse_another(
    name: str, topic: TakenTopic, there: MetadataSnapshot, here: MetadataSnapshot, link: str
) -> None:
    """Raises InputError for a topic that is no longer the mirrored one on either side, or has more
    partitions at the destination."""
    if str(here.topics[name].id) != topic.destination_id:
        raise InputError(
            f"topic {name} exists on the destination of {link} but is not the one that was "
            f"mirrored from there (its id is {here.topics[name].id}, the mirrored one's was "
            f"{topic.destination_id}); remove it there, and it is copied"
        )
    if name not in there.topics or str(there.topics[name].id) != topic.source_id:
        raise InputError(
            f"topic {name} at the source of {link} is not the one that was promoted there (id "
            f"{topic.source_id}), so its records cannot continue the destination's log; "
            "remove it on both sides, or leave the clusters as they are"
        )
    mine, theirs = len(here.topics[name].partitions), len(there.topics[name].partitions)
    if mine > theirs:
        raise InputError(
            f"topic {name} has {mine} partitions on the destination of {link} and {theirs} at "
            f"its source; add partitions at the source until it has {mine} too"
        )


async def logs_of(leaders: Connections, found: MetadataSnapshot, tps: list[TopicPartition]) -> Logs:
    """Partition -> (leader epochs, log end) on one side. Raises EnvironmentFailure where no real
    broker leads."""
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for topic, number in tps:
        led = found.topics[topic].partitions[number]
        if not 0 <= led.leader < FIRST_BROKER_ID or led.leader not in found.brokers:
            raise EnvironmentFailure(
                f"no broker of its own cluster leads {topic}-{number}; start the brokers that "
                "have it"
            )
        by_leader.setdefault(led.leader, {})[topic, number] = led.epoch
    logs: Logs = {}
    for leader, latest in by_leader.items():
        logs |= await epochs_of(leaders.at(found.brokers[leader]), latest)
    return logs


log = logging.getLogger(__name__)
STEP_SECONDS: Final = 120.0
GROUPS_SECONDS: Final = 5.0
_LOOK: Final = 0.05
Step = Callable[[MetadataSnapshot], Awaitable[list[str]]]


class Takeover:
    """The takeover of all topics of a reversed mirror. `plan` is called before the shadow has
    joined the cluster, `run` afterwards."""

    def __init__(
        self,
        mirrored: MirroredLog,
        source: Source,
        destination: Destination,
        topics: Topics,
        membership: Membership,
        groups: GroupOffsets,
    ) -> None:
        self._log, self._source, self._destination = mirrored, source, destination
        self._topics, self._membership, self._groups = topics, membership, groups
        self._wanted = mirrored.config.takes_over
        self._leaders = Connections()
        self._me = mirrored.config.broker_id

    @property
    def planned(self) -> bool:
        """Whether anything may have been changed."""
        return bool(self._log.journal.notes.topics)

    async def plan(self) -> None:
        """Journals the plan, once. Raises InputError when the topics are not the mirrored ones,
        DeadlineExceeded."""
        deadline = time.monotonic() + STEP_SECONDS
        while not self.planned:
            try:
                await self._plan()
                return
            except (Unanswered, EnvironmentFailure) as error:
                _give_up_after(deadline, "planned", error)
            await asyncio.sleep(_LOOK)

    async def _plan(self) -> None:
        there, here = await self._source.picture(), await self._destination.picture()
        refuse_taken(there, here, self._log.config, known=[*self._wanted, self._log.config.canary])
        wanted = {name: topic for name, topic in self._wanted.items() if name in here.topics}
        for name, topic in wanted.items():
            refuse_another(name, topic, there, here, self._log.config.link)
        tps = [(name, number) for name in wanted for number in here.topics[name].partitions]
        sources = await logs_of(self._leaders, there, tps)
        ours = await logs_of(self._leaders, here, tps)
        configs = await topic_configs(self._destination.nodes, list(wanted))
        found = {
            name: TopicNote(
                source_id=topic.source_id,
                destination_id=topic.destination_id,
                configs=configs.get(name, {}),
            )
            for name, topic in wanted.items()
        }
        for tp in tps:
            self._plan_partition(tp, here.topics[tp[0]].partitions[tp[1]], ours[tp], sources[tp][0])
        self._log.journal.notes.topics |= found
        self._log.journal.save()
        await self._log.steps.reach("planned")

    def _plan_partition(
        self, tp: TopicPartition, led: Led, ours: tuple[Lineage, int], theirs: Lineage
    ) -> None:
        """Journals where a partition will be truncated, and the leader epochs below that offset on
        both sides."""
        left = self._wanted[tp[0]].partitions.get(tp[1], TakenPartition(end=0, epochs=()))
        rule = self._log.config.options.failback_point
        point = failback_point(f"{tp[0]}-{tp[1]}", left, *ours, rule=rule)
        note = self._log.journal.partition(*tp)
        for lineage in (ours[0], theirs):
            lineage.truncate(point)
        note.epochs, note.source_epochs = ours[0].entries, theirs.entries
        note.home = [broker for broker in led.replicas if broker < FIRST_BROKER_ID]
        note.truncated_to = point
        log.info("%s-%d ends at %d here and will be truncated to %d", *tp, ours[1], point)

    async def run(self) -> None:
        """Returns when the shadow leads every partition, and all are truncated. Raises
        DeadlineExceeded; the next call continues."""
        for topic, number in self._taken_over():
            self._log.add(topic, number).taking = True
        await self._repeat(self._lead, "led by the shadow alone")
        await self._log.steps.reach("alone")
        await self._repeat(self._truncate, "truncated")
        await self._log.steps.reach("truncating")
        await self._repeat(self._truncated, "truncated by all live replicas")
        await self._log.steps.reach("truncated")
        try:
            async with asyncio.timeout(GROUPS_SECONDS):
                # a group with a higher commit would skip the records that replace the truncated
                # ones
                await self._groups.clamp()
        except (TimeoutError, Unanswered) as error:
            log.warning("group offsets: %s", error or "no answer in time")
        for partition in self._partitions():
            partition.taking = False
            partition.position = partition.served = partition.note.truncated_to
            if self._log.config.options.leader_epochs == "keep":
                # later epochs are the source's
                partition.epochs.truncate(partition.note.truncated_to)
            self._log.lead(partition, partition.leader_epoch)
        self._log.journal.notes.phase = "mirroring"
        self._log.journal.save()
        log.info("taken over")

    def _taken_over(self) -> Iterator[TopicPartition]:
        """The partitions to take over, without topics that no longer exist (`Topics.look`)."""
        notes = self._log.journal.notes
        taken = (
            (name, n)
            for name in notes.topics
            for n, note in notes.partitions.get(name, {}).items()
            if note.home
        )
        return (tp for tp in taken if tp not in self._log.lost)

    def _partitions(self) -> list[Partition]:
        return [self._log.partitions[tp] for tp in self._taken_over()]

    async def _repeat(self, step: Step, what: str) -> None:
        deadline = time.monotonic() + STEP_SECONDS
        while True:
            try:
                left = await step(await self._topics.look())
                if not left:
                    return
                error: Exception = EnvironmentFailure(f"waiting for {', '.join(left[:5])}")
            except (Unanswered, EnvironmentFailure) as failure:
                error = failure
            _give_up_after(deadline, what, error)
            await asyncio.sleep(_LOOK)

    async def _lead(self, here: MetadataSnapshot) -> list[str]:
        """One round of claims and elections; `look` narrows the ISRs. Returns the partitions that
        the shadow does not lead alone yet."""
        if missing := sorted({name for name, _ in self._taken_over()} - here.topics.keys()):
            raise EnvironmentFailure(f"topic {missing[0]} is not in the destination's metadata")
        alone = (self._me, (self._me,))
        led_now = {tp: here.topics[tp[0]].partitions[tp[1]] for tp in self._taken_over()}
        left = {tp: led for tp, led in led_now.items() if (led.leader, led.in_sync) != alone}
        await self._join(
            [tp for tp, led in left.items() if not led.replicas or led.replicas[0] != self._me]
        )
        await self._claim(here, left)
        claimed = [
            tp for tp, led in left.items() if self._me in led.in_sync and led.leader != self._me
        ]
        if claimed:
            await self._log.steps.reach("claimed")
            await self._destination.elect_preferred(claimed)
        return [f"{topic}-{number}" for topic, number in left]

    async def _claim(self, here: MetadataSnapshot, left: dict[TopicPartition, Led]) -> None:
        """Makes the shadow join the ISRs of partitions that have it as a replica."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp, led in left.items():
            if (
                0 <= led.leader < FIRST_BROKER_ID
                and led.leader in here.brokers
                and self._me in led.replicas
            ):
                by_leader.setdefault(led.leader, []).append(tp)
        ids = {name: topic.id for name, topic in here.topics.items()}
        for leader, tps in by_leader.items():
            await claim(
                self._leaders.at(here.brokers[leader]),
                ids,
                tps,
                broker=self._me,
                epoch=self._membership.epoch,
            )

    async def _join(self, tps: list[TopicPartition]) -> None:
        """Adds the shadow to the replicas, as the preferred leader. Idempotent."""
        if not tps:
            return
        for name in dict.fromkeys(name for name, _ in tps):
            await self._destination.configure(name, dict(WHILE_MIRRORED))
        notes = self._log.journal.notes.partitions
        await self._destination.reassign(
            {(name, n): [self._me, *notes[name][n].home] for name, n in tps}
        )
        await self._log.steps.reach("joined")

    async def _truncate(self, _: MetadataSnapshot) -> list[str]:
        """Truncates the logs whose live replicas have all reported their ends. Nothing has been
        served by then."""
        left: list[str] = []
        for partition in self._partitions():
            note, live = partition.note, partition.live()
            needed = self._log.brokers & set(note.home)
            if partition.leader_epoch < 0 or not needed or not live.keys() >= needed:
                left.append(partition.name)
                continue
            if note.truncated_from < 0:
                note.truncated_from = max(
                    note.truncated_to, *(follower.offset for follower in live.values())
                )
                log.info(
                    "%s is truncated at %d, from %d",
                    partition.name,
                    note.truncated_to,
                    note.truncated_from,
                )
            partition.truncate(note.truncated_to)
            partition.epochs.begin(partition.leader_epoch, note.truncated_to)
        self._log.remember(self._partitions())
        self._log.ring()
        return left

    async def _truncated(self, here: MetadataSnapshot) -> list[str]:
        """Partitions with live replicas that have not truncated yet.

        With leader_epochs=keep, the truncated tail and the source's later records can have the same
        epochs, and a replica that comes back later might keep its tail. So then no replica may be
        dead.
        """
        everyone = self._log.config.options.leader_epochs == "keep"
        left: list[str] = []
        for partition in self._partitions():
            note, live = partition.note, partition.live()
            if partition.leader_epoch > partition.epochs.latest:  # the shadow was away
                await self._truncate(here)
            needed = set(note.home) if everyone else self._log.brokers & set(note.home)
            if (
                not needed
                or not live.keys() >= needed
                or any(live[broker].offset > note.truncated_to for broker in needed)
            ):
                left.append(partition.name)
        return left

    def close(self) -> None:
        self._leaders.close()


def _give_up_after(deadline: float, what: str, error: Exception) -> None:
    if time.monotonic() > deadline:
        raise DeadlineExceeded(
            f"not all partitions of the takeover were {what} within {STEP_SECONDS:g} s: {error}"
        ) from error
