"""topic-recreated: a topic is deleted and created again with the same name, while the links of its
mirrors are cut or open.

Breaks    everything that identifies a topic by its name alone (KIP-516 gave topics ids): offsets
          begin anew, and the records that a mirror has read or stored of the old topic are not the
          new one's.
Bite      the cluster reports a new id for the topic, and its log has the new records and none of
          the old ones.
Heal      the links are open, and the copy on each cluster to which the topic is mirrored directly
          is known: the new topic alone, or the old one if its mirror reports that it has stopped
          mirroring it. A log with records of both, or an old copy that its mirror presents as the
          topic, counts as not healed, with a description: the run is unknown. After the heal the
          topic is deleted at home.

The topic is the fault's own, beside those of the clients, and has one partition. It is mirrored
like any other, and is in no capture: its deletion is no loss, and does not affect the checks of the
other topics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
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
from confluent_kafka.admin import AdminClient

from linkflap.chaos.faults.bites import watch
from linkflap.chaos.faults.cluster_target import cluster_of, cluster_reason
from linkflap.chaos.faults.settings import settings
from linkflap.chaos.faults.topic_copies import NEW, OLD, Copied, _whole, copied
from linkflap.harness.model.errors import DeadlineExceeded, FaultError
from linkflap.harness.model.protocols import Bite, Mirror, World
from linkflap.harness.model.protocols.mirrors import ReportsGivenUpTopics
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import RECREATED, Topology, topic_name
from linkflap.harness.model.wait import patient, until
from linkflap.harness.wire.offsets import answered_bounds, quiet

ANSWERS_WITHIN: Final = 20.0
COPIED_WITHIN: Final = 30.0
SETTLES_WITHIN: Final = 60.0
_READ_WITHIN: Final = 5.0


class TopicRecreated:
    """Deletes a topic of its own and creates it again (DeleteTopics, CreateTopics)."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {"links": "cut|open"}
    abouts: ClassVar[Mapping[str, str]] = {
        "links": (
            "whether the links from the cluster are cut while the topic is deleted and made again"
        ),
    }

    def __init__(self, spec: FaultSpec, world: World) -> None:
        self._cut = settings(spec, self.defaults)["links"] == "cut"
        self._world, self._home, self._owner = world, cluster_of(spec, world).name, spec.id
        self._topic = topic_name(
            self._home, f"{RECREATED}.{re.sub('[^A-Za-z0-9_-]', '-', spec.id)}"
        )
        self._mirrors: Sequence[Mirror] = ()
        self._before = self._after = ""

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        return cluster_reason(target, topology)

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
            return ["nothing was made again"]
        checked = [
            f"{mirror.link.destination} has {self._settled(mirror)}" for mirror in self._mirrors
        ]
        self._delete()
        return checked or [f"no mirror copies from {self._home}"]

    def _settled(self, mirror: Mirror) -> str:
        """What the copy over one mirror is in the end. Raises FaultError where that is not one
        topic's."""
        last = Copied(sound=False, mixed=False, words="no answer")

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
            within=SETTLES_WITHIN,
            what=f"the copy of {self._topic} on {mirror.link.destination}",
            state=lambda: last.words,
        )
        if last.mixed:
            raise FaultError(f"{self._topic} on {mirror.link.destination} has {last.words}")
        return last.words

    def _wait_for_copy(self, cluster: str) -> None:
        """Until the destination has all of the old topic. Raises FaultError."""
        what = f"{cluster} to have {OLD} records of {self._topic}"
        wait(lambda: _whole(self._read(cluster), "old", OLD), within=COPIED_WITHIN, what=what)

    def _make(self) -> str:
        """Makes it; its id. A deletion may not have reached every broker."""
        cluster = self._world.deployment.clusters[self._home]
        cluster.create_topic(self._topic)
        made = ""

        def there() -> bool:
            nonlocal made
            made = self._id() or ""
            return bool(made)

        wait(there, within=ANSWERS_WITHIN, what=f"{self._topic} to be there")
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
        wait(lambda: self._id() == "", within=ANSWERS_WITHIN, what=f"{self._topic} to be gone")

    def _id(self) -> str | None:
        """The topic's id at home; empty if the cluster reports that there is none, None if it did
        not answer, or there is no leader."""
        admin = self._admin(self._home)  # its answers end with it
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
        """Not idempotent: it draws no producer id on a cluster whose producer ids are checked."""
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
            within=ANSWERS_WITHIN,
            what=f"{count} records to be written to {self._topic}",
        )
        if refused:
            raise FaultError(
                f"cluster {self._home} did not take records of {self._topic}: {refused[0]}"
            )

    def _settings(self) -> dict[str, str | int | float | bool]:
        # One at a time, so that they are written in their order also when one is sent again.
        return quiet(self._world.deployment.clusters[self._home].bootstrap) | {
            "max.in.flight.requests.per.connection": 1
        }

    def _read(self, cluster: str) -> list[str]:
        """The records of the topic on a cluster, in their order; none where it is not there, or was
        not read to its end."""
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
            return []  # the caller asks again: a part of a log must not count as all of it
        finally:
            consumer.close()
        return found

    def _admin(self, cluster: str) -> AdminClient:
        return AdminClient(quiet(self._world.deployment.clusters[cluster].bootstrap))


def wait(
    condition: Callable[[], bool],
    *,
    within: float,
    what: str,
    state: Callable[[], object] | None = None,
) -> None:
    """As `until`, with more time on a busy machine. Raises FaultError."""
    try:
        until(condition, within=patient(within), every=0.1, what=what, state=state)
    except DeadlineExceeded as error:
        raise FaultError(str(error)) from error
