"""internal-topics: Kafka's own topics are sound, and say of transactions and groups what the data and the clients say (KIP-98).

Of `__transaction_state`, `__consumer_offsets`, `__cluster_metadata` and, of a build of KIP-1279, `__mirror_state`, below the high
watermark: CRCs are right, replicas agree, and no offset is missing where no cleaner was. A capture of a running cluster may stop
in the middle of a batch above that.

A coordinator writes that a transaction is complete when every partition has its marker (`spark_verify.checks.parts.coordinated`):
so the markers that a cluster's own coordinators wrote are, per partition, producer id and epoch, the outcomes that they decided,
in that order. The last decisions of a cluster that was killed may not have arrived: prepared, or still open, is legal. And what a
group was seen to have committed, or a client was acknowledged, is in `__consumer_offsets`, in that order.

A coordinator that loads a partition anew reads all of it, but answers with what lies below the high watermark (Kafka 4.0 and
later), and a new leader knows only the one that it had as a follower, or, after a crash, the one of its checkpoint. Until its
followers have fetched, a group is seen to be at a commit that it had left. So samples may step back to an earlier commit of the
log where another leader wrote behind the later one, or where a fault had reached brokers of the cluster by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace

import numpy as np

from linkflap.harness.log.coordinators import GROUPS, TRANSACTIONS, TransactionState
from linkflap.spark_verify.checks.base import AnomalyKind, Check, Examined, Finding, Found, PartialFinding, Unjudged
from linkflap.spark_verify.checks.parts.coordinated import combine
from linkflap.spark_verify.checks.parts.generations import compacted, generations, native
from linkflap.spark_verify.checks.parts.replicas import between, falls, missing, within
from linkflap.spark_verify.checks.parts.sampled import disturbed_from, pending_commits, visible_commits
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.view import ABORT, COMMIT, OTHER_CONTROL, Batches, Bools, Ints, PartitionView, Replica

METADATA = "__cluster_metadata"


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Looks at the logs of one of Kafka's own topics; of any other, at what coordinators have to say of it too."""
    if not view.internal:
        return [*_markers(view), *_seen_of_groups(view)]
    findings: list[Finding] = []
    for cluster in sorted({r.cluster for r in view.replicas}):
        replicas = [_below(r) for r in view.replicas if r.cluster == cluster]
        for replica in replicas:
            findings += [*_examined(replica), *within(replica), *falls(replica), *_absent(view, replica)]
        if len(replicas) > 1:
            cleaned = max(compacted(view, r) for r in replicas)
            findings += [f for f in between(_led(view, replicas)) if f.offset >= cleaned]
    return [*findings, *_coordinators(view)]


def _below(replica: Replica) -> Replica:
    """The part of a replica that is below its high watermark: what is above was being written when it was captured."""
    batches = replica.batches
    kept = batches.last_offset < replica.high_watermark if replica.high_watermark >= 0 else np.ones(len(batches), np.bool_)
    # What a wrong base offset puts above the end lies, in the file, before something that is below.
    kept |= np.arange(len(batches)) < (np.flatnonzero(kept)[-1] if kept.any() else 0)
    return replace(replica, batches=_taken(batches, kept))


def _taken(batches: Batches, rows: Bools) -> Batches:
    return Batches(**{f.name: getattr(batches, f.name)[rows] for f in fields(Batches)})


def _examined(replica: Replica) -> Iterator[Examined]:
    if len(replica.batches):
        yield Examined(cluster=replica.cluster, origin="native", count=len(replica.batches))


def _absent(view: PartitionView, replica: Replica) -> Iterator[Finding]:
    """Offsets that are missing inside of a log, and at its end; of a torn one that is no news."""
    evidence: dict[str, object] = {"broker": replica.broker}
    if replica.damage:
        where = f"{view.topic}-{view.partition} on {replica.cluster}/{replica.broker}"
        yield Unjudged(reason=f"the log of {where} is torn from offset {replica.torn_from} on")
        return
    count, first = missing(replica, view.compacted.get(replica.cluster, 0))
    if count:
        yield Found(kind="offsets-missing", cluster=replica.cluster, offset=first, evidence={**evidence, "offsets": count})
    if replica.end < replica.high_watermark:
        evidence |= {"high_watermark": replica.high_watermark, "from": replica.high_watermark_from}
        yield Found(kind="ends-early", cluster=replica.cluster, offset=replica.end, evidence=evidence)


