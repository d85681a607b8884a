"""Events: what linkflap did or noticed, one class for each kind. `AnyEvent` is their union, and
`of_kind` selects events of one kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeVar, get_args

import msgspec

from linkflap.harness.model.faults import FaultName, Target
from linkflap.harness.model.history import (
    Count,
    EventRow,
    Offset,
    OffsetOrNone,
    Small,
    SmallOrNone,
    Time,
    Uid,
)
from linkflap.harness.model.scenario import Option
from linkflap.harness.model.topology import LinkSpec, TopicPartition
from linkflap.harness.model.wait import now

_TAG: Final = "event"
_SUBJECT: Final = "subject"
_WORDS: Final = re.compile(r"(?<!^)(?=[A-Z])")


def _kind(name: str) -> str:
    """The kind of a class of events, as it is on disk: FaultStart is fault-start."""
    return _WORDS.sub("-", name).lower()


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field=_TAG, tag=_kind):
    """Something that linkflap did or noticed. Each class is one kind. A field whose default is None
    is not written while it is None.

    `time` is in nanoseconds of `harness.model.wait.now`; 0 until the recorder sets it. One field of
    each class names the subject of the event; on disk the other fields are the data (`EventRow`).
    """

    time: Time = 0

    @property
    def kind(self) -> str:
        """The kind, as it is on disk."""
        return str(type(self).__struct_config__.tag)

    @property
    def subject(self) -> str:
        """The subject of the event: a link, a target, a cluster, …"""
        return str(
            getattr(self, self.__struct_fields__[self.__struct_encode_fields__.index(_SUBJECT)])
        )

    @property
    def row(self) -> EventRow:
        """The event as it is on disk."""
        fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        for name, default in zip(
            reversed(self.__struct_encode_fields__),
            reversed(self.__struct_defaults__),
            strict=False,
        ):
            if default is None and fields[name] is None:
                del fields[name]
        del fields[_TAG]
        return EventRow(
            time=fields.pop("time"), kind=self.kind, subject=fields.pop(_SUBJECT), data=fields
        )


Kind = TypeVar("Kind", bound=Event)


def stamped(event: Kind) -> Kind:
    """The event, with the present time if it has none."""
    return event if event.time else msgspec.structs.replace(event, time=now())


def of_kind(events: Iterable[Event], kind: type[Kind]) -> list[Kind]:
    """The events of one kind, in the same order."""
    return [event for event in events if isinstance(event, kind)]


class OfLink(Event, frozen=True, kw_only=True):
    """About a link (`A->B`)."""

    link: str = msgspec.field(name=_SUBJECT)

    def __post_init__(self) -> None:
        LinkSpec.parse(self.link)

    @property
    def between(self) -> LinkSpec:
        """The link's two ends."""
        return LinkSpec.parse(self.link)


class OfCluster(Event, frozen=True, kw_only=True):
    """About a cluster."""

    cluster: str = msgspec.field(name=_SUBJECT)


class ProgramStarted(Event, frozen=True, kw_only=True):
    """A workload that is a program of the user's was started, with its clients at `cluster`."""

    program: str = msgspec.field(name="subject")
    cluster: str
    command: tuple[str, ...]
    pid: int


