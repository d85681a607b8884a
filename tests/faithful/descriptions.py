"""Descriptions: what a mirror reports about itself while it is sampled. The same story, with a
mirror that describes itself."""

from __future__ import annotations

from dataclasses import replace

from linkflap.harness.guarantees import declared
from linkflap.harness.model.history import EventRow
from tests.faithful.made import Made

LINK = ("A", "B")


def described(made: Made) -> Made:
    """Adds an event for each sample of B, until B is promoted: how far B is behind A's last
    sample."""
    source, destination = LINK
    over = min((e.time for e in made.events if e.kind == "promotion"), default=2**62)
    heights: dict[tuple[str, int], int] = {}
    for mark in sorted(made.marks, key=lambda m: m.returned):
        if mark.topic.startswith("__") or mark.high_watermark < 0:
            continue
        heights[mark.topic, mark.partition] = heights.get((mark.topic, mark.partition), 0)
        if mark.cluster == source:
            heights[mark.topic, mark.partition] = mark.high_watermark
        elif mark.cluster == destination:
            lag = max(0, heights[mark.topic, mark.partition] - mark.high_watermark)
            made.events.append(
                described_at(
                    mark.topic,
                    mark.partition,
                    mark.time,
                    mark.returned,
                    lag if mark.returned < over else -1,
                )
            )
    made.events.sort(key=lambda event: event.time)
    mirror = declared(made.scenario.mirror)
    made.scenario = replace(
        made.scenario,
        mirror=replace(mirror, declared=replace(mirror.guarantee, describes_itself=True)),
    )
    return made


def described_at(
    topic: str, partition: int, asked: int, returned: int, lag: int, *, unknown: bool = False
) -> EventRow:
    """The mirror's report about one partition; a lag of -1 means that it has stopped, or that its
    state is unknown."""
    row = {
        "topic": topic,
        "partition": partition,
        "state": "MIRRORING" if lag >= 0 else "UNKNOWN" if unknown else "STOPPED",
        "mirrors": lag >= 0,
        "promoted": lag < 0 and not unknown,
        "lag": lag,
    }
    return EventRow(
        time=returned,
        kind="mirror-described",
        subject="->".join(LINK),
        data={"asked": asked, "rows": [row]},
    )
