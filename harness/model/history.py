"""The rows of a history: the operations and polls of clients, the bounds of logs, and the faults.

All times are nanoseconds of `harness.model.wait.now`. Every row type has one file per writer in the
run directory (`harness.rundir`), one JSON object a line. Rows are written as they happen. An
operation has two rows, one before it is sent, so that an operation that never returned is known
too: its outcome is info.

The declared ranges of numbers validate rows: a row outside them is damage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta

LARGEST: Final = 1 << 62
"""The largest offset, time or uid that is accepted. Sums and differences of two fit 64 bits."""
Time = Annotated[int, Meta(ge=0, le=LARGEST)]
Offset = Annotated[int, Meta(ge=0, le=LARGEST)]
OffsetOrNone = Annotated[int, Meta(ge=-1, le=LARGEST)]
"""-1 where it is unknown."""
OffsetOrError = Annotated[int, Meta(ge=-1001, le=LARGEST)]
"""-1 if its broker did not report it; runs of older versions have librdkafka's -1001 there
(RD_KAFKA_OFFSET_INVALID)."""
Uid = Annotated[int, Meta(ge=-1, le=LARGEST)]
Small = Annotated[int, Meta(ge=0, le=2**31 - 1)]
SmallOrNone = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
CrcOrNone = Annotated[int, Meta(ge=-1, le=2**32 - 1)]
Count = Annotated[int, Meta(ge=0, le=1 << 24)]
"""The maximum of records in one row: far more than any client returns at once. How many all rows
together may have depends on the logs (`spark_verify.read.pieces`)."""
OutcomeName = Literal["ok", "fail", "info"]
Phase = Literal["invoke", "return"]
OperationKind = Literal["init", "transaction", "send"]
Ending = Literal["commit", "abort", "open", "none"]
Isolation = Literal["read_committed", "read_uncommitted"]
ShareKind = Literal[
    "acquire",
    "accept",
    "release",
    "reject",
    "renew",
    "accepted",
    "released",
    "rejected",
    "renewed",
    "settled",
]
"""What a member of a share group (KIP-932) does: acquire, acknowledge in four ways, each confirmed;
`settled` when it read the group's start offset: where that changed, and at the end."""
SHARE_LOCK_MS: Final = 15_000
"""Duration of a share group's acquisition lock on a record: the shortest that brokers allow by
default. A record of a dead member is not delivered again before the lock expires.
"""
SHARE_SAMPLER: Final = "the sampler of share groups"
"""The reader of rows `settled` of programs' share groups, whose start offsets linkflap samples."""
PollKind = Literal["poll", "assign", "revoke", "commit", "drained", "error"] | ShareKind
SHARE_KINDS: Final = frozenset(get_args(ShareKind))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The records of one partition that one poll returned: runs (uid, offset, how many), both
    rising by one; and the position after it.

    Records that are not ours have uid -1 and runs of one. In a row of kind commit, `position` is
    the committed offset; of kind acquire, how often these records were delivered with this time; of
    kind settled, the start offset of the share group. Where it is what records were made from
    (`SendGroup.made_from`), `position` is the group offset that is committed with them. Of what was
    recorded on the wire, all uids are -1, and `crcs` has for each run the CRC of its batch.
    """

    topic: str
    partition: Small
    runs: tuple[tuple[Uid, OffsetOrNone, Count], ...] = ()
    position: OffsetOrNone = -1
    crcs: tuple[CrcOrNone, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SendGroup:
    """Records of one operation to one partition, with consecutive uids, in the order they were
    handed to the client.

    `acks` are runs (index of the first record in the group, how many, offset of the first):
    consecutive offsets. `refused` are runs (index, how many) that the client reported as failed for
    certain. The outcome of all other records is unknown. `made_from`: the n-th record of the group
    was made from the n-th record there, which its operation read from the same cluster. Of a batch
    that was recorded on the wire, `sequence` is its first one (-1: its producer has no id) and
    `crc` that of its bytes: these identify its records in a log. `by_leader`: the leader alone has
    acknowledged it (acks=1).
    """

    topic: str
    partition: Small
    first_uid: Uid
    count: Count
    acks: tuple[tuple[Count, Count, Offset], ...] = ()
    refused: tuple[tuple[Count, Count], ...] = ()
    made_from: Fetched | None = None
    sequence: SmallOrNone = -1
    crc: CrcOrNone = -1
    by_leader: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call of one producer, recorded when it was invoked or when it returned; a transaction
    that was recorded on the wire is invoked with each of its requests and answers, and its rows add
    up. `ending` is the client's intention: commit, abort, leave open, or none (no transaction).
    `outcome` (on return) is that of the ending: ok means that the cluster confirmed it, fail that
    it was certainly not done, info that its outcome is unknown. `ended_at` is when the commit or
    abort was requested (0: never). `producer_id` and `producer_epoch` are the client's own word, -1
    while unknown. `group` is the consumer group whose offsets are committed in the transaction.
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
    """One action of a reader: poll, assign, revoke, commit of group offsets, drained (read to the
    recorded end), or error.

    A member of a share group acquires records, requests their acknowledgement (accept, release,
    reject, renew: recorded before it is sent) and gets an answer (accepted, …: recorded when the
    broker has confirmed it). Its row `settled` has the start offset that the group's coordinator
    reports: every record below is finished. `lock_ms`: of kind acquire, recorded on the wire, the
    duration of the acquisition lock; 0: that of linkflap's own groups (SHARE_LOCK_MS).
    """

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
    lock_ms: Small = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """The bounds of one partition as its leader answered between `time` and `returned`; -1 for a
    bound that it did not report."""

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
    """A group's committed offset on a cluster, sampled with an admin client. Group offset sync is
    checked against these rows.
    """

    time: Time
    cluster: str
    group: str
    topic: str
    partition: Small
    offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """An event in its form on disk. `harness.model.events` has a class for each kind, with its
    subject and its data."""

    time: Time
    kind: str
    subject: str
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of one captured replica, and their origin.

    `high_watermark_from` is sampled (a leader reported it), checkpoint (the broker's file: a lower
    bound), copied (that file, copied from a broker that is not known to have been stopped: it may
    be newer than the log), or recomputed (single-replica log: the end of the bytes). `leader` is
    the last known leader of the partition. Below `compacted` the broker's cleaner may have removed
    records (its checkpoint file; cleanup.policy=compact); 0 if it never has. If the topic is
    compacted, the cleaner has reached `thinned`: the end of the last segment that has a batch with
    fewer records than offsets. (A cleaner replaces segments first, and writes its checkpoint when
    it has finished the log.) The last `unfinished` bytes of the last segment are a batch that its
    broker was writing when it was captured or killed: no broker has confirmed it, and the recovery
    of a killed one truncates it (`LogSegment.recover`). `last_stable` is the answer of a running
    cluster's leader, after it had answered `stable_above` as its high watermark; -1 if it was not
    asked. `unreadable`: the parts of its broker's checkpoint files that could not be read, and
    whether that matters for these bounds. What was written before `since` was left out of the
    capture (of a round of a soak).
    """

    cluster: str
    broker: Small
    topic: str
    partition: Small
    leader: bool
    alive: bool
    log_start: Offset
    high_watermark: OffsetOrNone
    high_watermark_from: Literal["sampled", "checkpoint", "copied", "recomputed"]
    compacted: Offset = 0
    thinned: Offset = 0
    unfinished: Small = 0
    last_stable: OffsetOrNone = -1
    stable_above: OffsetOrNone = -1
    unreadable: tuple[tuple[str, bool], ...] = ()
    since: Offset = 0
