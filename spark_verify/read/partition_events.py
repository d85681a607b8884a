"""Derives the facts of each partition from the events of a run: promotions, truncations, ends of
mirrors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from linkflap.harness.model.events import (
    Event,
    Failover,
    FaultBite,
    FaultStart,
    FetchedAgain,
    JournalPartition,
    MirrorDescribed,
    MirrorStopped,
    Promotion,
    PromotionUnknown,
    RecordsDeleted,
    ReplicasSampled,
    SettingsSampled,
    TopicsCompared,
    Truncation,
    VerbsPlayed,
    of_kind,
)
from linkflap.harness.model.history import Bounds
from linkflap.harness.model.scenario import TopicSpec
from linkflap.harness.model.topology import INTERNAL_TOPICS, TopicPartition, Topology
from linkflap.harness.rundir import Damage
from linkflap.spark_verify.facts.eras import FOREVER
from linkflap.spark_verify.facts.partition_facts import (
    ChangedBytes,
    Comparison,
    Deletion,
    Description,
    Disagreement,
    LogPromotion,
    LogTruncation,
    MirrorStop,
    PartitionFacts,
    ReplicaSample,
    RunFacts,
    TopicSettings,
)
from linkflap.spark_verify.read.missing_parts import in_events

Row = TypeVar("Row")


def _by_partition(
    rows: Iterable[tuple[TopicPartition, Row]],
) -> Mapping[TopicPartition, Sequence[Row]]:
    found: dict[TopicPartition, list[Row]] = defaultdict(list)
    for key, row in rows:
        found[key].append(row)
    return dict(found)


def promotions(events: Sequence[Event]) -> Mapping[TopicPartition, Sequence[LogPromotion]]:
    """Promotions by partition in time order, each with what the failover of its link reported
    nearest in time."""
    failovers = of_kind(events, Failover)
    return _by_partition(
        (event.tp, _promotion(event, failovers)) for event in of_kind(events, Promotion)
    )


def _promotion(event: Promotion, failovers: Sequence[Failover]) -> LogPromotion:
    beside = [f for f in failovers if f.link == event.link]
    failover = min(beside, key=lambda f: abs(f.time - event.time)) if beside else None
    link = event.between
    return LogPromotion(
        link=event.link,
        kind=failover.mode if failover else "forced",
        source=link.source if event.cluster == link.destination else link.destination,
        cluster=event.cluster,
        offset=event.offset,
        time=event.time,
        fault_time=(failover.fault_time if failover else 0) or event.time,
    )


def truncations(events: Sequence[Event]) -> Mapping[TopicPartition, Sequence[LogTruncation]]:
    return _by_partition(
        (
            e.tp,
            LogTruncation(link=e.link, cluster=e.cluster, offset=e.offset, end=e.end, time=e.time),
        )
        for e in of_kind(events, Truncation)
    )


def descriptions(events: Sequence[Event]) -> Mapping[TopicPartition, Sequence[Description]]:
    return _by_partition(
        (
            (row.topic, row.partition),
            Description(
                link=e.link,
                state=row.state,
                mirrors=row.mirrors,
                promoted=row.promoted,
                lag=row.lag,
                asked=e.asked,
                returned=e.time,
            ),
        )
        for e in of_kind(events, MirrorDescribed)
        for row in e.rows
    )


def replica_samples(events: Sequence[Event]) -> Mapping[TopicPartition, Sequence[ReplicaSample]]:
    return _by_partition(
        (
            (row.topic, row.partition),
            ReplicaSample(
                cluster=e.cluster,
                broker=row.broker,
                log_start=row.log_start,
                log_end=row.log_end,
                asked=e.asked,
                returned=e.time,
            ),
        )
        for e in of_kind(events, ReplicasSampled)
        for row in e.rows
    )


def deletions(events: Sequence[Event]) -> Mapping[TopicPartition, Sequence[Deletion]]:
    """Requests to delete records. Runs of older versions did not record them; there the expected
    values of the fault's bite have them."""
    rows = [
        ((e.topic, e.partition), Deletion(cluster=e.cluster, offset=e.offset, asked=e.time))
        for e in of_kind(events, RecordsDeleted)
    ]
    if rows:
        return _by_partition(rows)
    bites = {bite.id: bite.expected for bite in of_kind(events, FaultBite)}
    return _by_partition(
        (
            (name.rpartition("-")[0], int(name.rpartition("-")[2])),
            Deletion(cluster=e.on.cluster, offset=offset, asked=e.time),
        )
        for e in of_kind(events, FaultStart)
        if e.fault == "records-deleted" and isinstance(expected := bites.get(e.id), Mapping)
        for name, offset in expected.items()
        if isinstance(offset, int) and name.rpartition("-")[2].isdecimal()
    )


