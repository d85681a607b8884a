"""The runtime of clusters that run already: linkflap attaches to them, puts links in front of them,
and stops and starts their brokers only with the user's commands.

Promises: a run writes only topics and consumer groups under its own names to such a cluster
(`harness.machine.attached_leftovers`), and removes them at its end. `deploy` refuses to begin if a
cluster has one of these names already or does not answer, or if two names of a topology are one
cluster.

A path into a cluster (`A->B`, `*->A`) is a Toxiproxy proxy for each broker, as everywhere. Behind
the proxies stands one program for each cluster that writes the proxies' addresses into its answers
(`harness.wire.address_rewriter`).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic

from linkflap.harness.machine import client_properties, ledger
from linkflap.harness.machine.attached_leftovers import (
    ASK_SECONDS,
    HEARTBEATS,
    IN_USE,
    Attached,
    admin_of,
    owned,
    remove,
    why,
)
from linkflap.harness.machine.broker_commands import UNDONE_BY, BrokerCommand
from linkflap.harness.machine.cache import LOG
from linkflap.harness.machine.cleanup import private_folder, start_watchdog
from linkflap.harness.machine.engine_leftovers import StillThere
from linkflap.harness.model.errors import DeadlineExceeded, FaultError, InputError
from linkflap.harness.model.events import ClusterReady
from linkflap.harness.model.protocols import (
    BrokerState,
    Certificate,
    Confines,
    Recorder,
    WireRecording,
)
from linkflap.harness.model.scenario import OWN_GROUPS
from linkflap.harness.model.security import OPEN, Address, beside
from linkflap.harness.model.threads import all_side_by_side, side_by_side
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import probe, process
from linkflap.harness.runtimes.distribution.toxiproxy_server import toxiproxy_server
from linkflap.harness.runtimes.kraft.broker import END_WITHIN, ClusterProgram
from linkflap.harness.runtimes.kraft.cluster import CreatesTopics
from linkflap.harness.runtimes.kraft.configuration import paths_into
from linkflap.harness.runtimes.kraft.deployment import (
    LINK_MEMORY,
    ClusterRecorder,
    require_certificates,
    started,
)
from linkflap.harness.runtimes.toxiproxy import shared
from linkflap.harness.runtimes.toxiproxy.link import TopicMarks, ToxiproxyLink
from linkflap.harness.runtimes.toxiproxy.shared import SharedToxiproxy
from linkflap.harness.wire import address_rewriter, messages
from linkflap.harness.wire.access import NoAnswer, access_to, host_and_port
from linkflap.harness.wire.forwarding import Tls
from linkflap.harness.wire.peer import BlockingConnection

if TYPE_CHECKING:
    from linkflap.harness.runtimes.kraft.secrets import AttachedSecrets

_SHOWN: Final = 3


@dataclass(slots=True, kw_only=True)
class AttachedBroker:
    """`harness.model.protocols.Broker`: a broker that linkflap did not start. Only the user's
    commands stop, pause and start it (`commands`: verb -> command, run in `folder`). It counts as
    running until a command has ended it or the run has given it up. `log_dir` does not exist,
    because its logs are fetched."""

    cluster: str
    id: int
    client_address: str
    log_dir: Path
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    folder: str = ""
    state: BrokerState = "running"
    _given_up: bool = False
    _undo: BrokerCommand | None = None
    _may_run: bool = False
    """Whether the last command to end or pause the broker has failed."""

    @property
    def log(self) -> Path:
        """The output of the broker's commands; beside `log_dir`, which is removed at the end."""
        return self.log_dir.with_name(f"broker-{self.id}-commands.log")

    @property
    def pid(self) -> int | None:
        return None

    @property
    def exit_status(self) -> int | None:
        return None

    @property
    def inner_addresses(self) -> Sequence[str]:
        return ()

    @property
    def confines(self) -> Confines | None:
        return None

    def last_words(self, *, lines: int) -> Sequence[str]:
        del lines
        return ()

    def start(self) -> None:
        self._undone("start")

    def stop(self) -> None:
        self._done("stop", "stopped")

    def kill(self) -> None:
        self._done("kill", "stopped")

    def pause(self) -> None:
        self._done("pause", "paused")

    def resume(self) -> None:
        self._undone("resume")

    def give_up(self) -> None:
        """Called by a forced failover, which cuts every path into the broker's cluster."""
        self._given_up, self.state = True, "stopped"

    def heal(self) -> None:
        """Called at the end of a run: starts or resumes the broker if a fault was not healed.
        Raises FaultError."""
        if (undo := self._undo) is None:
            return
        answers = self._may_run and probe.reach(self.client_address, within=ASK_SECONDS)
        if not answers:
            undo.run(self.log)
        self._undo = None
        ledger.remove_broken(undo)

    def _done(self, verb: str, state: BrokerState) -> None:
        command = self._command(verb)
        self._undo = self._command(UNDONE_BY[verb])
        ledger.add_broken(self._undo)  # before: a fault that is half done is undone too
        # A broker that was asked to stop answers for a while.
        self._may_run = verb != "stop"
        command.run(self.log)
        self._may_run, self.state = False, state

    def _undone(self, verb: str) -> None:
        self._command(verb)
        self.heal()
        self.state = "stopped" if self._given_up else "running"

    def _command(self, verb: str) -> BrokerCommand:
        if verb not in self.commands:
            raise FaultError(
                f"linkflap did not start the cluster of broker {self.cluster}/{self.id}, and has "
                f"no command to {verb} it; give one in [cluster.{self.cluster}.commands]"
            )
        return BrokerCommand(
            cluster=self.cluster,
            broker=self.id,
            verb=verb,
            words=self.commands[verb],
            folder=self.folder,
        )


