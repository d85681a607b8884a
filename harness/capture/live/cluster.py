"""A running cluster, for a client with no more than DESCRIBE and READ: topics, their bounds, their
leaders' bytes.

It sends four kinds of requests and, except for SASL, no others: ApiVersions, Metadata (never
creating a topic), ListOffsets, and Fetch as a consumer without a group and without a session. It
does not produce, commit, join or alter anything. It follows leaders that move, and treats the same
errors as retriable as Kafka's own clients do.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal

from linkflap.harness.machine import client_properties
from linkflap.harness.machine.client_properties import ClientProperties
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure, InputError
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.model.wait import until
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import CLIENT, Access, AuthenticationRefused, Login, Unanswered
from linkflap.harness.wire.messages import Error, Message
from linkflap.harness.wire.peer import Peer


def access(path: Path) -> Access:
    """The settings in a file of client properties. Raises InputError for unreadable, unknown or
    contradictory ones."""
    found = client_properties.read(str(path))
    login = None
    if found.mechanism:
        login = Login(mechanism=found.mechanism, username=found.username, password=found.password)
    return Access(
        tls=_tls(found) if found.tls else None,
        login=login,
        client=found.given.get("client.id", CLIENT),
    )


def _tls(found: ClientProperties) -> ssl.SSLContext:
    """Raises InputError for certificates that cannot be read."""
    given = found.given
    try:
        trusted = given.get("ssl.ca.location", "")
        folder = Path(trusted).is_dir() if trusted else False
        context = ssl.create_default_context(  # with none of these: those that this machine trusts
            cafile=trusted if trusted and not folder else None,
            capath=trusted if folder else None,
            cadata=given.get("ssl.ca.pem"),
        )
        context.check_hostname = found.checks_certificates and not found.any_host
        if not found.checks_certificates:
            context.verify_mode = ssl.CERT_NONE
        if own := given.get("ssl.certificate.location"):
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(
                own, given.get("ssl.key.location"), password=given.get("ssl.key.password", "")
            )
    except (OSError, ValueError) as error:
        raise InputError(
            f"{found.source}: a certificate or key in it cannot be read ({error}); name PEM files"
        ) from error
    return context


Bound = Literal["start", "high", "stable"]
PATIENCE: Final = 30.0
"""Seconds in which a leader must be found and answer; then reading the partition ends."""
_ANSWER_SECONDS: Final = 20.0
_TIMESTAMP: Final[Mapping[Bound, int]] = {"start": -2, "high": -1, "stable": -1}
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_CONSUMER: Final = -1
_WAIT: Final = timedelta(milliseconds=500)
PASSING: Final = frozenset(
    {
        Error.not_leader_or_follower, Error.leader_not_available, Error.replica_not_available,
        Error.fenced_leader_epoch,
        Error.unknown_leader_epoch, Error.kafka_storage_error, Error.offset_not_available,
        Error.unknown_topic_or_partition,
    }
)  # fmt: skip
_FORBIDDEN: Final = frozenset(
    {Error.topic_authorization_failed, Error.cluster_authorization_failed}
)


class GivenUp(Exception):
    """Reading a partition was abandoned, for the reason in the message. `everything`: so were all
    others of the cluster."""

    def __init__(self, reason: str, *, everything: bool = False) -> None:
        super().__init__(reason)
        self.everything = everything


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedBatches:
    """The answer to a fetch from one offset on. `diverges`: the log differs from what was read
    before; `preferred`: the replica to read instead, -1 if there is none."""

    error: Message
    data: memoryview
    diverges: bool
    preferred: int

    @property
    def sent_on(self) -> bool:
        """Whether to ask again, elsewhere."""
        return self.preferred >= 0


class LiveCluster:
    """One cluster, entered by its bootstrap addresses. For one thread at a time."""

    def __init__(
        self, name: str, bootstrap: Sequence[str], access: Access, *, patience: float = PATIENCE
    ) -> None:
        self.name, self.patience = name, patience
        self.id = ""
        """The cluster id, known after the login."""
        self._bootstrap, self._access = tuple(bootstrap), access
        self._peers: dict[str, Peer] = {}
        self._addresses: dict[int, str] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._preferred: dict[TopicPartition, int] = {}
        """Replicas that leaders sent us to (KIP-392)."""

    def enter(self) -> Mapping[TopicPartition, int]:
        """The partitions of every topic that the cluster shows, with their leaders (-1: none at
        present).

        Raises EnvironmentFailure when none of its addresses answers, InputError when it will not
        have us.
        """
        try:
            self._look()
        except AuthenticationRefused as refused:
            raise self.refusal(refused) from refused
        except Unanswered as error:
            where = ",".join(self._bootstrap)
            raise EnvironmentFailure(
                f"cluster {self.name} does not answer at {where} ({error}); check that it runs "
                "and can be reached from here, and that --client-properties fit its listener (TLS, "
                "SASL)"
            ) from error
        return dict(self._leaders)

    def refusal(self, refused: AuthenticationRefused) -> InputError:
        """The error for a cluster that refuses this client."""
        return InputError(
            f"cluster {self.name}: {refused}; see --client-properties {self.name}=FILE and the "
            "cluster's ACLs"
        )

    def bounds(
        self, partitions: Iterable[TopicPartition], which: Bound
    ) -> dict[TopicPartition, int]:
        """Log starts, high watermarks or last stable offsets. Raises GivenUp when leaders do not
        answer in time, Refused."""
        wanted, found = set(partitions), dict[TopicPartition, int]()
        answer: list[object] = ["nothing was asked yet"]

        def asked() -> bool:
            try:
                for partition, error, offset in self._list_offsets(wanted - found.keys(), which):
                    if error == Error.none:
                        found[partition] = offset
                    else:
                        answer[0] = self._passing(partition, error)
                if wanted <= found.keys():
                    return True
                self._look()
            except Unanswered as error:
                answer[0] = error
                self._look_again()
            return False

        try:
            until(
                asked,
                within=self.patience,
                every=0.2,
                what="the bounds of every partition",
                state=lambda: answer[0],
            )
        except DeadlineExceeded as error:
            raise GivenUp(str(error), everything=True) from error
        return found

    def fetch(
        self, partition: TopicPartition, offset: int, *, most: int, epoch: int
    ) -> FetchedBatches:
        """Fetches from the leader from `offset` on; `epoch` is that of the batch before, -1 for
        none.

        Raises Unanswered, AuthenticationRefused, and GivenUp for an error that does not pass.
        """
        # to be asked once more only when it gives something
        preferred = self._preferred.pop(partition, -1)
        if preferred in self._addresses:
            got = self.fetch_from(preferred, partition, offset, most=most, epoch=epoch)
        else:
            got = self._fetched(self._leader(partition), partition, offset, most=most, epoch=epoch)
        if got.error == Error.none:
            if got.sent_on:
                self._preferred[partition] = got.preferred
            elif preferred >= 0 and got.data:
                self._preferred[partition] = preferred
        return got

    def fetch_from(
        self, broker: int, partition: TopicPartition, offset: int, *, most: int, epoch: int
    ) -> FetchedBatches:
        """Fetches a partition from one broker, whoever leads. Raises as `fetch`."""
        if broker not in self._addresses:
            raise Unanswered(f"broker {broker} is not in the cluster")
        peer = self._peer(self._addresses[broker])
        got = self._fetched(peer, partition, offset, most=most, epoch=epoch)
        if got.error == Error.offset_out_of_range:
            # a follower may be behind: its word is not the leader's
            return replace(got, error=Error.offset_not_available)
        return got

    def _fetched(
        self, peer: Peer, partition: TopicPartition, offset: int, *, most: int, epoch: int
    ) -> FetchedBatches:
        version = 12 if peer.takes("fetch", 12) else 4
        body = _fetch_request(version, partition, offset, most=most, epoch=epoch)
        answer = (
            peer.call("fetch", version, body, within=_ANSWER_SECONDS).responses[0].partitions[0]
        )
        if answer.error_code not in (Error.none, Error.offset_out_of_range):
            self._passing(partition, answer.error_code)
        return FetchedBatches(
            error=answer.error_code,
            preferred=int(answer.preferred_read_replica) if version == 12 else -1,
            data=memoryview(answer.records or b""),
            diverges=version == 12 and int(answer.diverging_epoch.end_offset) >= 0,
        )

    def refresh_leaders(self) -> None:
        """Finds the current leaders. Raises GivenUp when no broker of the cluster answers in
        time."""
        answer: list[object] = [""]

        def asked() -> bool:
            try:
                self._look()
            except Unanswered as error:
                answer[0] = error
                return False
            return True

        try:
            until(
                asked,
                within=self.patience,
                every=0.2,
                what="any of its brokers",
                state=lambda: answer[0],
            )
        except DeadlineExceeded as error:
            raise GivenUp(f"it went away ({error})", everything=True) from error

    @property
    def brokers(self) -> Sequence[int]:
        """The brokers that are up, by the last metadata."""
        return sorted(self._addresses)

    def leader(self, partition: TopicPartition) -> int:
        """The leader by the last metadata; -1 where there is none."""
        return self._leaders.get(partition, -1)

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()

    def _look_again(self) -> None:
        try:
            self._look()
        except Unanswered:
            return  # the caller asks again, and reports the last state in the end

    def _look(self) -> None:
        """Asks any broker for the cluster's metadata. Raises Unanswered when none of them
        answers."""
        m = messages.request("metadata", 4)
        body = m.MetadataRequest(topics=None, allow_auto_topic_creation=False)
        reasons = []
        for address in dict.fromkeys((*self._addresses.values(), *self._bootstrap)):
            try:
                answer = self._peer(address).call("metadata", 4, body)
            except Unanswered as error:
                reasons.append(str(error))
                continue
            self.id = str(answer.cluster_id or "")
            self._addresses = {int(b.node_id): f"{b.host}:{b.port}" for b in answer.brokers}
            self._leaders = {
                (str(t.name), int(p.partition_index)): int(p.leader_id)
                for t in answer.topics
                if t.error_code == Error.none
                for p in t.partitions
            }
            return
        raise Unanswered("; ".join(reasons))

    def _list_offsets(
        self, partitions: Iterable[TopicPartition], which: Bound
    ) -> Iterator[tuple[TopicPartition, Message, int]]:
        m = messages.request("list_offsets", 2)
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            by_leader.setdefault(self.leader(partition), []).append(partition)
        for theirs in by_leader.values():
            rows: dict[str, list[Message]] = {}
            for topic, number in theirs:
                rows.setdefault(topic, []).append(
                    m.ListOffsetsPartition(partition_index=number, timestamp=_TIMESTAMP[which])
                )
            body = m.ListOffsetsRequest(
                replica_id=_CONSUMER,
                isolation_level=_READ_COMMITTED if which == "stable" else _READ_UNCOMMITTED,
                topics=tuple(m.ListOffsetsTopic(name=topic, partitions=tuple(own)) for topic,
                    own in rows.items()),
            )  # fmt: skip
            for topic in self._leader(theirs[0]).call("list_offsets", 2, body).topics:
                for p in topic.partitions:
                    yield (str(topic.name), int(p.partition_index)), p.error_code, int(p.offset)

    def _passing(self, partition: TopicPartition, error: Message) -> str:
        """The description of a retriable error; raises for any other."""
        what = f"{partition[0]}-{partition[1]}: {error.name}"
        if error in _FORBIDDEN:
            raise AuthenticationRefused(
                f"{what}: DESCRIBE and READ on topic {partition[0]} are needed"
            )
        if error not in PASSING:
            raise GivenUp(what)
        return what

    def _leader(self, partition: TopicPartition) -> Peer:
        address = self._addresses.get(self.leader(partition))
        if address is None:
            raise Unanswered(f"{partition[0]}-{partition[1]} has no leader")
        return self._peer(address)

    def _peer(self, address: str) -> Peer:
        return self._peers.setdefault(address, Peer(address, self._access))


def _fetch_request(
    version: int, partition: TopicPartition, offset: int, *, most: int, epoch: int
) -> Message:
    """The request to a leader; version 12 also checks by its leader epoch that the leader has the
    previous batch."""
    m = messages.request("fetch", version)
    newer = {"last_fetched_epoch": epoch} if version == 12 else {}
    row = m.FetchPartition(
        partition=partition[1], fetch_offset=offset, partition_max_bytes=most, **newer
    )
    return m.FetchRequest(
        replica_id=_CONSUMER, max_wait=_WAIT, min_bytes=1, max_bytes=most,
        isolation_level=_READ_UNCOMMITTED,
        topics=(m.FetchTopic(topic=partition[0], partitions=(row,)),),
        **({"forgotten_topics_data": ()} if newer else {}),
    )  # fmt: skip