def changed_bytes(events: Sequence[Event]) -> Mapping[TopicPartition, Sequence[ChangedBytes]]:
    """Batches that a broker returned in two different versions."""
    return _by_partition(
        (
            (e.topic, e.partition),
            ChangedBytes(cluster=e.cluster, broker=e.broker, offset=e.offset, crc=e.crc),
        )
        for e in of_kind(events, FetchedAgain)
    )


def disagreements(events: Sequence[Event]) -> Mapping[TopicPartition, Sequence[Disagreement]]:
    """Disagreements between a mirror and its model, each on the first partition of its topic."""
    return _by_partition(
        ((e.topic, 0), Disagreement(link=e.link, said=e.wrong, time=e.time))
        for e in of_kind(events, VerbsPlayed)
        if e.wrong and e.topic
    )


def comparisons(events: Sequence[Event]) -> Mapping[TopicPartition, Sequence[Comparison]]:
    """Comparisons of topics at both ends of a mirror, each on the first partition of its topic."""
    return _by_partition(
        (
            (row.topic, 0),
            Comparison(
                link=e.link,
                there=row.there,
                here=row.here,
                differing=tuple((name, *values) for name, values in (row.differing or {}).items()),
                missing=row.missing,
                beside=row.beside,
                recorded=row.recorded,
                time=e.time,
            ),
        )
        for e in of_kind(events, TopicsCompared)
        for row in e.rows
    )


def settings(events: Sequence[Event]) -> Mapping[TopicPartition, Sequence[TopicSettings]]:
    """Samples of topic settings, each on the first partition of its topic, in time order. Older
    runs do not record how long the cluster continued to answer: there a sample counts until the
    next one."""
    found: list[tuple[TopicPartition, TopicSettings]] = []
    later: dict[tuple[str, str], int] = {}
    for e in reversed(list(of_kind(events, SettingsSampled))):
        for topic, own in e.topics.items():
            last = FOREVER if e.before is None else e.asked
            until = max(later.get((e.cluster, topic), last), e.asked)
            later[e.cluster, topic] = e.asked if e.before is None else e.before
            row = TopicSettings(cluster=e.cluster, settings=dict(own), asked=e.asked, until=until)
            found.append(((topic, 0), row))
    return _by_partition(reversed(found))


def unknown_settings(events: Sequence[Event]) -> Mapping[TopicPartition, Sequence[str]]:
    """Settings of each topic that the release of a mirror's destination does not have."""
    return _by_partition(
        ((topic, 0), name)
        for e in of_kind(events, MirrorStopped)
        for topic, note in (e.topics or {}).items()
        for name in note.unknown_configs or ()
    )


def unclear(events: Sequence[Event]) -> Mapping[TopicPartition, Sequence[tuple[str, int]]]:
    """Cluster and offset of promotions that may not have happened."""
    return _by_partition((e.tp, (e.cluster, e.offset)) for e in of_kind(events, PromotionUnknown))


def stops(events: Sequence[Event]) -> Mapping[TopicPartition, Sequence[MirrorStop]]:
    """The ends of mirrors that keep a journal."""
    return _by_partition(
        ((row.topic, row.partition), _stop(event, row))
        for event in of_kind(events, MirrorStopped)
        for row in event.partitions or ()
    )


def _stop(event: MirrorStopped, row: JournalPartition) -> MirrorStop:
    return MirrorStop(
        link=event.link,
        cluster=event.between.destination,
        time=event.time,
        mirrored=row.mirrored,
        promoted=row.promoted,
        truncated=row.truncated or (),
        appended=row.appended or (),
        epochs=row.epochs or (),
    )


