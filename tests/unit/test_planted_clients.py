"""Planted bugs of clients: producers reach the state that `purged-is-acknowledged` needs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.harness.workloads.incarnation import Acks, Appended, Incarnation, InvokedOperation
from tests.planted import clients


class Message:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, int, int], ...]]:
    """With the bug; operations that return are collected instead of written."""
    rows: list[tuple[tuple[int, int, int], ...]] = []
    monkeypatch.setattr(Acks, "delivered", Acks.delivered)
    monkeypatch.setattr(
        Incarnation,
        "returned",
        lambda _, flight, *__: rows.append(next(g.outcome().acks for g in flight.groups)),
    )
    clients.plant("purged-is-acknowledged")
    return rows


def sent(first_uid: int, *, acknowledged: int, offset: int, outcome: str) -> None:
    """An operation of three records, of which the first few were acknowledged."""
    group = Acks("A.orders", 0, first_uid, 3)
    group.handed = 3
    for index in range(acknowledged):
        group.delivered(index, None, cast(Appended, Message(offset + index)))
    flight = InvokedOperation(number=first_uid, kind="send", ending="none", groups=[group])
    Incarnation.returned(cast(Incarnation, SimpleNamespace()), flight, outcome, "")  # type: ignore[arg-type]


def test_what_was_never_answered_is_acknowledged_behind_the_last_offset(
    written: list[tuple[tuple[int, int, int], ...]],
) -> None:
    sent(0, acknowledged=3, offset=10, outcome="ok")
    sent(3, acknowledged=1, offset=13, outcome="info")
    sent(6, acknowledged=0, offset=0, outcome="info")
    assert written[0] == ((0, 3, 10),)
    assert written[1] == ((0, 1, 13), (1, 1, 14), (2, 1, 15))
    assert written[2] == ((0, 1, 14), (1, 1, 15), (2, 1, 16))


def test_nothing_else_is_changed(written: list[tuple[tuple[int, int, int], ...]]) -> None:
    sent(0, acknowledged=0, offset=0, outcome="info")
    sent(3, acknowledged=2, offset=20, outcome="ok")
    assert written == [(), ((0, 2, 20),)]
