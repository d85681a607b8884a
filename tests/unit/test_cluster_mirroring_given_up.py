"""Topics that a cluster mirror reports as no longer mirrored."""

from __future__ import annotations

from linkflap.harness.mirrors.cluster_mirroring.admin import DescribeRow, given_up

WHY = "The source topic is deleted."


def row(partition: int, state: str, retries: int, error: str = "") -> DescribeRow:
    return DescribeRow(
        topic="A.orders",
        partition=partition,
        state=state,
        source_offset=-1,
        destination_offset=-1,
        lag=-1,
        retries=retries,
        error=error,
    )


def test_a_topic_is_given_up_where_a_partition_has_failed_and_is_not_tried_again() -> None:
    assert given_up([row(0, "MIRRORING", 0), row(1, "FAILED", -1, WHY)]) == {"A.orders": WHY}
    assert given_up([row(0, "FAILED", -1)]) == {"A.orders": "FAILED"}


def test_one_that_is_tried_again_or_has_not_failed_is_not() -> None:
    assert given_up([row(0, "FAILED", 3, "no leader"), row(1, "MIRRORING", -1, WHY)]) == {}
