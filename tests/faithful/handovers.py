"""Handovers: the end of a mirror. Its destination is promoted, and the cluster that was given up
then follows it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.faithful.clusters import Cluster, Spot
from tests.faithful.links import Link, Shadow
from tests.faithful.notes import Clock, Notes


def hand_over(
    link: Link,
    notes: Notes,
    clock: Clock,
    *,
    kind: str,
    fault_time: int,
    behind: Sequence[Link] = (),
) -> dict[Spot, int]:
    """Ends the mirror and its open transactions, and makes the destination writable. Returns the
    promotion offsets."""
    destination, name = link.destination, f"{link.source.name}->{link.destination.name}"
    opened = (
        sum(len(log.open) for log in destination.logs.values()) if isinstance(link, Shadow) else 0
    )
    offsets = stop(link, notes, clock, drained=kind == "planned", behind=behind)
    for (topic, partition), offset in offsets.items():
        notes.event(
            clock.tick(1, 1),
            "promotion",
            name,
            cluster=destination.name,
            topic=topic,
            partition=partition,
            offset=offset,
        )
    notes.event(
        clock.tick(1, 1),
        "failover",
        name,
        kind=kind,
        fault_time=fault_time,
        open_transactions=opened,
    )
    return offsets


def stop(
    link: Link, notes: Notes, clock: Clock, *, drained: bool, behind: Sequence[Link] = ()
) -> dict[Spot, int]:
    """Ends a mirror, and records its journal. Returns where clients of the destination may
    begin."""
    name, spots = f"{link.source.name}->{link.destination.name}", sorted(link.destination.logs)
    if isinstance(link, Shadow):
        ends = {spot: link.end(spot, clock.ms, behind) for spot in spots}
        notes.event(
            clock.tick(),
            "mirror-stopped",
            name,
            drained=drained,
            partitions=[row for _, row in ends.values()],
        )
        return {spot: kept for spot, (kept, _) in ends.items()}
    offsets = {spot: link.destination.logs[spot].end for spot in spots}
    for log in link.destination.logs.values():
        log.epoch += 1
    notes.event(clock.tick(), "mirror-stopped", name, drained=drained)
    return offsets


def turn_back(
    old: Cluster, new: Cluster, parted: dict[Spot, int], notes: Notes, clock: Clock
) -> None:
    """The cluster that was given up truncates what the new owner never had, and follows it."""
    for spot, log in sorted(old.logs.items()):
        end, truncated_to = log.end, parted[spot]
        log.truncate(truncated_to)
        # A truncation is recorded for every log that is taken over, even if it had no tail.
        data = {
            "cluster": old.name,
            "topic": spot[0],
            "partition": spot[1],
            "offset": truncated_to,
            "end": end,
        }
        notes.event(clock.tick(1, 2), "truncation", f"{new.name}->{old.name}", **data)
        log.epoch = max(log.epoch, new.logs[spot].epoch) + 1
    notes.event(
        clock.tick(),
        "mirror-started",
        f"{new.name}->{old.name}",
        mirror="shadow",
        options={},
        seconds=0.1,
    )
