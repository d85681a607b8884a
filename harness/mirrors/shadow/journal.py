"""What a shadow must not forget when it is killed: who it is, what it mirrors, and its logs' leader
epochs. One small file.

Written before the thing that depends on it is done. The incarnation id is kept for ever:
registering again with it keeps the broker epoch, so a shadow that comes back in time was never away
(ClusterControlManager.registerBroker).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from linkflap.harness.mirrors.shadow.settings import JOURNAL
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.events import JournalPartition, JournalTopic, MirrorStopped

Phase = Literal["taking-over", "mirroring", "settling", "ending", "handing-over", "handed-over"]
"""A mirror's steps in order: what is behind was done, what a journal names may have been done."""


@dataclass(slots=True, kw_only=True)
class TopicNote:
    """Ids of one topic on both sides, and the configs it had at its home when it was last seen
    there (`configs`).

    `destination_id` is empty until it is made there: what has that name until then is not the
    mirror's. `given_up` is why nothing is mirrored into it any more, or empty. `unknown` names
    those of its configs that the destination's release does not have.
    """

    source_id: str
    destination_id: str = ""
    configs: dict[str, str] = field(default_factory=dict)
    given_up: str = ""
    unknown: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class PartitionNote:
    """Leader epochs (epoch, first offset) of the mirrored log and of the source's, and what a
    failover did to it.

    Of a partition that was taken over: `home` is the real brokers that had it (empty: the mirror
    made it), `truncated_to` is the offset to which its log is truncated, `truncated_from` where
    that log ended (-1 until it is truncated).
    """

    epochs: list[tuple[int, int]] = field(default_factory=list)
    source_epochs: list[tuple[int, int]] = field(default_factory=list)
    mirrored: int = -1
    """Where it ended when the failover had settled: the offset after the last mirrored one; -1
    before."""
    truncated: list[tuple[int, int]] = field(default_factory=list)
    open: list[tuple[int, int, int, int]] = field(default_factory=list)
    """What is to be aborted after the hand-over (`markers.Open`)."""
    appended: list[tuple[int, str]] = field(default_factory=list)
    promoted: int = -1
    home: list[int] = field(default_factory=list)
    truncated_to: int = -1
    truncated_from: int = -1

    @property
    def kept(self) -> int:
        """Where what was mirrored ends in what was promoted: behind it are markers, unknown to the
        source; -1 before."""
        return min(
            self.mirrored,
            self.promoted - len({offset for offset, _ in self.appended if offset < self.promoted}),
        )

    def written(self, topic: str, number: int) -> JournalPartition:
        """As a run's record keeps it."""
        return JournalPartition(
            topic=topic,
            partition=number,
            epochs=tuple(self.epochs),
            source_epochs=tuple(self.source_epochs),
            mirrored=self.mirrored,
            truncated=tuple(self.truncated),
            open=tuple(self.open),
            appended=tuple(self.appended),
            promoted=self.promoted,
            home=tuple(self.home),
            truncated_to=self.truncated_to,
            truncated_from=self.truncated_from,
        )


@dataclass(slots=True, kw_only=True)
class Notes:
    """The file. `top_producer` is the highest producer id that was mirrored; what follows it is of
    a `jump`."""

    directory_id: str
    incarnation_id: str
    phase: Phase = "mirroring"
    topics: dict[str, TopicNote] = field(default_factory=dict)
    partitions: dict[str, dict[int, PartitionNote]] = field(default_factory=dict)
    top_producer: int = -1
    allocated: int = 0
    """Blocks of producer ids that the destination's controller gives out from now on begin here or
    later."""
    drained: dict[int, int] = field(default_factory=dict)
    """Per broker the id that it gave when it was last drained: it gives higher ones only."""
    undrained: dict[int, int] = field(default_factory=dict)
    """Brokers that may give out mirrored ids after the failover, and from which id on."""
    unsynced: dict[str, str] = field(default_factory=dict)
    """Groups whose offsets on the destination are not the source's, because they are active there,
    and their states."""

    def stopped(self, link: str, *, drained: bool) -> MirrorStopped:
        """What a run's record keeps of it: partitions, each topic's ids, and brokers that may give
        out mirrored producer ids."""
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


def read_notes(path: Path) -> Notes | None:
    """Another shadow's journal, as it is now; None while there is none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Notes)
    except (OSError, msgspec.MsgspecError):
        return None


class Journal:
    """Notes that outlive the process. `save` is atomic."""

    def __init__(self, folder: Path, *, first: Phase = "mirroring") -> None:
        self._path = folder / JOURNAL
        self.fresh = not self._path.exists()
        self.notes = self._read(first)
        self.save()

    def _read(self, first: Phase) -> Notes:
        if self.fresh:
            return Notes(
                directory_id=str(uuid.uuid4()), incarnation_id=str(uuid.uuid4()), phase=first
            )
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Notes)
        except (OSError, msgspec.MsgspecError) as error:
            raise EnvironmentFailure(
                f"the shadow's journal {self._path} cannot be read ({error}); start the run again"
            ) from error

    def save(self) -> None:
        # Not synced to the disk: what is to be outlived is the process, not the machine, whose
        # brokers would be gone as well. A sync of each of 200 partitions' new epochs stops
        # heartbeats for longer than a session.
        beside = self._path.with_suffix(".new")
        beside.write_bytes(msgspec.json.encode(self.notes))
        beside.replace(self._path)

    def partition(self, topic: str, number: int) -> PartitionNote:
        return self.notes.partitions.setdefault(topic, {}).setdefault(number, PartitionNote())
