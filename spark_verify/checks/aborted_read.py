"""aborted-read: a reader never gets an aborted or refused record (Adya's G1a; Jepsen's Kafka
workload, aborted-read).

Two witnesses judge it. The first is the markers in the bytes of the cluster that the reader read
from. The second is the producer's own request, which is valid on every cluster: a mirror that reads
uncommitted turns aborted records into plain ones, and no marker shows it.

A record that a client knows for certain to be refused was never written, so no reader gets it, in
any isolation and of any transaction. A refusal is certain for a record that was never sent, and for
one with an error of its own. It is not certain for a record that timed out, was purged in flight,
or was fenced (`log_model.outcomes.refused`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding
from linkflap.spark_verify.checks.log_model.delivered_records import (
    Delivered,
    aborted_there,
    by_client,
    delivered,
    found,
)
from linkflap.spark_verify.checks.log_model.generations import (
    every,
    examined,
    log_of,
    own,
)
from linkflap.spark_verify.checks.log_model.logs import Log, among
from linkflap.spark_verify.checks.log_model.lost_records import Taken
from linkflap.spark_verify.checks.log_model.outcomes import refused, uids_of
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.sends_and_reads import Sends
from linkflap.spark_verify.facts.view import PartitionView

KIND = "aborted-read"
REFUSED = "refused-read"


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Asks both witnesses about every record that a read_committed reader got."""
    for generation in every(view):
        got = delivered(view, generation)
        if len(got):
            yield from examined(generation, got.offset, whole=True)
            wrong = _judge(view, generation.cluster, log_of(view, generation), got)
            yield from own(view, generation, wrong, of_readers=True)
        yield from own(view, generation, _refused(view, generation), of_readers=True)


def _refused(view: PartitionView, generation: LogGeneration) -> Sequence[Finding]:
    """Refused records that a reader got."""
    sends = Sends.of(view.sends)
    certain = refused(sends)
    if not certain.any():
        return []
    got = delivered(view, generation, isolation=None)
    bad = among(got.uid, uids_of(sends)[0][certain])
    return found(generation.cluster, got, bad, REFUSED, lambda _: "client")


def _judge(view: PartitionView, cluster: str, log: Log | None, got: Delivered) -> Sequence[Finding]:
    by_marker = aborted_there(log, got)
    return found(
        cluster,
        got,
        by_marker | by_client(view, got),
        KIND,
        lambda row: "marker" if by_marker[row] else "client",
        Taken(view, cluster),
    )


CHECK = Check(
    name="aborted-read",
    guarantee="""A read_committed reader never gets a record of an aborted transaction, and no
        reader gets a refused record.""",
    source="KIP-98, isolation.level; Adya G1a; Jepsen kafka workload, aborted-read",
    wire="""What answers to Fetch deliver and do not list as aborted. Whether the client library
        filtered what is listed is not known.""",
    inputs={"batches", "records", "sends", "reads", "promotions"},
    anomalies=(
        AnomalyKind(
            name=KIND,
            meaning="A read_committed reader got a record whose transaction was aborted.",
            sentence="{reader} read {who} of an aborted transaction on {cluster}, at {at}",
            counted="aborted record was read|aborted records were read",
            smallest="1 is aborted, a read_committed reader got 1: at the offset where it got it.",
        ),
        AnomalyKind(
            name=REFUSED,
            meaning="""A reader, in any isolation, got a record whose client knows that it cannot
                have been written (provenance, refused-write): of a plain send or of any
                transaction, also a committed one.""",
            sentence="{reader} read {who} on {cluster} at {at}, although the write was refused",
            counted="refused record was read|refused records were read",
            smallest="1 was refused as too large, a reader got 1: at the offset where it got it.",
            despite_torn=True,
        ),
    ),
    follows={"order-equality", "marker-pairing", "commit-aborted", "provenance"},
    kernel=kernel,
    judges_readers=True,
    only_read_committed=True,
)
