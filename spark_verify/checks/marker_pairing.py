"""marker-pairing: every transaction in a partition ends in one marker of its epoch or a later one
(KIP-98, KIP-890, KIP-1228).

With transactions v1 the marker has the data's epoch, or a higher one if a timeout or a successor
ended it. With v2 the coordinator raises the epoch at every end, so the marker's is one higher. Both
are accepted. After a marker no data of a lower epoch may follow: its producer was fenced by then.
One transaction has one epoch and is one operation of one client, so data of another epoch or of
another operation without a marker in between means that a marker is missing. Where a mirror writes
with its own producer ids, its transactions contain many operations, so only epochs count there.
Markers without data are normal: a partition is added to a transaction before its first record is
sent.

When a mirror ends, its reset of the producer state (KIP-1279) leaves open transactions open
forever. And a transaction that is committed on one cluster is committed on all that have it. In
copied logs without such a reset it is unknown whether the marker of a transaction that was open at
a promotion is still to come.

KIP-1279: a mirror that ends writes an ABORT marker for every open transaction, and then a reset of
the producer state. Behind the reset no coordinator ends a transaction that the mirror left open:
the last stable offset stays there, and readers of committed records get no further. A transaction
that is still mirrored may be open, because its marker will come over the link.

On a running cluster linkflap asks the leader for its last stable offset, and compares it with the
bytes. If the bytes give a higher one for an earlier high watermark, the leader waits for a marker
that its log already has.

A transaction that one cluster committed is committed on every cluster that has it from there. If
the mirror had copied its data and not its marker, the destination had to abort it. After a forced
failover a mirror's guarantee may allow that (`spark_verify.verdict.allowances`), and it is reported
all the same.

A producer id belongs either to a transactional producer or to a plain idempotent one (KIP-98).
While a producer's transaction is open, a leader refuses its batches without the bit. A batch
without the bit is committed to every reader, whatever the outcome of its transaction.

A marker has the epoch in which its transaction coordinator was elected (the leader epoch of a
partition of `__transaction_state`). One producer id has one such partition, so its coordinator's
epoch never goes back; leaders refuse the markers of an older coordinator (KIP-98,
TRANSACTION_COORDINATOR_FENCED). Coordinators of two clusters count their epochs independently. So
does a mirror that aborts the transactions that it leaves open: the markers in its journal are its
own. Without a journal, and without a known promotion, the last marker of an id is not judged if it
is an ABORT in a new leader epoch.

A batch with a producer id has an epoch, a transactional batch has a producer id, and a marker is
transactional and has no sequence (KIP-98, message format). Where there is no producer id, epoch and
sequence mean nothing, and brokers ignore them: franz-go, sarama and aiokafka write sequence 0
there, KafkaJS and older releases of sarama epoch 0 as well (`tests/data/logs/clients`). The maximum
timestamp of a batch is that of its latest record: brokers set it, whatever a client wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from linkflap.harness.log.layout import DELETE_HORIZON, UNUSED
from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from linkflap.spark_verify.checks.log_model.batch_differences import ids_as_declared
from linkflap.spark_verify.checks.log_model.generations import (
    BY_BROKERS,
    examined,
    judged,
    log_of,
    native,
    of_own_clients,
    owners_of,
    promoted_at,
    source_log,
    timestamp_types,
)
from linkflap.spark_verify.checks.log_model.logs import (
    NOWHERE,
    Log,
    among,
    changes,
    followed,
    locate,
    read,
    recompute_last_stable,
)
from linkflap.spark_verify.checks.log_model.lost_records import Taken
from linkflap.spark_verify.facts.eras import LogGeneration, MirroredRange, history
from linkflap.spark_verify.facts.sends_and_reads import Sends
from linkflap.spark_verify.facts.view import (
    ABORT,
    COMMIT,
    DATA,
    NO_EPOCH,
    OTHER_CONTROL,
    Batches,
    Bools,
    Ints,
    PartitionView,
    Replica,
)


def fenced_data(generation: LogGeneration, log: Log) -> Sequence[Finding]:
    """Data whose epoch is below that of the last marker of its producer id before it, both of one
    owner's clients.

    producer-id-uniqueness reports that two owners assigned one id. A reset of the partition's
    producer state (KIP-1279) lets an id begin anew.
    """
    batches = log.batches
    marker = (batches.control == COMMIT) | (batches.control == ABORT)
    part = np.flatnonzero(
        (batches.producer_id >= 0) & (marker | (batches.control == DATA)) & batches.crc_ok
    )
    order = part[np.argsort(batches.producer_id[part], kind="stable")]
    if not len(order):
        return []
    pid, index = batches.producer_id[order], np.arange(len(order))
    last = np.maximum.accumulate(np.where(marker[order], index, -1))
    fenced = (last >= 0) & (pid[np.maximum(last, 0)] == pid) & ~marker[order]
    fence = batches.producer_epoch[order[np.maximum(last, 0)]]
    whose = np.stack(
        (
            owners_of(generation, batches.base_offset[order]),
            np.cumsum(batches.control == OTHER_CONTROL)[order],
        )
    )
    fenced &= (whose == whose[:, np.maximum(last, 0)]).all(axis=0)
    stale = np.flatnonzero(fenced & (batches.producer_epoch[order] < fence))
    return [
        Found.at(
            "stale-data",
            log.cluster,
            batches.base_offset[order[i]],
            producer_id=pid[i],
            producer_epoch=batches.producer_epoch[order[i]],
            marker_epoch=fence[i],
            marker_offset=batches.base_offset[order[last[i]]],
        )
        for i in stale.tolist()
    ]


LEFT_OPEN = "transaction-left-open"
STUCK = "stable-offset-stuck"
SPLIT = "outcome-split"
RUN_END = "run-end"
"""The end of a mirror that ran until the end of the run. It may lag at that moment, as in a forced
failover."""


def left_open(view: PartitionView, generation: LogGeneration, log: Log) -> Sequence[Finding]:
    """Transactions that have no marker and are followed by a reset of the producer state."""
    every, batches = log.transactions, log.batches
    resets = batches.base_offset[(batches.control == OTHER_CONTROL) & batches.crc_ok]
    unended = every.marker == NOWHERE
    index = np.searchsorted(resets, every.last, side="right")
    given_up = unended & (index < len(resets))
    findings: list[Finding] = [
        Found.at(
            LEFT_OPEN,
            log.cluster,
            every.first[i],
            producer_id=every.producer_id[i],
            producer_epoch=every.highest_epoch[i],
            last_offset=every.last[i],
            reset_offset=resets[index[i]],
            log_end=log.replica.end,
            **_sampled(log.replica),
        )
        for i in np.flatnonzero(given_up).tolist()
    ]
    promoted = promoted_at(view, generation)
    waiting = int(np.count_nonzero(unended & ~given_up & (every.first < promoted)))
    if waiting and not view.recorded:
        reason = (
            f"{waiting} transactions were open where {generation.cluster} was promoted, and have no"
            " marker: it may be on its way"
        )
        findings.append(Unjudged(reason))
    return findings


def last_stable_too_low(log: Log) -> Sequence[Finding]:
    """A last stable offset that the leader answered although the log gives a higher one for an
    earlier high watermark. A last stable offset never falls."""
    replica = log.replica
    if replica.last_stable < 0 or not log.whole:
        return []
    expected = recompute_last_stable(log, min(replica.stable_above, replica.end))
    if replica.last_stable >= expected:
        return []
    return [
        Found.at(
            STUCK, replica.cluster, replica.last_stable, **_sampled(replica), recomputed=expected
        )
    ]


def _sampled(replica: Replica) -> dict[str, object]:
    """The last stable offset that the leader answered, if linkflap asked it."""
    if replica.last_stable < 0:
        return {}
    return {"last_stable": replica.last_stable, "high_watermark": replica.stable_above}


def splits(view: PartitionView) -> Iterator[Finding]:
    """Mirrored transactions whose outcome differs from the outcome at the link's source."""
    if not view.guarantee.offsets_kept:
        return
    known = history(view.partition_facts)
    for mirrored_range in known.mirrored_ranges:
        generation = (
            known.generations[mirrored_range.destination][-1]
            if mirrored_range.destination in known.generations
            else None
        )
        source = source_log(view, known, mirrored_range.source, mirrored_range.source_generation)
        ours = log_of(view, generation) if generation else None
        if source is not None and ours is not None:
            yield from _split(
                view,
                mirrored_range,
                read(source.replica, untracked=True),
                read(ours.replica, untracked=True),
            )


