"""The journal of a shadow: a small file that outlives a kill. It has the shadow's identity, its
topics, its partitions' leader epochs, and its progress.

Each entry is written before the action that depends on it. The incarnation id never changes. A
broker that registers again with the same incarnation id keeps its broker epoch
(ClusterControlManager.registerBroker), so a shadow that restarts within its session timeout is
never fenced.

Failpoints: a test pauses a shadow exactly at a step, to kill, stall or isolate it there. Off by
default. The environment variable LINKFLAP_SHADOW_PAUSE_AT names the step. A shadow that reaches it
reports it in its status (`control.Status.step`) and waits for the command {"do": "go-on"}.
Everything else continues, including heartbeats and the followers' fetches. Each step comes after
its journal entry and before the next action.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

import msgspec

from linkflap.harness.mirrors.shadow.settings import JOURNAL
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.events import JournalPartition, JournalTopic, MirrorStopped

Phase = Literal["taking-over", "mirroring", "settling", "ending", "handing-over", "handed-over"]
"""The phases of a mirror, in order. Every phase before the recorded one is complete; the recorded
one may be."""


@dataclass(slots=True, kw_only=True)
class TopicNote:
    """One topic: its ids on both sides, and the configs that it had at its home cluster when they
    were last read there (`configs`).

    `destination_id` is empty until the mirror has created the topic; a topic of that name that
    exists earlier is not the mirror's. `given_up` is why nothing is mirrored into it any more, or
    empty. `unknown` names the configs that the destination's Kafka version does not know.
    """

    source_id: str
    destination_id: str = ""
    configs: dict[str, str] = field(default_factory=dict)
    given_up: str = ""
    unknown: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class PartitionNote:
    """One partition: the leader epochs (epoch, first offset) of the mirrored log and of the
    source's, and the state of its failover or takeover. Offsets are -1 until they are known.

    `truncated` and `appended` are the failover's truncations and markers, `promoted` is the
    promotion offset. Three fields are for a takeover: `home` is the real brokers that had the
    partition (empty: the mirror created it), `truncated_to` is the offset to which its log is
    truncated, `truncated_from` where that log ended before.
    """

    epochs: list[tuple[int, int]] = field(default_factory=list)
    source_epochs: list[tuple[int, int]] = field(default_factory=list)
    mirrored: int = -1
    """The offset after the last mirrored record, once the failover has settled it."""
    truncated: list[tuple[int, int]] = field(default_factory=list)
    open: list[tuple[int, int, int, int]] = field(default_factory=list)
    """The transactions to abort after the handover (`open_transactions.OpenTransaction`)."""
    appended: list[tuple[int, str]] = field(default_factory=list)
    promoted: int = -1
    home: list[int] = field(default_factory=list)
    truncated_to: int = -1
    truncated_from: int = -1

    @property
    def kept(self) -> int:
        """The end of the source's records in the promoted log: the promotion offset without the
        markers that the failover appended, which the source does not have. -1 before the
        promotion."""
        return min(
            self.mirrored,
            self.promoted - len({offset for offset, _ in self.appended if offset < self.promoted}),
        )

    def written(self, topic: str, number: int) -> JournalPartition:
        """The note as an event of the run record."""
        values: dict[str, Any] = asdict(self)
        for name, value in values.items():
            values[name] = tuple(value) if isinstance(value, list) else value
        return JournalPartition(topic=topic, partition=number, **values)


@dataclass(slots=True, kw_only=True)
class JournalNotes:
    """The contents of the file. `top_producer` is the highest mirrored producer id. The fields up
    to `undrained` belong to the option value `jump`."""

    directory_id: str
    incarnation_id: str
    phase: Phase = "mirroring"
    topics: dict[str, TopicNote] = field(default_factory=dict)
    partitions: dict[str, dict[int, PartitionNote]] = field(default_factory=dict)
    top_producer: int = -1
    allocated: int = 0
    """The destination's controller allocates new blocks of producer ids at this id or above."""
    drained: dict[int, int] = field(default_factory=dict)
    """Broker id -> the last producer id that the shadow drew from it. The broker allocates only
    higher ids from then on."""
    undrained: dict[int, int] = field(default_factory=dict)
    """Broker id -> the producer id (the last drawn, or 0) above which it may still allocate
    mirrored ids after the failover."""
    unsynced: dict[str, str] = field(default_factory=dict)
    """Consumer group -> its state on the destination, for groups whose offsets could not be synced
    because they are active there."""

    def stopped(self, link: str, *, drained: bool) -> MirrorStopped:
        """The journal as an event of the run record: partitions, the ids of each topic, unsynced
        groups, and brokers that may allocate mirrored producer ids. `drained`: the lag was 0 when
        the failover started."""
        return MirrorStopped(
            link=link,
            drained=drained,
            partitions=tuple(
                note.written(topic, number)
                for topic, partitions in self.partitions.items()
                for number, note in sorted(partitions.items())
            ),
            topics={
                name: JournalTopic(
                    source=one.source_id,
                    destination=one.destination_id,
                    unknown_configs=tuple(one.unknown),
                )
                for name, one in self.topics.items()
                if one.destination_id
            },
            unsynced=dict(self.unsynced),
            undrained={str(broker): producer_id for broker, producer_id in self.undrained.items()},
        )


