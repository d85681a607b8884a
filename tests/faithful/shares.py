"""A share group that reads a cluster at the end of a story, with everything that KIP-932 permits.

Records are delivered again, released, renewed, given up, and accepted without a confirmation. When
a lock expires, the record goes to another member; the first one may still process it afterwards,
from its fetched records, and its acknowledgement is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Final

from linkflap.harness.model.history import Fetched, Isolation, Poll, PollKind
from linkflap.harness.model.scenario import WorkloadSpec
from tests.faithful.clusters import Entry
from tests.faithful.made import Made
from tests.faithful.observers import MS

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
    options = {"group": GROUP, "cluster": cluster, "isolation": isolation}
    workload = WorkloadSpec(
        kind="share-group", home="A", clients=len(MEMBERS), library="java", options=options
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
        delivery, had = 0, set[str]()
        while delivery < LIMIT:
            delivery += 1
            member, other = rng.sample(MEMBERS, 2)
            self._write("acquire", partition, run, member=member, position=delivery)
            what = rng.random()
            if what < 0.8 or (delivery == LIMIT - 1 and what < 0.95):
                return self._accepted(partition, run, member, "" if other in had else other)
            had.add(member)
            if what < 0.88:
                self._answered("renew", partition, run, member)
                self._write("acquire", partition, run, member=member, position=delivery)
                return self._answered("accept", partition, run, member)
            if what < 0.9:
                return self._answered("reject", partition, run, member)
            if what < 0.97:
                self._answered("release", partition, run, member)
            elif rng.random() < 0.5:
                delivery -= 1  # the member lost its connection: its broker takes the delivery back
            # otherwise the member was killed with the record
        return None

    def _accepted(
        self, partition: int, run: tuple[tuple[int, int, int], ...], member: str, other: str
    ) -> None:
        """The record is accepted. The answer may be lost, or another member, whose lock on its
        first delivery had expired, may process the record later, from its fetched records."""
        if self._rng.random() < 0.1:
            self._write("accept", partition, run, member=member)
            return
        self._answered("accept", partition, run, member)
        if other and self._rng.random() < 0.1:
            self._write("acquire", partition, run, member=other, position=1)
            self._write("accept", partition, run, member=other)

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
                process=901 + MEMBERS.index(member),
                cluster=self._cluster,
                isolation=self._isolation,
                kind=kind,
                group=GROUP,
                fetched=(
                    Fetched(topic="A.orders", partition=partition, runs=runs, position=position),
                ),
            )
        )


def shown(log: list[Entry], isolation: Isolation) -> Iterator[tuple[int, int]]:
    """(uid, offset) of the records of a log that an isolation level shows."""
    outcome: dict[int, str] = {}
    waiting: dict[int, list[int]] = {}
    for entry in log:
        if entry.ends is None and entry.transactional:
            waiting.setdefault(entry.pid, []).append(entry.offset)
            outcome[entry.offset] = "open"
        elif entry.ends is not None:
            for offset in waiting.pop(entry.pid, []):
                outcome[offset] = "committed" if entry.ends == 1 else "aborted"
    stable = min([offset for offset, state in outcome.items() if state == "open"], default=2**62)
    for entry in log:
        hidden = isolation == "read_committed" and (
            entry.offset >= stable or outcome.get(entry.offset) == "aborted"
        )
        if entry.ends is None and not hidden:
            yield from ((record.uid, entry.offset + record.delta) for record in entry.records)
