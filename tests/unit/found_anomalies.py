"""Anomalies as checks find them, and the causes under which they are ranked."""

from __future__ import annotations

from typing import Any

from linkflap.harness.model.payload import PROCESS_SHIFT
from linkflap.harness.model.verdict import Anomaly
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.verdict.causes import rank
from linkflap.spark_verify.verdict.sentences import SentenceNames, labels

NAMES = SentenceNames(
    processes=labels([(3, "idempotent-2"), (7, "idempotent-2"), (9, "zombie-1")]),
    promotions={("B", "A.orders", 0): 110},
)


ALL = frozenset(REGISTRY)


def uid(process: int, number: int) -> int:
    return (process << PROCESS_SHIFT) + number


def found(
    check: str,
    kind: str,
    offset: int = -1,
    cluster: str = "B",
    partition: int = 0,
    allowed: bool = False,
    **evidence: Any,
) -> Anomaly:
    return Anomaly(
        check=check, kind=kind, cluster=cluster, topic="A.orders", partition=partition,
        offset=offset, evidence=evidence,
        allowed=allowed,
    )  # fmt: skip


def collision(pid: int, offset: int = -1) -> Anomaly:
    return found(
        "producer-id-uniqueness",
        "producer-id-collision",
        offset,
        producer_id=pid,
        mirrored_offset=90,
        client="idempotent-2",
    )


def ghost(offset: int, number: int, pid: int = 6) -> Anomaly:
    return found(
        "ghost-ack",
        "ghost-ack",
        offset,
        uid=uid(7, number),
        records=1,
        why="below the promotion offset",
        producer_id=pid,
        holds=1,
    )


def lost(offset: int, number: int, records: int = 1) -> Anomaly:
    return found(
        "lost-write", "lost-write", offset, uid=uid(7, number), records=records, how="absent"
    )


def unseen(offset: int, number: int) -> Anomaly:
    return found(
        "unseen", "unseen-write", offset, uid=uid(7, number), records=1, acknowledged_by="B"
    )


def ranked(*anomalies: Anomaly) -> list[tuple[str, dict[str, int]]]:
    """The kind of each cause, and how many anomalies of each kind follow from it."""
    return [
        (c.kind, {kind: len(n) for (_, kind), n in c.consequences.items()})
        for c in rank(anomalies, REGISTRY)
    ]


def marker(
    cluster: str = "B", source: str = "A", ours: str = "COMMIT", **evidence: object
) -> Anomaly:
    """The marker of a transaction of two records, at 20 and 21."""
    markers = ["ABORT" if ours == "COMMIT" else "COMMIT", ours]
    known: dict[str, Any] = {
        "source": source,
        "fields": ["crc"],
        "markers": markers,
        "ends": 2,
        "first_offset": 20,
        **evidence,
    }
    return found("byte-equality", "byte-divergence", 22, cluster, **known)


def visible(cluster: str = "B") -> Anomaly:
    return found(
        "order-equality",
        "mirrored-aborted",
        20,
        cluster,
        uid=uid(9, 3),
        records=2,
        source="A",
        state="aborted",
    )
