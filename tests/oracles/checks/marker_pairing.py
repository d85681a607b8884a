"""Every transaction ends in one marker of its epoch or a later one, and no batch of a lower epoch
follows a marker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linkflap.spark_verify.facts.view import NO_EPOCH
from tests.oracles.plain import Anomaly, Plain, PlainLog, pair, transactions
from tests.oracles.sections import resets_before
from tests.oracles.story import PlainGeneration, Story, kept

DESPITE_TORN = frozenset(
    {"marker-epoch", "stale-data", "coordinator-epoch-regression", "impossible-header"}
)


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            log = story.log(generation)
            if log is not None:
                suspects = [
                    *_epochs(log),
                    *_went_on(plain, generation, log),
                    *_stale(generation, log),
                    *_left_open(log),
                ]
                suspects += [
                    *_not_transactional(generation, log),
                    *_coordinators(plain, generation, log),
                ]
                suspects += [
                    ("impossible-header", b.base_offset)
                    for b in log.batches
                    if b.crc_ok
                    and (
                        _impossible(b)
                        or _another_time(log, b)
                        or _another_number(plain, b)
                        or (generation.native(b.base_offset) and _not_ours(plain, b))
                        or (
                            (generation.native(b.base_offset) or not plain.keeps)
                            and _another_type(plain, log, b)
                        )
                    )
                ]
                suspects += _stuck(log) if generation.last else []
                found += [
                    plain.anomaly(kind, generation.cluster, offset)
                    for kind, offset in suspects
                    if kept(generation, offset)
                ]
        found += _split(plain, story) if plain.keeps else []
    return found


def _impossible(batch: Any) -> bool:
    """Whether the batch identifies its producer only in part, or is a marker with a sequence, or of
    several records, offsets or times (MemoryRecords.writeEndTransactionalMarker: NO_SEQUENCE, one
    record, whose time is both timestamps of the batch). LogValidator sets the maximum of a topic
    with LogAppendTime, and the cleaner writes its delete horizon into the base (KIP-534)."""
    if batch.reset:
        return False
    if batch.ends:
        named = batch.producer_id != -1 and batch.producer_epoch >= 0
        another = batch.log_append_time or batch.attributes & 0x40
        if batch.base_timestamp != batch.max_timestamp and not another:
            return True
        if (batch.count, batch.last_offset) != (1, batch.base_offset):
            return True
        return not (named and batch.transactional and batch.base_sequence == -1)
    return bool(batch.transactional if batch.producer_id == -1 else batch.producer_epoch < 0)


def _another_time(log: PlainLog, batch: Any) -> bool:
    """Message format v2: maxTimestamp is the maximum of the timestamps of the records of a batch;
    LogValidator and MemoryRecordsBuilder set it."""
    times = [r.timestamp for r in log.records if r.batch is batch]
    old = batch.leader_epoch == NO_EPOCH
    return (
        len(times) == batch.count > 0 and not old and max(times, default=-1) != batch.max_timestamp
    )


def _another_number(plain: Plain, batch: Any) -> bool:
    """LogValidator.validateBatch: lastOffset - baseOffset + 1 of a produced batch is its number of
    records. The cleaner keeps both offsets of a batch that it thins out, and alone sets the bit of
    the delete horizon (KIP-534)."""
    if not plain.view.recorded or plain.view.internal:
        return False
    if batch.base_offset < max(plain.compacted.values(), default=0):
        return False
    if batch.attributes & 0x40:
        return True
    several = batch.count != batch.last_offset - batch.base_offset + 1
    return bool(batch.data and batch.leader_epoch != NO_EPOCH and several)


def _ours_alone(plain: Plain) -> bool:
    """Whether nobody but linkflap wrote and changed the topic: no users' code, no new topic."""
    facts = plain.view.partition_facts.facts
    users = facts.programs or any(s.client.startswith("own-producer") for s in plain.sends)
    anew = any(w.fault.startswith("topic-") for w in plain.view.windows)
    return bool(plain.view.recorded and plain.sends and not users and not anew)


