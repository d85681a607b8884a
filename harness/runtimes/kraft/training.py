"""Training runs that write class archives: of a broker, with transactions, and of a MirrorMaker
from a broker to itself.

Each runs once per Kafka and Java: when a cluster, or a MirrorMaker, is first requested.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.machine.java import writing_archive
from linkflap.harness.model.errors import EnvironmentFailure, SetupError
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes.kraft.broker import KafkaService, ServicePlan
from linkflap.harness.runtimes.kraft.cluster import BROKER_MAIN, KraftCluster
from linkflap.harness.runtimes.kraft.installation import Installation

MakeService = Callable[[Installation, ServicePlan], KafkaService]
MIRROR_MAIN: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
MIRROR_FILE: Final = "mm2.properties"
MIRROR_DOING: Final = (
    "making a class archive of MirrorMaker of Kafka {}, so that it starts in 3 s instead of 8"
)
_QUIET: Final = {"log_level": 0}  # librdkafka writes to stderr, which is the caller's
_TOPIC: Final = "training"
_MIRROR_WITHIN: Final = 120.0
_STOP_WITHIN: Final = (
    180.0  # writing an archive takes seconds, or much longer on an overloaded machine
)
_MIRROR: Final = """\
clusters=A,B
A.bootstrap.servers={bootstrap}
B.bootstrap.servers={bootstrap}
A->B.enabled=true
A->B.topics=training
B->A.enabled=false
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
offset.storage.partitions=1
status.storage.partitions=1
refresh.topics.interval.seconds=1
sync.group.offsets.enabled=true
A.consumer.auto.offset.reset=earliest
plugin.discovery=service_load
"""


def broker_options(plain: Installation, target: Path) -> tuple[str, ...]:
    """The options with which the training broker writes its archive."""
    return tuple(writing_archive(plain.java, target / BROKER_MAIN))


def train_broker(plain: Installation, target: Path, cluster: KraftCluster) -> None:
    """Fills `target` with an archive named after the main class: runs a cluster of one broker, with
    `broker_options`, in `target/run`. Raises SetupError when the broker cannot run or writes no
    archive."""
    with _running(cluster):
        _exercise(cluster.bootstrap)
        cluster.brokers[1].stop(within=_STOP_WITHIN)
    if not (target / BROKER_MAIN).is_file():
        raise SetupError(
            f"{plain.java.path} wrote no class archive for Kafka {plain.kafka.version}; use "
            "another Java (JAVA_HOME)"
        )
    shutil.rmtree(target / "run")


def train_mirror(
    installation: Installation, target: Path, cluster: KraftCluster, make_worker: MakeService
) -> None:
    """As `train_broker`, for a MirrorMaker beside a cluster of one broker. Its archive is optional:
    without it workers start some seconds later, and the cause of a failure shows when a worker is
    needed."""
    run = target / "run"
    plan = ServicePlan(
        name="training-mirror",
        main=MIRROR_MAIN,
        folder=run / "mirror",
        files={MIRROR_FILE: _MIRROR.format(bootstrap=cluster.inner_bootstrap)},
        arguments=[MIRROR_FILE],
        jvm_options=tuple(writing_archive(installation.java, run / MIRROR_MAIN)),
    )
    with contextlib.suppress(EnvironmentFailure), _running(cluster):
        _exercise(cluster.bootstrap)
        _mirror(make_worker(installation, plan), cluster.bootstrap)
    with contextlib.suppress(FileNotFoundError):
        # complete, since the worker ended by itself
        (run / MIRROR_MAIN).replace(target / MIRROR_MAIN)
    shutil.rmtree(run)


@contextlib.contextmanager
def _running(cluster: KraftCluster) -> Iterator[None]:
    try:
        cluster.launch()
        cluster.await_ready()
        yield
    finally:
        cluster.kill()


def _exercise(bootstrap: str) -> None:
    """What brokers do in every run: a topic and a transaction."""
    admin = AdminClient({**_QUIET, "bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(_TOPIC, 1, 1)], request_timeout=60).values():
        created.result()
    producer = Producer({**_QUIET, "bootstrap.servers": bootstrap, "transactional.id": _TOPIC})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(_TOPIC, b"record")
    producer.commit_transaction(60)


def _mirror(worker: KafkaService, bootstrap: str) -> None:
    """Runs a worker until it has created the mirrored topic, and stops it gracefully."""
    admin = AdminClient({**_QUIET, "bootstrap.servers": bootstrap})
    try:
        worker.start()
        until(
            lambda: not worker.alive or f"A.{_TOPIC}" in admin.list_topics(timeout=10).topics,
            within=_MIRROR_WITHIN,
            what="the training mirror to mirror a topic",
            every=0.2,
        )
        worker.stop(within=_STOP_WITHIN)
    finally:
        worker.kill()
