"""Faults of topics: deleted and created again, grown, or without their first records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions

from linkflap.chaos.faults.base import FaultBase, data_partitions, number, wait, watch
from linkflap.chaos.faults.clusters import cluster_of, cluster_reason
from linkflap.harness.model import events
from linkflap.harness.model.errors import DeadlineExceeded, FaultError
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.protocols import Bite, FaultWorld, Mirror, ReportsGivenUpTopics
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.topology import RECREATED, is_data_topic, topic_name
from linkflap.harness.model.wait import patient, until
from linkflap.harness.wire.librdkafka import answered_bounds, quiet

OLD: Final = 20


NEW: Final = 50
"""More records than the old topic had, so that a mirror that continues at its old position finds
records there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyState:
    """The classification of a copy. `sound`: it has records of one topic only; `mixed`: of both
    topics, which later records do not change."""

    sound: bool
    mixed: bool
    words: str


def copied(found: Sequence[str], given_up: str) -> CopyState:
    """Classifies a log by its records in order (`old 3`, `new 0`). `given_up` is the mirror's
    reason for no longer mirroring the topic.
    """
    old, new = (
        [record for record in found if record.startswith(kind)] for kind in ("old ", "new ")
    )
    strange = len(found) - len(old) - len(new)
    beside = f", and {strange} of neither" if strange else ""
    if old and new:
        order = "behind one another" if found == [*old, *new] else "in one another"
        words = (
            f"{len(old)} records of the deleted topic and {len(new)} of the new one, "
            f"{order}{beside}"
        )
        return CopyState(sound=False, mixed=True, words=words)
    if new:
        words = (
            f"{len(set(new))} of {NEW} records of the new topic, none of the deleted one{beside}"
        )
        return CopyState(sound=not strange and _whole(new, "new", NEW), mixed=False, words=words)
    says = (
        f"its mirror says: {given_up}"
        if given_up
        else "its mirror does not report that it stopped mirroring the topic"
    )
    words = f"{len(old)} records of the deleted topic, none of the new one{beside}; {says}"
    return CopyState(
        sound=bool(given_up) and not strange and _whole(old, "old", OLD), mixed=False, words=words
    )


def _whole(found: Sequence[str], kind: str, count: int) -> bool:
    """Whether the log has all `count` records of a kind in order. A mirror with at-least-once
    delivery may repeat some.
    """
    return list(dict.fromkeys(found)) == [f"{kind} {n}" for n in range(count)]


def reached(home: str, world: FaultWorld) -> Sequence[str]:
    """The home cluster, and all clusters to which running mirrors copy its topics, directly or in
    several hops.
    """
    found = [home]
    for cluster in found:
        found += [
            mirror.link.destination
            for mirror in world.mirrors.values()
            if mirror.alive
            and mirror.link.source == cluster
            and mirror.link.destination not in found
        ]
    return found


ANSWERS_WITHIN: Final = 20.0
COPIED_WITHIN: Final = 30.0
SETTLES_WITHIN: Final = 60.0
_READ_WITHIN: Final = 5.0