def _led(view: PartitionView, replicas: Sequence[Replica]) -> Sequence[Replica]:
    """Replicas up to where they owe each other anything.

    The high watermark of the metadata log is in no file. What a leader that was deposed had not replicated is in its own log
    alone, in an epoch below that of what is there now, up to its end.
    """
    if view.topic != METADATA:
        return replicas
    model = next((r for r in replicas if r.canonical), replicas[0])
    return [replace(r, high_watermark=min(r.high_watermark, _deposed(r, model))) for r in replicas]


def _deposed(replica: Replica, model: Replica) -> int:
    ours, theirs = replica.batches, model.batches
    _, here, there = np.intersect1d(ours.base_offset, theirs.base_offset, return_indices=True)
    behind = np.flatnonzero(ours.leader_epoch[here] < theirs.leader_epoch[there])
    tail = behind.size and (ours.leader_epoch[here[behind[0]] :] < theirs.leader_epoch[there[behind[0]]]).all()
    return int(ours.base_offset[here[behind[0]]]) if tail else replica.end


def _coordinators(view: PartitionView) -> Iterator[PartialFinding]:
    """What the coordinators of each cluster wrote into this partition."""
    for cluster, replica in view.canonical().items():
        begins = max(replica.log_start, view.compacted.get(cluster, 0))
        sound = not [*_absent(view, _below(replica)), *within(_below(replica))]
        data: dict[str, object] = {"sound": sound, "begins": begins}
        if view.topic == TRANSACTIONS:
            data |= _states([e for e in replica.entries if isinstance(e, TransactionState)], replica.high_watermark)
        elif view.topic == GROUPS:
            yield _marked(replica, np.ones(len(replica.batches), np.bool_), exact=sound and begins == 0, known=sound)
            data |= _commits(replica)
        else:
            continue
        yield PartialFinding(cluster=cluster, offset=replica.log_start, data=data, together=cluster)


def _states(states: Sequence[TransactionState], high_watermark: int) -> dict[str, object]:
    names = {name: n for n, name in enumerate(dict.fromkeys(s.transactional_id for s in states))}
    topics = {name: n for n, name in enumerate(dict.fromkeys(topic for s in states for topic, _ in s.partitions))}
    rows = [
        (names[s.transactional_id], s.producer_id, s.producer_epoch, s.state, s.offset, int(s.offset < high_watermark))
        for s in states
    ]
    numbered = [(n, topics[topic], number) for n, s in enumerate(states) for topic, number in s.partitions]
    return {
        "what": "states", "ids": list(names), "topics": list(topics),
        "states": np.array(rows, np.int64).reshape(-1), "partitions_of_states": np.array(numbered, np.int64).reshape(-1),
    }  # fmt: skip


def _commits(replica: Replica) -> dict[str, object]:
    """Commits of groups, and whether a coordinator has loaded the partition anew since; and those of open transactions."""
    # A leader that wrote in a later epoch had loaded all of the partition anew.
    reloaded = replica.batches.leader_epoch < replica.batches.leader_epoch.max(initial=-1)
    seen = [(commit, int(reloaded[row])) for commit, row in visible_commits(replica)]
    open_ = list(pending_commits(replica))
    named = dict.fromkeys((c.group, c.topic, c.partition) for c in (*(c for c, _ in seen), *open_))
    keys = {key: n for n, key in enumerate(named)}
    written = [(keys[c.group, c.topic, c.partition], c.committed, after) for c, after in seen]
    pending = [(keys[c.group, c.topic, c.partition], c.committed) for c in open_]
    return {
        "what": "commits", "keys": [list(key) for key in keys],
        "commits": np.array(written, np.int64).reshape(-1), "pending": np.array(pending, np.int64).reshape(-1),
    }  # fmt: skip


def _markers(view: PartitionView) -> Iterator[PartialFinding]:
    """The markers of each cluster's own coordinators in this partition."""
    known = generations(view)
    for cluster, replica in view.canonical().items():
        truncated = len(known[cluster]) > 1 or _was_truncated(view, cluster)
        whole = not (truncated or replica.damage or replica.log_start or view.compacted.get(cluster)) and view.recorded
        # Behind a reset (KIP-1279) producer ids are another cluster's; without a history nothing says whose.
        reset = not view.recorded and bool((replica.batches.control == OTHER_CONTROL).any())
        own = _of_its_coordinators(view, known[cluster][-1], replica)
        yield _marked(replica, own, exact=whole, known=not (truncated or replica.damage or reset))