class InFlight(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that never returned; see `harness.model.history.Operation`."""

    client: str
    operation: int
    kind: str
    ending: str
    cluster: str
    records: int


class OfProcess(Event, frozen=True, kw_only=True):
    """About a process of clients."""

    process: str = msgspec.field(name="subject")


ITSELF: Final = "itself"


class ClientDied(OfProcess, frozen=True, kw_only=True):
    """A process of clients ended. `by`: itself, or the id of the fault that ended it.

    `status` is its exit status, or minus the signal's number, whose name `signal` is (empty without
    one). `torn_bytes` are those of unfinished rows that were removed. `again`: its clients are
    started again.
    """

    by: str
    pid: int
    clients: tuple[str, ...]
    clusters: tuple[str, ...]
    status: int
    signal: str
    in_flight: tuple[InFlight, ...]
    torn_bytes: int
    last_words: tuple[str, ...]
    again: bool


class ClientRestarted(OfProcess, frozen=True, kw_only=True):
    """The same clients, as new incarnations in a new process."""

    pid: int
    clients: tuple[str, ...]


class OfClient(Event, frozen=True, kw_only=True):
    """About a client."""

    client: str = msgspec.field(name="subject")


class ClientCrash(OfClient, frozen=True, kw_only=True):
    """The client stopped because of a defect in linkflap."""

    error: str


class WaitedFor(msgspec.Struct, frozen=True, kw_only=True):
    """A partition in which a client had something to read: where it stood, the end of what it could
    read, and the leader (-1: none answered)."""

    topic: str
    partition: Small
    position: OffsetOrNone
    end: OffsetOrNone
    leader: SmallOrNone


class ClientStalled(OfClient, frozen=True, kw_only=True):
    """A client, or the group of several, had work and made no progress for `seconds` after all
    faults had ended (`linkflap.recording.run_end`).

    `coordinator` is what its coordinator said of its group or its transactional id then, in words;
    `last_words` are the last lines of a program's log.
    """

    cluster: str
    seconds: float
    partitions: tuple[WaitedFor, ...] = ()
    coordinator: str = ""
    last_words: tuple[str, ...] = ()


class ProducerReplaced(OfClient, frozen=True, kw_only=True):
    """The client could not begin a transaction. `process` is the number of the incarnation; a new
    incarnation replaces it."""

    process: int
    reason: str


class ClusterReady(OfCluster, frozen=True, kw_only=True):
    """The brokers of the cluster answer, `seconds` after they were started. Written by runtimes;
    `kafka` is the release, build or image."""

    kafka: str
    brokers: int
    seconds: float


class BrokerDied(Event, frozen=True, kw_only=True):
    """A broker (`A/1`) ended, and no fault had ended it (`linkflap.recording.unexpected_exits`).

    `status` is its exit status, or minus the signal's number; None where it is unknown.
    `out_of_memory` is None where that cannot be seen. `last_words` are the last lines of its log.
    """

    broker: str = msgspec.field(name="subject")
    by: str
    status: int | None
    out_of_memory: bool | None
    last_words: tuple[str, ...]

    @property
    def cluster(self) -> str:
        """The cluster of the broker."""
        return Target.parse(self.broker).cluster


class RecorderDied(OfCluster, frozen=True, kw_only=True):
    """The recorder of the cluster (`harness.wire.recorder`) ended while the run went on: what was
    in flight is unknown, and nothing was recorded afterwards. `last_words` are the last lines of
    its log."""

    last_words: tuple[str, ...]


class ServiceDied(OfCluster, frozen=True, kw_only=True):
    """A service that the cluster needs (`A->postgres` is the link to it) ended although no fault
    had ended it. `status`: its exit status, negative for a signal; `last_words`: the last lines of
    its output."""

    service: str
    status: int | None
    last_words: tuple[str, ...]


class WireRecorded(OfCluster, frozen=True, kw_only=True):
    """What the recorder of the cluster saw (`harness.wire.recorder.settings.Report`). Written when
    it has ended."""

    connections: int
    requests: int
    batches: int
    acknowledged: int
    by_leader: int
    unpromised: int
    unread: Mapping[str, int]
    passed: Mapping[str, int]
    delivered: int | None = None
    committed: int | None = None
    dropped: int | None = None
    interfered: Mapping[str, int] | None = None
    written: Mapping[str, tuple[int, int]] | None = None
    deleted: Mapping[str, tuple[int, int]] | None = None
    handshakes_failed: int | None = None
    forwarded_unread: Mapping[str, int] | None = None
    unanswered: int | None = None


class Captured(OfCluster, frozen=True, kw_only=True):
    """The raw logs of the cluster were copied: this many replicas of partitions. Written by
    `harness.capture`; copied logs have no count."""

    moment: str
    replicas: int | None = None


class SampledReplica(msgspec.Struct, frozen=True, kw_only=True):
    """The log start and end of one replica of a partition, on `broker`."""

    topic: str
    partition: Small
    broker: Small
    log_start: int
    log_end: int


class SettingsSampled(OfCluster, frozen=True, kw_only=True):
    """Settings that are set on topics of a cluster, where they had changed, and at the end of a
    run: topic -> name -> value; requested at `asked` (ns), answered at the event's time
    (`harness.capture.samplers`). `before` is the time of the last earlier request that was
    answered, 0 if none was; None in older runs."""

    asked: Time
    topics: Mapping[str, Mapping[str, str]]
    before: int | None = None


class ReplicasSampled(OfCluster, frozen=True, kw_only=True):
    """The replicas of one broker that changed, or were not recorded for a while: requested at
    `asked` (ns), answered at the event's time (`harness.capture.samplers`)."""

    asked: Time
    rows: tuple[SampledReplica, ...]


class FetchedAgain(OfCluster, frozen=True, kw_only=True):
    """A broker was asked twice for the same offsets of a topic that is not compacted, and the batch
    at `offset` is not the same: the CRC stored in it in both answers, None in one that lacks it.
    Written by `harness.capture.live`."""

    topic: str
    partition: Small
    broker: Small
    offset: int
    crc: tuple[int | None, int | None]