class TopicRecreated(FaultBase):
    """Deletes the fault's own topic and creates it again (DeleteTopics, CreateTopics).

    Breaks    everything that identifies a topic by its name alone (KIP-516 gave topics ids):
              offsets begin at 0 again, and records of the old topic that a mirror has read or
              stored do not belong to the new one.
    Bite      the cluster reports a new id for the topic, and its log has the new records and none
              of the old ones.
    Heal      the links are open, and the copy on each cluster to which the topic is mirrored
              directly is known: the new topic alone, or the old one if its mirror reports that it
              has stopped mirroring it. A log with records of both, or an old copy that its mirror
              presents as the topic, counts as not healed, with a description: the run is unknown.
              After the heal the topic is deleted at home.

    The topic is the fault's own, beside those of the clients, and has one partition. It is mirrored
    like any other, and is in no capture: its deletion is no loss, and does not affect the checks of
    the other topics.
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "links": OptionAbout.one_of(
            "cut",
            "open",
            about="whether its links are cut while the topic is deleted and created again",
        ),
    }

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._cut = self._values["links"] == "cut"
        self._home, self._owner = cluster_of(spec, world).name, spec.id
        self._topic = topic_name(
            self._home, f"{RECREATED}.{re.sub('[^A-Za-z0-9_-]', '-', spec.id)}"
        )
        self._mirrors: Sequence[Mirror] = ()
        self._before = self._after = ""

    reason = staticmethod(cluster_reason)

    def inject(self) -> None:
        world = self._world
        self._mirrors = [
            mirror
            for mirror in world.mirrors.values()
            if mirror.alive and mirror.link.source == self._home
        ]
        self._before = self._make()
        self._write("old", OLD)
        for mirror in self._mirrors:
            self._wait_for_copy(mirror.link.destination)
        if self._cut:
            for mirror in self._mirrors:
                world.deployment.links[mirror.link.name].cut(owner=self._owner)
        self._delete()
        self._after = self._make()
        self._write("new", NEW)

    def bite(self) -> Bite:
        expected = {"another id than": self._before, "records": NEW}
        return watch(
            self._world, f"the id of {self._topic}, and its records", expected, self._measure
        )

    def _measure(self) -> tuple[bool, object]:
        found = self._read(self._home)
        bit = (
            bool(self._before)
            and self._after not in ("", self._before)
            and found == [f"new {n}" for n in range(NEW)]
        )
        return bit, {"id": self._after, "records": len(found)}

    def heal(self) -> Sequence[str]:
        if self._cut:
            for mirror in self._mirrors:
                self._world.deployment.links[mirror.link.name].restore(owner=self._owner)
        if not self._after:
            return ["the topic was not created again"]
        checked = [
            f"{mirror.link.destination} has {self._settled(mirror)}" for mirror in self._mirrors
        ]
        self._delete()
        return checked or [f"no mirror copies from {self._home}"]

    def _settled(self, mirror: Mirror) -> str:
        """The final state of one mirror's copy of the topic, in words. Raises FaultError if the
        copy mixes both topics.
        """
        last = CopyState(sound=False, mixed=False, words="no answer")

        def over() -> bool:
            nonlocal last
            given_up = (
                mirror.given_up().get(self._topic, "")
                if isinstance(mirror, ReportsGivenUpTopics)
                else ""
            )
            last = copied(self._read(mirror.link.destination), given_up)
            return last.sound or last.mixed

        wait(
            over,
            within=patient(SETTLES_WITHIN),
            what=f"the copy of {self._topic} on {mirror.link.destination}",
            state=lambda: last.words,
        )
        if last.mixed:
            raise FaultError(f"{self._topic} on {mirror.link.destination} has {last.words}")
        return last.words

    def _wait_for_copy(self, cluster: str) -> None:
        """Waits until the destination has all records of the old topic. Raises FaultError."""
        what = f"{cluster} to have {OLD} records of {self._topic}"
        wait(
            lambda: _whole(self._read(cluster), "old", OLD),
            within=patient(COPIED_WITHIN),
            what=what,
        )

    def _make(self) -> str:
        """Creates the topic, and returns its id. Repeats the request, because an earlier deletion
        may not have reached every broker.
        """
        cluster = self._world.deployment.clusters[self._home]
        cluster.create_topic(self._topic)
        made = ""

        def there() -> bool:
            nonlocal made
            made = self._id() or ""
            return bool(made)

        wait(there, within=patient(ANSWERS_WITHIN), what=f"{self._topic} to exist")
        return made

    def _delete(self) -> None:
        admin = self._admin(self._home)
        try:
            admin.delete_topics([self._topic], operation_timeout=ANSWERS_WITHIN)[
                self._topic
            ].result(2 * ANSWERS_WITHIN)
        except (KafkaException, TimeoutError) as error:
            raise FaultError(
                f"cluster {self._home} did not delete {self._topic}: {error}"
            ) from error
        wait(
            lambda: self._id() == "",
            within=patient(ANSWERS_WITHIN),
            what=f"{self._topic} to be gone",
        )

    def _id(self) -> str | None:
        """The topic's id at home; empty if the cluster reports that there is none, None if it did
        not answer, or there is no leader."""
        admin = self._admin(self._home)  # a client's pending answers are lost when it is closed
        try:
            asked = admin.describe_topics(
                TopicCollection([self._topic]), request_timeout=ANSWERS_WITHIN
            )
            found = asked[self._topic].result(2 * ANSWERS_WITHIN)
        except TimeoutError:
            return None
        except KafkaException as error:
            return "" if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART else None
        return (
            str(found.topic_id)
            if all(p.leader is not None and p.leader.id >= 0 for p in found.partitions)
            else None
        )

    def _write(self, kind: str, count: int) -> None:
        """Writes records without idempotence: a producer id from this cluster would disturb the
        check of producer ids.
        """
        producer = Producer(
            self._settings() | {"enable.idempotence": False, "acks": "all", "linger.ms": 0}
        )
        refused: list[KafkaError] = []
        for n in range(count):
            producer.produce(
                self._topic,
                f"{kind} {n}".encode(),
                partition=0,
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )
        wait(
            lambda: producer.flush(0.1) == 0,
            within=patient(ANSWERS_WITHIN),
            what=f"{count} records to be written to {self._topic}",
        )
        if refused:
            raise FaultError(f"cluster {self._home} refused records of {self._topic}: {refused[0]}")

    def _settings(self) -> dict[str, str | int | float | bool]:
        # One request at a time, so that a retry does not change the order of records.
        return quiet(self._world.deployment.clusters[self._home].bootstrap) | {
            "max.in.flight.requests.per.connection": 1
        }

    def _read(self, cluster: str) -> list[str]:
        """The records of the topic on a cluster, in log order. Empty if the topic does not exist or
        was not read to its end.
        """
        bootstrap = self._world.deployment.clusters[cluster].bootstrap
        if not answered_bounds(
            self._admin(cluster), [(self._topic, 0)], "high", within=_READ_WITHIN
        ).get((self._topic, 0)):
            return []
        consumer = Consumer(
            quiet(bootstrap)
            | {
                "group.id": "linkflap-recreated",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted",
                "fetch.wait.max.ms": 100,
                "enable.partition.eof": True,
                "allow.auto.create.topics": False,
            }
        )
        found: list[str] = []
        try:
            consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])

            def read() -> bool:
                messages = consumer.consume(1000, timeout=0.1)
                found.extend(
                    (m.value() or b"").decode(errors="replace")
                    for m in messages
                    if m.error() is None
                )
                return any(
                    (error := m.error()) is not None and error.code() == KafkaError._PARTITION_EOF
                    for m in messages
                )

            until(read, within=_READ_WITHIN, what=f"{self._topic} on {cluster} to be read")
        except (DeadlineExceeded, KafkaException):
            return []  # the caller reads again: a part of a log must not count as all of it
        finally:
            consumer.close()
        return found


HEALS_WITHIN: Final = 60.0


class PartitionsAdded(FaultBase):
    """Adds partitions to the topics of a cluster, and waits until mirrors have added them too.

    Breaks    every client that reads its list of partitions only once (KIP-195, CreatePartitions):
              producers, readers, mirrors, group offsets.
    Bite      the cluster's metadata has the new partitions, and clients have written to one of each
              topic.
    Heal      every cluster to which running mirrors copy the topics has the same number of
              partitions, each with a leader. The new partitions stay: Kafka cannot remove
              partitions.
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "add": OptionAbout(
            default=1,
            low=1,
            high=1000,
            about="number of partitions that each topic gets in addition",
        ),
    }

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._add = int(number(self._values, "add"))
        cluster_of(spec, world)  # raises InputError
        self._home = spec.target
        self._before: dict[str, int] = {}

    reason = staticmethod(cluster_reason)

    def inject(self) -> None:
        self._before = {
            name: count
            for name, count in dict(self._world.topics).items()
            if is_data_topic(name, self._world.deployment.topology.named(self._home))
        }
        wanted = [NewPartitions(name, count + self._add) for name, count in self._before.items()]
        admin = self._admin(self._home)
        try:
            for added in admin.create_partitions(wanted, operation_timeout=ANSWERS_WITHIN).values():
                added.result(2 * ANSWERS_WITHIN)
        except (KafkaException, TimeoutError) as error:
            raise FaultError(
                f"cluster {self._home} did not add partitions to {', '.join(self._before)}: {error}"
            ) from error
        until(
            lambda: not self._missing(self._home),
            within=ANSWERS_WITHIN,
            what=f"leaders of new partitions on {self._home}",
        )
        for name, count in self._before.items():
            self._world.grown(name, count + self._add)

    def bite(self) -> Bite:
        return watch(
            self._world,
            "high watermarks of the new partitions",
            "above 0 in one of each topic",
            self._measure,
        )

    def _measure(self) -> tuple[bool, object]:
        added = [
            (name, count + n) for name, count in self._before.items() for n in range(self._add)
        ]
        ends = answered_bounds(self._admin(self._home), added, "high", within=5.0)
        written = {topic for (topic, _), end in ends.items() if end > 0}
        return bool(added) and written == set(self._before), {
            f"{topic}-{n}": end for (topic, n), end in sorted(ends.items())
        }

    def heal(self) -> Sequence[str]:
        checked = []
        for cluster in reached(self._home, self._world) if self._before else ():
            self._wait_for(cluster)
            checked.append(f"{cluster} has the new partitions of {', '.join(self._before)}")
        return checked or ["nothing was added"]

    def _wait_for(self, cluster: str) -> None:
        what = f"{cluster} to have the new partitions"
        wait(
            lambda: not self._missing(cluster),
            within=HEALS_WITHIN,
            what=what,
            state=lambda: self._missing(cluster),
        )

    def _missing(self, cluster: str) -> Sequence[str]:
        """The new partitions that a cluster's metadata does not list, or that have no leader
        there."""
        try:
            known = self._admin(cluster).list_topics(timeout=5.0).topics
        except KafkaException as error:
            return [str(error)]
        return [
            f"{name}-{partition}"
            for name, count in self._before.items()
            for partition in range(count, count + self._add)
            if name not in known
            or partition not in known[name].partitions
            or known[name].partitions[partition].leader < 0
        ]


