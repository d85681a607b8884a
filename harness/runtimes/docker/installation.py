"""Prepares clusters in containers: an image, a formatted directory, and class archives of the
image's Java."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from pathlib import Path

from linkflap.harness.machine import cache, class_archives
from linkflap.harness.machine.java import Java, java_for
from linkflap.harness.machine.leases import Lease
from linkflap.harness.runtimes.distribution.cluster_mirroring import generation
from linkflap.harness.runtimes.distribution.kafka import Kafka, kafka
from linkflap.harness.runtimes.docker.cluster import ContainerCluster, container_service
from linkflap.harness.runtimes.docker.images import custom_image, kafka_image
from linkflap.harness.runtimes.docker.network import DeploymentNetwork, create_network
from linkflap.harness.runtimes.kraft import storage, training
from linkflap.harness.runtimes.kraft.cluster import BROKER_MAIN
from linkflap.harness.runtimes.kraft.configuration import CLIENT, CONTROLLER, INTERNAL, BrokerPorts
from linkflap.harness.runtimes.kraft.installation import Installation


def install(asked: str, base_image: str | None = None) -> Installation:
    """The installation for a `ClusterSpec.kafka`; quick when it exists already. `base_image`: see
    `image.ready`. Raises InputError or SetupError."""
    if base_image is None and (
        reference := asked if custom_image.is_reference(asked) else kafka_image.official(asked)
    ):
        taken = custom_image.take(reference)
        found, libs, identity, java = taken.kafka, taken.libs, taken.id, taken.java
    else:
        found = kafka(asked)
        made = kafka_image.ready(found, base_image)
        libs, identity, java = kafka_image.LIBS, made.id, made.java
    plain = Installation(
        kafka=Kafka(
            version=found.version, jars=tuple(libs / jar.name for jar in found.jars), key=found.key
        ),
        java=Java(path=Path("java"), major=java),
        template=storage.template(found, java_for(found.version)),
        archives=None,
        image=identity,
        mirroring=generation(found),
    )
    doing = (
        f"making class archives of Kafka {found.version} in containers, so that its brokers start "
        "in 2 s instead of 5"
    )
    archives = cache.once(
        f"archives/docker-{identity[:24]}", lambda target: _train(plain, target), doing=doing
    )
    return replace(plain, archives=archives)


def _give_back(network: DeploymentNetwork, lease: Lease) -> None:
    """Returns the leased ports, except those of containers that could not be ended."""
    network.close()
    lease.release()


def _train(plain: Installation, target: Path) -> None:
    """Fills `target` with archives named after main classes. SetupError when the broker cannot be
    run or writes none."""
    run = target / "run"  # the training broker's data
    with contextlib.ExitStack() as ends:
        lease, network = Lease(), create_network()
        ends.callback(_give_back, network, lease)
        (client,) = lease.ports(1)
        listens = {INTERNAL: 9094, CLIENT: client, CONTROLLER: 9093}
        ports = {
            1: BrokerPorts(
                listens=listens,
                advertised={CLIENT: f"127.0.0.1:{client}"},
                host=network.take_address(),
            )
        }
        options = tuple(class_archives.make(plain.java, target / BROKER_MAIN))
        cluster = ContainerCluster(
            "training", plain, ports, run, network, folders={target: True}, jvm_options=options
        )
        worker = container_service(
            "training-mirror",
            plain,
            network,
            main=training.MIRROR_MAIN,
            folder=run / "mirror",
            files=training.mirror_files(cluster.inner_bootstrap),
            arguments=[training.MIRROR_FILE],
            folders={target: True},
            jvm_options=tuple(class_archives.make(plain.java, run / training.MIRROR_MAIN)),
        )
        training.train(cluster, worker if training.mirrors(plain.kafka) else None)
    with contextlib.suppress(FileNotFoundError):
        # complete, since the worker ended by itself
        (run / training.MIRROR_MAIN).replace(target / training.MIRROR_MAIN)
    training.found(target, plain)
    shutil.rmtree(run)
