"""internal-topics: Kafka's own topics are sound, and agree with the data and the clients about
transactions and groups (KIP-98).

It checks `__transaction_state`, `__consumer_offsets`, `__cluster_metadata` and, of a build of
KIP-1279, `__mirror_state`, below the high watermark: CRCs are right, replicas agree, and no offset
is missing where no cleaner has been. Above the high watermark, a capture of a running cluster may
stop in the middle of a batch.

Each record of a transactional id follows from the one before it (`parts.transaction_states`). A
coordinator writes that a transaction is complete when every partition has its marker
(`parts.coordinator_decisions`). So per partition, producer id and epoch, the markers that a
cluster's own coordinators wrote are the outcomes that they decided, in that order. The last
decisions of a killed cluster may not have arrived: prepared, or still open, is legal. Every group
offset that was sampled, and every commit that a client was acknowledged, is in
`__consumer_offsets`, in that order.

A coordinator that reloads a partition reads all of it, but answers only with the part below the
high watermark (Kafka 4.0 and later). A new leader knows only the high watermark that it had as a
follower, or, after a crash, the one of its checkpoint. Until its followers have fetched, it answers
with an earlier commit of the group. So samples may step back to an earlier commit of the log if
another leader wrote behind the later one, or if a fault had reached brokers of the cluster by then.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linkflap.harness.log.coordinators import GROUPS, TRANSACTIONS, TransactionState
from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Examined,
    Finding,
    PartialFinding,
)
from linkflap.spark_verify.checks.parts.coordinator_decisions import combine
from linkflap.spark_verify.checks.parts.coordinator_writes import (
    commit_columns,
    marked_partial,
    marker_partials,
    seen_of_groups,
    state_columns,
)
from linkflap.spark_verify.checks.parts.generations import compacted
from linkflap.spark_verify.checks.parts.internal_replicas import (
    absent_offsets,
    below_high_watermark,
    led,
    sound,
)
from linkflap.spark_verify.checks.parts.replicas import between, falls, within
from linkflap.spark_verify.checks.parts.transaction_states import IMPOSSIBLE, impossible_states
from linkflap.spark_verify.facts.view import PartitionView, Replica


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Looks at the logs of one of Kafka's own topics; of any other, at what coordinators have to
    say of it too."""
    if not view.internal:
        yield from marker_partials(view)
        yield from seen_of_groups(view)
        return
    for cluster in sorted({r.cluster for r in view.replicas}):
        replicas = [below_high_watermark(r) for r in view.replicas if r.cluster == cluster]
        for replica in replicas:
            yield from _examined(replica)
            yield from within(replica)
            yield from falls(replica)
            yield from absent_offsets(view, replica)
        if len(replicas) > 1:
            cleaned = max(compacted(view, r) for r in replicas)
            yield from [f for f in between(led(view, replicas)) if f.offset >= cleaned]
    yield from _coordinators(view)


def _examined(replica: Replica) -> Iterator[Examined]:
    if len(replica.batches):
        yield Examined(cluster=replica.cluster, origin="native", count=len(replica.batches))


def _coordinators(view: PartitionView) -> Iterator[Finding]:
    """What the coordinators of each cluster wrote into this partition."""
    for cluster, replica in view.canonical().items():
        begins = max(replica.log_start, view.compacted.get(cluster, 0))
        whole = sound(view, replica)
        data: dict[str, object] = {"sound": whole, "begins": begins}
        if view.topic == TRANSACTIONS:
            if whole:
                yield from impossible_states(view, replica, begins)
            data |= state_columns(
                [e for e in replica.entries if isinstance(e, TransactionState)],
                replica.high_watermark,
            )
        elif view.topic == GROUPS:
            yield marked_partial(
                replica,
                np.ones(len(replica.batches), np.bool_),
                from_start=whole and begins == 0,
                to_end=True,
                known=whole,
                recorded=view.recorded,
            )
            data |= commit_columns(replica)
        else:
            continue
        yield PartialFinding(cluster=cluster, offset=replica.log_start, data=data, together=cluster)


def due(*_: object) -> tuple[()]:
    """Not every run has captured them, and not every cluster has all of them."""
    return ()


