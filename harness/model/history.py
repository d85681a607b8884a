"""The rows of a history: what clients did and saw, what the logs' bounds were, what was broken when.

All times are nanoseconds of `harness.model.clock.now`. Every row type has one file per writer in the run directory
(`harness.rundir`), one JSON object a line. Rows are written as they happen; an operation has two, so that one that never
returned is known too: its outcome is info.

The ranges of numbers are what those who read rows hold them to: a row beyond them is none that anybody wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from msgspec import Meta

LARGEST: Final = 1 << 62
"""No offset, time or uid gets there, and what is reckoned with any two below it stays within 64 bits."""
Time = Annotated[int, Meta(ge=0, le=LARGEST)]
Offset = Annotated[int, Meta(ge=0, le=LARGEST)]
OffsetOrNone = Annotated[int, Meta(ge=-1, le=LARGEST)]
"""-1 where it is unknown."""
OffsetOrError = Annotated[int, Meta(ge=-1001, le=LARGEST)]
"""-1 where its broker did not say; runs of older versions have librdkafka's -1001 there (RD_KAFKA_OFFSET_INVALID)."""
Uid = Annotated[int, Meta(ge=-1, le=LARGEST)]
Small = Annotated[int, Meta(ge=0, le=2**31 - 1)]
SmallOrNone = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
Count = Annotated[int, Meta(ge=0, le=1 << 24)]
"""Of records in one row: far more than any client hands over at once, and still no danger to whoever takes them one by one."""
OutcomeName = Literal["ok", "fail", "info"]
Phase = Literal["invoke", "return"]
OperationKind = Literal["init", "transaction", "send"]
Ending = Literal["commit", "abort", "open", "none"]
Isolation = Literal["read_committed", "read_uncommitted"]
PollKind = Literal["poll", "assign", "revoke", "commit", "drained", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What one poll returned of one partition: runs (uid, offset, how many), both rising by one; and the position after it.

    Records that are not ours have uid -1 and runs of one. In a row of kind commit, `position` is the committed offset. Where it
    is what records were made from (`SendGroup.made_from`), `position` is the group offset that is committed with them.
    """

    topic: str
    partition: Small
    runs: tuple[tuple[Uid, OffsetOrNone, Count], ...] = ()
    position: OffsetOrNone = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SendGroup:
    """Records of one operation to one partition, with consecutive uids, in the order they were handed to the client.

    `acks` are runs (index of the first record in the group, how many, offset of the first): consecutive offsets.
    `refused` are runs (index, how many) that the client reported as failed for certain. What is in neither is unknown.
    `made_from`: the n-th record of the group was made from the n-th record there, which its operation got from the same cluster.
    """

    topic: str
    partition: Small
    first_uid: Uid
    count: Count
    acks: tuple[tuple[Count, Count, Offset], ...] = ()
    refused: tuple[tuple[Count, Count], ...] = ()
    made_from: Fetched | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call of one producer, seen when it was invoked or when it returned.

    `ending` is what the client meant: commit, abort, leave open, or none (no transaction). `outcome` (on return) is that of
    the ending: ok means that the cluster confirmed it, fail that it was certainly not done, info that its outcome is unknown.
    `ended_at` is when the commit or abort was asked for (0: never). `producer_id` and `producer_epoch` are the client's own
    word, -1 while unknown. `group` is the consumer group whose offsets are committed in the transaction.
    """

    number: Offset
    phase: Phase
    time: Time
    client: str
    process: Small
    cluster: str
    kind: OperationKind
    ending: Ending = "none"
    transactional_id: str = ""
    outcome: OutcomeName = "info"
    ended_at: Time = 0
    producer_id: OffsetOrNone = -1
    producer_epoch: SmallOrNone = -1
    sends: tuple[SendGroup, ...] = ()
    error: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """One thing a reader did: poll, assign, revoke, commit of group offsets, drained (read to the recorded end), or error."""

    time: Time
    returned: Time
    reader: str
    process: Small
    cluster: str
    isolation: Isolation
    kind: PollKind
    group: str = ""
    fetched: tuple[Fetched, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """The bounds of one partition as its leader answered between `time` and `returned`; -1 where it did not say."""

    time: Time
    returned: Time
    cluster: str
    leader: SmallOrNone
    topic: str
    partition: Small
    log_start: OffsetOrError
    last_stable: OffsetOrError
    high_watermark: OffsetOrError
    leader_epoch: SmallOrNone = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """A group's committed offset on a cluster, as an admin client saw it (group offset sync is checked against these)."""

    time: Time
    cluster: str
    group: str
    topic: str
    partition: Small
    offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that linkflap did or noticed. Kinds, their subjects and data:

    phase            name            {}
    cluster-ready    cluster         {kafka, brokers, seconds}
    link-proven      link            {proxied: [host:port], rtt_ms, probe_rtt_ms}
    trigger          target          {id, when, hit: bool, seconds: waited}    of a fault that waits for something
    fault-start      target          {id, fault, for, options, restores}   restores: False when it is never healed
    fault-bite       target          {id, bit: bool, observable, measured, expected}   exactly one per fault
    fault-heal       target          {id, healed: bool, checked: [str]}
    fault-end        target          {id}
    proxy-rebuilt    link            {reason}
    mirror-started   link            {mirror, options, seconds}
    mirror-described link            {asked: ns, rows: [{topic, partition, state, mirrors: bool, lag}]}    what it says of itself;
                                     asked then, answered at the event's time
    mirror-verb      link            {verb, accepted: bool, tries, refused: {error: times}, seconds}    asked until accepted
    mirror-stopped   link            {drained: bool}    of one that keeps a journal also partitions: [..], topics: {name: ids},
                                     each with unknown_configs that were left out,
                                     unsynced: {group: state}, which were active on the destination,
                                     and undrained: {broker: id}, which may hand out mirrored producer ids from there on
    mirror-crashed   link            {by: SIGKILL|itself}
    mirror-lag       link            {reported: records or None, measured: records or None}    of one by commands, at its end:
                                     what its command said, and what the bytes of both sides say
    mirror-state     link            {connector, task: number or -1 (the connector itself), state, trace}    when it changes, as
                                     Kafka Connect keeps it; NONE: it never had one, and trace is the end of the worker's log
    broker-died      broker          {by: itself, status: exit status (-signal), out_of_memory: bool|null, last_words: [..]}
                                     no fault has ended it
    program-started  program         {cluster, command, pid}    a workload that is a program of the user's
    client-died      process of clients  {by: itself|id of the fault, pid, clients, clusters, status: exit status (-signal),
                                     signal: its name or empty, in_flight: [{client, operation, kind, ending, cluster, records}],
                                     that never returned, torn_bytes: of an unfinished row, last_words: [..], again: bool}
    client-restarted process of clients  {pid, clients}    the same clients, as new incarnations
    client-crash     client          {error}    ended by an error of linkflap's own
    producer-replaced  client        {process, reason}    could not begin a transaction; a new incarnation goes on
    failover         link            {kind: planned|forced, fault_time, open_transactions}
    promotion        link            {cluster, topic, partition, offset}    first offset that is the destination's own
    promotion-unknown link           {cluster, topic, partition, offset}    of copied logs: no mark is left of that promotion
    truncation       link            {cluster, topic, partition, offset, end}    a takeover cut it at offset; it ended at end
    topic-given-up   link            {topic, reason}    nothing is mirrored into it any more
    clients-moved    from-cluster    {to}
    host-stall       host            {seconds}
    captured         cluster         {moment, replicas}
    interrupted      run             {by}
    not-ended        faults|clients|watermarks|deployment    {reason}    did not end in time
    """

    time: Time
    kind: str
    subject: str
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of one captured replica, and where they come from.

    `high_watermark_from` is sampled (a leader said so), checkpoint (the broker's file: a lower bound), or recomputed
    (single-replica log: the end of the bytes). `leader` is the last known leader of the partition. Below `compacted` the broker's
    cleaner may have taken records away (its checkpoint file; cleanup.policy=compact); 0 where it never has. The last `unfinished`
    bytes of the last segment are a batch that its broker was writing when it was captured or killed: no broker has confirmed it,
    and the recovery of a killed one truncates it (`LogSegment.recover`). `last_stable` is what the leader of a running cluster
    answered, after it had answered that its high watermark was `stable_above`; -1 where it was not asked.
    """

    cluster: str
    broker: Small
    topic: str
    partition: Small
    leader: bool
    alive: bool
    log_start: Offset
    high_watermark: OffsetOrNone
    high_watermark_from: Literal["sampled", "checkpoint", "recomputed"]
    compacted: Offset = 0
    unfinished: Small = 0
    last_stable: OffsetOrNone = -1
    stable_above: OffsetOrNone = -1
