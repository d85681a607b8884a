"""The anomalies that a failover or a lossy fault may cause, with every mirror.

A failover: partitions, group offsets, and what programs make from input records are copied over a
link independently, so no mirror promises more (KIP-382, KIP-1279). A lossy fault: what it took
away, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from linkflap.harness.model.faults import UNCLEAN
from linkflap.harness.model.guarantee import Allowance

PROMOTED: Final = "the cluster that was failed over to"


def group_replay(citation: str, *, recent: str) -> Allowance:
    """Groups read records again that their synced offset did not cover. `recent` is the part of
    them that remains if syncs are on time, where faults on brokers hide the last sync."""
    return Allowance(
        kind="group-replay",
        rule="within-bound",
        cluster=PROMOTED,
        era="mirrored before that failover, below what the group had committed on the source",
        window=(
            "from the group's first poll on the destination until the next failover away from it"
        ),
        bound=(
            "the records above the mirror's last commit for the group that was sampled before; "
            f"after a fault on brokers of either end also {recent}"
        ),
        citation=citation,
        because="the synced offset of the group was behind",
    )


def torn_by_failover(citation: str) -> Allowance:
    """Transactions that were mirrored in some of their partitions only."""
    return Allowance(
        kind="torn-by-failover",
        rule="forced-failover",
        cluster=PROMOTED,
        era="mirrored until that failover, and committed on the source",
        window="a forced failover, at the end of what was mirrored",
        bound=(
            "transactions that were mirrored in only some partitions when the failover began: each "
            "missing record is behind all that arrived of its partition"
        ),
        citation=citation,
        because="partitions are mirrored independently",
    )


def outcome_split(citation: str) -> Allowance:
    """Transactions that were committed on the source, and whose COMMIT was not mirrored."""
    return Allowance(
        kind="outcome-split",
        rule="forced-failover",
        cluster="the destination of the mirror that ended",
        era="mirrored until then, and open there",
        window="a forced failover, or the end of a run in which the mirror was behind",
        bound=(
            "transactions that were mirrored without their COMMIT when the mirror ended: the "
            "source's COMMIT is behind all that was mirrored, and so is the ABORT"
        ),
        citation=citation,
        because="markers are mirrored as data, and the mirror's end aborts open transactions",
    )


def over_a_failover(citation: str) -> tuple[Allowance, ...]:
    """Repeated outputs, and outputs that were not mirrored; `citation` is why the mirror promises
    no more."""
    return tuple(
        line
        for what in ("output", "copy")
        for line in (
            Allowance(
                kind=f"{what}-repeated-by-failover",
                rule="within-bound",
                cluster=PROMOTED,
                era="outputs of its own, of inputs that were mirrored before that failover",
                window="from the failover on",
                bound="one for each mirrored input at or above where the group began there",
                citation=citation,
                because="outputs repeat, as group offsets and records are mirrored independently",
            ),
            Allowance(
                kind=f"{what}-lost-by-failover",
                rule="forced-failover",
                cluster=PROMOTED,
                era="outputs of the source, of inputs that were mirrored before that failover",
                window="a forced failover",
                bound=(
                    "one for each mirrored input below where the group began there, whose output "
                    "the source has"
                ),
                citation=citation,
                because="partitions and group offsets are mirrored independently",
            ),
        )
    )


_CLUSTER: Final = "the cluster of the election, and those that mirrored it then"
_ERA: Final = (
    "what the deposed leader's log had, records and markers of its leader epoch or earlier ones, "
    "and the elected replica lacked"
)
_WINDOW: Final = (
    "sent before the election; read before it, or, on a cluster that mirrors, before a reader "
    "there got what replaced them"
)
_BOUND: Final = (
    "exactly those: the bite lists each record and marker; a reader misses at most what was "
    "written between the end of the elected replica's log and its own position, and what it had "
    "passed as aborted, if the ABORT is on the list"
)
_CITATION: Final = (
    "Kafka, unclean.leader.election.enable: replicas that are not in sync become leaders, even "
    "though that may lose data; KIP-101: the log is truncated there, and the same offsets get "
    "other records"
)
_BECAUSE: Final = "the elected replica did not have it"

_KINDS: Final = (
    "lost-write",
    "ghost-ack",
    "inconsistent-offset",
    "unseen-write",
    "phantom-read",
    "hidden-committed",
    "internal-skip",
    "passed-unread",
    "poll-skip",
    "lso-mismatch",
    "never-delivered",
    "delivered-again",
    "wrong-start-offset",
    "torn-transaction",
    "commit-aborted",
    "abort-committed",
    "commit-unmarked",
    "aborted-read",
    "hanging-transaction",
    "marker-missing",
)


LOSSES: Final[Mapping[str, tuple[Allowance, ...]]] = {
    UNCLEAN: tuple(
        Allowance(
            kind=kind,
            rule="lost",
            cluster=_CLUSTER,
            era=_ERA,
            window=_WINDOW,
            bound=_BOUND,
            citation=_CITATION,
            because=_BECAUSE,
        )
        for kind in _KINDS
    )
}
"""Fault -> its declared losses."""

BROKERS: Final = (
    Allowance(
        kind="sequence-start",
        rule="refused-before",
        window=(
            "the sends whose records are missing were refused or timed out, and were in flight "
            "when the batch was sent"
        ),
        bound="as many records as the batch's sequence, sent directly before it, none acknowledged",
        citation=(
            "KAFKA-15591, KAFKA-14312, KAFKA-19880: since Kafka 2.5 (KIP-360) a broker without "
            "state of a producer accepts any first sequence; from 4.5 on only where a partition "
            "had records before"
        ),
        because="a broker that does not know a producer accepts any first sequence (KAFKA-15591)",
    ),
)
"""The anomalies that released brokers cause, whatever the mirror promises."""
