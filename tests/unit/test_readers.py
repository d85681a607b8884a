"""Readers: what they commit, how they are drained, and how many records they got."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from linkflap.harness.model.scenario import WorkloadSpec
from linkflap.harness.model.wait import until
from linkflap.harness.workloads import context
from linkflap.harness.workloads.clients import WorkloadClients
from linkflap.harness.workloads.crew import Readers
from linkflap.harness.workloads.members import Member
from linkflap.harness.workloads.protocol import ClientState
from linkflap.harness.workloads.readers import ReaderClient


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
    reader = ReaderClient(context(spec, **beside), "readers-1", "A")

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


ENDS = {"A": {("A.t", 0): 5, ("A.t", 1): 7}}


class Process:
    """A process of one reader, as the harness has it: it answers questions, and is killed `deaths`
    times when it is asked to write that it is drained, before or after it has. Its reader holds
    `partitions`; after a death nothing at first, then what `then` says.
    """

    def __init__(
        self, name: str, *held: dict[int, int], deaths: int = 0, written: bool = False
    ) -> None:
        self.members = [Member(name=name, cluster="A")]
        self.held, self.deaths, self.written = list(held), deaths, written
        self.rows: list[list[int]] = []
        self.errors: list[str] = []
        self._asked, self._silent = 0, False
        self._drained: dict[tuple[str, int], int] = {}

    def look(self, **_: object) -> int:
        (member,) = self.members
        self._asked += 1
        if self._silent:
            self._silent = False
            return 0
        positions = tuple(("A.t", partition, at) for partition, at in self.held[0].items())
        drained = tuple((topic, partition, at) for (topic, partition), at in self._drained.items())
        state = ClientState(name=member.name, cluster="A", positions=positions, drained=drained)
        member.take_answer(state, self._asked)
        if len(self.held) > 1 and not self.deaths:
            del self.held[0]
        return 0

    def drained(self, member: Member, *, reached: Sequence[tuple[str, int]], missing: str) -> None:
        member.commanded = self._asked
        self.errors += [missing] if missing else []
        if self.deaths and not self.written:
            return self._die(member)
        kept = [tp for tp in reached if tp[1] in self.held[0]]
        self.rows += [[partition for _, partition in kept]] if kept else []
        self._drained.update({tp: self.held[0][tp[1]] for tp in kept})
        return self._die(member) if self.deaths else None

    def _die(self, member: Member) -> None:
        self.deaths -= 1
        self._asked += 1
        self._silent, self._drained = True, {}
        member.died(self._asked)


def readers(*processes: Process, group: str = "") -> Readers:
    pattern = SimpleNamespace(follows=False, group=group, isolation="read_committed")
    return Readers(WorkloadSpec(kind="readers", home="A"), processes, {"A.t": 2}, pattern)  # type: ignore[arg-type]


def test_everybody_writes_once_that_it_is_drained() -> None:
    one, other = (
        Process("readers-1", {0: 1, 1: 7}, {0: 5, 1: 7}),
        Process("readers-2", {0: 5, 1: 7}),
    )
    readers(one, other).drain(ENDS, within=60)
    assert (one.rows, other.rows) == ([[0, 1]], [[0, 1]])
    assert one.errors == other.errors == []


@pytest.mark.parametrize("deaths", [1, 2])
def test_one_that_is_killed_before_it_wrote_that_is_waited_for_again(deaths: int) -> None:
    one, other = (
        Process("readers-1", {0: 5, 1: 7}, deaths=deaths),
        Process("readers-2", {0: 5, 1: 7}),
    )
    readers(one, other).drain(ENDS, within=60)
    assert (one.rows, other.rows) == ([[0, 1]], [[0, 1]])


def test_one_that_is_killed_after_it_wrote_that_writes_it_again_unless_that_was_heard() -> None:
    one = Process("readers-1", {0: 5, 1: 7}, deaths=1, written=True)
    readers(one).drain(ENDS, within=60)
    assert one.rows == [[0, 1], [0, 1]]


def test_one_member_of_a_group_writes_the_end_of_each_partition() -> None:
    one, other = (
        Process("readers-1", {0: 5}, {0: 5, 1: 7}, deaths=1),
        Process("readers-2", {1: 7}, {}),
    )
    readers(one, other, group="g").drain(ENDS, within=60)
    assert sorted(partition for row in [*one.rows, *other.rows] for partition in row) == [0, 1]


def test_an_end_not_reached_in_time_is_an_error_and_the_rest_is_written() -> None:
    one, other = Process("readers-1", {0: 5, 1: 3}), Process("readers-2", {0: 5, 1: 7})
    readers(one, other).drain(ENDS, within=0.1)
    assert one.errors == ["A.t-1 at 3 of 7"]
    assert (one.rows, other.rows, other.errors) == ([[0]], [[0, 1]], [])


def test_an_earlier_drain_does_not_count_for_later_ends() -> None:
    one = Process("readers-1", {0: 5, 1: 7})
    crew = readers(one)
    crew.drain(ENDS, within=60)
    one.held = [{0: 6, 1: 7}]
    crew.drain({"A": {("A.t", 0): 6, ("A.t", 1): 7}}, within=60)
    assert one.rows == [[0, 1], [0]]


def workload(home: str, *, read: int | None = None, acknowledged: int = 0) -> Any:
    return SimpleNamespace(
        spec=SimpleNamespace(home=home),
        read_on=lambda cluster: read if cluster == "A" else None,
        progress=lambda: SimpleNamespace(acknowledged=acknowledged),
    )


WRITTEN = workload("A", acknowledged=1)


@pytest.mark.parametrize(
    ("workloads", "given"),
    [
        ([WRITTEN], None),
        ([WRITTEN, workload("A", read=7), workload("A", read=500)], 7),
        # the group has not joined yet
        ([WRITTEN, workload("A", read=0), workload("A", read=500)], 0),
        # nobody writes C's topics
        ([WRITTEN, workload("A", read=500), workload("C", read=0)], 500),
        ([workload("A"), workload("A", read=0)], 0),  # nothing was written at all yet
    ],
)
def test_the_kind_of_readers_with_the_fewest_records_counts(
    workloads: list[Any], given: int | None
) -> None:
    assert WorkloadClients(workloads, cast(Any, None)).read_on("A") == given


def group(kind: str, home: str, cluster: str, **options: str | bool) -> Any:
    return SimpleNamespace(
        spec=WorkloadSpec(kind=kind, home=home, options=options),
        members=[SimpleNamespace(state=SimpleNamespace(cluster=cluster))],
        progress=lambda: SimpleNamespace(acknowledged=0),
    )


def test_groups_that_are_to_commit_on_a_cluster_work_there_on_topics_that_have_a_writer() -> None:
    writer = group("transactional", "A", "A")
    writer.progress = lambda: SimpleNamespace(acknowledged=1)
    every = [
        writer,
        group("readers", "A", "A", group="here"),
        group("readers", "A", "B", group="elsewhere"),
        group("readers", "C", "A", group="unwritten"),
        group("readers", "A", "A", assign=True),
        group("relay", "A", "A", group="relays"),
    ]
    assert WorkloadClients(every, cast(Any, None)).groups_on("A") == {"here", "relays"}
