"""Shadow mirrors for tests: started, watched, compared with their source, failed over and back."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import TypedDict, Unpack, cast

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from linkflap.harness.log.batches import scan
from linkflap.harness.mirrors import make_mirror
from linkflap.harness.mirrors.shadow.mirror import ShadowMirror
from linkflap.harness.mirrors.shadow.settings import Config, ShadowOptions
from linkflap.harness.mirrors.topics import reader
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.protocols import Broker, Cluster, Deployment, Mirror
from linkflap.harness.model.scenario import MirrorSpec, Option
from linkflap.harness.model.wait import until
from linkflap.harness.wire.librdkafka import Bound, answered_bounds, quiet
from tests.events import Rows
from tests.waiting import eventually

TOPIC = "A.records"
TOPIC_PARTITIONS = [(TOPIC, 0), (TOPIC, 1)]
SAME = ("base_offset", "last_offset", "length", "crc", "producer_id", "control")
"""The batch fields that must be equal; leader epochs are each cluster's own."""


class Changed(TypedDict, total=False):
    """The settings that tests change."""

    controllers: tuple[str, ...]
    real: Mapping[str, Mapping[int, str]]
    listeners: Mapping[str, int]


def config(**changed: Unpack[Changed]) -> Config:
    """The arguments of a shadow process of A at B, for a B of one broker at an address without a
    listener."""
    plain = Config(
        link="A->B",
        source=("127.0.0.1:1",),
        source_cluster_id="a",
        homes=("A",),
        cluster_id="b",
        real={"INTERNAL": {1: "127.0.0.1:1"}},
        controllers=("127.0.0.1:1",),
        broker_id=1000,
        followers="INTERNAL",
        listeners={},
        control_port=1,
        options=ShadowOptions(),
    )
    return replace(plain, **changed)


Events = Rows