class AttachedCluster(CreatesTopics):
    """`harness.model.protocols.Cluster`, as it was when linkflap attached to it. `kafka` is the
    release of the programs beside it."""

    __slots__ = ("_brokers", "_name", "id", "kafka", "properties", "secrets")

    def __init__(
        self,
        name: str,
        *,
        id: str,
        kafka: str,
        brokers: Mapping[int, AttachedBroker],
        properties: str,
        secrets: AttachedSecrets | None,
    ) -> None:
        """`properties`: the source of the client properties, an absolute path or `env:NAME`; empty
        for plain text. `secrets`: the credentials; None for plain text."""
        self._name, self._brokers = name, brokers
        self.id, self.kafka, self.properties, self.secrets = id, kafka, properties, secrets

    @property
    def name(self) -> str:
        return self._name

    @property
    def brokers(self) -> Mapping[int, AttachedBroker]:
        return self._brokers

    @property
    def bootstrap(self) -> str:
        addresses = [broker.client_address for broker in self.brokers.values()]
        return beside(addresses[0], ",".join(addresses))

    @property
    def inner_bootstrap(self) -> str:
        return self.bootstrap

    def show_certificate(self, path: str, which: Certificate) -> None:
        raise FaultError(f"cluster {self.name} is not linkflap's, nor are its certificates")


class ClusterRewriter(ClusterProgram):
    """The program behind the proxies of one cluster. Not started when made."""

    def __init__(
        self, cluster: str, folder: Path, settings: address_rewriter.RewriterSettings
    ) -> None:
        self.name = name = f"address rewriter of {cluster}"
        super().__init__(
            name,
            address_rewriter.__name__,
            folder=folder,
            settings=(address_rewriter.SETTINGS, msgspec.json.encode(settings)),
            ready=address_rewriter.READY,
        )

    def finish(self) -> None:
        """Ends it."""
        with contextlib.suppress(DeadlineExceeded):
            self.stop(within=END_WITHIN)
        self.close()


def deploy(
    topology: Topology, *, folder: Path, recorder: Recorder, wire: WireRecording | None = None
) -> AttachedDeployment:
    """Attaches to the clusters of a topology, and proves the links before them. Raises InputError
    or SetupError, after ending what was already started."""
    return started(AttachedDeployment(topology, folder=folder, recorder=recorder, wire=wire))