BEGINS_WITHIN: Final = 30.0
FOLLOWS_WITHIN: Final = 60.0
Offsets = dict[tuple[str, int], int]


class RecordsDeletion(FaultBase):
    """Deletes the records of the topics of a cluster up to the last stable offset (DeleteRecords).

    Breaks    readers and mirrors that have not read that far: their position is out of range, and
              they continue at the new log start. During a cut of the link, records are deleted
              before they are mirrored, as retention may do.
    Bite      the leader of every partition reports a log start at or above the requested one, and
              above the former one.
    Heal      on every cluster to which running mirrors copy the topics, the high watermarks are
              beyond the new log starts. Deleted records stay deleted.

    Everything below the last stable offset is deleted, so no batch and no transaction is divided.
    Nothing else may be lost: no check looks for records below a log start, and every check looks
    for those above.
    """

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        cluster_of(spec, world)  # raises InputError
        self._home = spec.target
        self._before: Offsets = {}
        self._wanted: Offsets = {}

    reason = staticmethod(cluster_reason)

    def inject(self) -> None:
        admin = self._admin(self._home)
        try:
            until(
                lambda: self._choose(admin),
                within=BEGINS_WITHIN,
                every=0.1,
                what=f"a record below the last stable offset on {self._home}",
            )
        except DeadlineExceeded as error:
            raise FaultError(f"{error}; nothing was deleted") from error
        for (name, n), offset in self._wanted.items():
            self._world.recorder.write(
                events.RecordsDeleted(cluster=self._home, topic=name, partition=n, offset=offset)
            )
        asked = [TopicPartition(name, n, offset) for (name, n), offset in self._wanted.items()]
        try:
            for answer in admin.delete_records(asked, request_timeout=ANSWERS_WITHIN).values():
                answer.result(2 * ANSWERS_WITHIN)
        except (KafkaException, TimeoutError) as error:
            raise FaultError(f"cluster {self._home} did not delete records: {error}") from error

    def _choose(self, admin: AdminClient) -> bool:
        """Chooses the offsets up to which records are deleted. Returns whether there is something
        to delete."""
        own = data_partitions(self._world, self._world.deployment.topology.named(self._home))
        start = answered_bounds(admin, own, "start", within=ANSWERS_WITHIN)
        stable = answered_bounds(admin, own, "stable", within=ANSWERS_WITHIN)
        self._wanted = {tp: end for tp, end in stable.items() if end > start.get(tp, end)}
        self._before = {tp: start[tp] for tp in self._wanted}
        return bool(self._wanted)

    def bite(self) -> Bite:
        expected = {f"{name}-{n}": offset for (name, n), offset in sorted(self._wanted.items())}
        return watch(
            self._world, "log start offsets as the leaders report them", expected, self._measure
        )

    def _measure(self) -> tuple[bool, object]:
        starts = answered_bounds(self._admin(self._home), self._wanted, "start", within=5.0)
        bit = bool(self._wanted) and all(
            starts.get(tp, -1) >= offset and starts[tp] > self._before[tp]
            for tp, offset in self._wanted.items()
        )
        return bit, {
            f"{name}-{n}": [self._before[name, n], starts.get((name, n))]
            for name, n in sorted(self._wanted)
        }

    def heal(self) -> Sequence[str]:
        if not self._wanted:
            return ["nothing was deleted"]
        checked = []
        for cluster in reached(self._home, self._world):
            self._wait_for(cluster)
            checked.append(
                f"{cluster} has passed the new log starts of {len(self._wanted)} partitions"
            )
        return checked

    def _wait_for(self, cluster: str) -> None:
        behind: list[str] = ["offsets"]

        def past() -> bool:
            ends = answered_bounds(self._admin(cluster), self._wanted, "high", within=5.0)
            behind[:] = [
                f"{name}-{n}"
                for (name, n), offset in self._wanted.items()
                if ends.get((name, n), -1) < offset
            ]
            return not behind

        what = f"{cluster} to pass the deleted records"
        wait(past, within=FOLLOWS_WITHIN, every=0.1, what=what, state=lambda: behind[:5])