class RecordsDeleted(OfCluster, frozen=True, kw_only=True):
    """The records of a partition below an offset are to be deleted (DeleteRecords, KIP-107).
    Written before the request is sent, by whoever sends it."""

    topic: str
    partition: Small
    offset: int


class Failover(OfLink, frozen=True, kw_only=True):
    """The mirror has ended and the destination is promoted (`chaos.faults.mirrors`).

    `fault_time` (ns) is when the source was abandoned: forced, when the last of its brokers had
    ended or was suspended; planned, when clients were asked to pause. `open_transactions` is the
    number of transactions that were open there then, -1 if unknown.
    """

    mode: Literal["planned", "forced"] = msgspec.field(name="kind")
    fault_time: Time
    open_transactions: int


class OfPartition(OfLink, frozen=True, kw_only=True):
    """At `offset` of a partition's log on one cluster."""

    cluster: str
    topic: str
    partition: Small
    offset: Offset

    @property
    def tp(self) -> TopicPartition:
        """Topic and partition number."""
        return self.topic, self.partition


class Promotion(OfPartition, frozen=True, kw_only=True):
    """`offset` is the first that is the cluster's own. Written by `chaos.faults.mirrors`; of
    copied logs inferred from bytes."""


class PromotionUnknown(OfPartition, frozen=True, kw_only=True):
    """In copied logs: no mark is left of a probable promotion
    (`harness.capture.promotions_from_bytes`)."""


class Truncation(OfPartition, frozen=True, kw_only=True):
    """A takeover truncated the log to `offset`; it had ended at `end`. Written by mirrors that can
    be reversed."""

    end: Offset


class FailoverRefused(OfLink, frozen=True, kw_only=True):
    """The mirror refused to fail over for `seconds`, with Kafka's name and code of the error."""

    mode: Literal["planned", "forced"] = msgspec.field(name="kind")
    error: str
    code: int
    message: str | None = None
    states: str | None = None
    seconds: float


class ClientsMoved(OfCluster, frozen=True, kw_only=True):
    """Clients of a cluster moved to another (`harness.workloads.clients`)."""

    to: str


class OfFault(Event, frozen=True, kw_only=True):
    """A step of the fault `id`; `target` is what that breaks: a link, a client path, a broker, a
    cluster or a process."""

    target: str = msgspec.field(name="subject")
    id: str

    @property
    def on(self) -> Target:
        """The target of the fault."""
        return Target.parse(self.target)


class Trigger(OfFault, frozen=True, kw_only=True):
    """The fault waited `seconds` for the condition `when`, which came true (`hit`) or did not."""

    when: str
    hit: bool
    seconds: float


class FaultStart(OfFault, frozen=True, kw_only=True):
    """The fault begins; nothing is broken yet. `restores` is False for a fault that is never
    healed. `duration` is in seconds, as scheduled."""

    fault: str
    options: Mapping[str, Option] | None = None
    restores: bool | None = None
    duration: float | None = msgspec.field(name="for", default=None)

    @property
    def name(self) -> FaultName:
        """The name of the fault, parsed."""
        return FaultName(self.fault)


