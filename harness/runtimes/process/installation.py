"""Makes what a cluster is made from, once per Kafka and Java: jars, Java, a formatted directory, class archives."""

from __future__ import annotations

import shutil
from pathlib import Path

from harness.runtimes.distribution import cache
from harness.runtimes.distribution.java import java_for
from harness.runtimes.distribution.kafka import kafka
from harness.runtimes.process import jvm, storage, training
from harness.runtimes.process.cluster import Installation


def install(asked: str) -> Installation:
    """What a `ClusterSpec.kafka` needs on this machine; quick when it was made before. Raises InputError or SetupError."""
    found = kafka(asked)
    java = java_for(found.version)
    plain = Installation(kafka=found, java=java, template=storage.template(found, java), archives=None)

    def make(target: Path) -> None:
        training.train(plain, target)
        shutil.rmtree(target / "run")  # the training broker's data

    doing = f"making class archives of Kafka {found.version} for Java {java.major}, so that its brokers start in 2 s instead of 5"
    archives = cache.once(jvm.archive_name(found, java), make, doing=doing)
    return Installation(kafka=found, java=java, template=plain.template, archives=archives)