def read_notes(path: Path) -> JournalNotes | None:
    """Another shadow's journal as it is now. None when it does not exist or cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=JournalNotes)
    except (OSError, msgspec.MsgspecError):
        return None


class Journal:
    """The journal file. Changes to `notes` are kept once `save` has returned; `save` is atomic."""

    def __init__(self, folder: Path, *, first: Phase = "mirroring") -> None:
        self._path = folder / JOURNAL
        self.fresh = not self._path.exists()
        self.notes = self._read(first)
        self.save()

    def _read(self, first: Phase) -> JournalNotes:
        if self.fresh:
            return JournalNotes(
                directory_id=str(uuid.uuid4()), incarnation_id=str(uuid.uuid4()), phase=first
            )
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=JournalNotes)
        except (OSError, msgspec.MsgspecError) as error:
            raise EnvironmentFailure(
                f"the shadow's journal {self._path} cannot be read ({error}); start the run again"
            ) from error

    def save(self) -> None:
        # No fsync: the journal has to survive the process, not the machine, whose crash would take
        # the brokers along. An fsync for each new epoch of 200 partitions delays heartbeats for
        # longer than a broker session.
        beside = self._path.with_suffix(".new")
        beside.write_bytes(msgspec.json.encode(self.notes))
        beside.replace(self._path)

    def partition(self, topic: str, number: int) -> PartitionNote:
        return self.notes.partitions.setdefault(topic, {}).setdefault(number, PartitionNote())


log = logging.getLogger(__name__)
PAUSE_AT: Final = "LINKFLAP_SHADOW_PAUSE_AT"

Step = Literal[
    "planned",  # the journal has the plan of a takeover; nothing is changed yet
    "registered",  # registered and unfenced; no topic is mirrored yet
    "joined",  # the shadow is a replica of all partitions it takes over
    "claimed",  # the shadow is in their ISRs, together with real brokers
    "elected",  # the shadow leads them; real brokers are still in the ISRs
    "alone",  # the shadow alone is in the ISRs; nothing is truncated yet
    "truncating",  # the journal has the truncation offsets; followers receive them
    "truncated",  # all live replicas end at the truncation offset
    "noted",  # the journal has a new topic; it is not created yet
    "created",  # the topic is created, with the shadow as its only replica
    "grown",  # added partitions are created: real brokers are in their ISRs
    "narrowed",  # the shadow alone is in every ISR; reassignments are requested
    "settling",  # the source is no longer fetched from
    "settled",  # all live replicas are equal; nothing is truncated or aborted yet
    "ending",  # the journal has the offsets at which the logs end
    "before-epoch",  # the open transactions are known
    "after-epoch",  # the partitions have a new leader epoch for the markers
    "appended",  # markers are appended and in the journal; followers fetch them
    "ended",  # no transaction is open; every live replica has the markers
    "handing-over",  # the journal has the promotion offsets
    "reassigned",  # partitions are reassigned to live brokers
    "in-sync",  # real brokers are in the ISRs and can lead
    "handed",  # real brokers lead all partitions; configs are not restored yet
    "handed-over",  # the journal has the end of the failover; still registered
]
"""In the order in which a shadow reaches them."""
STEPS: Final[tuple[Step, ...]] = get_args(Step)


class Steps:
    """The failpoint of one shadow. `at` is the step at which it is paused, or empty."""

    def __init__(self, pause_at: str) -> None:
        if pause_at and pause_at not in STEPS:
            raise InputError(
                f"{PAUSE_AT} is {pause_at!r}, which is not a step of a shadow; set it to one of "
                f"{', '.join(STEPS)}, or unset it"
            )
        self._pause_at = pause_at
        self._resumed = asyncio.Event()
        self.at = ""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Steps:
        """Reads LINKFLAP_SHADOW_PAUSE_AT. Raises InputError for an unknown step."""
        return cls(environment.get(PAUSE_AT, ""))

    async def reach(self, step: Step) -> None:
        """Waits here when `step` is the failpoint, otherwise returns at once. Every task that
        reaches it waits; after the first `go_on` none does."""
        if step == self._pause_at and not self._resumed.is_set():
            if not self.at:
                log.info("paused at %s", step)
            self.at = step
            await self._resumed.wait()
            self.at = ""

    def go_on(self) -> None:
        self._resumed.set()