def _was_truncated(view: PartitionView, cluster: str) -> bool:
    """Whether a mirror, beginning or ending, says that it truncated the log of this cluster."""
    said = {t.cluster for t in view.truncations} | {stop.cluster for stop in view.stops if stop.truncated}
    return cluster in said


def _of_its_coordinators(view: PartitionView, generation: LogGeneration, replica: Replica) -> Bools:
    """Per batch, whether it is native here, and not what a mirror appended when it ended."""
    offsets = replica.batches.base_offset
    own = native(generation, offsets) if view.mirror.guarantee.offsets_kept else np.ones(len(offsets), np.bool_)
    appended = [offset for stop in view.stops if stop.cluster == replica.cluster for offset, _ in stop.appended]
    # A cleaner takes markers from anywhere below its checkpoint; those above are all there, as at the end of a log.
    return own & (offsets >= view.compacted.get(replica.cluster, 0)) & ~np.isin(offsets, appended)


def _marked(replica: Replica, own: Bools, *, exact: bool, known: bool) -> PartialFinding:
    """`exact`: all markers that were ever written there are there. `known`: the last ones are."""
    batches = replica.batches
    rows = np.flatnonzero(own & batches.crc_ok & ((batches.control == COMMIT) | (batches.control == ABORT)))
    columns = (batches.producer_id, batches.producer_epoch, batches.control, batches.base_offset, _written_again(batches))
    data = {
        "what": "markers",
        "exact": exact,
        "known": known,
        "markers": np.stack([c[rows] for c in columns], axis=1).reshape(-1),
    }
    return PartialFinding(cluster=replica.cluster, offset=replica.log_start, data=data, together=replica.cluster)


def _written_again(batches: Batches) -> Ints:
    """Per batch 1 where it may be a marker that its coordinator wrote once more: the same as the one before it of its producer,
    without data in between. So it is when a leader moves, or an answer is lost, while a marker is being written.
    """
    of_producers = np.flatnonzero(batches.transactional & batches.crc_ok)
    order = of_producers[np.argsort(batches.producer_id[of_producers], kind="stable")]
    marker = (batches.control == COMMIT) | (batches.control == ABORT)
    columns = (batches.producer_id, batches.producer_epoch, batches.control)
    again = np.zeros(len(batches), np.int64)
    if len(order):
        same = marker[order[1:]] & np.logical_and.reduce([c[order[1:]] == c[order[:-1]] for c in columns])
        again[order[1:]] = same
    return again


def _seen_of_groups(view: PartitionView) -> Iterator[PartialFinding]:
    """Committed offsets that somebody saw on a cluster, in order of time; and those that clients were acknowledged."""
    commits = [r for r in view.reads if r.kind == "commit" and r.group and r.position >= 0]
    for cluster in sorted({g.cluster for g in view.groups} | {r.cluster for r in commits}):
        disturbed = disturbed_from(view.windows, cluster)
        sampled = [(g.group, g.offset, int(g.time >= disturbed)) for g in view.groups if g.cluster == cluster]
        acknowledged = [(r.group, r.position) for r in commits if r.cluster == cluster]
        yield PartialFinding(cluster=cluster, offset=-1, data=_seen(sampled, acknowledged), together=cluster)


def _seen(sampled: Sequence[tuple[str, int, int]], acknowledged: Sequence[tuple[str, int]]) -> Mapping[str, object]:
    groups = dict.fromkeys([*(group for group, *_ in sampled), *(group for group, _ in acknowledged)])
    names = {group: number for number, group in enumerate(groups)}
    seen = {"sampled": _numbered(names, sampled), "acknowledged": _numbered(names, acknowledged)}
    return {"what": "seen", "groups": list(names), **seen}


def _numbered(names: Mapping[str, int], rows: Sequence[tuple[str, int, int] | tuple[str, int]]) -> Ints:
    """Rows that begin with a group's name, with its number instead, one behind the other."""
    return np.array([(names[name], *rest) for name, *rest in rows], np.int64).reshape(-1)


def due(*_: object) -> tuple[()]:
    """Not every run has captured them, and not every cluster has all of them."""
    return ()


