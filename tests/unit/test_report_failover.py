"""The certificate of a failover, in a report."""

from __future__ import annotations

from linkflap.harness.model.failover_cost import Failover, PromotedPartition
from linkflap.harness.model.verdict import Anomaly
from linkflap.spark_verify.verdict.certificate import certificate
from tests.events import event


def test_the_certificate_of_a_failover() -> None:
    parts = tuple(
        PromotedPartition(topic="A.t", partition=n, promotion_offset=10 + n, producer_ids=3)
        for n in (1, 0)
    )
    failover = Failover(
        link="A->B", kind="forced", promoted=2, rpo_records=4, fault_time=50, partitions=parts
    )
    journal = [
        {
            "topic": "A.t",
            "partition": 0,
            "mirrored": 9,
            "promoted": 10,
            "appended": [[9, "ABORT of producer 2, epoch 1"]],
            "truncated": [[12, 9]],
        }
    ]
    events = [
        event("mirror-stopped", "A->B", at=60, partitions=journal),
        event("failover", "A->B", at=70, kind="forced", fault_time=50, open_transactions=2),
        event("mirror-stopped", "A->B", at=90, partitions=[]),
    ]
    anomalies = [
        Anomaly(
            check="g",
            kind="group-replay",
            cluster="B",
            topic="A.t",
            partition=0,
            evidence={"records": 7},
            allowed=True,
        ),
        Anomaly(
            check="g",
            kind="group-skip",
            cluster="B",
            topic="A.t",
            partition=1,
            evidence={"records": 2},
        ),
        Anomaly(
            check="g",
            kind="group-skip",
            cluster="A",
            topic="A.t",
            partition=1,
            evidence={"records": 99},
        ),
        *(
            Anomaly(
                check="t",
                kind="torn-by-failover",
                cluster="B",
                evidence={"link": "A->B", "operation": 5},
            )
            for _ in range(2)
        ),
    ]
    (row,) = certificate([failover], anomalies, events)
    assert (
        row.open_transactions,
        row.aborted_transactions,
        row.torn_transactions,
        row.rpo_records,
    ) == (2, 1, 1, 4)
    assert [
        (p.partition, p.aborted, p.truncated, p.group_skip, p.group_replay) for p in row.partitions
    ] == [
        (0, 1, 3, 0, 7),
        (1, None, None, 2, 0),
    ]


def test_refusals_before_an_accepted_failover_belong_to_that_failover() -> None:
    def end(seconds: float, refused: dict[str, int]) -> dict[str, object]:
        return {
            "verb": "stop",
            "accepted": True,
            "tries": 1 + sum(refused.values()),
            "refused": refused,
            "seconds": seconds,
        }

    events = [
        event("mirror-stopped", "A->B", at=60, stopped=end(3.6, {"NOT_YET (145)": 9})),
        event("failover", "A->B", at=70, kind="forced", fault_time=50, open_transactions=0),
        event("mirror-stopped", "A->B", at=90, stopped=end(0.1, {})),
        event("failover", "A->B", at=95, kind="planned", fault_time=80, open_transactions=0),
    ]
    first, later = certificate(
        [Failover(link="A->B", fault_time=50), Failover(link="A->B", fault_time=80)], (), events
    )
    assert first.refusals == "refused at first: 9 x NOT_YET (145), accepted after 3.60 s"
    assert (later.refused, later.accepted_after, later.refusals) == ({}, 0.1, "")


def test_a_mirror_without_a_journal_has_unknown_transactions_and_truncations() -> None:
    part = PromotedPartition(topic="A.t", partition=0, promotion_offset=1)
    (row,) = certificate([Failover(link="A->B", partitions=(part,))], (), ())
    assert (row.aborted_transactions, row.open_transactions, row.partitions[0].truncated) == (
        None,
        None,
        None,
    )
