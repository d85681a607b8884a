"""A KRaft cluster, from its start until it is healthy, and the parts that it consists of."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from linkflap.harness.machine.java import with_archive
from linkflap.harness.model.errors import DeadlineExceeded, FaultError, InputError, SetupError
from linkflap.harness.model.faults import Target
from linkflap.harness.model.protocols import Broker, Certificate, Spawn
from linkflap.harness.model.security import security_of
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import faketime, probe
from linkflap.harness.runtimes.distribution import cluster_mirroring
from linkflap.harness.runtimes.kraft.broker import KraftBroker
from linkflap.harness.runtimes.kraft.configuration import (
    ACCESS,
    INTERNAL,
    BrokerPorts,
    link_listener,
    server_properties,
)
from linkflap.harness.runtimes.kraft.installation import (
    BROKER_MEMORY,
    Installation,
    broker_command,
    expected_features,
    format_log_dir,
    fresh_id,
)
from linkflap.harness.wire.librdkafka import quiet

if TYPE_CHECKING:
    from linkflap.harness.runtimes.kraft.secrets import ClusterSecrets


_NAME: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_MOST_PARTITIONS: Final = 10_000
_MADE_WITHIN: Final = 60.0
IN_SYNC: Final = "min.insync.replicas"
"""Of topics; a cluster's own value is that of the topics made there."""


def check_topic(name: str, partitions: int, replicas: int) -> None:
    """Raises InputError for topics that no cluster would create."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is not a topic's name; write up to 249 letters, digits, dots, hyphens and "
            "underscores"
        )
    if not 1 <= partitions <= _MOST_PARTITIONS or replicas < 1:
        raise InputError(
            f"topic {name} cannot have {partitions} partitions and {replicas} replicas; give 1 to "
            f"{_MOST_PARTITIONS} partitions and 1 replica or more"
        )


def _has_leaders(admin: AdminClient, name: str, partitions: int) -> bool:
    """Whether the brokers of a cluster list every partition with a leader."""
    found = admin.list_topics(timeout=_MADE_WITHIN).topics.get(name)
    return (
        found is not None
        and len(found.partitions) == partitions
        and all(p.leader >= 0 for p in found.partitions.values())
    )


_WITHIN: Final = 30.0


def show_key_store(
    bootstrap: str, broker: str, node: int, listener: str, store: Path | None
) -> None:
    """Makes a broker use this store on a listener; None: its own again. Raises FaultError."""
    name = f"listener.name.{listener.lower()}.ssl.keystore.location"
    operation = AlterConfigOpType.DELETE if store is None else AlterConfigOpType.SET
    entry = ConfigEntry(
        name, None if store is None else str(store), incremental_operation=operation
    )
    resource = ConfigResource(ConfigResource.Type.BROKER, str(node), incremental_configs=[entry])
    try:
        admin = AdminClient(quiet(bootstrap))
        admin.incremental_alter_configs([resource], request_timeout=_WITHIN)[resource].result(
            _WITHIN
        )
    except (KafkaException, TimeoutError) as error:
        why = error.args[0].str() if isinstance(error, KafkaException) else "no answer in time"
        raise FaultError(
            f"broker {broker} did not take another certificate ({why}); see its log"
        ) from error


READY_WITHIN: Final = 120.0
BROKER_MAIN: Final = "kafka.Kafka"


class CreatesTopics(ABC):
    """The half of `harness.model.protocols.Cluster` that makes topics. `_topic_defaults`: settings
    of every topic made there."""

    _topic_defaults: Mapping[str, str] = MappingProxyType({})

    @property
    @abstractmethod
    def name(self) -> str: ...
    @property
    @abstractmethod
    def bootstrap(self) -> str: ...
    @property
    @abstractmethod
    def brokers(self) -> Mapping[int, Broker]: ...

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int = 3,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Creates a topic with the requested number of replicas, or one on each broker; all but one
        must be in sync.

        Raises InputError for an existing topic, SetupError if the cluster creates none.
        """
        check_topic(name, partitions, replicas)
        replicas = min(replicas, len(self.brokers))
        settings = {IN_SYNC: str(max(1, replicas - 1)), **self._topic_defaults, **(config or {})}
        security = security_of(self.bootstrap).librdkafka()
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, **security})
        try:
            made = admin.create_topics(
                [NewTopic(name, partitions, replicas, config=settings)], operation_timeout=30
            )
            made[name].result(_MADE_WITHIN)
            # Brokers list it a moment later: a mirror that started now would not see it.
            until(
                lambda: _has_leaders(admin, name, partitions),
                within=_MADE_WITHIN,
                what=f"leaders of {name} on cluster {self.name}",
            )
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                raise InputError(
                    f"there is a topic {name} on cluster {self.name} already; choose another name"
                ) from None
            raise SetupError(
                f"topic {name} could not be created on cluster {self.name}: {reason.str()}"
            ) from error


