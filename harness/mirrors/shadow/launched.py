"""The configuration that a shadow process is started with: its settings, its listeners, and the
broker id that it registers with."""

from __future__ import annotations

from linkflap.harness.mirrors.shadow import settings
from linkflap.harness.mirrors.shadow.addresses import broker_settings, listeners
from linkflap.harness.mirrors.shadow.process import ShadowProcess
from linkflap.harness.mirrors.shadow.reversal import taken_topics
from linkflap.harness.model.protocols import Cluster, Deployment
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.security import entered_by, security_of
from linkflap.harness.model.topology import CANARY, LinkSpec, topic_name


class LaunchedShadow(ShadowProcess):
    """Makes the configuration from both clusters, the deployment, and the mirror that this one
    reverses."""

    spec: MirrorSpec
    link: LinkSpec
    _options: settings.ShadowOptions
    _deployment: Deployment
    _source: Cluster
    _destination: Cluster
    _reverses: LaunchedShadow | None
    _generation: int
    _homes: tuple[str, ...]
    _settings: dict[str, dict[int, dict[str, str]]]

    def _config(self) -> settings.Config:
        configs = self._settings_of(self._destination)
        any_broker = next(iter(configs.values()))
        followers = any_broker["inter.broker.listener.name"]
        real: dict[str, dict[int, str]] = {}
        for broker, values in configs.items():
            for listener, address in listeners(values["advertised.listeners"]).items():
                real.setdefault(listener, {})[broker] = address
        joined = list(real) if self._options.clients == "visible" else [followers]
        ports = {name: self._deployment.free_port() for name in joined}
        self._sidecar = sidecar = self._deployment.sidecar(
            f"shadow-{self._folder.name.removeprefix('shadow-')}",
            module="linkflap.harness.mirrors.shadow",
            folder=self._folder,
            log=self.log,
            ports=(self._port, *ports.values()),
        )
        link = self._deployment.links[self.link.name]
        entries = settings.Entries(
            source=security_of(link.bootstrap),
            inner=security_of(self._destination.inner_bootstrap),
            clients=security_of(entered_by(self._destination.bootstrap, "mirror")),
        )
        return settings.Config(
            link=self.link.name,
            source=tuple(str(link.bootstrap).split(",")),
            source_cluster_id=self._source.id,
            homes=self._homes,
            cluster_id=self._destination.id,
            real={
                name: {broker: sidecar.reach(address) for broker, address in them.items()}
                for name, them in real.items()
            },
            controllers=tuple(
                voter.partition("@")[2]
                for voter in any_broker["controller.quorum.voters"].split(",")
            ),
            broker_id=self._broker_id(),
            followers=followers,
            listeners=ports,
            control_port=self._port,
            options=self._options,
            host=sidecar.address,
            advertised_hosts={
                name: sidecar.advertised_host(next(iter(real[name].values()))) for name in joined
            },
            takes_over={} if self._reverses is None else self._reverses._left(),
            source_notes=str(settings.folder_at(self._source)),
            entries=entries,
        )

    def _settings_of(self, cluster: Cluster) -> dict[int, dict[str, str]]:
        """The configs of all brokers of a cluster. For brokers that are down, those that they
        reported when an earlier mirror was started."""
        known = self._settings.setdefault(cluster.name, {})
        known |= broker_settings(cluster)
        return known

    def _broker_id(self) -> int:
        """A broker id that no other shadow of the run has: one per link, and a new one for each
        reversal."""
        links = [link.name for link in self._deployment.topology.links]
        first = self
        while first._reverses is not None:
            first = first._reverses
        return (
            settings.FIRST_BROKER_ID + self._generation * len(links) + links.index(first.link.name)
        )

    def _left(self) -> dict[str, settings.TakenTopic]:
        """The topics that this mirror promoted, for the mirror that reverses it and takes them
        over."""
        return taken_topics(self.notes(), but=topic_name(self.link.source, CANARY))