def _split(
    view: PartitionView, mirrored_range: MirroredRange, source: Log, destination: Log
) -> Iterator[Found]:
    theirs, ours = source.transactions, destination.transactions
    came = np.flatnonzero((ours.first >= mirrored_range.start) & (ours.first < mirrored_range.end))
    at = locate(theirs.first, ours.first[came])
    came, at = came[at >= 0], at[at >= 0]
    how = view.guarantee.producer_ids
    same = ids_as_declared(how, theirs.producer_id[at], ours.producer_id[came])
    same &= theirs.lowest_epoch[at] == ours.lowest_epoch[came]
    same &= (
        (theirs.marker[at] != NOWHERE)
        & (ours.marker[came] != NOWHERE)
        & (theirs.committed[at] != ours.committed[came])
    )
    for mine, other in zip(came[same].tolist(), at[same].tolist(), strict=True):
        evidence: dict[str, object] = {
            "producer_id": int(ours.producer_id[mine]),
            "producer_epoch": int(ours.lowest_epoch[mine]),
            "first_offset": int(ours.first[mine]),
            "source": mirrored_range.source,
            "source_marker": int(theirs.marker[other]),
            "outcomes": [
                _outcome(bool(theirs.committed[other])),
                _outcome(bool(ours.committed[mine])),
            ],
        }
        if theirs.committed[other] and view.recorded:
            evidence |= _not_arrived(
                view, mirrored_range, int(theirs.marker[other]), int(ours.marker[mine])
            )
        yield Found.at(SPLIT, mirrored_range.destination, ours.marker[mine], **evidence)


