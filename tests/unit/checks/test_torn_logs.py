"""A torn log proves little: findings in it are reported as reasons, unless the rest of the log
proves them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

import pytest

from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Check, Examined, Found
from linkflap.spark_verify.checks.finding_rows import MOST_LISTED, examine
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.test_checks import MODULES

CASES = [
    (name, kind) for name, module in MODULES.items() for kind in getattr(module, "REJECTS", {})
]


def torn(seen: PartitionView) -> PartitionView:
    return replace(
        seen, replicas=[replace(r, damage=("half a batch at the end",)) for r in seen.replicas]
    )


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_only_what_the_rest_of_a_log_proves_is_found_in_a_torn_one(name: str, kind: str) -> None:
    seen = torn(MODULES[name].REJECTS[kind].view)
    rows = examine(REGISTRY[name], seen)
    sound = {k.name for k in REGISTRY[name].anomalies if k.despite_torn}
    assert {row.kind for row in rows if row.finding == "found"} <= sound
    assert any(row.finding == "unjudged" for row in rows), "no check can be valid over it"


def test_the_reason_names_what_was_found_and_where() -> None:
    seen = torn(MODULES["duplicate"].REJECTS["duplicate"].view)
    reasons = [
        row.data["reason"]
        for row in examine(REGISTRY["duplicate"], seen)
        if row.finding == "unjudged"
    ]
    assert reasons == [
        "the log of A.t-0 on B is torn, so duplicate at offset 2 of B may be a false positive",
        "the log of A.t-0 on B is torn, so not all of it could be judged",
    ]


def test_of_very_many_anomalies_the_first_are_listed_and_the_rest_is_counted() -> None:
    seen = MODULES["duplicate"].REJECTS["duplicate"].view
    many = [Found.at("duplicate", "B", offset) for offset in range(MOST_LISTED + 1003)]
    check = replace(REGISTRY["duplicate"], kernel=lambda _: iter(many))
    *found, last = examine(check, seen)
    assert [row.offset for row in found] == list(range(MOST_LISTED))
    assert last.data["reason"] == "1,003 more of duplicate in A.t-0 are not listed"
    assert [row.data["reason"] for row in examine(check, torn(seen))] == [
        "the log of A.t-0 on B is torn, so duplicate at offset 0 of B may be a false positive",
        "the log of A.t-0 on B is torn, so 11,002 more of duplicate may be false positives",
        "the log of A.t-0 on B is torn, so not all of it could be judged",
    ]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("internal-topics", "offsets-missing"),
        ("internal-topics", "ends-early"),
        ("replica-agreement", "log-ends-early"),
    ],
)
@pytest.mark.parametrize("of", [{"cluster": "B"}, {"broker": 9}, {}])
def test_a_torn_log_says_nothing_about_what_another_log_lacks(
    name: str, kind: str, of: dict[str, Any]
) -> None:
    seen = MODULES[name].REJECTS[kind].view
    (log,) = seen.replicas
    damage = replace(log, damage=("half a batch",), **of)
    whole = [replace(log, canonical="cluster" in of)] if of else []
    rows = examine(REGISTRY[name], replace(seen, replicas=[damage, *whole]))
    found = {row.kind for row in rows if row.finding == "found" and row.cluster == "A"}
    assert found == ({kind} if of else set())


def test_a_kernel_that_raises_is_a_finding() -> None:
    def kernel(view: PartitionView) -> NoReturn:
        raise ValueError("an odd log")

    check = Check(
        name="odd", guarantee="", source="", inputs=frozenset(), anomalies=(), kernel=kernel
    )
    (row,) = examine(check, MODULES["duplicate"].REJECTS["duplicate"].view)
    assert (row.finding, row.data["reason"]) == ("crashed", "ValueError: an odd log")


def test_counts_are_kept() -> None:
    seen = MODULES["duplicate"].REJECTS["duplicate"].view
    found = list(REGISTRY["duplicate"].kernel(seen))
    assert any(isinstance(f, Found) for f in found)
    counted = [f for f in found if isinstance(f, Examined)]
    rows = [row for row in examine(REGISTRY["duplicate"], torn(seen)) if row.finding == "examined"]
    assert [row.count for row in rows] == [f.count for f in counted]