class AttachedDeployment(process.WithChildren):
    """`harness.model.protocols.Deployment`: proxies and services are children of this process."""

    def __init__(
        self,
        topology: Topology,
        *,
        folder: Path,
        recorder: Recorder,
        wire: WireRecording | None = None,
    ) -> None:
        super().__init__(topology, folder=folder, recorder=recorder, wire=wire)
        self._clusters: dict[str, AttachedCluster] = {}
        self._rewriters: list[ClusterRewriter] = []
        self._shared: list[tuple[SharedToxiproxy, ToxiproxyLink]] = []
        self._touched: list[Attached] = []
        self._private: Path | None = None

    @property
    def clusters(self) -> Mapping[str, AttachedCluster]:
        return MappingProxyType(self._clusters)

    def start(self) -> None:
        """See `started`."""
        _ready_proxies(self._topology)
        found = {spec.name: self._look_at(spec) for spec in self._topology.clusters}
        self._clusters = dict(found)
        _refuse_twins(self._clusters.values())
        paths = {name: list(paths_into(self._topology, name)) for name in found}
        self._lease.memory(sum(map(len, paths.values())) * LINK_MEMORY)
        names = tuple(found)
        for cluster in found.values():
            _refuse_no_transactions(cluster)
        touched = [_refuse_owned(cluster, names) for cluster in found.values()]
        start_watchdog()
        for each in touched:
            _claim(each)
            ledger.add_attached(each)
            self._touched.append(each)
            _refuse_denied(each)
        for name, cluster in found.items():
            self._prepare(cluster, paths[name])
        side_by_side(rewriter.start for rewriter in self._rewriters)
        side_by_side(each.start for each in self._recorders.values())
        side_by_side(link.start for link in self._links.values())
        for server, link in self._shared:
            server.refuse_unreached(link)
        side_by_side(link.prove for link in self._links.values())

    def _secrets_of(self, spec: ClusterSpec) -> AttachedSecrets | None:
        """None for plain text without a login. Raises InputError."""
        found = client_properties.read(spec.properties)
        if found.protocol == "PLAINTEXT":
            return None
        require_certificates()
        # it needs an optional package
        from linkflap.harness.runtimes.kraft.secrets import attached_secrets

        if self._private is None:
            self._private = private_folder()
        return attached_secrets(spec.name, found, self._private)

    def _look_at(self, spec: ClusterSpec) -> AttachedCluster:
        """Raises InputError for one that does not answer."""
        secrets = self._secrets_of(spec)
        entry = OPEN if secrets is None else secrets.entry
        where = f"cluster {spec.name} at {spec.bootstrap}"
        _refuse_closed(where, spec, [Address(each, entry) for each in spec.bootstrap.split(",")])
        try:
            admin = admin_of(spec.bootstrap, spec.properties)
            described = admin.describe_cluster(request_timeout=ASK_SECONDS).result(2 * ASK_SECONDS)
        except (KafkaException, TimeoutError) as error:
            raise InputError(
                f"{where} did not list its brokers ({why(error)}); check that they run"
            ) from None
        brokers = {
            int(node.id): AttachedBroker(
                cluster=spec.name,
                id=int(node.id),
                client_address=Address(f"{node.host}:{node.port}", entry),
                log_dir=self._folder / spec.name / str(node.id),
                commands=spec.commands,
                folder=spec.folder,
            )
            for node in sorted(described.nodes, key=lambda node: int(node.id))
        }
        for broker in brokers.values():
            if refused := probe.refusal(broker.client_address, within=ASK_SECONDS):
                raise InputError(
                    f"broker {spec.name}/{broker.id} is not reached at the address that it "
                    f"advertises ({refused}); run linkflap where clients of this listener run, or "
                    "name a listener whose advertised addresses can be reached from here"
                )
        self._recorder.write(
            ClusterReady(
                cluster=spec.name,
                kafka=f"at {spec.bootstrap}",
                brokers=len(brokers),
                seconds=0.0,
            )
        )
        return AttachedCluster(
            spec.name,
            id=str(described.cluster_id),
            kafka=spec.kafka,
            brokers=brokers,
            properties=client_properties.absolute(spec.properties),
            secrets=secrets,
        )

    def _prepare(self, cluster: AttachedCluster, paths: Sequence[str]) -> None:
        """Leases the ports of the paths into a cluster, and makes its proxies and rewriter; starts
        nothing."""
        nodes = cluster.brokers
        recorded = len(nodes) if self._wire is not None else 0
        ports = iter(self._lease.ports(len(paths) * (2 * len(nodes) + 1) + recorded))
        behind: list[address_rewriter.PathPort] = []
        for path in paths:
            fronts = {node: next(ports) for node in nodes}
            named = {node: ("127.0.0.1", port) for node, port in fronts.items()}
            proxies: dict[int, tuple[int, str]] = {}
            for node, broker in nodes.items():
                inner = next(ports)
                behind.append(
                    address_rewriter.PathPort(
                        port=inner, broker=str(broker.client_address), proxies=named
                    )
                )
                proxies[node] = (fronts[node], f"127.0.0.1:{inner}")
            if self._wire is not None and path.startswith("*->"):
                proxies = self._recorded(cluster, self._wire, proxies, ports)
            at = path.replace("*->", "access-").replace("->", "-")
            api = self._topology.cluster(cluster.name).toxiproxy
            server = SharedToxiproxy(shared.parse(api), at, nodes) if api else None
            self._links[path] = link = ToxiproxyLink(
                path,
                cluster.name,
                proxies,
                next(ports),
                self._folder / cluster.name / at,
                self._recorder,
                cluster.bootstrap,
                server=server,
                marks=TopicMarks(cluster=cluster.name),
            )
            if server is not None:
                self._shared.append((server, link))
        own = [host_and_port(each.client_address) for each in nodes.values()]
        self._rewriters.append(
            ClusterRewriter(
                cluster.name,
                self._folder / cluster.name / "address-rewriter",
                address_rewriter.RewriterSettings(
                    ports=behind, brokers=own, tls=ends_of_tls(cluster.secrets)
                ),
            )
        )

    def _recorded(
        self,
        cluster: AttachedCluster,
        wire: WireRecording,
        proxies: Mapping[int, tuple[int, str]],
        ports: Iterator[int],
    ) -> dict[int, tuple[int, str]]:
        """Puts a recorder between the proxies of clients and the address rewriter: each proxy with
        the recorder's port behind it. All programs that are recorded use this path."""
        listens = {next(ports): rewriter for _, rewriter in proxies.values()}
        bootstrap = ",".join(f"127.0.0.1:{front}" for front, _ in proxies.values())
        self._recorders[cluster.name] = ClusterRecorder(
            cluster.name,
            len(self._recorders),
            wire,
            folder=self._folder / cluster.name / "recorder",
            listens=listens,
            bootstrap=beside(cluster.bootstrap, bootstrap),
            recorder=self._recorder,
            tls=ends_of_recorder(cluster.secrets),
        )
        fronts = ((node, front) for node, (front, _) in proxies.items())
        return {
            node: (front, f"127.0.0.1:{port}")
            for (node, front), port in zip(fronts, listens, strict=True)
        }

    def replace_release(self, cluster: str, broker: int, kafka: str) -> str:
        raise InputError(f"broker {cluster}/{broker} is not linkflap's, and keeps its release")

    def skew_clock(self, cluster: str, broker: int, seconds: float) -> None:
        raise InputError(f"broker {cluster}/{broker} is not linkflap's, and keeps its clock")

    def broken(self) -> str:
        dead = [each for each in self._rewriters if not each.alive]
        return f"the {dead[0].name} died; see {dead[0].log}" if dead and not self._closed else ""

    def _end_clusters(self, ends: contextlib.ExitStack) -> None:
        for rewriter in self._rewriters:
            ends.callback(rewriter.finish)
        for each in self._recorders.values():
            ends.callback(each.finish)

    def _give_back(self) -> None:
        """Called last, when no client reaches a cluster any more and could create a topic again."""
        for broker in [each for c in self._clusters.values() for each in c.brokers.values()]:
            try:
                broker.heal()
            except FaultError as error:  # it stays in the ledger, for `linkflap clean`
                LOG.warning("%s", error)
        # a connector that is left would make topics again: `linkflap clean` removes it first
        connectors = any(made.kind == "connector" for made in ledger.own().made)
        try:
            for each in () if connectors else self._touched:
                try:
                    deque(remove(each), maxlen=0)
                    ledger.remove_attached(each)
                except StillThere as error:  # it stays in the ledger, for `linkflap clean`
                    LOG.warning("%s", error)
        finally:
            if self._private is not None:
                ledger.remove_folder(self._private)
            self._lease.release()


