"""A reversal by the journals of both shadows: what the one promoted, and where the one that takes
it over truncated logs."""

from __future__ import annotations

from collections.abc import Iterator

from linkflap.harness.mirrors.shadow import settings
from linkflap.harness.mirrors.shadow.journal import Notes
from linkflap.harness.model.events import Truncation
from linkflap.harness.model.topology import is_recreated


def taken_topics(notes: Notes, *, but: str) -> dict[str, settings.TakenTopic]:
    """What a mirror promoted, as the mirror that reverses it finds it: the source of this one is
    its destination.

    `but`: the canary's topic, which nobody takes over. Nor does anybody those of the fault
    topic-recreated.
    """
    return {
        name: settings.TakenTopic(
            source_id=topic.destination_id,
            destination_id=topic.source_id,
            partitions={
                number: settings.TakenPartition(
                    end=max(0, note.kept), epochs=tuple(note.source_epochs)
                )
                for number, note in notes.partitions.get(name, {}).items()
            },
        )
        for name, topic in notes.topics.items()
        if topic.destination_id and name != but and not is_recreated(name)
    }


def truncations(notes: Notes, link: str, cluster: str) -> Iterator[Truncation]:
    """Where a takeover has truncated the destination's logs so far."""
    for topic, partitions in notes.partitions.items():
        for number, note in sorted(partitions.items()):
            if note.truncated_from >= 0:
                yield Truncation(
                    link=link,
                    cluster=cluster,
                    topic=topic,
                    partition=number,
                    offset=note.truncated_to,
                    end=note.truncated_from,
                )