def _not_ours(plain: Plain, batch: Any) -> bool:
    """Message format v2: bits 7 to 15 of the attributes are unused. Clients of linkflap have no
    sequence without a producer id."""
    if not _ours_alone(plain) or plain.view.topology.attached or not (batch.data or batch.ends):
        return False
    return bool(
        batch.attributes & ~0x7F
        or (batch.data and batch.producer_id == -1 and batch.base_sequence > 0)
    )


def _another_type(plain: Plain, log: PlainLog, batch: Any) -> bool:
    """Kafka documentation, message.timestamp.type: CreateTime or LogAppendTime, by the topic's
    setting, else the brokers'. Nobody but linkflap changed it."""
    facts = plain.view.partition_facts.facts
    samples = [s.settings for s in plain.view.settings if s.cluster == log.cluster]
    if not batch.data or batch.leader_epoch == NO_EPOCH:
        return False
    if log.cluster != plain.home and not samples:
        return False
    if not _ours_alone(plain):
        return False
    (writer,) = (c for c in plain.view.topology.clusters if c.name == log.cluster)
    default = writer.config.get("log.message.timestamp.type", "CreateTime")
    ways = [facts.topic_config, *samples, *([] if log.cluster == plain.home else [{}])]
    appended = {w.get("message.timestamp.type", default) == "LogAppendTime" for w in ways}
    return batch.log_append_time not in appended


def _left_open(log: PlainLog) -> list[tuple[str, int]]:
    resets = [b.row for b in log.batches if b.reset and b.crc_ok]
    unended = [t for t in transactions(log) if t.marker is None]
    return [
        ("transaction-left-open", t.first)
        for t in unended
        if any(t.batches[-1].row < row for row in resets)
    ]


def _stuck(log: PlainLog) -> list[tuple[str, int]]:
    """The last stable offset that the leader reported, if the transactions from there on had ended
    by then."""
    high = min(log.stable_above, log.end)
    unended = [t for t in transactions(log) if t.marker is None or t.marker.base_offset >= high]
    stable = min([high, *(t.first for t in unended)])
    return (
        [("stable-offset-stuck", log.last_stable)]
        if not log.torn and 0 <= log.last_stable < stable
        else []
    )


def _producers(generation: PlainGeneration, log: PlainLog) -> list[list[Any]]:
    """Undamaged data and markers of each owner's producer id, between two resets."""
    found: dict[tuple[int, str, int], list[Any]] = {}
    for batch in log.batches:
        if batch.crc_ok and not batch.reset and batch.producer_id != -1:
            key = batch.producer_id, generation.owner(batch.base_offset), resets_before(log, batch)
            found.setdefault(key, []).append(batch)
    return list(found.values())


def _not_transactional(generation: PlainGeneration, log: PlainLog) -> list[tuple[str, int]]:
    found = []
    for mine in _producers(generation, log):
        plain_ones = [b for b in mine if b.data and not b.transactional]
        others = [b for b in mine if b.data and b.transactional]
        fewer = min(plain_ones, others, key=len)
        wrong = plain_ones if any(b.ends for b in mine) else fewer
        found += [("not-transactional", b.base_offset) for b in wrong]
    return found


def _coordinators(
    plain: Plain, generation: PlainGeneration, log: PlainLog
) -> list[tuple[str, int]]:
    found = []
    for mine in _producers(generation, log):
        ends = [b for b in mine if b.ends]
        for index, marker in enumerate(ends):
            before = ends[:index]
            promoted = len(generation.eras()) > 1 and generation.native(marker.base_offset)
            if plain.view.recorded:
                of_a_mirror = any(
                    marker.base_offset == at for stop in plain.view.stops for at, _ in stop.appended
                )
            else:
                raised = bool(before) and marker.leader_epoch > before[-1].leader_epoch
                of_a_mirror = not promoted and marker is mine[-1] and marker.control == 0 and raised
            if of_a_mirror:
                continue
            if (
                0
                <= marker.coordinator_epoch
                < max([b.coordinator_epoch for b in before], default=-1)
            ):
                found.append(("coordinator-epoch-regression", marker.base_offset))
    return found