def _not_arrived(
    view: PartitionView, mirrored_range: MirroredRange, commit: int, abort: int
) -> dict[str, object]:
    """Evidence that the mirror aborted the transaction because its COMMIT had not arrived when the
    mirror ended: at a failover, or lagging at the end of the run."""
    awaited = {"not_arrived": f"COMMIT at offset {commit} of {mirrored_range.source}"}
    if mirrored_range.promotion is not None:
        return (
            {"failover": mirrored_range.promotion.kind, **awaited}
            if min(abort, commit) >= mirrored_range.end
            else {}
        )
    link = f"{mirrored_range.source}->{mirrored_range.destination}"
    stops = [
        stop
        for stop in view.stops
        if stop.link == link and abort in {at for at, _ in stop.appended}
    ]
    return (
        {"failover": RUN_END, **awaited} if any(commit >= stop.mirrored for stop in stops) else {}
    )


def _outcome(committed: bool) -> str:
    return "COMMIT" if committed else "ABORT"


NOT_TRANSACTIONAL = "not-transactional"
IMPOSSIBLE = "impossible-header"
COORDINATOR = "coordinator-epoch-regression"
_APART = 2**32
"""More than any coordinator epoch, which has 32 bits."""


def not_transactional(generation: LogGeneration, log: Log) -> Sequence[Found]:
    """Batches without the transactional bit from producers that have markers. If a producer has no
    markers, its batches of the rarer kind, transactional or not."""
    batches = log.batches
    order, group = _by_producer(generation, batches, batches.producer_id != -1)
    if not len(order):
        return []
    control = batches.control[order]
    plain = (control == DATA) & ~batches.transactional[order]
    inside = (control == DATA) & batches.transactional[order]
    marks, plains, insides = (
        np.bincount(group, which)
        for which in ((control == COMMIT) | (control == ABORT), plain, inside)
    )
    fewer = (plains > 0) & (marks == 0) & (insides > 0) & (insides < plains)
    wrong = (plain & ((marks > 0) | (insides > 0))[group] & ~fewer[group]) | (inside & fewer[group])
    return [
        Found.at(
            NOT_TRANSACTIONAL,
            log.cluster,
            batches.base_offset[row],
            producer_id=batches.producer_id[row],
            producer_epoch=batches.producer_epoch[row],
            transactional=bool(batches.transactional[row]),
            records=batches.count[row],
            markers=marks[g],
        )
        for row, g in zip(order[wrong].tolist(), group[wrong].tolist(), strict=True)
    ]


