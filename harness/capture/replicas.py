"""The bounds of captured replicas: read from a live cluster, or reconstructed from the files of a
dead one.

If a partition's leader does not answer, the leader is the last one that a sampled watermark named.
Without a sample it is the replica with the newest leader epoch in its checkpoint and then the
longest log (the last leader wrote the newest epoch, and no follower outgrows it). The high
watermark is the greatest known lower bound: the last one sampled, or a broker's checkpoint file
(written every 5 s). For a partition with a single replica it is the end of the bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.harness.log import segments
from linkflap.harness.machine import untrusted_files
from linkflap.harness.model.history import LARGEST, Bounds, Watermark
from linkflap.harness.model.protocols import Broker, Cluster, is_running
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire.librdkafka import answered_bounds, quiet

METADATA: Final = "__cluster_metadata"
_ASK_SECONDS: Final = 5.0
_LARGEST_NOTES: Final = 64 << 20
"""Bytes of a file in which a broker notes offsets: a line for each of its partitions."""
_DIGITS: Final = 19

HighWatermark = tuple[int, Literal["sampled", "checkpoint", "recomputed"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFolder:
    """One partition folder of one broker."""

    broker: Broker
    topic: str
    partition: int
    folder: Path

    @property
    def tp(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Bounds of the partitions of one cluster, before its bytes are copied. `starts` and `highs`
    were asked from leaders."""

    leaders: Mapping[TopicPartition, int]
    in_sync: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    highs: Mapping[TopicPartition, int] = field(default_factory=dict)
    left: Mapping[TopicPartition, HighWatermark] = field(default_factory=dict)
    """For partitions with several replicas whose leader did not answer."""


def ask(
    cluster: Cluster,
    replicas: Iterable[PartitionFolder],
    sampled: Mapping[TopicPartition, Watermark],
) -> Known:
    """The bounds that can be known now. `sampled` is the last watermark seen of each partition."""
    folders: dict[TopicPartition, list[PartitionFolder]] = defaultdict(list)
    for replica in replicas:
        folders[replica.tp].append(replica)
    leaders, in_sync = _described(cluster)
    led = [tp for tp in folders if tp in leaders]
    admin = AdminClient(quiet(cluster.bootstrap))
    highs = answered_bounds(admin, led, "high", within=_ASK_SECONDS)
    starts = answered_bounds(admin, [tp for tp in led if tp in highs], "start", within=_ASK_SECONDS)
    for tp, found in folders.items():
        if tp not in highs:
            leaders[tp] = _last_leader(found, sampled.get(tp))
    left = {
        tp: _left(found, sampled.get(tp))
        for tp, found in folders.items()
        if tp not in highs and len(found) > 1
    }
    return Known(leaders=leaders, in_sync=in_sync, starts=starts, highs=highs, left=left)


def bounds_of(replica: PartitionFolder, copied: Path, known: Known) -> Bounds:
    """The bounds of a replica whose segments are in `copied`."""
    tp, broker = replica.tp, replica.broker
    leads = known.leaders.get(tp) == broker.id
    high, source = _high_watermark(replica, copied, known, leads=leads)
    notes = checkpoints_in(broker.log_dir)
    asked = leads and tp in known.starts
    compacted = cleaned_to(notes, tp, copied)
    return Bounds(
        cluster=broker.cluster,
        broker=broker.id,
        topic=replica.topic,
        partition=replica.partition,
        leader=leads,
        alive=broker.state != "stopped",
        log_start=max(
            first_segment(copied),
            notes[LOG_STARTS].offsets.get(tp, 0),
            known.starts[tp] if asked else 0,
        ),
        high_watermark=high,
        high_watermark_from=source,
        compacted=compacted,
        thinned=_thinned(copied),
        unfinished=_unfinished(copied, high),
        unreadable=unreadable(
            notes,
            tp,
            needed={
                HIGH_WATERMARKS: source == "checkpoint",
                LOG_STARTS: not asked,
                CLEANED: compacted > 0,
            },
        ),
    )


def _high_watermark(
    replica: PartitionFolder, copied: Path, known: Known, *, leads: bool
) -> HighWatermark:
    """A replica outside the ISR owes nothing past its own end; one inside it holds all below the
    high watermark."""
    tp = replica.tp
    if tp in known.highs:
        high = known.highs[tp]
        behind = replica.broker.id not in known.in_sync.get(tp, frozenset())
        return (min(high, log_end(copied)) if behind else high), "sampled"
    if tp in known.left:
        high, source = known.left[tp]
        return (high if leads else min(high, log_end(copied))), source
    return log_end(copied), "recomputed"


