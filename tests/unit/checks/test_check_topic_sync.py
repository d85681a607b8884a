"""topic-sync: the smallest histories."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from linkflap.spark_verify.facts.partition_facts import Comparison
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import view
from tests.unit.checks.logs import SECOND, Log
from tests.unit.checks.verdicts import Rejected, anomalies, assert_accepted, assert_rejected

NAME = "topic-sync"
RETENTION = ("retention.ms", "1000", None)


def topic(
    *differing: tuple[str, str | None, str | None],
    there: int = 2,
    here: int = 2,
    at: int = 9,
    link: str = "A->B",
    missing: Sequence[str] = (),
    beside: Sequence[str] = (),
) -> Comparison:
    return Comparison(
        link=link,
        there=there,
        here=here,
        differing=differing,
        time=at * SECOND,
        missing=missing,
        beside=beside,
    )


def seen(*comparisons: Comparison) -> PartitionView:
    return view([Log("A").data(1), Log("B").data(1)], comparisons=comparisons)


ACCEPTED = {
    "the same on both": (seen(topic()), {"B/mirrored": 1}),
    "the same at last": (seen(topic(RETENTION, at=8), topic(at=9)), {"B/mirrored": 1}),
    "each way by itself": (seen(topic(), topic(link="B->A")), {"A/mirrored": 1, "B/mirrored": 1}),
    "nothing compared": (seen(), {}),
}
REJECTS = {
    "topic-missing": Rejected(view=seen(topic(here=0)), cluster="B", offset=-1),
    "partitions-differ": Rejected(view=seen(topic(here=1)), cluster="B", offset=-1),
    "setting-differs": Rejected(view=seen(topic(RETENTION)), cluster="B", offset=-1),
    "acl-differs": Rejected(view=seen(topic(missing=["u may read"])), cluster="B", offset=-1),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case: str) -> None:
    history, counted = ACCEPTED[case]
    assert_accepted(NAME, history, counted=counted)


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind: str) -> None:
    assert_rejected(NAME, kind, REJECTS[kind])


@pytest.mark.parametrize(
    "differing", [("retention.ms", "1000", "2000"), ("retention.ms", "1000", None)]
)
def test_a_setting_that_lacks_or_has_another_value_differs(
    differing: tuple[str, str | None, str | None],
) -> None:
    assert anomalies(NAME, seen(topic(differing))) == [("setting-differs", "B", -1)]


def test_what_differs_in_both_ways_is_said_of_both_and_an_earlier_comparison_counts_no_more() -> (
    None
):
    both = topic(RETENTION, here=1)
    assert anomalies(NAME, seen(topic(at=8), both)) == [
        ("partitions-differ", "B", -1),
        ("setting-differs", "B", -1),
    ]


def test_an_acl_that_is_there_beside_the_source_s_differs_as_well() -> None:
    assert anomalies(NAME, seen(topic(beside=["u may read"]))) == [("acl-differs", "B", -1)]
