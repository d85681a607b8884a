"""The process runtime: brokers, proxies and services as plain child processes on loopback. No
engine, no root, no images."""

from linkflap.harness.model.topology import Topology
from linkflap.harness.runtimes.distribution import kafka
from linkflap.harness.runtimes.process.deployment import ProcessDeployment, deploy

__all__ = ["ProcessDeployment", "check", "deploy"]


def check(topology: Topology) -> None:
    """Raises InputError for an unknown Kafka; fetches nothing."""
    for asked in dict.fromkeys(cluster.kafka for cluster in topology.clusters):
        kafka.look_for(asked)
