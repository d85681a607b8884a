"""The losses that a fault declares, whatever the mirror promises: what it took away, and nothing
else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from linkflap.harness.model.faults import UNCLEAN
from linkflap.harness.model.guarantee import Allowance

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
    "written between the end of the elected replica's log and its own position"
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
"""What released brokers do, whatever the mirror promises."""