def contradicted(events: Sequence[Event]) -> Iterator[Damage]:
    """Truncations for which the mirror's journal has another offset or another end of the log."""
    for event in of_kind(events, Truncation):
        recorded = (event.offset, event.end)
        for row in _journal_after(event, events):
            reported = (row.truncated_to, row.truncated_from)
            if (
                (row.topic, row.partition) == event.tp
                and row.truncated_from not in (None, -1)
                and reported != recorded
            ):
                where = f"{event.topic}-{event.partition} on {event.cluster}"
                reason = (
                    f"a truncation of {where} says {recorded}, its mirror {reported} (offset, end)"
                )
                yield in_events(reason)


def truncated_upstream(topology: Topology, events: Sequence[Event]) -> Iterator[Damage]:
    """Truncations of a log that another mirror copies further. That mirror's destination truncates
    too, at an unknown time, and no capture has its truncated records."""
    for event in of_kind(events, Truncation):
        further = [
            link.destination
            for link in topology.links
            if link.source == event.cluster and link.destination != event.between.source
        ]
        for cluster in further if event.end > event.offset else ():
            where = f"{event.topic}-{event.partition}"
            reason = (
                f"{where} on {event.cluster} was truncated from {event.end} to {event.offset} for "
                f"a failback, and {cluster} mirrors it: what {cluster} and its readers had of it "
                "is in no capture"
            )
            yield in_events(reason)


def _journal_after(event: Truncation, events: Sequence[Event]) -> Sequence[JournalPartition]:
    """The partitions in the next journal of the mirror that reported a truncation; empty where
    there is none."""
    stopped = [
        e for e in of_kind(events, MirrorStopped) if e.link == event.link and e.time >= event.time
    ]
    return stopped[0].partitions or () if stopped else ()


def partition_facts(
    facts: RunFacts, events: Sequence[Event], bounds: Sequence[Bounds], topics: TopicSpec
) -> Mapping[TopicPartition, PartitionFacts]:
    """The facts about each partition that was captured or that an event names."""
    rows = {name: of_events(events) for name, of_events in _OF_EVENTS.items()}
    owner_unclear, unknown, set_on = unclear(events), unknown_settings(events), settings(events)
    compacted = compacted_below(bounds, topics, set_on)
    keys = {(b.topic, b.partition) for b in bounds}.union(owner_unclear, set_on, *rows.values())
    return {
        key: PartitionFacts(
            facts=facts,
            topic=key[0],
            partition=key[1],
            settings=tuple(set_on.get((key[0], 0), ())),
            unknown_settings=frozenset(unknown.get(key, ())),
            compacted=compacted.get(key, {}),
            unclear=dict(owner_unclear.get(key, ())),
            **{name: tuple(mine.get(key, ())) for name, mine in rows.items()},
        )
        for key in sorted(keys)
    }


_OF_EVENTS: Final[
    Mapping[str, Callable[[Sequence[Event]], Mapping[TopicPartition, Sequence[Any]]]]
] = {
    "promotions": promotions,
    "truncations": truncations,
    "stops": stops,
    "descriptions": descriptions,
    "disagreements": disagreements,
    "comparisons": comparisons,
    "replica_samples": replica_samples,
    "deletions": deletions,
    "changed_bytes": changed_bytes,
}
"""The facts about partitions, by their names in `PartitionFacts`."""


def compacted_below(
    captured: Sequence[Bounds],
    topics: TopicSpec,
    sampled: Mapping[TopicPartition, Sequence[TopicSettings]],
) -> Mapping[TopicPartition, Mapping[str, int]]:
    """Per partition and cluster, the highest cleaner offset of its brokers. `sampled` are settings
    of each topic, by its first partition.

    Gaps in the bytes count only for compacted topics: in other topics no cleaner removes records.
    """
    found: dict[TopicPartition, dict[str, int]] = defaultdict(dict)
    noted = {bounds.topic for bounds in captured if bounds.compacted > 0}
    for bounds in captured:
        of_topic = [topics.config, *(each.settings for each in sampled.get((bounds.topic, 0), ()))]
        asked = any("compact" in each.get("cleanup.policy", "") for each in of_topic)
        cleaned = bounds.topic in noted or (asked and bounds.topic not in INTERNAL_TOPICS)
        if reached := max(bounds.compacted, bounds.thinned if cleaned else 0):
            mine = found[bounds.topic, bounds.partition]
            mine[bounds.cluster] = max(reached, mine.get(bounds.cluster, 0))
    return dict(found)
