"""Names of topics to mirror that another topic on the destination already has."""

from __future__ import annotations

from collections.abc import Collection

from linkflap.harness.mirrors.shadow.destination.picture import MetadataSnapshot, Topic
from linkflap.harness.mirrors.shadow.journal import TopicNote
from linkflap.harness.mirrors.shadow.settings import Config
from linkflap.harness.model.errors import InputError


def refuse_taken(
    source: MetadataSnapshot, here: MetadataSnapshot, config: Config, *, known: Collection[str] = ()
) -> None:
    """Raises InputError when a topic to mirror has the name of another topic on the destination;
    `known` names are allowed."""
    wanted = {name for name in source.topics if config.mirrors(name)}
    if taken := sorted((wanted & here.topics.keys()) - set(known)):
        raise InputError(
            f"{already_there(taken[0], config.link)}; remove it there, or mirror elsewhere"
        )


def already_there(name: str, link: str) -> str:
    return f"topic {name} exists on the destination of {link} already"


def is_elsewhere(note: TopicNote, there: Topic | None) -> bool:
    """Whether a topic that the mirror created is missing, or another topic has its name."""
    return bool(note.destination_id) and (there is None or str(there.id) != note.destination_id)
