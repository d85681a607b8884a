"""server.properties of one broker: where it listens, what it advertises, and settings for small and
quick clusters.

Each broker has listeners INTERNAL (brokers), CLIENT (the harness's own path, never proxied),
CONTROLLER, ACCESS (ordinary clients by way of the proxy `*->X`) and one LINK_<peer> for each
cluster that a link joins it to, in either direction; and RECORDED where programs are recorded on
the wire, which advertises the recorder's port. A client stays on the listener that it
connected to, because metadata names the addresses of that listener. So the advertised address
decides whether a proxy is in the path (Kafka documentation, advertised.listeners; KIP-103).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from linkflap.harness.machine.java import properties_file
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.topology import Topology

if TYPE_CHECKING:
    from linkflap.harness.runtimes.kraft.secrets import ClusterSecrets

CONTROLLER: Final = "CONTROLLER"
CLIENT: Final = "CLIENT"
INTERNAL: Final = "INTERNAL"
ACCESS: Final = "ACCESS"
RECORDED: Final = "RECORDED"

# Measured: starts fast and idles with little CPU on two cores. Timeouts are short, so that faults
# show within seconds. On an overloaded machine brokers may therefore fence each other without a
# fault.
_TUNED: Final = """\
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.num.partitions=1
num.network.threads=2
num.io.threads=2
background.threads=2
num.recovery.threads.per.data.dir=1
group.coordinator.threads=1
log.cleaner.dedupe.buffer.size=2097152
log.cleaner.io.buffer.size=65536
log.index.size.max.bytes=1048576
offsets.topic.segment.bytes=1048576
transaction.state.log.segment.bytes=1048576
controller.quorum.append.linger.ms=0
controller.quorum.election.timeout.ms=200
controller.quorum.election.backoff.max.ms=100
controller.quorum.fetch.timeout.ms=1000
metadata.max.idle.interval.ms=2000
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
replica.fetch.wait.max.ms=500
replica.fetch.backoff.ms=50
replica.lag.time.max.ms=3000
leader.imbalance.check.interval.seconds=5
log.segment.delete.delay.ms=1000
log.initial.task.delay.ms=1000
log.retention.check.interval.ms=1000
log.cleaner.backoff.ms=1000
producer.id.expiration.check.interval.ms=1000
socket.send.buffer.bytes=-1
socket.receive.buffer.bytes=-1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPorts:
    """The listeners of one broker: listener -> port on `host`. `advertised`: listener -> host:port,
    where that differs."""

    listens: Mapping[str, int]
    advertised: Mapping[str, str]
    host: str = "127.0.0.1"

    def at(self, listener: str) -> str:
        """host:port on which the listener listens."""
        return f"{self.host}:{self.listens[listener]}"

    def advertised_address(self, listener: str) -> str:
        """host:port that the listener advertises."""
        return self.advertised.get(listener, self.at(listener))


def link_listener(peer: str) -> str:
    """The listener for links between a cluster and `peer`. Kafka accepts listener names in upper
    case only."""
    return f"LINK_{peer.upper()}"


def peers(topology: Topology, cluster: str) -> list[str]:
    """The clusters that are linked to `cluster`, in either direction, in the topology's order."""
    joined = {link.destination for link in topology.links if link.source == cluster}
    joined |= {link.source for link in topology.links if link.destination == cluster}
    return [other.name for other in topology.clusters if other.name in joined]


def paths_into(topology: Topology, cluster: str) -> dict[str, str]:
    """The proxied paths into `cluster`: link name -> listener. Every link has its reverse, whether
    requested or not."""
    links = {f"{cluster}->{peer}": link_listener(peer) for peer in peers(topology, cluster)}
    if len(set(links.values())) < len(links):
        raise InputError(
            f"clusters beside {cluster} differ only in upper and lower case; give them different "
            "names"
        )
    return {**links, f"*->{cluster}": ACCESS}


def refuse_comma(folder: Path) -> None:
    """Raises InputError for a folder in which no broker can have its logs: log.dirs is a list."""
    if "," in str(folder.absolute()):
        raise InputError(
            f"{folder.absolute()} has a comma, where Kafka begins the name of another folder; give "
            "--out a path without commas"
        )


def server_properties(
    node: int,
    nodes: Mapping[int, BrokerPorts],
    data: Path,
    own: Mapping[str, str],
    secrets: ClusterSecrets | None = None,
) -> str:
    """The file of broker `node` among `nodes`. `own` is appended and takes precedence. Raises
    InputError for a folder that a broker cannot have."""
    refuse_comma(data)
    ports = nodes[node]
    listens = {name: f"{name}://{ports.at(name)}" for name in ports.listens}
    advertises = {
        name: f"{name}://{ports.advertised_address(name)}"
        for name in ports.listens
        if name != CONTROLLER
    }
    settings = {
        "node.id": str(node),
        "process.roles": "broker,controller",
        "controller.quorum.voters": ",".join(
            f"{i}@{p.at(CONTROLLER)}" for i, p in sorted(nodes.items())
        ),
        "listeners": ",".join(listens.values()),
        "advertised.listeners": ",".join(advertises.values()),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listens),
        "inter.broker.listener.name": INTERNAL,
        "controller.listener.names": CONTROLLER,
        "log.dirs": str(data),
        **_replication(len(nodes)),
        **(
            secrets.settings(node, list(listens), (INTERNAL, CONTROLLER))
            if secrets is not None
            else {}
        ),
    }
    return properties_file(settings) + _TUNED + properties_file(own)


def tuned(nodes: int) -> Mapping[str, str]:
    """The settings of brokers in a cluster of this many nodes, without addresses, identities and
    the user's own settings."""
    return {**_replication(nodes), **dict(line.split("=", 1) for line in _TUNED.splitlines())}


def _replication(nodes: int) -> dict[str, str]:
    """Three replicas with two in sync, as far as there are nodes."""
    factor, in_sync = str(min(3, nodes)), str(max(1, min(3, nodes) - 1))
    return {
        "default.replication.factor": factor,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": in_sync,
    }
