"""Parses the output of a mirror's commands: its lag, and the offsets that it promoted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire.offsets import Partition


class _Lag(msgspec.Struct, frozen=True):
    lag: Annotated[int, Meta(ge=0)]


class _Promoted(msgspec.Struct, frozen=True):
    promoted: Mapping[str, list[Annotated[int, Meta(ge=0)]]] = {}


def answer_of(printed: str) -> str:
    """The last line that is a JSON object; an empty object where there is none."""
    return next(
        (line for line in reversed(printed.splitlines()) if line.lstrip().startswith("{")), "{}"
    )


def lag(printed: str) -> int | None:
    """The lag that the command `lag` printed; None if it is unreadable."""
    try:
        return msgspec.json.decode(answer_of(printed), type=_Lag).lag
    except msgspec.DecodeError:
        return None


def promoted(printed: str, name: str) -> dict[TopicPartition, int]:
    """The promotion that a failover reported: (topic, partition) -> the first offset of the
    destination's own records. Empty if it reported none. Raises EnvironmentFailure if the report is
    malformed."""
    try:
        offsets_of = msgspec.json.decode(answer_of(printed), type=_Promoted).promoted
    except msgspec.DecodeError as error:
        raise EnvironmentFailure(
            f"the failover of mirror {name} printed a malformed promotion ({error}); see "
            "docs/own-mirror.md"
        ) from None
    return {
        (topic, number): offset
        for topic, offsets in offsets_of.items()
        for number, offset in enumerate(offsets)
    }


def refuse_impossible(
    name: str, promoted: Mapping[Partition, int], ends: Mapping[Partition, int]
) -> None:
    """Raises EnvironmentFailure if a report names a partition that the link does not mirror, or an
    offset beyond the log end."""
    for (topic, number), offset in promoted.items():
        report = f"{name} reports that it promoted {topic}-{number} at {offset}"
        if (topic, number) not in ends:
            raise EnvironmentFailure(f"{report}, but the link mirrors no such partition")
        if offset > ends[topic, number]:
            raise EnvironmentFailure(f"{report}, but the log ends at {ends[topic, number]}")
