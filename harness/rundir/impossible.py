"""Finds rows that contradict themselves, though each number in them is legal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from linkflap.harness.model.history import Operation, Poll, SendGroup, Watermark


def _impossible_span(row: Poll | Watermark) -> str:
    """An answer from before its question: all times of a run are of one clock."""
    return (
        f"it was asked at {row.time} and answered at {row.returned}, before that"
        if row.returned < row.time
        else ""
    )


def _impossible_operation(row: Operation) -> str:
    """What it says of records that it did not send."""
    for group in row.sends:
        for index, count, _ in group.acks:
            if index + count > group.count:
                return _beyond(group, index, count, "acknowledged")
        for index, count in group.refused:
            if index + count > group.count:
                return _beyond(group, index, count, "refused")
        ended = sum(count for _, count, _ in group.acks) + sum(count for _, count in group.refused)
        if ended > group.count:
            return (
                f"{ended} records were acknowledged or refused, of {group.count} sent to "
                f"{group.topic}-{group.partition}"
            )
    return ""


def _beyond(group: SendGroup, index: int, count: int, what: str) -> str:
    return (
        f"records {index + 1} to {index + count} were {what}, of {group.count} sent to "
        f"{group.topic}-{group.partition}"
    )


IMPOSSIBLE: Final[Mapping[type, Callable[[Any], str]]] = {
    Operation: _impossible_operation,
    Poll: _impossible_span,
    Watermark: _impossible_span,
}
"""By kind of row, what in it cannot be though each number of it could: empty, or the reason."""
