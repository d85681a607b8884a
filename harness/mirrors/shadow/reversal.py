"""A failback, from the journals of both shadows: the topics that the first one promoted, and the
offsets to which the second one truncated logs when it took them over."""

from __future__ import annotations

from collections.abc import Iterator

from linkflap.harness.mirrors.shadow import settings
from linkflap.harness.mirrors.shadow.journal import JournalNotes
from linkflap.harness.model.events import Truncation
from linkflap.harness.model.topology import is_recreated


def taken_topics(notes: JournalNotes, *, but: str) -> dict[str, settings.TakenTopic]:
    """The topics that a mirror promoted, as the mirror that reverses it needs them: that mirror's
    source is this one's destination.

    Leaves out the canary topic `but` and the topics of the fault topic-recreated, which no mirror
    takes over.
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


def truncations(notes: JournalNotes, link: str, cluster: str) -> Iterator[Truncation]:
    """The truncations of the destination's logs that a takeover has made so far."""
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