def impossible(view: PartitionView, generation: LogGeneration, log: Log) -> Sequence[Found]:
    """Batches with a header that no broker writes, by the rules that the declaration of this kind
    lists."""
    batches = log.batches
    marker = (batches.control == COMMIT) | (batches.control == ABORT)
    data = batches.control == DATA
    without = batches.producer_id == -1
    wrong = data & without & batches.transactional
    wrong |= (data | marker) & ~without & (batches.producer_epoch < 0)
    wrong |= marker & (without | ~batches.transactional | (batches.base_sequence != -1))
    wrong |= marker & _of_no_marker(log)
    wrong |= _another_time(log) | _another_number(view, log)
    if _all_known(view):
        unused = batches.attributes & UNUSED != 0
        odd = unused | (data & without & (batches.base_sequence > 0))
        wrong |= (data | marker) & odd & native(generation, batches.base_offset)
        wrong |= _another_type(view, generation, log)
    return [
        Found.at(
            IMPOSSIBLE,
            log.cluster,
            batches.base_offset[row],
            producer_id=batches.producer_id[row],
            producer_epoch=batches.producer_epoch[row],
            base_sequence=batches.base_sequence[row],
            max_timestamp=batches.max_timestamp[row],
            timestamp_type=BY_BROKERS if batches.log_append_time[row] else "CreateTime",
            attributes=batches.attributes[row],
            transactional=bool(batches.transactional[row]),
            control=bool(marker[row]),
            count=batches.count[row],
            offsets=batches.last_offset[row] - batches.base_offset[row] + 1,
        )
        for row in np.flatnonzero(wrong & batches.crc_ok).tolist()
    ]


def _of_no_marker(log: Log) -> Bools:
    """The batches that cannot be markers: those with more than one record or offset, or with two
    timestamps. Timestamps count only as far as brokers leave them alone: with LogAppendTime the
    leader sets the maximum timestamp, and a cleaner sets the base timestamp."""
    batches = log.batches
    one_time = batches.log_append_time | (batches.attributes & DELETE_HORIZON != 0)
    one_time |= batches.base_timestamp == batches.max_timestamp
    one_record = (batches.count == 1) & (batches.last_offset == batches.base_offset)
    return np.asarray(~(one_time & one_record))


def _another_time(log: Log) -> Bools:
    """The batches whose maximum timestamp is not that of their latest record. Brokers set it so
    when they append a batch and when they clean it. Only batches whose records were all read are
    compared."""
    batches, records = log.batches, log.replica.records
    latest = np.full(len(batches), np.iinfo(np.int64).min)
    np.maximum.at(latest, records.batch, records.timestamp)
    read = np.bincount(records.batch, minlength=len(batches))
    known = (read > 0) & (read == batches.count) & (batches.leader_epoch != NO_EPOCH)
    return np.asarray(known & (latest != batches.max_timestamp))


def _another_number(view: PartitionView, log: Log) -> Bools:
    """The batches with fewer or more records than offsets, and those with a delete horizon. Brokers
    refuse such batches (LogValidator); only a cleaner removes records or writes a delete horizon.
    Three kinds of log are left out: copied logs, which may have been cleaned; logs of clusters that
    linkflap did not start, whose files it does not see; and messages of formats 0 and 1, whose
    number the header does not give."""
    batches, foreign = log.batches, view.topic in view.partition_facts.facts.programs
    if not view.recorded or view.internal or (foreign and view.topology.attached):
        return np.zeros(len(batches), np.bool_)
    offsets = batches.last_offset - batches.base_offset + 1
    appended = batches.base_offset >= max(view.compacted.values(), default=0)
    known = (batches.control == DATA) & (batches.leader_epoch != NO_EPOCH)
    cleaned = batches.attributes & DELETE_HORIZON != 0
    return np.asarray(appended & ((known & (batches.count != offsets)) | cleaned))


def _all_known(view: PartitionView) -> bool:
    """Whether all native records are of linkflap's clients, and all settings of the topic are
    linkflap's: no program of the user's ran, and no fault recreated the topic."""
    made_anew = any(window.fault.startswith("topic-") for window in view.windows)
    ours = view.recorded and len(view.sends) and not of_own_clients(view) and not made_anew
    return bool(ours and not (view.topology.attached or view.partition_facts.facts.programs))