def _ready_proxies(topology: Topology) -> None:
    """Installs Toxiproxy if it is needed. Raises InputError for a server of others that cannot be
    used."""
    servers = {each.toxiproxy for each in topology.clusters}
    for written in sorted(servers - {""}):
        shared.check(shared.parse(written))
    if "" in servers:
        all_side_by_side([toxiproxy_server])


def ends_of_tls(secrets: AttachedSecrets | None) -> Tls | None:
    """How the rewriter of a cluster terminates TLS; None if the cluster uses no TLS."""
    if secrets is None or not secrets.shown:
        return None
    return Tls(
        shown=secrets.shown,
        asked=secrets.asked,
        authority=secrets.authority,
        identity=secrets.identity,
        any_host=secrets.entry.any_host,
    )


def ends_of_recorder(secrets: AttachedSecrets | None) -> Tls | None:
    """How the recorder between clients and the rewriter terminates TLS, as the rewriter does; it
    trusts the rewriter's authority, too. None if the cluster uses no TLS."""
    ends = ends_of_tls(secrets)
    if secrets is None or ends is None:
        return None
    return msgspec.structs.replace(ends, authority=secrets.entry.authority)


def _refuse_closed(where: str, spec: ClusterSpec, addresses: Sequence[str]) -> None:
    """Raises InputError if every address rejects this client."""
    refusals = []
    for address in addresses:
        try:
            probe.advertised(host_and_port(address), within=ASK_SECONDS, access=access_to(address))
        except NoAnswer as error:
            refusals.append(str(error))
        else:
            return
    if all("cannot be connected to" in refusal for refusal in refusals):
        raise InputError(
            f"{where} does not answer ({'; '.join(refusals)}); check its address, and that it runs"
        )
    by = (
        f"client properties {spec.properties} fit this listener"
        if spec.properties
        else "this is a PLAINTEXT listener (for any other write its client properties behind the "
        f"address: {spec.name}@bootstrap:{spec.bootstrap}{{client.properties}})"
    )
    raise InputError(
        f"{where} does not let this client in ({'; '.join(refusals)}); check that it runs, and "
        f"that {by}"
    )