def first_segment(folder: Path) -> int:
    """The offset for which the first segment of a partition folder is named; 0 if there is none."""
    named = (segments.offset_in(path.name) for path in folder.glob("*.log"))
    return min((at for at in named if at >= 0), default=0)


def log_end(folder: Path) -> int:
    """The offset after the last complete batch of a partition folder; 0 for one without
    segments."""
    return segments.log_end(sorted(folder.glob("*.log")))[0]


def _thinned(folder: Path) -> int:
    """Where the last segment ends that has a batch with fewer records than offsets; 0 where none
    has. No cleaner is ever in the active segment, the last one.
    """
    paths = sorted(folder.glob("*.log"))
    if len(paths) < 2:
        return 0
    # not above: numba takes a second to import, and most copies have one segment
    from linkflap.harness.log import batches

    for path, following in reversed([*pairwise(paths)]):
        found = batches.scan([path]).headers
        if (found.crc_ok & (found.count <= found.last_offset - found.base_offset)).any():
            return max(segments.offset_in(following.name), 0)
    return 0


def _unfinished(folder: Path, high_watermark: int) -> int:
    """Bytes of a batch at the end of a copy that has only the beginning of the batch; 0 where
    something below the high watermark is missing, which is no batch in the making."""
    paths = sorted(folder.glob("*.log"))
    if not paths:
        return 0
    last, damage = segments.map_segment(paths[-1])
    damage += segments.walk(last)[1]
    torn = [d.kind for d in damage] == ["torn-tail"] and log_end(folder) >= high_watermark
    return len(last.data) - damage[0].position if torn else 0


def _described(
    cluster: Cluster,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, frozenset[int]]]:
    """Leaders and in-sync replicas as the cluster reports them; empty when it does not answer."""
    if not is_running(cluster):
        return {}, {}
    try:
        topics = AdminClient(quiet(cluster.bootstrap)).list_topics(timeout=_ASK_SECONDS).topics
    except KafkaException:
        return {}, {}
    partitions = {
        (name, number): p
        for name, topic in topics.items()
        for number, p in topic.partitions.items()
    }
    leaders = {tp: p.leader for tp, p in partitions.items() if p.leader >= 0}
    return leaders, {tp: frozenset(p.isrs) for tp, p in partitions.items()}


def _last_leader(replicas: list[PartitionFolder], sampled: Watermark | None) -> int:
    if len(replicas) == 1:
        return replicas[0].broker.id
    if sampled is not None and sampled.leader >= 0:
        return sampled.leader
    if replicas[0].topic == METADATA:
        return max(_quorum(replica) for replica in replicas)[1]
    return max(
        replicas, key=lambda replica: (_newest_epoch(replica), log_end(replica.folder))
    ).broker.id


class _QuorumState(msgspec.Struct):
    leaderEpoch: int = -1
    leaderId: int = -1


def _quorum(replica: PartitionFolder) -> tuple[int, int]:
    """Leader epoch and leader of the metadata quorum, as this node last wrote it down (KRaft's
    quorum-state)."""
    try:
        content = untrusted_files.content(replica.folder / "quorum-state", most=_LARGEST_NOTES)
        state = untrusted_files.decoded(content, _QuorumState)
    except (OSError, msgspec.DecodeError):
        return -1, -1
    return state.leaderEpoch, state.leaderId


def _newest_epoch(replica: PartitionFolder) -> int:
    return max(epochs_in(replica.folder), default=-1)


def _left(replicas: list[PartitionFolder], sampled: Watermark | None) -> HighWatermark:
    """The greatest lower bound of the high watermark that samples and checkpoint files give."""
    if replicas[0].topic == METADATA:
        return min(log_end(replica.folder) for replica in replicas), "checkpoint"
    checkpoint = max(map(_noted, replicas))
    if sampled is not None and sampled.high_watermark >= checkpoint:
        return sampled.high_watermark, "sampled"
    return checkpoint, "checkpoint"


