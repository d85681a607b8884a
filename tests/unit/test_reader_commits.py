"""A reader whose cluster is dead, with librdkafka's consumer: no commit is pending when it is
closed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from linkflap.harness.model.scenario import WorkloadSpec
from linkflap.harness.model.wait import until
from linkflap.harness.workloads import context, readers


class Rows:
    """The rows that the reader writes."""

    def __init__(self) -> None:
        self.written: list[object] = []

    def polls(self, name: str) -> Rows:
        return self

    def write(self, row: object) -> None:
        self.written.append(row)


class Numbers:
    def next(self) -> int:
        return 1


@pytest.fixture
def refused() -> Iterator[str]:
    """An address without a listener, reserved for the block."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def test_a_dead_cluster_is_asked_for_no_commit(refused: str) -> None:
    spec = WorkloadSpec(kind="readers", home="A", options={"group": "followers"})
    beside: dict[str, Any] = {
        "clusters": {"A": refused},
        "links": {},
        "topics": {"A.t": 1},
        "writer": Rows(),
        "seed": 1,
        "numbers": Numbers(),
    }
    reader = readers.ReaderClient(context(spec, **beside), "readers-1", "A")

    def stepped() -> bool:
        reader.step()
        return reader._down

    until(stepped, within=60, what="librdkafka to notice that no broker answers")
    reader.positions["A.t", 0] = 5
    reader._committed_at = 0
    reader.step()
    assert reader._committed_at > 0, "a commit was due"
    assert not reader._committing, "and none is pending"
    reader.leave(clean=False)