class LostRange(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets [start, end) of one partition that a lossy fault took away: what the deposed leader's
    log had there, when it was dead.

    `deposed_epoch` and `elected_epoch` are the leader epochs of that leader and of the next one,
    whose epoch begins at `start` (-1: not known). `elected` is the moment before which no new
    leader was elected: the request for the election. `records` are runs (payload id, offset, how
    many, producer id), payload ids rising by one or all -1; `markers` are (offset, producer id,
    producer epoch, whether it is a COMMIT).
    """

    topic: str
    partition: int
    start: Offset
    end: Offset
    deposed_epoch: int
    elected_epoch: int
    elected: Time
    records: tuple[tuple[Uid, Offset, Count, int], ...]
    markers: tuple[tuple[Offset, int, int, bool], ...]


class FaultBite(OfFault, frozen=True, kw_only=True):
    """Whether the fault took effect: what was measured on the faulted path within its window, and
    what was expected there. `lost` is exactly what a lossy fault took away; None: another fault,
    or a run of an older version."""

    bit: bool
    observable: str
    measured: object
    expected: object
    lost: tuple[LostRange, ...] | None = None


class FaultHeal(OfFault, frozen=True, kw_only=True):
    """The fault was healed, or could not be. `checked` lists the checks of the heal, or why it
    failed."""

    healed: bool
    checked: tuple[str, ...]


class FaultEnd(OfFault, frozen=True, kw_only=True):
    """The fault has ended. Only events of copied logs have `fault`."""

    fault: str | None = None


class LinkProven(OfLink, frozen=True, kw_only=True):
    """Every broker is reached through the link's proxies (host:port), and a probe of latency shows
    in the round trip.

    In milliseconds: the longest round trip without, and the shortest with the probe.
    """

    proxied: tuple[str, ...]
    rtt_ms: float
    probe_rtt_ms: float


class ProxyRebuilt(OfLink, frozen=True, kw_only=True):
    """The toxiproxy-server of the link hung or died, and was replaced by one with the same proxies
    and toxics."""

    reason: str


class MirrorStarted(OfLink, frozen=True, kw_only=True):
    """The mirror works, `seconds` after it was started. `mirror` is its kind, `options` its most
    important options."""

    mirror: str
    options: Mapping[str, object] | None = None
    seconds: float | None = None


class DescribedPartition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A partition in a mirror's description of itself: its state by the mirror's name, and its lag
    in records. `mirrors` and `promoted`: what that state means; `promoted` is None in runs of a
    linkflap that did not record it."""

    topic: str
    partition: Small
    state: str
    mirrors: bool
    lag: int
    promoted: bool | None = None


class MirrorDescribed(OfLink, frozen=True, kw_only=True):
    """A mirror's own report: requested at `asked` (ns), answered at the event's time."""

    asked: Time
    rows: tuple[DescribedPartition, ...]


class MirrorVerb(OfLink, frozen=True, kw_only=True):
    """A verb of a mirror's admin interface: the number of requests in `seconds`, until it was
    accepted or the deadline passed; errors are counted."""

    verb: str
    accepted: bool
    tries: int
    refused: Mapping[str, int]
    seconds: float


class VerbsPlayed(OfLink, frozen=True, kw_only=True):
    """A random sequence of verbs that a mirror was asked, drawn by `seed`: `steps` in words, with
    their answers.

    It is compared with the model of the mirror's verbs. `wrong` is the disagreement, which ends the
    sequence, and `topic` an affected topic. `unanswered` is a verb without an answer, which is no
    disagreement. `writes` are the final writes, one to each broker of the destination, in words;
    None if there was none.
    """

    seed: str
    steps: tuple[str, ...]
    wrong: str | None = None
    topic: str | None = None
    unanswered: str | None = None
    writes: tuple[str, ...] | None = None


class ComparedTopic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A topic of a mirror's source compared with the destination's: its numbers of partitions there
    and here (0: no such topic), and those of its `compared` settings that differ: name -> (there,
    here), None if unset. `acls`, if both clusters have ACLs: those that are missing here, and those
    that are only here. `recorded`: differences between the mirror's own records of its state and
    describe, in words."""

    topic: str
    there: Small
    here: Small
    compared: Small
    differing: Mapping[str, tuple[str | None, str | None]] | None = None
    acls: Small | None = None
    missing: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    recorded: tuple[str, ...] = ()


class TopicsCompared(OfLink, frozen=True, kw_only=True):
    """A mirror that had copied everything was waited for to sync its topics and their settings, for
    so many `seconds`."""

    rows: tuple[ComparedTopic, ...]
    seconds: float


class SourceMoved(OfLink, frozen=True, kw_only=True):
    """The mirror's settings name other addresses of its source from now on."""

    addresses: tuple[str, ...]


class JournalPartition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A mirror's journal of one partition when the mirror stopped.

    `mirrored` is the offset after the last mirrored record, `promoted` the first that clients of
    the destination may write, `appended` (offset, what) are the records in between. `truncated` are
    (where the log had ended, to which offset it was truncated). `epochs` and `source_epochs` are
    leader epochs (epoch, first offset) of the mirrored log and of its source's, `open` the
    transactions (producer id, producer epoch, …) to abort. For a partition that was taken over,
    `home` has its former brokers, and `truncated_to` and `truncated_from` are the new and the
    former end of its log; -1 if it was not truncated.
    """

    topic: str
    partition: Small
    epochs: tuple[tuple[int, int], ...] | None = None
    source_epochs: tuple[tuple[int, int], ...] | None = None
    mirrored: OffsetOrNone
    truncated: tuple[tuple[int, int], ...] | None = None
    open: tuple[tuple[int, ...], ...] | None = None
    appended: tuple[tuple[int, str], ...] | None = None
    promoted: OffsetOrNone
    home: tuple[int, ...] | None = None
    truncated_to: int | None = msgspec.field(name="cut", default=None)
    truncated_from: int | None = msgspec.field(name="cut_from", default=None)


class JournalTopic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A topic's ids on both sides, and which of its configs the destination's release does not
    have."""

    source: str
    destination: str
    unknown_configs: tuple[str, ...] | None = None


class VerbAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a verb was answered (see `MirrorVerb`); or the error that refused it."""

    verb: str | None = None
    accepted: bool | None = None
    tries: int | None = None
    refused: Mapping[str, int] | None = None
    seconds: float | None = None
    error: str | None = None


class MirrorStopped(OfLink, frozen=True, kw_only=True):
    """The mirror ended. `drained`: it had mirrored everything. `partitions` and `topics` are its
    journal, if it keeps one.

    `unsynced` are groups (and their states) whose offsets were not synced because they were active
    on the destination, `undrained` brokers that may hand out mirrored producer ids from the given
    one on. `paused`, `stopped`: answers to the verbs.
    """

    drained: bool
    paused: VerbAnswer | None = None
    stopped: VerbAnswer | None = None
    partitions: tuple[JournalPartition, ...] | None = None
    topics: Mapping[str, JournalTopic] | None = None
    unsynced: Mapping[str, str] | None = None
    undrained: Mapping[str, int] | None = None


class MirrorCrashed(OfLink, frozen=True, kw_only=True):
    """The mirror ended without having been stopped. `by`: SIGKILL, itself, or what replaces a kill
    in mirrors that cannot be killed."""

    by: str


class MirrorLag(OfLink, frozen=True, kw_only=True):
    """How many records a mirror by commands was behind at its end: as its command reported, and by
    the bytes of both sides."""

    reported: int | None
    measured: int | None


class MirrorState(OfLink, frozen=True, kw_only=True):
    """The state of a connector (`task` -1) or of one of its tasks, as Kafka Connect keeps it, when
    it changes.

    NONE: it never had one; `trace` is the end of the worker's log then.
    """

    connector: str
    task: int
    state: str
    trace: str


class TopicGivenUp(OfLink, frozen=True, kw_only=True):
    """The mirror no longer mirrors this topic."""

    topic: str
    reason: str


class Phase(Event, frozen=True, kw_only=True):
    """A part of the run begins (`linkflap.recording.run`)."""

    name: str = msgspec.field(name="subject")


class HostStall(Event, frozen=True, kw_only=True):
    """The machine did not wake a thread for so many seconds (`harness.capture.samplers`)."""

    host: str = msgspec.field(name="subject", default="host")
    seconds: float


class Interrupted(Event, frozen=True, kw_only=True):
    """The run was interrupted (`linkflap.recording.run`)."""

    what: str = msgspec.field(name="subject", default="run")
    by: str


class NotEnded(Event, frozen=True, kw_only=True):
    """Faults, clients, watermarks or the deployment did not end in time, when the run broke off
    (`linkflap.recording.run`)."""

    what: str = msgspec.field(name="subject")
    reason: str


class Note(Event, frozen=True, kw_only=True):
    """An event of a user's own fault, mirror or scenario: a name and any data. No check reads
    it."""

    about: str = msgspec.field(name="subject")
    name: str
    data: Mapping[str, object]


AnyEvent = (
    Phase
    | ClusterReady
    | LinkProven
    | ProxyRebuilt
    | Trigger
    | FaultStart
    | FaultBite
    | FaultHeal
    | FaultEnd
    | MirrorStarted
    | MirrorDescribed
    | MirrorVerb
    | SourceMoved
    | TopicsCompared
    | VerbsPlayed
    | MirrorStopped
    | MirrorCrashed
    | MirrorLag
    | MirrorState
    | TopicGivenUp
    | Failover
    | FailoverRefused
    | Promotion
    | PromotionUnknown
    | Truncation
    | ClientsMoved
    | ProgramStarted
    | ClientDied
    | ClientRestarted
    | ClientCrash
    | ClientStalled
    | ProducerReplaced
    | BrokerDied
    | RecorderDied
    | ServiceDied
    | WireRecorded
    | FetchedAgain
    | Captured
    | RecordsDeleted
    | ReplicasSampled
    | SettingsSampled
    | HostStall
    | Interrupted
    | NotEnded
    | Note
)
KINDS: Final[Mapping[str, type[Event]]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(AnyEvent)
}
"""Every class of events by its kind."""


def read(row: EventRow) -> Event:
    """The event of a row. Raises ValueError for a kind that is not among `KINDS`, and for data that
    do not fit it."""
    if (kind := KINDS.get(row.kind)) is None:
        raise ValueError(f"no kind of event is called {row.kind!r}")
    fields = {**row.data, "event": row.kind, "time": row.time, "subject": row.subject}
    try:
        return msgspec.convert(fields, type=kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"a {row.kind} of {row.subject} that cannot be read: {error}") from None