def _noted(replica: PartitionFolder) -> int:
    """The high watermark in the broker's checkpoint file. 0 where the file is older than the
    partition: until it is written again (every 5 s) it may name a deleted topic of that name."""
    path = replica.broker.log_dir / HIGH_WATERMARKS
    try:
        if path.stat().st_mtime_ns < (replica.folder / "partition.metadata").stat().st_mtime_ns:
            return 0
    except OSError:
        pass  # there is no such file, or it is gone by now: what is there counts
    return _checkpoint(path).offsets.get(replica.tp, 0)


def epochs_in(folder: Path) -> dict[int, int]:
    """The leader epochs of a partition folder's log, by its broker's checkpoint file, and the
    offset at which each begins."""
    try:
        text = untrusted_files.text(folder / "leader-epoch-checkpoint", most=_LARGEST_NOTES)
    except OSError:
        return {}
    rows = [line.split() for line in text.splitlines()[2:]]
    return {int(row[0]): int(row[1]) for row in rows if len(row) == 2 and _numbers(*row)}


CHECKPOINTS: Final = (
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "recovery-point-offset-checkpoint",
)
"""The files in which a broker notes offsets of its partitions."""
HIGH_WATERMARKS, LOG_STARTS, CLEANED, _ = CHECKPOINTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """An offset checkpoint file: version, count, then `topic partition offset` in each line.
    `wrong`: what of it cannot be read, empty if all can."""

    offsets: Mapping[TopicPartition, int]
    wrong: str = ""


def checkpoints_in(log_dir: Path) -> Mapping[str, Checkpoint]:
    """By name, the offset checkpoint files of a broker's log directory."""
    return {name: _checkpoint(log_dir / name) for name in CHECKPOINTS}


def _checkpoint(path: Path) -> Checkpoint:
    """A file that is not there, or is empty, notes nothing; Kafka's `CheckpointFile` refuses any
    other that is not of its format."""
    try:
        # Java's line ends, of which splitlines() has more.
        content = StringIO(untrusted_files.text(path, most=_LARGEST_NOTES), newline=None)
        lines = [line.removesuffix("\n") for line in content]
    except FileNotFoundError:
        return Checkpoint(offsets={})
    except OSError as error:
        return Checkpoint(offsets={}, wrong=f"it {error.strerror}")
    offsets: dict[TopicPartition, int] = {}
    bad = 0 if not lines or lines[0] == "0" else 1
    for number, line in enumerate(lines[2:], start=3):
        row = line.split()
        if len(row) == 3 and _numbers(row[1], row[2]):
            offsets[row[0], int(row[1])] = int(row[2])
        else:
            bad = bad or number
    counted = len(lines) < 2 or lines[1] == str(len(lines) - 2)
    wrong = f"line {bad} is malformed" if bad else ""
    if not (bad or counted):
        wrong = f"it has {max(len(lines) - 2, 0)} lines of offsets, and does not say so in line 2"
    return Checkpoint(offsets=offsets, wrong=wrong)


def unreadable(
    notes: Mapping[str, Checkpoint], tp: TopicPartition, *, needed: Mapping[str, bool]
) -> tuple[tuple[str, bool], ...]:
    """A broker's checkpoint files that cannot be read, each with whether that matters for a
    partition: the file is `needed`, and may have had a line about the partition."""
    return tuple(
        (
            f"{name} cannot be read: {each.wrong}",
            needed.get(name, False) and tp not in each.offsets,
        )
        for name, each in notes.items()
        if each.wrong
    )


def cleaned_to(notes: Mapping[str, Checkpoint], tp: TopicPartition, folder: Path) -> int:
    """The offset below which a cleaner may have removed records. Where its checkpoint cannot be
    read and offsets are missing, that is the last segment, in which no cleaner ever is."""
    known, paths = notes[CLEANED].offsets.get(tp), sorted(folder.glob("*.log"))
    if known is not None or not notes[CLEANED].wrong or len(paths) < 2:
        return known or 0
    from linkflap.harness.log import batches

    found, end = batches.scan(paths[:-1]).headers, max(segments.offset_in(paths[-1].name), 0)
    held = int(found.count[found.crc_ok].sum())
    return end if held < end - max(segments.offset_in(paths[0].name), 0) else 0


def _numbers(*texts: str) -> bool:
    """Whether each is a number that an offset can have."""
    return all(t.isdecimal() and len(t) <= _DIGITS and int(t) <= LARGEST for t in texts)