class KraftCluster(CreatesTopics):
    """`harness.model.protocols.Cluster`. `launch` and `await_ready` are separate, so that clusters
    start concurrently. A runtime defines how one of its brokers is started."""

    def __init__(
        self,
        name: str,
        installation: Installation,
        ports: Mapping[int, BrokerPorts],
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        jvm_options: tuple[str, ...] = (),
        secrets: ClusterSecrets | None = None,
    ) -> None:
        self._name, self._secrets = name, secrets
        self._id = fresh_id()
        self._installation = installation
        self._ports, self._settings = ports, settings or {}
        self._topic_defaults = {
            name: value for name, value in self._settings.items() if name == IN_SYNC
        }
        self._archive = jvm_options or tuple(
            with_archive(installation.java, installation.archive_of(BROKER_MAIN))
        )
        self._running, self._before = dict.fromkeys(ports, installation), dict[int, Sequence[str]]()
        self._brokers = {node: self._make(node, (folder / str(node)).absolute()) for node in ports}
        self._launched = 0.0

    @abstractmethod
    def _spawner(self, node: int, folder: Path, command: Sequence[str]) -> Spawn:
        """A function that starts this broker by this command; its output goes to `output.log` in
        its folder."""

    def _make(self, node: int, folder: Path) -> KraftBroker:
        """Formats and configures one broker."""
        folder.mkdir(parents=True)
        format_log_dir(self._installation.template, folder / "data", cluster_id=self._id, node=node)
        if self._secrets is not None:
            self._secrets.add_first_records(folder / "data")
        properties = folder / "server.properties"
        own = {
            **cluster_mirroring.broker_settings(self._installation.mirroring, len(self._ports)),
            **(
                cluster_mirroring.authorizer_settings(self._installation.mirroring)
                if self._secrets is None
                else {}
            ),
            **self._settings,
        }
        properties.write_text(
            server_properties(node, self._ports, folder / "data", own, self._secrets)
        )
        spawn, ports = self._spawn(node, folder, self._archive), self._ports[node]
        return KraftBroker(
            self._name,
            node,
            folder=folder,
            spawn=spawn,
            ports=ports,
            entry=self._entry,
            inner=self._inner,
        )

    def _spawn(self, node: int, folder: Path, archive: Sequence[str]) -> Spawn:
        """The function that starts a broker with its current settings, on the data in its
        folder."""
        installation = self._running[node]
        command = broker_command(
            installation.kafka,
            installation.java,
            main=BROKER_MAIN,
            arguments=[str(folder / "server.properties")],
            memory=BROKER_MEMORY,
            log=folder / "server.log",
            archive=archive,
        )
        return self._spawner(node, folder, [*self._before.get(node, ()), *command])

    def replace_release(self, node: int, installation: Installation) -> None:
        """From its next start on, this broker runs another release. `kafka` remains the release
        that the cluster was made with."""
        self._running[node] = installation
        self._run_anew(node)

    def skew_clock(self, node: int, seconds: float) -> None:
        """From its next start on, this broker's clock is shifted by this many seconds. Raises
        InputError."""
        self._before[node] = faketime.command(seconds) if seconds else ()
        self._run_anew(node)

    def _run_anew(self, node: int) -> None:
        """Applies a change from the broker's next start on."""
        installation, broker = self._running[node], self._brokers[node]
        archive = with_archive(installation.java, installation.archive_of(BROKER_MAIN))
        broker.run_by(self._spawn(node, broker.log.parent, archive))

    def _entry(self, address: str) -> str:
        """An address of clients' listeners, with the harness's credentials."""
        return address if self._secrets is None else self._secrets.entry(address)

    def _inner(self, address: str) -> str:
        """An address of brokers' and controllers' listeners, with their credentials."""
        return address if self._secrets is None else self._secrets.inner(address)

    @property
    def name(self) -> str:
        return self._name

    @property
    def id(self) -> str:
        return self._id

    @property
    def kafka(self) -> str:
        return self._installation.kafka.version

    @property
    def installation(self) -> Installation:
        return self._installation

    @property
    def brokers(self) -> Mapping[int, KraftBroker]:
        return self._brokers

    @property
    def bootstrap(self) -> str:
        return self._entry(",".join(broker.client_address for broker in self._brokers.values()))

    @property
    def inner_bootstrap(self) -> str:
        return self._inner(
            ",".join(ports.advertised_address(INTERNAL) for ports in self._ports.values())
        )

    def launch(self) -> None:
        """Starts every broker's process; does not wait."""
        self._launched = time.monotonic()
        self._launch_all()

    def _launch_all(self) -> None:
        for broker in self._brokers.values():
            broker.launch()

    def await_ready(self) -> float:
        """Waits until every broker lists all brokers, there is a controller, and the release's
        features are in force. Returns the seconds since `launch`. Raises SetupError."""
        for broker in self._brokers.values():
            broker.await_up()
        try:
            until(
                self._healthy,
                within=READY_WITHIN,
                what=f"cluster {self._name} to be healthy",
                state=self._seen,
                every=0.01,
            )
            until(self._features_right, within=10, what=f"the features of cluster {self._name}")
        except DeadlineExceeded as error:
            raise SetupError(f"{error}; see {next(iter(self._brokers.values())).log}") from error
        return time.monotonic() - self._launched

    def _healthy(self) -> bool:
        everyone = frozenset(self._brokers)
        if any(
            probe.seen_brokers(broker.client_address) != everyone
            for broker in self._brokers.values()
        ):
            return False
        found = probe.quorum(next(iter(self._brokers.values())).client_address)
        return found is not None and found.leader in everyone and found.voters == everyone

    def _seen(self) -> dict[int, list[int]]:
        return {
            node: sorted(probe.seen_brokers(broker.client_address))
            for node, broker in self._brokers.items()
        }

    def _features_right(self) -> bool:
        wanted = expected_features(self._installation.template)
        found = probe.finalized_features(next(iter(self._brokers.values())).client_address)
        if found is None:
            return False
        if wrong := {
            name: found.get(name) for name, level in wanted.items() if found.get(name) != level
        }:
            raise SetupError(
                f"cluster {self._name} runs Kafka {self.kafka} with features {wrong} where the "
                f"release starts with { {name: wanted[name] for name in wrong} }; remove "
                f"{self._installation.template}, it belongs to another Kafka"
            )
        return True

    def show_certificate(self, path: str, which: Certificate) -> None:
        """See the protocol."""
        if self._secrets is None:
            raise FaultError(
                f"cluster {self._name} is not secured, and shows no certificate; secure it: "
                f"{self._name}{{tls}}"
            )
        on = Target.parse(path)
        listener = ACCESS if on.is_client_path else link_listener(on.destination)
        for node, broker in self._brokers.items():
            store = self._secrets.shown(node, listener, which)
            if broker.state == "running":
                show_key_store(self.bootstrap, broker.name, node, listener, store)

    def kill(self) -> None:
        """Kills every broker at once; their data are not needed any more."""
        for broker in self._brokers.values():
            broker.kill()

    def close(self) -> None:
        """Like `kill`, but final."""
        for broker in self._brokers.values():
            broker.close()
