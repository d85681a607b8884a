"""Prepares clusters, once per Kafka and Java: jars, Java, a formatted directory, class archives."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from pathlib import Path

from linkflap.harness.machine import cache, class_archives
from linkflap.harness.machine.java import java_for
from linkflap.harness.machine.leases import Lease
from linkflap.harness.runtimes.distribution.cluster_mirroring import generation
from linkflap.harness.runtimes.distribution.kafka import kafka
from linkflap.harness.runtimes.kraft import jvm, storage, training
from linkflap.harness.runtimes.kraft.cluster import BROKER_MAIN
from linkflap.harness.runtimes.kraft.configuration import CLIENT, CONTROLLER, INTERNAL, BrokerPorts
from linkflap.harness.runtimes.kraft.installation import Installation
from linkflap.harness.runtimes.process.cluster import ProcessCluster, process_service


def install(asked: str) -> Installation:
    """The installation for a `ClusterSpec.kafka` on this machine; quick when it exists already.
    Raises InputError or SetupError."""
    found = kafka(asked)
    java = java_for(found.version)
    plain = Installation(
        kafka=found,
        java=java,
        template=storage.template(found, java),
        archives=None,
        mirroring=generation(found),
    )
    doing = (
        f"making class archives of Kafka {found.version} for Java {java.major}, so that its brokers"
        " start in 2 s instead of 5"
    )
    archives = cache.once(
        jvm.archive_name(found, java), lambda target: _train(plain, target), doing=doing
    )
    return replace(plain, archives=archives)


def _train(plain: Installation, target: Path) -> None:
    """Fills `target` with archives named after main classes. SetupError when the broker cannot be
    run or writes none."""
    lease = Lease()
    run = target / "run"  # the training broker's data
    try:
        internal, client, controller = lease.ports(3)
        ports = {
            1: BrokerPorts(
                listens={INTERNAL: internal, CLIENT: client, CONTROLLER: controller}, advertised={}
            )
        }
        options = tuple(class_archives.make(plain.java, target / BROKER_MAIN))
        cluster = ProcessCluster("training", plain, ports, run, jvm_options=options)
        worker = process_service(
            "training mirror",
            plain,
            main=training.MIRROR_MAIN,
            folder=run / "mirror",
            files=training.mirror_files(cluster.inner_bootstrap),
            arguments=[training.MIRROR_FILE],
            jvm_options=tuple(class_archives.make(plain.java, run / training.MIRROR_MAIN)),
        )
        training.train(cluster, worker if training.mirrors(plain.kafka) else None)
    finally:
        lease.release()
    with contextlib.suppress(FileNotFoundError):
        # complete, since the worker ended by itself
        (run / training.MIRROR_MAIN).replace(target / training.MIRROR_MAIN)
    training.found(target, plain)
    shutil.rmtree(run)
