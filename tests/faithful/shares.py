"""A share group that reads a cluster at the end of a story, with everything that KIP-932 permits.

Records are delivered again, released, renewed, given up, and accepted without a confirmation. When
a lock expires, the record goes to another member; the first one may still process it then, or even
after that one has accepted it, from its fetched records, and its acknowledgement is refused. A
member that left or was killed comes back as another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Final

from linkflap.harness.model.history import SHARE_LOCK_MS, Fetched, Isolation, Poll, PollKind
from linkflap.harness.model.scenario import Option, WorkloadSpec
from tests.faithful.clusters import Entry, states
from tests.faithful.made import Captured, Made
from tests.faithful.observers import MS

LOCK_MS: Final = SHARE_LOCK_MS + 2 * 1000
"""Until a record whose lock has expired is given to another member."""
EXPIRED: Final = 2
"""How many locks expire: each takes long beside the rest of the story."""
GROUP: Final = "sharing"
MEMBERS: Final = ("share-group-1", "share-group-2")
LIMIT: Final = 5
"""The number of deliveries after which a broker archives a record."""
CONFIRMED: Final[dict[PollKind, PollKind]] = {
    "accept": "accepted",
    "release": "released",
    "reject": "rejected",
    "renew": "renewed",
}


def with_share_group(made: Made, seed: int) -> Made:
    """The same story, followed by a share group on a cluster that is alive."""
    rng = Random(f"share group {seed}")
    living = {
        key.cluster: captured
        for key, captured in made.logs.items()
        if captured.bounds.alive and key.topic == "A.orders"
    }
    cluster = "A" if "A" in living else sorted(living)[0]
    isolation: Isolation = "read_committed" if rng.random() < 0.7 else "read_uncommitted"
    # It begins when the failovers are over, and stays.
    options: dict[str, Option] = {
        "group": GROUP,
        "cluster": cluster,
        "isolation": isolation,
        "follow": False,
    }
    workload = WorkloadSpec(
        kind="share-group",
        home="A",
        clients=len(MEMBERS),
        library="java",
        reads=("orders",),
        options=options,
    )
    made.scenario = replace(made.scenario, workloads=(*made.scenario.workloads, workload))
    group = Group(made, rng, cluster, isolation)
    partitions = {
        (key.topic, key.partition) for key in made.log_keys(cluster) if key.topic == "A.orders"
    }
    for _, partition in sorted(partitions):
        group.reads(partition)
    made.ended = group.now + MS
    return made


class Group:
    """The steps of the group's members, one after another."""

    def __init__(self, made: Made, rng: Random, cluster: str, isolation: Isolation) -> None:
        self._made, self._rng, self._cluster, self._isolation = made, rng, cluster, isolation
        self.now = made.ended
        self._process = {member: 901 + n for n, member in enumerate(MEMBERS)}
        # A transaction that is open at the end would be open for longer than its timeout.
        self._expired = EXPIRED if any(map(_open, made.logs.values())) else 0

    def reads(self, partition: int) -> None:
        """Every record of a partition, up to the end offset of the group."""
        log = self._made.log(self._cluster, partition, topic="A.orders")
        records = list(shown(log, self._isolation))
        for number, (uid, offset) in enumerate(records):
            self._record(partition, uid, offset)
            if number % 9 == 5:  # a member looks at the start offset, which may lag
                self._write("settled", partition, (), position=records[number - 5][1])
        last = records[-1][1] + 1 if records else 0
        # The group lags: its last acknowledgements stay unconfirmed.
        self._write("settled", partition, (), position=self._rng.choice((last, max(0, last - 3))))

    def _record(self, partition: int, uid: int, offset: int) -> None:
        rng, run = self._rng, ((uid, offset, 1),)
        if self._expired < EXPIRED and rng.random() < 0.1:
            return self._expires(partition, run)
        delivery = 0
        while delivery < LIMIT:
            delivery += 1
            member = rng.choice(MEMBERS)
            self._write("acquire", partition, run, member=member, position=delivery)
            what = rng.random()
            if what < 0.8 or (delivery == LIMIT - 1 and what < 0.95):
                return self._accepted(partition, run, member)
            if what < 0.88:
                self._answered("renew", partition, run, member)
                self._write("acquire", partition, run, member=member, position=delivery)
                return self._answered("accept", partition, run, member)
            if what < 0.9:
                return self._answered("reject", partition, run, member)
            if what < 0.97:
                self._answered("release", partition, run, member)
            else:  # the member left, and its broker may have taken the delivery back; or was killed
                delivery -= rng.random() < 0.5
                self._process[member] += len(MEMBERS)
        return None

    def _expires(self, partition: int, run: tuple[tuple[int, int, int], ...]) -> None:
        """The lock of a member expires that has fetched the record, and processes it only later:
        before or after another one has accepted it."""
        late, member = self._rng.sample(MEMBERS, 2)
        self._expired += 1
        self.now += LOCK_MS * MS
        before = self._rng.random() < 0.5
        self._write("acquire", partition, run, member=member, position=2)
        if before:
            self._write("acquire", partition, run, member=late, position=1)
        self._accepted(partition, run, member)
        if not before:
            self._write("acquire", partition, run, member=late, position=1)
        self._write("accept", partition, run, member=late)

    def _accepted(self, partition: int, run: tuple[tuple[int, int, int], ...], member: str) -> None:
        """The record is accepted; the answer may be lost."""
        if self._rng.random() < 0.1:
            self._write("accept", partition, run, member=member)
        else:
            self._answered("accept", partition, run, member)

    def _answered(
        self, kind: PollKind, partition: int, run: tuple[tuple[int, int, int], ...], member: str
    ) -> None:
        self._write(kind, partition, run, member=member)
        self._write(CONFIRMED[kind], partition, run, member=member)

    def _write(
        self,
        kind: PollKind,
        partition: int,
        runs: tuple[tuple[int, int, int], ...],
        *,
        member: str = MEMBERS[0],
        position: int = -1,
    ) -> None:
        self.now += MS
        asked, self.now = self.now, self.now + MS
        self._made.polls.append(
            Poll(
                time=asked,
                returned=self.now,
                reader=member,
                process=self._process[member],
                cluster=self._cluster,
                isolation=self._isolation,
                kind=kind,
                group=GROUP,
                fetched=(
                    Fetched(topic="A.orders", partition=partition, runs=runs, position=position),
                ),
            )
        )


def _open(captured: Captured) -> bool:
    """Whether a captured log has a transaction without a marker."""
    return "open" in states(captured.entries).state.values()


def shown(log: list[Entry], isolation: Isolation) -> Iterator[tuple[int, int]]:
    """(uid, offset) of the records of a log that an isolation level shows."""
    outcome = states(log).state
    stable = min([offset for offset, state in outcome.items() if state == "open"], default=2**62)
    for entry in log:
        hidden = isolation == "read_committed" and (
            entry.offset >= stable or outcome.get(entry.offset) == "aborted"
        )
        if entry.ends is None and not hidden:
            yield from ((record.uid, entry.offset + record.delta) for record in entry.records)