def _split(plain: Plain, story: Story) -> list[Anomaly]:
    found = []
    for mirrored_range in story.mirrored_ranges:
        mine = story.generations.get(mirrored_range.destination, [])
        theirs, ours = story.source_log(mirrored_range), story.log(mine[-1]) if mine else None
        if theirs is None or ours is None:
            continue
        for log in (theirs, ours):
            pair(log, untracked=True)
        for one in transactions(ours):
            other = next((t for t in transactions(theirs) if t.first == one.first), None)
            if (
                other is None
                or None in (one.marker, other.marker)
                or not mirrored_range.start <= one.first < mirrored_range.end
            ):
                continue
            alike = _mapped(plain.options.get("producer_ids"), other.pid, one.pid) and min(
                one.epochs
            ) == min(other.epochs)
            if alike and one.marker.control != other.marker.control:
                found.append(
                    plain.anomaly(
                        "outcome-split", mirrored_range.destination, one.marker.base_offset
                    )
                )
        for log in (theirs, ours):
            pair(log)
    return found


def _mapped(how: Any, source: int, destination: int) -> bool:
    if how == "region":
        return destination < -1 and destination % 2**31 == source % 2**31
    return bool(
        destination
        == {"negate": -(source + 2), "complement": 2**63 - 2 - source}.get(str(how), source)
    )


def _epochs(log: PlainLog) -> list[tuple[str, int]]:
    found = []
    for each in transactions(log):
        if each.marker is not None and each.marker.producer_epoch < max(each.epochs):
            found.append(("marker-epoch", each.marker.base_offset))
        if min(each.epochs) != max(each.epochs):
            found.append(("marker-missing", each.first))
    return found


def next_operation(log: PlainLog, record: Any) -> Any:
    """The first record of its producer's next operation, if no marker of the producer is between
    the two."""
    if record.state in ("plain", "control") or record.operation < 0:
        return None
    index = next(i for i, r in enumerate(log.records) if r is record)
    for after in log.records[index + 1 :]:
        mine = (
            after.batch.inside
            and after.batch.producer_id == record.batch.producer_id
            and after.operation >= 0
        )
        if mine and after.batch.marker is not record.batch.marker:
            return None
        if mine and after.operation != record.operation:
            return after
    return None


def _went_on(plain: Plain, generation: PlainGeneration, log: PlainLog) -> list[tuple[str, int]]:
    """For each record at the start of the next operation: where the previous, unended operation
    began."""
    first: dict[int, Any] = {}
    for record in log.records:
        after = next_operation(log, record)
        if after is None or record.batch.producer_epoch != after.batch.producer_epoch:
            continue
        here = [
            (s, e)
            for s, e, _, source in generation.eras()
            if s <= record.offset < e and (not source or plain.keeps)
        ]
        if any(s <= record.offset and after.offset < e for s, e in here):
            first.setdefault(id(after), record)
    return [("marker-missing", record.offset) for record in first.values()]


def _stale(generation: PlainGeneration, log: PlainLog) -> list[tuple[str, int]]:
    found = []
    for index, batch in enumerate(log.batches):
        if not batch.data or batch.producer_id < 0 or not batch.crc_ok:
            continue
        before = [
            b
            for b in log.batches[:index]
            if b.ends and b.crc_ok and b.producer_id == batch.producer_id
        ]
        if not before or generation.owner(before[-1].base_offset) != generation.owner(
            batch.base_offset
        ):
            continue
        reset = any(b.reset for b in log.batches[before[-1].row : index])
        if not reset and batch.producer_epoch < before[-1].producer_epoch:
            found.append(("stale-data", batch.base_offset))
    return found