def _refuse_twins(clusters: Iterable[AttachedCluster]) -> None:
    """Raises InputError for two names of one cluster."""
    names: dict[str, str] = {}
    for cluster in clusters:
        if (other := names.setdefault(cluster.id, cluster.name)) != cluster.name:
            raise InputError(
                f"{other} and {cluster.name} are one cluster (cluster.id {cluster.id}), and none "
                "is a mirror of itself; give the address of the other cluster for one of them"
            )


def _refuse_owned(found: AttachedCluster, names: tuple[str, ...]) -> Attached:
    """The names that a run of a topology with these clusters owns on one of them. Raises InputError
    if a topic or group has such a name already, or if another run uses the cluster."""
    where = f"cluster {found.name} at {found.bootstrap}"
    admin = admin_of(found.bootstrap, found.properties)
    try:
        known = admin.list_topics(timeout=ASK_SECONDS).topics
        if IN_USE in known:
            raise _in_use(where)
        cluster = Attached(
            name=found.name,
            bootstrap=str(found.bootstrap),
            id=found.id,
            clusters=names,
            had_heartbeats=HEARTBEATS in known,
            properties=found.properties,
        )
        topics, groups = owned(cluster, admin)
        there = [*(f"topic {name}" for name in topics), *(f"group {name}" for name in groups)]
        if there:
            more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
            raise InputError(
                f"{where} has {', '.join(there[:_SHOWN])}{more}, and a run uses such names, and "
                "removes them at its end; give the clusters other names in the topology, or remove "
                "what a killed run left with `linkflap clean`"
            )
    except (KafkaException, TimeoutError) as error:
        raise InputError(
            f"{where} does not list its topics and groups ({why(error)}); check that its brokers "
            "run"
        ) from None
    return cluster