class Writer:
    """One transactional producer that alternates between two partitions; every third transaction is
    aborted."""

    def __init__(self, bootstrap: str, topic: str = TOPIC, **settings: object) -> None:
        settings = {"transactional.id": f"writer-{topic}", "linger.ms": 0} | settings
        self._producer = Producer(quiet(bootstrap) | settings)
        self._producer.init_transactions(60)
        self._topic, self._turn = topic, 0
        self.committed = 0
        """How many records are in transactions that were committed."""

    def write(self, transactions: int = 1, size: int = 100) -> None:
        for _ in range(transactions):
            self.begin(size)
            self._turn += 1
            if self._turn % 3:
                self._producer.commit_transaction(60)
                self.committed += 20
            else:
                self._producer.abort_transaction(60)

    def begin(self, size: int = 100) -> None:
        """Opens a transaction, writes to both partitions, and leaves it open."""
        self._producer.begin_transaction()
        for n in range(20):
            self._producer.produce(self._topic, b"%d" % n * size, partition=n % 2)
        self._producer.flush(60)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Writes transactions in a thread until the block ends, and raises the thread's exceptions
        there."""
        stop, failed = threading.Event(), []

        def work() -> None:
            try:
                while not stop.is_set():
                    self.write()
            except Exception as error:  # noqa: BLE001  (raised in the test's own thread)
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(120)
        for error in failed:
            raise error


def make_topic(
    deployment: Deployment,
    cluster: str,
    topic: str = TOPIC,
    partitions: int = 2,
    **config: int | str,
) -> None:
    brokers = deployment.clusters[cluster].brokers
    new = NewTopic(
        topic,
        partitions,
        min(3, len(brokers)),
        config={k.replace("_", "."): str(v) for k, v in config.items()},
    )
    admin = AdminClient(quiet(deployment.clusters[cluster].bootstrap))
    admin.create_topics([new])[topic].result(60)


def shadow(deployment: Deployment, link: str, **options: Option) -> ShadowMirror:
    """A shadow on this link, not started."""
    spec = MirrorSpec(kind="shadow", options=options)
    mirror = make_mirror(spec, deployment.topology.link(link), deployment, Events())
    assert isinstance(mirror, ShadowMirror)
    return mirror


def shadowed(deployment: Deployment, **options: Option) -> tuple[ShadowMirror, Rows]:
    """TOPIC on A, and a shadow that is not started yet; (mirror, events)."""
    make_topic(deployment, "A")
    mirror = shadow(deployment, deployment.topology.links[0].name, **options)
    return mirror, cast(Rows, mirror._recorder)


def deleted(admin: AdminClient, topic: str) -> None:
    """Deletes a topic, and waits until it is gone."""
    admin.delete_topics([topic])[topic].result(20)
    eventually("the topic to be gone", lambda: topic not in admin.list_topics(timeout=60).topics)


def headers(
    broker: Broker, tp: tuple[str, int], *, below: int | None = None, above: int = 0
) -> Mapping[str, list[int]]:
    """The batches of one replica on disk that begin at `above` or later and end before `below`."""
    topic, number = tp
    found = scan(sorted((broker.log_dir / f"{topic}-{number}").glob("*.log")))
    assert not found.damage
    keep = found.headers.base_offset >= above
    if below is not None:
        keep &= found.headers.last_offset < below
    kept = found.headers.take(keep)
    return {each.name: getattr(kept, each.name).tolist() for each in fields(kept)}


def assert_equal(
    deployment: Deployment,
    source: str,
    destination: str,
    partitions: Sequence[tuple[str, int]] = TOPIC_PARTITIONS,
    *,
    below: Mapping[tuple[str, int], int] | None = None,
    same_start: bool = False,
) -> None:
    """Every running replica of `destination` has the bytes of the first broker of `source`, except
    for leader epochs; with `same_start`, and nothing before them."""
    there = next(iter(deployment.clusters[source].brokers.values()))
    for tp in partitions:
        end = None if below is None else below[tp]
        wanted = headers(there, tp, below=end)
        assert wanted["base_offset"], f"nothing in {tp} on {source}"
        for broker in deployment.clusters[destination].brokers.values():
            if broker.state == "running":
                start = 0 if same_start else wanted["base_offset"][0]
                found = headers(broker, tp, below=end, above=start)
                assert [found[name] for name in SAME] == [wanted[name] for name in SAME], (
                    tp,
                    destination,
                    broker.id,
                )


def drained(*mirrors: Mirror, within: float = 90) -> None:
    """Waits until no mirror is behind. Asks from the first to the last, so that a chain is empty at
    the end."""
    for mirror in mirrors:
        until(
            partial(_has_drained, mirror),
            within=within,
            every=0.1,
            what=f"{mirror.link.name} to drain",
            state=mirror.lag,
        )


def _has_drained(mirror: Mirror) -> bool:
    return mirror.lag() == 0


def ends(
    at: str | Cluster,
    which: Bound = "high",
    partitions: Sequence[tuple[str, int]] = TOPIC_PARTITIONS,
) -> dict[tuple[str, int], int]:
    """Bounds on a cluster, once there are leaders that answer; raises DeadlineExceeded. It uses a
    new client each time, because an old client may ask a leader that has just died until its
    timeout."""
    bootstrap = at if isinstance(at, str) else at.bootstrap

    def answered() -> dict[tuple[str, int], int] | None:
        found = answered_bounds(AdminClient(quiet(bootstrap)), partitions, which, within=5)
        return found if len(found) == len(partitions) else None

    return eventually(f"the leaders of {partitions} to tell where they end", answered)


def all_end(
    deployment: Deployment,
    cluster: str,
    wanted: Mapping[tuple[str, int], int],
) -> None:
    """Waits until a cluster has these high watermarks."""
    state: object = None

    def there() -> bool:
        nonlocal state
        state = ends(deployment.clusters[cluster], partitions=list(wanted))
        return state == wanted

    until(there, within=60, every=0.1, what=f"{cluster} to end at {wanted}", state=lambda: state)


def own_write(
    bootstrap: str,
    topic: str = TOPIC,
    partition: int = 0,
    *,
    timeout_ms: int = 10_000,
    **settings: str,
) -> object:
    """Writes one record. Returns its offset, or the name of the error."""
    answers: list[object] = []
    producer = Producer(
        quiet(bootstrap) | {"message.timeout.ms": timeout_ms, "linger.ms": 0} | settings
    )
    producer.produce(
        topic,
        b"own",
        partition=partition,
        on_delivery=lambda e, m: answers.append(e.name() if e else m.offset()),
    )
    try:
        eventually("the client to give up", lambda: producer.flush(0.5) == 0)
    except DeadlineExceeded:
        return "_TIMED_OUT"
    return answers[0]


def stray(deployment: Deployment, cluster: str) -> list[str]:
    """Partitions that a shadow leads or replicates although no mirror created their topics."""
    found = (
        AdminClient(quiet(deployment.clusters[cluster].bootstrap)).list_topics(timeout=60).topics
    )
    into = [link for link in deployment.topology.links if link.destination == cluster]
    homes = {home for link in into for home in deployment.topology.homes_over(link)}
    return [
        f"{name}-{number}"
        for name, topic in found.items()
        for number, partition in topic.partitions.items()
        if name.partition(".")[0] not in homes
        and max([partition.leader, *partition.replicas]) >= 1000
    ]


def read(bootstrap: str, isolation: str = "read_committed") -> dict[int, list[bytes]]:
    """Values of TOPIC by partition, in log order, as a reader with this isolation level gets
    them."""
    found: dict[int, list[bytes]] = {number: [] for _, number in TOPIC_PARTITIONS}
    ended: set[int] = set()
    consumer = reader(bootstrap, isolation)
    consumer.assign([TopicPartition(*tp, 0) for tp in TOPIC_PARTITIONS])

    def read_through() -> bool:
        for message in consumer.consume(5000, 0.1):
            if message.error():
                ended.add(cast(int, message.partition()))
            else:
                found[cast(int, message.partition())].append(cast(bytes, message.value()))
        return len(ended) == len(found)

    eventually(f"{TOPIC} to be read", read_through, state=lambda: ended)
    consumer.close()
    return found


def count(bootstrap: str, isolation: str) -> int:
    """Records of TOPIC that a reader with this isolation level gets."""
    return sum(map(len, read(bootstrap, isolation).values()))


# Topics on both sides of a shadow: their configs, records and partitions, and topics that the
# shadow gave up.


OTHER = "A.other"


def admin_of(deployment: Deployment, cluster: str) -> AdminClient:
    return AdminClient(quiet(deployment.clusters[cluster].bootstrap))


def configs_of(deployment: Deployment, cluster: str, topic: str = TOPIC) -> dict[str, str]:
    """The configs that are set on the topic itself."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = admin_of(deployment, cluster)  # the answers are freed together with their client
    found = admin.describe_configs([resource])[resource].result(20)
    return {name: entry.value for name, entry in found.items() if int(entry.source) == 1}


def write_to(deployment: Deployment, topic: str, wanted: int) -> None:
    for _ in range(wanted):
        assert isinstance(own_write(deployment.clusters["A"].bootstrap, topic), int)


def given_up(mirror: ShadowMirror) -> dict[str, str]:
    """The run's events about topics that were given up. A request for the lag makes the mirror
    report them."""
    mirror.lag()
    return {
        str(data["topic"]): str(data["reason"])
        for kind, _, data in cast(Rows, mirror._recorder)
        if kind == "topic-given-up"
    }


def grow(deployment: Deployment, wanted: int) -> None:
    admin = admin_of(deployment, "A")
    admin.create_partitions([NewPartitions(TOPIC, wanted)])[TOPIC].result(30)