def _another_type(view: PartitionView, generation: LogGeneration, log: Log) -> Bools:
    """The data batches whose type of timestamp (message.timestamp.type) their topic never had on
    the cluster that wrote them. Native batches and those of a mirror that writes batches of its own
    are compared. A mirror may change its destination's settings in any way, so the sampled settings
    count there."""
    batches, cluster = log.batches, generation.cluster
    types = timestamp_types(view, cluster)
    given = cluster == view.home or any(each.cluster == cluster for each in view.settings)
    if not given or len(types) > 1:
        return np.zeros(len(batches), np.bool_)
    written = (batches.control == DATA) & (batches.leader_epoch != NO_EPOCH)
    if view.guarantee.offsets_kept:
        written &= native(generation, batches.base_offset)
    return np.asarray(written & (batches.log_append_time != (types == {BY_BROKERS})))


def coordinators(view: PartitionView, generation: LogGeneration, log: Log) -> Sequence[Found]:
    """Markers whose coordinator epoch is below that of an earlier marker of the same producer
    id."""
    batches = log.batches
    order, group = _by_producer(generation, batches, batches.producer_id != -1)
    if not len(order):
        return []
    marker = (batches.control[order] == COMMIT) | (batches.control[order] == ABORT)
    last = np.append(changes(group)[1:], True)
    order, group, last = order[marker], group[marker], last[marker]
    epoch = batches.coordinator_epoch[order]
    highest = np.maximum.accumulate(epoch + group * _APART) - group * _APART
    back = (epoch >= 0) & (epoch < highest)
    offset, leader = batches.base_offset[order], batches.leader_epoch[order]
    if view.recorded:
        appended = [offset for stop in view.stops for offset, _ in stop.appended]
        back &= ~among(offset, np.array(appended, np.int64))
    else:
        raised = np.concatenate(([False], leader[1:] > leader[:-1]))
        promoted = native(generation, offset) & (len(generation.eras) > 1)
        back &= ~(last & raised & (batches.control[order] == ABORT) & ~promoted)
    return [
        Found.at(
            COORDINATOR,
            log.cluster,
            batches.base_offset[order[i]],
            producer_id=batches.producer_id[order[i]],
            coordinator_epoch=epoch[i],
            fenced_by=highest[i],
        )
        for i in np.flatnonzero(back).tolist()
    ]


def _by_producer(generation: LogGeneration, batches: Batches, which: Bools) -> tuple[Ints, Ints]:
    """The rows of undamaged data and markers, grouped by producer, and per row the number of its
    group: one producer id of one owner between two resets."""
    sections = np.cumsum(batches.control == OTHER_CONTROL)
    rows = np.flatnonzero(which & batches.crc_ok & (batches.control != OTHER_CONTROL))
    owner = owners_of(generation, batches.base_offset[rows])
    order = np.lexsort((rows, owner, sections[rows], batches.producer_id[rows]))
    rows, owner = rows[order], owner[order]
    return rows, np.cumsum(changes(batches.producer_id[rows], sections[rows], owner))


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Pairs transactions and markers of every cluster's log."""
    return [*judged(view, _judge), *splits(view)]


def _judge(view: PartitionView, generation: LogGeneration, log: Log) -> Sequence[Finding]:
    return [
        *examined(generation, log.transactions.first),
        *_epochs(log, Taken(view, log.cluster)),
        *_overrun(view, generation, log, Taken(view, log.cluster)),
        *fenced_data(generation, log),
        *left_open(view, generation, log),
        *(last_stable_too_low(log) if generation.last else ()),
        *not_transactional(generation, log),
        *coordinators(view, generation, log),
        *impossible(view, generation, log),
    ]


def _without_marker(log: Log, first: Ints, taken: Taken) -> Sequence[Mapping[str, object]]:
    """Per first offset of a transaction without a marker, evidence of the unclean election that
    lost the marker."""
    records = log.records
    if not taken or not len(records):
        return [{}] * len(first)
    at = locate(records.offset, first)
    uids = np.where(at >= 0, records.uid[at], -1)
    by = np.maximum(taken.unended(first, uids), taken.unended(first, uids, commit=False))
    return [taken.evidence(number) for number in by.tolist()]