_PROBE: Final = "linkflap-rights"
"""Names of the topics and the group with which a run tests its rights."""
_RIGHTS_WITHIN: Final = 60.0
"""Seconds. A cluster without groups first creates `__consumer_offsets`."""
_TOPIC_RIGHTS: Final = ("CREATE", "DESCRIBE", "READ", "WRITE", "DELETE", "DESCRIBE_CONFIGS")
_GROUP_RIGHTS: Final = ("DESCRIBE", "READ", "DELETE")
_DENIALS: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)


def _refuse_denied(cluster: Attached) -> None:
    """Raises InputError where the cluster denies what every run needs on its own topics and
    groups."""
    where = f"cluster {cluster.name} at {cluster.bootstrap}"
    admin = admin_of(cluster.bootstrap, cluster.properties)
    rights, what = partial(_topic_rights, admin), _beginning(IN_USE)
    _refuse_lacking(where, ("DESCRIBE", "DELETE"), partial(rights, IN_USE), what)
    # one after the other: a topic that may not be deleted stays
    for topic in [f"{name}.{_PROBE}.internal" for name in cluster.clusters]:
        what = _beginning(topic)
        with _denials(where, "CREATE", what):
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(2 * ASK_SECONDS)
        _refuse_lacking(where, _TOPIC_RIGHTS, partial(rights, topic), what)
        with _denials(where, "DELETE", what):
            deleted = admin.delete_topics([topic], operation_timeout=ASK_SECONDS)
            deleted[topic].result(2 * ASK_SECONDS)
    _refuse_lacking(
        where, _GROUP_RIGHTS, partial(_group_rights, admin), f"groups that begin with {OWN_GROUPS}"
    )


def _refuse_no_transactions(cluster: AttachedCluster) -> None:
    """Raises InputError if the cluster denies the run's transactional ids. Any broker answers the
    test, the end of a transaction that does not exist: brokers check rights first."""
    m = messages.request("end_txn", 1)
    body = m.EndTxnRequest(
        transactional_id=f"{OWN_GROUPS}{_PROBE}", producer_id=0, producer_epoch=0, committed=False
    )
    address = next(iter(cluster.brokers.values())).client_address
    where = f"cluster {cluster.name} at {cluster.bootstrap}"
    try:
        with BlockingConnection(
            host_and_port(address), within=ASK_SECONDS, access=access_to(address)
        ) as path:
            answer = path.ask("end_txn", 1, body)
    except NoAnswer as error:
        raise InputError(f"{where} does not answer ({error}); check that its brokers run") from None
    if answer.error_code == messages.Error.transactional_id_authorization_failed:
        raise _denied(where, ["WRITE"], f"transactional ids that begin with {OWN_GROUPS}")


def _beginning(topic: str) -> str:
    if topic == IN_USE:
        return f"topic {IN_USE}"
    return f"topics that begin with {topic.partition('.')[0]}."


def _topic_rights(admin: AdminClient, topic: str) -> Iterable[AclOperation] | None:
    """What this client may do with a topic; None where the broker does not say. Raises
    KafkaException."""
    asked = admin.describe_topics(
        TopicCollection([topic]), include_authorized_operations=True, request_timeout=ASK_SECONDS
    )
    found: Iterable[AclOperation] | None = (
        asked[topic].result(2 * ASK_SECONDS).authorized_operations
    )
    return found


