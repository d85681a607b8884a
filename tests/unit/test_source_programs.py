"""Records of a user's program have no payload ids in the view, whatever headers it copied."""

from __future__ import annotations

from linkflap.harness.model.payload import FOREIGN
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.read.assemble import _nameless
from tests.unit.checks.histories import Log, poll, view


def test_neither_in_the_logs_nor_in_what_readers_got() -> None:
    seen: PartitionView = view(
        [Log("A").data(1, 2), Log("B").data(1)], reads=[poll((1, 0), (2, 1))]
    )
    bare = _nameless(seen)
    assert [r.records.uid.tolist() for r in bare.replicas] == [[FOREIGN, FOREIGN], [FOREIGN]]
    assert [r.records.operation.tolist() for r in bare.replicas] == [[FOREIGN, FOREIGN], [FOREIGN]]
    assert [r.records.offset.tolist() for r in bare.replicas] == [
        r.records.offset.tolist() for r in seen.replicas
    ]
    assert all(set(read.uids.tolist()) <= {FOREIGN} for read in bare.reads)
    assert [read.offsets.tolist() for read in bare.reads] == [
        read.offsets.tolist() for read in seen.reads
    ]