def _epochs(log: Log, taken: Taken) -> Sequence[Finding]:
    every, found = log.transactions, []
    closed = every.marker != NOWHERE
    older = np.flatnonzero(closed & (every.marker_epoch < every.highest_epoch))
    for i in older.tolist():
        found.append(
            Found.at(
                "marker-epoch",
                log.cluster,
                every.marker[i],
                producer_id=every.producer_id[i],
                marker_epoch=every.marker_epoch[i],
                data_epoch=every.highest_epoch[i],
                first_offset=every.first[i],
            )
        )
    both = np.flatnonzero(every.lowest_epoch != every.highest_epoch)
    by = _without_marker(log, every.first[both], taken)
    for i, lost in zip(both.tolist(), by, strict=True):
        found.append(
            Found.at(
                "marker-missing",
                log.cluster,
                every.first[i],
                producer_id=every.producer_id[i],
                epochs=[every.lowest_epoch[i], every.highest_epoch[i]],
                last_offset=every.last[i],
                **lost,
            )
        )
    return found


def _overrun(
    view: PartitionView, generation: LogGeneration, log: Log, taken: Taken
) -> Iterator[Finding]:
    """Operations without a marker whose producer id wrote for another operation in the same
    epoch."""
    answered = _answered(view)
    cluster, records, batches = log.cluster, log.records, log.batches
    following = followed(log)
    rows = np.flatnonzero(following >= 0)
    own = np.zeros(len(rows), np.bool_)
    for era in generation.eras:
        if era.origin == "native" or view.guarantee.offsets_kept:
            own |= (records.offset[rows] >= era.start) & (records.offset[following[rows]] < era.end)
    # `_epochs` reports a new epoch.
    epochs = batches.producer_epoch[records.batch]
    rows = rows[own & (epochs[rows] == epochs[following[rows]])]
    if answered is not None:
        rows = rows[among(records.operation[rows], answered)]
    nexts, firsts, counts = np.unique(following[rows], return_index=True, return_counts=True)
    lost = _without_marker(log, records.offset[rows[firsts]], taken)
    for after, first, count, by in zip(
        nexts.tolist(), rows[firsts].tolist(), counts.tolist(), lost, strict=True
    ):
        yield Found.at(
            "marker-missing",
            cluster,
            records.offset[first],
            producer_id=batches.producer_id[records.batch[first]],
            records=count,
            operations=[records.operation[first], records.operation[after]],
            next_offset=records.offset[after],
            **by,
        )


def _answered(view: PartitionView) -> Ints | None:
    """The operations whose end was acknowledged, if they were recorded on the wire: a program may
    write on after any other answer, and its transaction may then continue. None: all."""
    if view.topic not in view.partition_facts.facts.wired:
        return None
    sends = Sends.of(view.sends)
    return sends.take(sends.says("outcome", "ok")).column("number")