def _group_rights(admin: AdminClient) -> Iterable[AclOperation] | None:
    """As `_topic_rights`, for a group."""
    group = f"{OWN_GROUPS}{_PROBE}"
    asked = admin.describe_consumer_groups(
        [group], include_authorized_operations=True, request_timeout=ASK_SECONDS
    )
    found: Iterable[AclOperation] | None = (
        asked[group].result(2 * ASK_SECONDS).authorized_operations
    )
    return found


def _refuse_lacking(
    where: str,
    needed: Sequence[str],
    rights: Callable[[], Iterable[AclOperation] | None],
    what: str,
) -> None:
    """Raises InputError for an operation that `rights` lacks. Asks again while a broker does not
    know the topic, or while the cluster creates its first group coordinator."""
    said: list[object] = []

    def answered() -> bool:
        try:
            found = rights()
        except KafkaException as error:
            if error.args[0].code() in _DENIALS:
                raise
            said.append(why(error))
            return False
        have = {each.name for each in (AclOperation if found is None else found)}
        if lacking := [operation for operation in needed if operation not in have]:
            raise _denied(where, lacking, what)
        return True

    with _denials(where, "DESCRIBE", what):
        until(
            answered,
            within=_RIGHTS_WITHIN,
            every=0.1,
            what=f"{where} to say what this client may do",
            state=lambda: said[-1:],
        )


@contextlib.contextmanager
def _denials(where: str, operation: str, what: str) -> Iterator[None]:
    """Raises InputError if the answer denies this operation, or if no answer comes."""
    try:
        yield
    except KafkaException as error:
        if error.args[0].code() in _DENIALS:
            raise _denied(where, [operation], what) from None
        raise InputError(
            f"{where} does not let this client use {what} ({why(error)}); check the policies of "
            "the cluster, and that its brokers run"
        ) from None
    except (TimeoutError, DeadlineExceeded) as error:
        raise InputError(f"{where} gave no answer in time about {what} ({error})") from None


def _denied(where: str, operations: Sequence[str], what: str) -> InputError:
    return InputError(
        f"{where} denies this client {', '.join(operations)} on {what}, which a run needs; add an "
        "ACL, or give the client properties of another user"
    )


def _claim(cluster: Attached) -> None:
    """Creates the topic IN_USE. Raises InputError if another run has created it."""
    where = f"cluster {cluster.name} at {cluster.bootstrap}"
    admin = admin_of(cluster.bootstrap, cluster.properties)
    asked = admin.create_topics([NewTopic(IN_USE, 1, 1)])
    with _denials(where, "CREATE", _beginning(IN_USE)):
        try:
            asked[IN_USE].result(ASK_SECONDS)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                raise _in_use(where) from None
            raise


def _in_use(where: str) -> InputError:
    return InputError(
        f"another run of linkflap uses {where}, which has its topic {IN_USE}; wait for its "
        "end, remove what a killed run left with `linkflap clean`, or delete the topic if that "
        "run was on a machine that is gone"
    )


def _check_certificates(cluster: ClusterSpec) -> None:
    """Raises InputError if certificates cannot be made here, or those that it names not used."""
    require_certificates()
    from linkflap.harness.runtimes.kraft.secrets import check_certificates

    check_certificates(client_properties.read(cluster.properties))


def check(topology: Topology) -> None:
    """The check of the process runtime, in which mirrors run. Also raises InputError for settings
    of brokers that linkflap does not start, and for client properties and certificates that cannot
    be read."""
    for cluster in topology.clusters:
        if client_properties.read(cluster.properties).tls:
            _check_certificates(cluster)
        if cluster.toxiproxy:
            shared.parse(cluster.toxiproxy)
        if cluster.config:
            raise InputError(
                f"the brokers of cluster {cluster.name} run already, so that {min(cluster.config)} "
                "cannot be set on them; leave the settings of their brokers out"
            )
    process.check(topology)
