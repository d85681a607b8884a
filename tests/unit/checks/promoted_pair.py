"""The logs of A and of the promoted B in the histories of marker-pairing."""

from __future__ import annotations

from typing import Unpack

from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import History, promoted, view
from tests.unit.checks.logs import Log


def pair(a: Log, b: Log, **rest: Unpack[History]) -> PartitionView:
    given: History = {"mirror_kind": "exact", "promotions": [promoted(1)]}
    return view([a, b], **(given | rest))


LEFT = pair(
    Log("A").txn(1, pid=7, end=None), Log("B").txn(1, pid=7, end=None).marker("reset", pid=-1)
)


SPLIT = pair(Log("A").txn(1, pid=7), Log("B").txn(1, pid=7, end="abort"))