CHECK = Check(
    name="marker-pairing",
    guarantee="""Every transaction ends in one marker of its epoch or a later one, with the same
        outcome on every cluster, and nothing of a lower epoch follows a marker.""",
    source="KIP-98; KIP-890 (transactions v2); KIP-1228; KIP-1279 (open transactions at a stop)",
    wire="""A transaction must have its marker before the producer's next one only if its EndTxn was
        answered without an error: after any other answer a program may write on in the same
        transaction.""",
    inputs={"batches", "records", "sends", "promotions"},
    anomalies=(
        AnomalyKind(
            name="marker-epoch",
            meaning="A marker has a lower epoch than the data it ends; the offset is the marker's.",
            sentence="""the marker at {at} on {cluster} has producer epoch {marker_epoch}, its data
                of producer id {producer_id} {data_epoch}""",
            alone="data of the epochs in between can be written behind the marker",
            smallest="""producer 7 wrote 1 in epoch 2, its COMMIT has epoch 1: at the offset of
                COMMIT.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="marker-missing",
            meaning="""A producer id wrote in a new epoch, or for its next operation, although its
                transaction has no marker; the offset is that of the transaction's first data.""",
            sentence="""{cluster} has no marker between two transactions of producer id
                {producer_id} at {at}""",
            counted="transaction has no marker|transactions have no marker",
            alone="the next marker decides about two transactions",
            smallest="""producer 7 wrote 1 in one transaction and 2 in the next, without a marker in
                between: at the offset of 1.""",
        ),
        AnomalyKind(
            name="stale-data",
            meaning="Data follows a marker of a higher epoch: a fenced producer wrote.",
            sentence="""a fenced producer (id {producer_id}, epoch {producer_epoch}) wrote to
                {cluster} at {at}""",
            alone="two incarnations of one producer write side by side",
            smallest="""producer 7's COMMIT has epoch 1, then it wrote 2 in epoch 0: at the offset
                of 2.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name=LEFT_OPEN,
            meaning="""A transaction without a marker is followed by a reset of the producer state.
                Nothing in the log ends it, and as long as nothing does, readers of committed
                records get no further. The offset is that of the transaction's first data.""",
            sentence="{cluster} left a transaction of producer id {producer_id} open at {at}",
            counted="transaction was left open|transactions were left open",
            one_per=("producer_id", "producer_epoch"),
            smallest="""producer 7 wrote 1 on A; B has 1 and a reset, and no marker: at the offset
                of 1 on B.""",
        ),
        AnomalyKind(
            name=STUCK,
            meaning="""The leader of a running cluster answers a last stable offset below the one
                that its log gives for an earlier high watermark: the markers in the log do not move
                it on. The offset is that answer.""",
            sentence="""the last stable offset of {tp} on {cluster} is stuck at {last_stable},
                although all transactions have ended""",
            alone="readers of committed records get no further",
            smallest="""A has 1 and COMMIT, its high watermark is 2, and its last stable offset 0:
                at offset 0.""",
        ),
        AnomalyKind(
            name=SPLIT,
            meaning="""A transaction has one outcome on the source and another on the mirror's
                destination; the offset is that of the marker on the destination. After a forced
                failover of a recorded run a mirror's guarantee may allow an abort of data whose
                marker had not arrived.""",
            sentence="""a transaction of producer id {producer_id} ends as {outcomes} on {source}
                and {cluster}, at {at}""",
            counted="transaction ended in two ways|transactions ended in two ways",
            one_per=("producer_id", "producer_epoch"),
            smallest="""producer 7 wrote 1 on A, which has COMMIT for it; B has 1 and ABORT: at the
                offset of ABORT on B.""",
        ),
        AnomalyKind(
            name=NOT_TRANSACTIONAL,
            meaning="""A batch of a transactional producer is not transactional: every reader gets
                it, whatever its marker is. For an id without a marker, the offset is that of a
                batch of the rarer kind, transactional or not.""",
            sentence="""{cluster} has data of a transaction of producer id {producer_id} at {at}
                that is not marked as transactional""",
            alone="readers of committed records get it even if it is aborted",
            smallest="producer 7 wrote 1, not transactional, and has COMMIT: at the offset of 1.",
        ),
        AnomalyKind(
            name=IMPOSSIBLE,
            meaning="""A batch is transactional without a producer id; has an id without an epoch;
                is a marker without an id or the transactional bit, with a sequence, or of more
                than one offset, record or time; has a maximum timestamp that is not its latest
                record's; has, where no cleaner has been, a delete horizon, or another number of
                records than of offsets; or has, where only linkflap wrote and gave the topic
                settings, a type of timestamp that these exclude, attributes that mean nothing, or
                a sequence without an id. Elsewhere several clients write 0 as the epoch and the
                sequence of no id.""",
            sentence="""{cluster} has a batch at {at} with a header that no broker writes: producer
                id {producer_id}, epoch {producer_epoch}, sequence {base_sequence}, transactional
                {transactional}, attributes {attributes}, maximum timestamp {max_timestamp}
                ({timestamp_type}), {count} records at {offsets} offsets""",
            alone="what brokers and readers do with it nobody can say",
            smallest="A has 1, transactional and without a producer id: at its offset.",
            despite_torn=True,
        ),
        AnomalyKind(
            name=COORDINATOR,
            meaning="""A marker is of an older transaction coordinator than an earlier marker of the
                same producer id.""",
            sentence="""{cluster} has a marker of a fenced coordinator (epoch {coordinator_epoch})
                at {at}""",
            alone="a coordinator that was replaced can end transactions",
            smallest="""producer 7's first COMMIT has coordinator epoch 4, its second one 3: at the
                second one.""",
            despite_torn=True,
        ),
    ),
    follows={"producer-id-uniqueness", "sequence-continuity", "order-equality", "internal-topics"},
    kernel=kernel,
    from_bytes=True,
    unit="transactions",
    only_of="transactions",
    due={"native"},
    only_our_records=True,
    of_one_cluster=True,
)