CHECK = Check(
    name="internal-topics",
    guarantee="""Kafka's own topics are sound on every replica, and agree with the markers in the
        data and with the clients' observations.""",
    source="""KIP-98 (transaction coordinator); KIP-360 and KIP-890 (epochs); KIP-447 (offsets in
        transactions); KIP-595 (metadata log)""",
    inputs=frozenset({"batches", "reads", "groups", "promotions"}),
    anomalies=(
        AnomalyKind(
            name="corrupt-batch",
            meaning="A batch's CRC-32C is not that of its bytes.",
            sentence="broker {broker} of {cluster} has a corrupt batch at {at}",
            counted="batch is corrupt|batches are corrupt",
            alone="a coordinator that loads it fails there",
            smallest="""a batch at offset 0 of __transaction_state whose stored CRC is wrong: at
                offset 0.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="log-disorder",
            meaning="A batch's base offset is not above everything before it in the file.",
            sentence="""the log of broker {broker} of {cluster} is out of order at {at}: it follows
                offset {after}""",
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
            meaning="""A batch below the common high watermark is on one replica and not, or more
                often, on another.""",
            sentence="broker {missing_on} of {cluster} lacks what another replica has at {at}",
            alone="should this broker lead, its coordinators lack it",
            smallest="broker 1 has batches at 0 and 1, broker 2 only at 0: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="leader-epoch-regression",
            meaning="A batch has a lower leader epoch than one before it in the same log.",
            sentence="""the leader epoch falls from {before} to {epoch} at {at} on broker {broker}
                of {cluster}""",
            alone="a follower that compares epochs can truncate in the wrong place",
            smallest="""a file with a batch of epoch 2 at offset 0 and one of epoch 1 at offset 1:
                at offset 1.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="offsets-missing",
            meaning="Offsets are missing inside a log where no cleaner has been.",
            sentence="""the log of broker {broker} of {cluster} lacks offsets where no cleaner was:
                {offsets}, the first at {at}""",
            alone="a coordinator that loads it lacks what was there",
            smallest="a file with batches at offsets 0 and 2: at offset 1.",
        ),
        AnomalyKind(
            name="ends-early",
            meaning="A log ends below its own high watermark.",
            sentence="""the log of broker {broker} of {cluster} ends at {at}, below its high
                watermark {high_watermark}""",
            alone="should this broker lead, its coordinators lack what was acknowledged",
            smallest="a leader reported high watermark 2, and its file ends at 1: at offset 1.",
        ),
        AnomalyKind(
            name=IMPOSSIBLE,
            meaning="""A record of a transactional id does not follow from the one before it: by its
                state, producer id and epoch, partitions, timeout or times; or its producer id is
                another transactional id's. (A record whose append failed counts for nothing: its
                coordinator goes on from the one before. That takes a fault of the cluster's
                brokers; without a history it is unknown.)""",
            sentence="""the coordinator of {cluster} recorded {state} of {transactional_id} at {at}:
                {wrong}""",
            counted="impossible state of a transactional id|impossible states of transactional ids",
            alone="a coordinator that loads it goes on from there",
            smallest="""the states of an id are Empty, Ongoing, PrepareCommit, CompleteAbort: at
                offset 3.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="outcome-disagreement",
            meaning="A partition has the opposite marker of the coordinator's decision.",
            sentence="""the coordinator of {cluster} decided {decided} for {transactional_id}
                (producer id {producer_id}), and the marker at {at} says otherwise""",
            alone="its client was answered what the log does not have",
            smallest="""the coordinator's state is CompleteCommit, and the partition has ABORT at 1:
                at offset 1.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="marker-missing",
            meaning="""The coordinator recorded a transaction as complete, and a partition of it has
                no marker. (Kafka itself does that if the partition has no leader when the marker is
                sent: KAFKA-20734. Its broker then logs `Couldn't find leader endpoint`.)""",
            sentence="""the coordinator of {cluster} completed {decided} of {transactional_id}
                (producer id {producer_id}), and {tp} has no marker""",
            alone="the transaction stays open, and readers of committed records wait for it",
            smallest="""the coordinator's state is CompleteCommit, the partition has 1 and no
                marker: nowhere.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="marker-unexplained",
            meaning="""One of the cluster's own markers ends a transaction that none of its
                coordinators decided.""",
            sentence="""{cluster} has a marker of producer id {producer_id} at {at} that no
                coordinator decided""",
            alone="a transaction may have been ended that its client had not ended",
            smallest="a partition has COMMIT at 1, and no coordinator prepared it: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="commit-missing",
            meaning="""A sampled or acknowledged commit of a group is not in __consumer_offsets, or
                not in that order. (Samples may step back to an earlier commit once a coordinator
                has reloaded the partition: it answers with the part below the high watermark, which
                is behind until its followers have fetched.)""",
            sentence="""{cluster} lost the commit of offset {offset} of the group {group} for {tp}
                that had been {seen}""",
            counted="commit of a group is missing|commits of groups are missing",
            smallest="""a sample says that g has committed 5, and __consumer_offsets has 3: at
                offset 5.""",
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
