"""The base of every event: its time, its kind, and its subject."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from linkflap.harness.model.clock import now
from linkflap.harness.model.history import EventRow, Time
from linkflap.harness.model.topology import LinkSpec

_TAG: Final = "event"
_SUBJECT: Final = "subject"
_WORDS: Final = re.compile(r"(?<!^)(?=[A-Z])")


def _kind(name: str) -> str:
    """The kind of a class of events, as it is on disk: FaultStart is fault-start."""
    return _WORDS.sub("-", name).lower()


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field=_TAG, tag=_kind):
    """Something that linkflap did or noticed. Each class is one kind. A field whose default is None
    is not written while it is None.

    `time` is in nanoseconds of `harness.model.clock.now`; 0 until the recorder sets it. One field
    of each class names the subject of the event; on disk the other fields are the data
    (`EventRow`).
    """

    time: Time = 0

    @property
    def kind(self) -> str:
        """The kind, as it is on disk."""
        return str(type(self).__struct_config__.tag)

    @property
    def subject(self) -> str:
        """What it is about: a link, a target, a cluster, …"""
        return str(
            getattr(self, self.__struct_fields__[self.__struct_encode_fields__.index(_SUBJECT)])
        )

    @property
    def row(self) -> EventRow:
        """As it is on disk."""
        fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        for name, default in zip(
            reversed(self.__struct_encode_fields__),
            reversed(self.__struct_defaults__),
            strict=False,
        ):
            if default is None and fields[name] is None:
                del fields[name]
        del fields[_TAG]
        return EventRow(
            time=fields.pop("time"), kind=self.kind, subject=fields.pop(_SUBJECT), data=fields
        )


Kind = TypeVar("Kind", bound=Event)


def stamped(event: Kind) -> Kind:
    """With the time of now, where it has none."""
    return event if event.time else msgspec.structs.replace(event, time=now())


def of_kind(events: Iterable[Event], kind: type[Kind]) -> list[Kind]:
    """The events of one kind, in the same order."""
    return [event for event in events if isinstance(event, kind)]


class OfLink(Event, frozen=True, kw_only=True):
    """About a link (`A->B`)."""

    link: str = msgspec.field(name=_SUBJECT)

    def __post_init__(self) -> None:
        LinkSpec.parse(self.link)

    @property
    def between(self) -> LinkSpec:
        """The link's two ends."""
        return LinkSpec.parse(self.link)


class OfCluster(Event, frozen=True, kw_only=True):
    """About a cluster."""

    cluster: str = msgspec.field(name=_SUBJECT)