CHECK = Check(
    name="internal-topics",
    guarantee="Kafka's own topics are sound on every replica, and agree with the markers in the data and with what clients saw.",
    source="KIP-98 (transaction coordinator); KIP-890; KIP-447 (offsets in transactions); KIP-595 (metadata log)",
    inputs=frozenset({"batches", "reads", "groups", "promotions"}),
    anomalies=(
        AnomalyKind(
            name="corrupt-batch",
            meaning="A batch's CRC-32C is not that of its bytes.",
            sentence="broker {broker} of {cluster} has a corrupt batch at {at}",
            counted="batch is corrupt|batches are corrupt",
            alone="a coordinator that loads it fails there",
            smallest="a batch at offset 0 of __transaction_state whose stored CRC is wrong: at offset 0.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="log-disorder",
            meaning="A batch's base offset is not above everything before it in the file.",
            sentence="the log of broker {broker} of {cluster} is out of order at {at}: it follows offset {after}",
            alone="a coordinator that loads it gets another state",
            smallest="a file with batches at offsets 0 and 0: at the second.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="replica-disagreement",
            meaning="Two replicas have different batches at one base offset.",
            sentence="brokers {brokers} of {cluster} have different batches at {at}",
            counted="batch differs between replicas|batches differ between replicas",
            alone="what a coordinator knows depends on which broker leads",
            smallest="brokers 1 and 2 have batches at offset 0 whose CRCs differ: at offset 0.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="replica-missing",
            meaning="A batch below the common high watermark is on one replica and not, or more often, on another.",
            sentence="broker {missing_on} of {cluster} lacks what another replica has at {at}",
            alone="should this broker lead, its coordinators lack it",
            smallest="broker 1 has batches at 0 and 1, broker 2 only at 0: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="leader-epoch-regression",
            meaning="A batch has a lower leader epoch than one before it in the same log.",
            sentence="the leader epoch falls from {before} to {epoch} at {at} on broker {broker} of {cluster}",
            alone="a follower that compares epochs can truncate in the wrong place",
            smallest="a file with a batch of epoch 2 at offset 0 and one of epoch 1 at offset 1: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="offsets-missing",
            meaning="Offsets are missing inside of a log where no cleaner was.",
            sentence="the log of broker {broker} of {cluster} lacks offsets where no cleaner was: {offsets}, the first at {at}",
            alone="a coordinator that loads it lacks what was there",
            smallest="a file with batches at offsets 0 and 2: at offset 1.",
        ),
        AnomalyKind(
            name="ends-early",
            meaning="A log ends below its own high watermark.",
            sentence="the log of broker {broker} of {cluster} ends at {at}, below its high watermark {high_watermark}",
            alone="should this broker lead, its coordinators lack what was acknowledged",
            smallest="a leader reported high watermark 2, and its file ends at 1: at offset 1.",
        ),
        AnomalyKind(
            name="outcome-disagreement",
            meaning="A partition has the other marker than the coordinator decided.",
            sentence="the coordinator of {cluster} decided {decided} for {transactional_id} (producer id {producer_id}), and "
            "the marker at {at} says otherwise",
            alone="its client was answered what the log does not have",
            smallest="the coordinator's state is CompleteCommit, and the partition has ABORT at 1: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="marker-missing",
            meaning="The coordinator says that a transaction is complete, and a partition of it has no marker.",
            sentence="the coordinator of {cluster} completed {decided} of {transactional_id} (producer id {producer_id}), and "
            "{tp} has no marker",
            alone="the transaction stays open, and readers of committed records wait for it",
            smallest="the coordinator's state is CompleteCommit, the partition has 1 and no marker: nowhere.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="marker-unexplained",
            meaning="A marker of the cluster's own in a partition ends a transaction that no coordinator of it decided.",
            sentence="{cluster} has a marker of producer id {producer_id} at {at} that no coordinator decided",
            alone="a transaction may have been ended that its client had not ended",
            smallest="a partition has COMMIT at 1, and no coordinator prepared it: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="commit-missing",
            meaning="An offset that a group was seen to have committed is not in __consumer_offsets, or not in that order. "
            "Samples may step back to an earlier commit once a coordinator has loaded the partition anew: it answers with what "
            "lies below the high watermark, which is behind until its followers have fetched.",
            sentence="{cluster} lost the commit of offset {offset} of the group {group} for {tp} that had been {seen}",
            counted="commit of a group is missing|commits of groups are missing",
            smallest="a sample says that g has committed 5, and __consumer_offsets has 3: at offset 5.",
            despite_torn=True,
        ),
    ),
    kernel=kernel,
    combine=combine,
    due_at=due,
    when="what was captured of them",
    complete=frozenset({"promotions"}),
    from_bytes=True,
    internal=True,
    unit="batches",
    of_one_cluster=True,
)
