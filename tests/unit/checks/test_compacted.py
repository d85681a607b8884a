"""Compacted logs: what a broker's cleaner removed is not lost; what lies above is judged as
usual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import pytest

from linkflap.harness.capture.folders import bounds, folders
from linkflap.harness.model.history import Bounds
from linkflap.harness.model.payload import Values
from linkflap.harness.model.scenario import TopicSpec
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.facts.partition_facts import TopicSettings, Window
from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import NULL, PartitionView, digested, no_parts
from linkflap.spark_verify.read.partition_events import compacted_below
from tests.kafka_log import batch, record, segment
from tests.unit.checks.histories import History, Log, but, commit, poll, promoted, send, view
from tests.unit.checks.verdicts import anomalies, findings, unjudged

A = Log("A").data(1).data(2).data(3)
SENT = [send(1, 2, 3, acked=0)]
GONE = Log("A").skip(1).data(2).data(3)
"""A, from which the cleaner removed 1."""


def seen(a: Log, b: Log, **rest: Unpack[History]) -> PartitionView:
    given: History = {"sends": SENT}
    return view([a, b], **(given | rest))


def everything(one: PartitionView) -> set[tuple[str, str]]:
    """(check, kind) of all findings of all checks."""
    return {(name, f.kind) for name in REGISTRY for f in findings(name, one)}


CASES = {
    "the source": (GONE, Log("B").data(1).data(2).data(3), {"A": 2}),
    "the destination": (A, Log("B").skip(1).data(2).data(3), {"B": 2}),
    "both": (GONE, Log("B").data(2).data(3), {"A": 2, "B": 2}),
}


@pytest.mark.parametrize("case", CASES)
def test_compaction_on_one_side_is_no_loss_of_a_mirror_that_does_not_keep_offsets(
    case: str,
) -> None:
    a, b, compacted = CASES[case]
    assert everything(seen(a, b, compacted=compacted)) == set()
    assert everything(seen(a, b)) != set()


@pytest.mark.parametrize("who", ["A", "B", "AB"])
def test_compaction_on_one_side_is_no_loss_of_a_mirror_that_keeps_offsets(who: str) -> None:
    logs = [
        Log(n).skip(1).data(2).data(3) if n in who else Log(n).data(1).data(2).data(3) for n in "AB"
    ]
    one = view(logs, sends=SENT, mirror_kind="shadow", compacted=dict.fromkeys(who, 2))
    assert everything(one) == set()
    assert everything(but(one, compacted={})) != set()


def test_a_log_that_was_compacted_before_it_was_mirrored_breaks_no_sequence() -> None:
    """B was promoted at 3, and its own producer is judged as usual."""

    def one(*logs: Log) -> PartitionView:
        promotions = [promoted(3)]
        return view(logs, mirror_kind="shadow", compacted={"A": 2}, promotions=promotions)

    def log(cluster: str) -> Log:
        return Log(cluster).data(1, pid=7).skip(1).data(3, pid=7, sequence=2)

    name, copied = "sequence-continuity", one(log("A"), log("B"))
    assert anomalies(name, copied) == []
    assert [k for k, *_ in anomalies(name, but(copied, compacted={}))] == ["sequence-gap"] * 2
    own = log("B").data(4, pid=8).skip(1).data(5, pid=8, sequence=2)
    assert anomalies(name, one(log("A"), own)) == [("sequence-gap", "B", 5)]


@pytest.mark.parametrize(
    ("check", "kind"),
    [
        ("lost-write", "lost-write"),
        ("order-equality", "mirror-hole"),
        ("record-equality", "record-hole"),
    ],
)
def test_records_missing_above_the_compacted_part_are_lost(check: str, kind: str) -> None:
    b = Log("B").data(1).data(3, at=2)
    mirror = "shadow" if check == "record-equality" else "mm2"
    one = view([A, b], sends=SENT, mirror_kind=mirror, compacted={"B": 1})
    assert [k for k, _, _ in anomalies(check, one)] == [kind]


@pytest.mark.parametrize("mirror", ["mm2", "shadow"])
@pytest.mark.parametrize(
    ("compacted", "lost"), [(4, []), (2, [("lost-write", "A", 2)]), (0, [("lost-write", "A", 1)])]
)
def test_the_end_of_a_mirrored_range_may_be_compacted_too(
    mirror: str, compacted: int, lost: list[tuple[str, str, int]]
) -> None:
    """B had 1 2 3, which a reader got, and was promoted at 3; its clients wrote 8 with the key of
    2 and 3."""
    got, keys = poll((0, 1), (1, 2), (2, 3), cluster="B"), {1: 5, 2: 6, 3: 6, 8: 6}
    a = Log("A").data(1, keys=keys).data(2, keys=keys).data(3, keys=keys)
    one = view(
        [a, Log("B").data(1, keys=keys).data(8, at=3, keys=keys)],
        sends=[*SENT, send(8, acked=3, cluster="B")],
        reads=[got],
        promotions=[promoted(3)],
        mirror_kind=mirror,
        compacted={"B": compacted},
    )
    assert anomalies("lost-write", one) == lost


def test_a_tail_that_never_arrived_is_none_that_was_compacted() -> None:
    """B was promoted at 1: what a cleaner removed above that is B's own."""
    b = Log("B").data(1).data(9, at=2)
    sent = [*SENT, send(8, 9, acked=1, cluster="B")]
    one = view(
        [A, b], sends=sent, promotions=[promoted(1)], mirror_kind="shadow", compacted={"B": 2}
    )
    assert anomalies("lost-write", one) == []
    (cost,) = [
        f
        for f in REGISTRY["failover"].kernel(one)
        if hasattr(f, "data") and "rpo_records" in f.data
    ]
    assert cost.data["rpo_records"] == 2


def test_records_that_both_sides_have_must_be_equal() -> None:
    b = Log("B").skip(1).data(2, crc=7, digest={2: 5}).data(3)
    one = view([A, b], mirror_kind="shadow", compacted={"B": 2})
    assert anomalies("record-equality", one) == [("record-divergence", "B", 1)]
    assert anomalies("byte-equality", one) == []


def test_a_verdict_on_logs_alone_tells_that_bytes_were_not_compared() -> None:
    one = alone(GONE, Log("B").data(1).data(2).data(3), A=2)
    assert unjudged("byte-equality", one) == [
        "1 batches differ below offset 2, where a log is compacted: by that, or lost"
    ]


def alone(*logs: Log, **compacted: int) -> PartitionView:
    return but(view(list(logs), mirror_kind="exact", compacted=compacted), recorded=False)


def test_copied_logs_that_were_compacted_before_they_were_mirrored_are_equal() -> None:
    assert unjudged("byte-equality", alone(GONE, Log("B").skip(1).data(2).data(3), A=2)) == []


def test_a_batch_with_fewer_records_than_offsets_tells_that_a_copied_log_is_compacted() -> None:
    thin = Log("B").data(2, last_offset=1).data(3, at=2)
    whole = Log("A").data(1, 2).data(3)
    assert anomalies("byte-equality", alone(whole, thin)) == []
    assert len(unjudged("byte-equality", alone(whole, thin))) == 1
    assert anomalies("byte-equality", but(alone(whole, thin), recorded=True)) == [
        ("byte-divergence", "B", 0)
    ]


def missing(*logs: Log, **compacted: int) -> list[str]:
    return unjudged("replica-agreement", alone(*logs, **compacted))


def test_offsets_that_are_missing_of_copied_logs_may_be_lost_on_both_sides() -> None:
    holed = [Log(name).data(1).skip(2).data(2).skip(1).data(3) for name in "AB"]
    assert missing(*holed) == [
        f"3 offsets of {name}'s A.t-0 are missing, first 1: compaction, or loss" for name in "AB"
    ]
    assert unjudged("replica-agreement", view(holed, mirror_kind="exact")) == []
    assert (
        missing(*(Log(name, start=5).data(1).marker("commit", pid=7).data(2) for name in "AB"))
        == []
    )


def test_below_what_a_cleaner_noted_nothing_is_said_of_them_and_above_it_is() -> None:
    log = Log("A").skip(1).data(2).skip(2).data(3)
    assert missing(log, A=4) == []
    assert missing(log, A=2) == ["2 offsets of A's A.t-0 are missing, first 2: compaction, or loss"]
    assert missing(Log("A").skip(1).data(2, last_offset=2), Log("B")) == []


def test_replicas_that_lack_the_same_say_so_once_and_a_torn_one_does_not() -> None:
    one, other = (Log("A", broker=n, canonical=n == 1).data(1).skip(1).data(2) for n in (1, 2))
    assert missing(one, other) == [
        "1 offsets of A's A.t-0 are missing, first 1: compaction, or loss"
    ]
    assert not any("missing" in reason for reason in missing(one.torn()))


def test_a_reader_that_had_got_it_before_saw_no_phantom() -> None:
    one = view([GONE], sends=SENT, reads=[poll((0, 1), (1, 2), (2, 3))], compacted={"A": 1})
    assert everything(one) == set()
    assert ("read-committed-visibility", "phantom-read") in everything(but(one, compacted={}))


def test_reader_that_came_after_the_cleaner_missed_nothing() -> None:
    rows = [
        poll(kind="assign", position=0, at=1),
        poll((1, 2), (2, 3), at=2),
        poll(kind="drained", position=3, at=3),
    ]
    one = view([GONE], sends=SENT, reads=rows, compacted={"A": 1})
    assert everything(one) == set()
    assert ("unseen", "unseen-write") in everything(but(one, compacted={}))


def test_a_partly_compacted_transaction_is_not_torn() -> None:
    a = Log("A").skip(1).data(2, pid=7, transactional=True, sequence=1).marker("commit", pid=7)
    one = view([a], sends=[commit(1, 2, acked=0)], compacted={"A": 1})
    assert findings("torn-transaction", one) == []
    assert findings("torn-transaction", but(one, compacted={})) != []


THINNED = Log("A").data(1, pid=7).skip(1).data(3, pid=7, sequence=2)
FOLLOWER = Log("A", broker=2, canonical=False, leader=False).skip(2).data(3, pid=7, sequence=2)


def test_sequences_break_where_offsets_are_missing_and_replicas_differ() -> None:
    one = view([THINNED, FOLLOWER], topology="A:3->B", compacted={"A": 2})
    for name in ("sequence-continuity", "replica-agreement"):
        assert anomalies(name, one) == []
        assert anomalies(name, but(one, compacted={})) != []
    assert unjudged("sequence-continuity", one) == []
    assert unjudged("sequence-continuity", but(one, recorded=False)) == [
        "1 sequences of A break where offsets are missing: compaction, or loss"
    ]


@pytest.mark.parametrize(
    ("log", "compacted", "found"),
    [
        (THINNED, 2, []),
        (THINNED, 1, [("sequence-gap", "A", 2)]),  # what is missing lies above
        (
            Log("A").data(1, pid=7).skip(1).data(3, pid=7, sequence=3),
            2,
            [("sequence-gap", "A", 2)],
        ),  # more than there was room for
        (Log("A").skip(1).data(3, pid=7, sequence=1), 1, []),
        (Log("A").skip(1).data(3, pid=7, sequence=2), 1, [("sequence-start", "A", 1)]),
        (
            Log("A").data(1, pid=7).skip(3).data(3, pid=7, sequence=0),
            4,
            [("sequence-repeat", "A", 4)],
        ),
    ],
)
def test_below_a_checkpoint_a_sequence_lacks_what_offsets_are_missing_and_no_more(
    log: Log, compacted: int, found: list[tuple[str, str, int]]
) -> None:
    assert anomalies("sequence-continuity", view([log], compacted={"A": compacted})) == found


def test_a_brokers_checkpoint_file_says_how_far_it_has_compacted(tmp_path: Path) -> None:
    segment(tmp_path / "t-0", [batch(0, [record(b"v", key=b"k")])])
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 1\n")
    (bound,) = bounds(folders("A", tmp_path))
    assert bound.compacted == 1


NOTED = Bounds(
    cluster="A", broker=1, topic="A.x", partition=0, leader=True, alive=False, log_start=0,
    high_watermark=9,
    high_watermark_from="recomputed", compacted=2, thinned=5,
)  # fmt: skip


@pytest.mark.parametrize(
    ("noted", "policy", "reached"),
    [
        (NOTED, "compact", 5),
        (NOTED, "", 5),
        (replace(NOTED, compacted=0), "compact,delete", 5),
        (replace(NOTED, compacted=0), "delete", None),
        (replace(NOTED, compacted=7), "compact", 7),
        (replace(NOTED, compacted=0, topic="__cluster_metadata"), "compact", None),
    ],
)
def test_bytes_show_how_far_a_cleaner_was_that_did_not_write_its_checkpoint(
    noted: Bounds, policy: str, reached: int | None
) -> None:
    """A.orders of `compacted-topic`: its broker was killed after it replaced a segment and before
    it wrote the cleaner checkpoint."""
    config = {"cleanup.policy": policy}
    of_one = TopicSettings(cluster="A", settings=config, asked=1, until=2)
    found = (
        compacted_below([noted], TopicSpec(config=config), {}),
        compacted_below([noted], TopicSpec(), {(noted.topic, 0): [of_one]}),
    )
    assert [each.get((noted.topic, 0), {}).get("A") for each in found] == [reached, reached]


KEYS = {1: 5, 2: 6, 3: 5}
FIRST = Log("A").data(1, keys=KEYS).data(2, keys=KEYS).data(3, keys=KEYS)
"""Keys 5, 6, and 5 again."""


def pair(a: Log, b: Log, **below: int) -> PartitionView:
    return view([a, b], mirror_kind="shadow", compacted=below)


def lacking(*uids: int, name: str = "B") -> Log:
    """A log with those of 1 2 3 at their offsets."""
    log = Log(name)
    for one in (1, 2, 3):
        log = log.data(one, keys=KEYS) if one in uids else log.skip(1)
    return log


@pytest.mark.parametrize(
    ("left", "below", "lost"), [((2, 3), 3, []), ((1, 3), 3, [1]), ((2, 3), 2, []), ((3,), 3, [1])]
)
def test_the_other_end_of_a_mirror_lacks_only_what_a_later_record_replaced(
    left: tuple[int, ...], below: int, lost: list[int]
) -> None:
    """A record above the checkpoint may have replaced it: the cleaner had not noted that yet."""
    one = pair(FIRST, lacking(*left), B=below)
    assert anomalies("record-equality", one) == [("record-hole", "B", at) for at in lost]
    assert len(unjudged("record-equality", one)) == (below == 2)
    other = pair(lacking(*left, name="A"), lacking(1, 2, 3), A=below)
    assert anomalies("record-equality", other) == [("record-stranger", "B", at) for at in lost]


def test_a_record_that_came_to_be_below_a_promotion_replaces_on_both_sides_and_others_do_not() -> (
    None
):
    keys = {1: 5, 2: 6, 9: 5}
    a = Log("A").data(1, keys=keys).data(2, keys=keys)
    b = Log("B").skip(1).data(2, keys=keys)
    mine = replace(
        view([a, b.data(9, keys=keys)], mirror_kind="shadow", compacted={"B": 3}),
        partition_facts=but(
            view([a], mirror_kind="shadow"), promotions=[promoted(2)], compacted={"B": 3}
        ).partition_facts,
    )
    assert anomalies("record-equality", mine) == []  # 9, of B's own era
    tail = Log("A").skip(1).data(2, keys=keys).data(9, keys=keys)
    lost = but(
        view([tail, Log("B").data(1, keys=keys).data(2, keys=keys)], mirror_kind="shadow"),
        promotions=[promoted(2)],
        compacted={"A": 3},
    )
    assert anomalies("record-equality", lost) == []
    lost = but(lost, compacted={"A": 3, "B": 2})
    alike = replace(
        lost,
        replicas=[r for r in mine.replicas if r.cluster == "A"]
        + [Log("B").skip(1).data(2, keys=keys).replica()],
    )
    assert anomalies("record-equality", alike) == [("record-hole", "B", 0)]


def test_a_tombstone_that_is_gone_itself_may_have_replaced_it() -> None:
    """B's client deleted 1's key at offset 3, and the tombstone has expired: only what it sent
    shows that."""
    values = {"transactional-1": Values(1, 1, keys=1, tombstones=1.0)}
    key = digested(values["transactional-1"].key(0))
    keys = {1: key, 2: 6, 3: 7}
    a = Log("A").data(1, keys=keys).data(2, keys=keys).data(3, keys=keys)
    b = Log("B").skip(1).data(2, keys=keys).data(3, keys=keys).skip(1).data(4, keys={4: 8})
    sent = [send(9, acked=3, cluster="B")]
    one = view(
        [a, b], sends=sent, mirror_kind="shadow", promotions=[promoted(3)], compacted={"B": 5}
    )
    assert (anomalies("record-equality", one), len(unjudged("record-equality", one))) == ([], 1)
    short = {"delete.retention.ms": "0"}
    known = but(one, values=values, topic_config=short)
    assert (anomalies("record-equality", known), unjudged("record-equality", known)) == ([], [])
    lost = [("record-hole", "B", 0)]
    assert anomalies("record-equality", replace(known, sends=())) == lost
    other = {"transactional-1": Values(1, 1, keys=1)}
    assert anomalies("record-equality", but(known, values=other)) == lost
    assert anomalies("record-equality", but(known, topic_config={})) == lost


@pytest.mark.parametrize(
    "header",
    [
        {"producer_epoch": 1}, {"base_sequence": 5}, {"producer_id": 8}, {"last_offset": 1},
        {"transactional": True}, {"log_append_time": True},
    ],
    ids=str,
)  # fmt: skip
def test_no_cleaner_changes_a_header(header: dict[str, int]) -> None:
    def made(name: str, **more: int) -> Log:
        return Log(name).data(1, pid=7, length=99, **more).skip(1).data(2, pid=7)  # type: ignore[arg-type]

    one = pair(made("A"), made("B", crc=5, **header), A=3, B=3)
    assert anomalies("byte-equality", one) == [("byte-divergence", "B", 0)]
    assert anomalies("byte-equality", pair(made("A"), made("B", crc=5), B=3)) == []


def test_a_cleaner_changes_the_maximum_timestamp_only_where_records_have_their_own() -> None:
    def made(name: str, **more: int) -> Log:
        return Log(name).data(1, 3, pid=7, **more).data(2, pid=7)  # type: ignore[arg-type]

    other = {"crc": 5, "max_timestamp": 99}
    for given, found in ((False, []), (True, [("byte-divergence", "B", 0)])):
        a = made("A", log_append_time=given)
        b = made("B", log_append_time=given, **other)
        assert anomalies("byte-equality", pair(a, b, A=3, B=3)) == found


def test_an_emptied_marker_is_still_one() -> None:
    def made(name: str, kind: str, **header: int) -> Log:
        return Log(name).marker(kind, pid=7, **header).data(2)

    empty = made("B", "commit", length=61, crc=1)
    empty.batches[0] |= {"count": 0, "control": 3}
    assert anomalies("byte-equality", pair(made("A", "commit"), empty, B=2)) == []
    other = made("B", "abort", crc=1)
    assert anomalies("byte-equality", pair(made("A", "commit"), other, B=2)) != []


def test_a_marker_and_the_last_batch_of_a_producer_stay() -> None:
    ended = pair(
        Log("A").txn(1, pid=7).data(2), Log("B").txn(1, pid=7, end=None).skip(1).data(2), B=3
    )
    assert anomalies("byte-equality", ended) == [("byte-hole", "B", 1)]
    last = pair(Log("A").data(1, pid=7).data(2), Log("B").skip(1).data(2), B=2)
    assert anomalies("byte-equality", last) == [("byte-hole", "B", 0)]
    later = pair(Log("A").data(1, pid=7).data(2, pid=7), Log("B").skip(1).data(2, pid=7), B=2)
    assert anomalies("byte-equality", later) == []
    raised = Log("B").skip(1).marker("commit", pid=7, epoch=1).data(2)
    over = pair(Log("A").txn(1, pid=7, marker_epoch=1).data(2), raised, B=2)
    assert anomalies("byte-equality", over) == []


def sent_to_b(*left: int, keys: dict[int, int] = KEYS, **below: int) -> PartitionView:
    """FIRST, mirrored by MirrorMaker 2 to B, of which these are left."""
    b = Log("B")
    for one in (1, 2, 3):
        b = b.data(one, keys=keys) if one in left else b.skip(1)
    a = Log("A").data(1, keys=keys).data(2, keys=keys).data(3, keys=keys)
    logs = [a, b.data(9, keys={9: 7})]
    return view(logs, sends=SENT, promotions=[promoted(3)], compacted={"B": 4} | below)


AT_ONCE = {"delete.retention.ms": "0"}
"""Tombstones expire at once."""
LOST_AT = {1: 0, 2: 1, 3: 2}


@pytest.mark.parametrize(
    ("left", "lost"), [((2, 3), []), ((1, 3), [2]), ((3,), [2]), ((1, 2), [3]), ((2,), [3])]
)
def test_a_mirror_that_moves_offsets_lacks_only_what_a_later_record_replaced(
    left: tuple[int, ...], lost: list[int]
) -> None:
    """The last of a key is lost, although it has no later one behind it (3), and alone."""
    one = sent_to_b(*left)
    assert anomalies("lost-write", one) == [("lost-write", "A", LOST_AT[n]) for n in lost]
    assert [k for k, _, _ in anomalies("order-equality", one)] == ["mirror-hole"] * len(lost)
    assert unjudged("lost-write", one) == []


def test_record_replaced_above_the_checkpoint_may_have_been_cleaned() -> None:
    one = sent_to_b(2, 3, B=2)
    assert (anomalies("lost-write", one), len(unjudged("lost-write", one))) == ([], 1)
    assert (anomalies("order-equality", one), len(unjudged("order-equality", one))) == ([], 1)
    passed = Log("B").data(4, keys={4: 5}).skip(1).data(2, keys=KEYS).data(3, keys=KEYS)
    first = Log("A").data(4, keys={4: 5}).data(1, keys=KEYS).data(2, keys=KEYS).data(3, keys=KEYS)
    seen = view([first, passed], sends=[send(4, 1, 2, 3, acked=0)], compacted={"B": 2})
    assert anomalies("lost-write", seen) == [("lost-write", "A", 1)]  # 4 is still there


def test_a_record_without_an_offset_between_its_neighbours_was_never_mirrored() -> None:
    b = Log("B").data(2, keys=KEYS).data(3, keys=KEYS)
    one = view([FIRST, b], sends=SENT, compacted={"B": 2})
    assert anomalies("lost-write", one) == [("lost-write", "A", 0)]
    flap = Window(id="flap", fault="link-flap", target="A->B", start=1, end=2)
    assert anomalies("lost-write", but(one, windows=[flap])) == [("lost-write", "A", 0)]
    spare = Log("B").data(2, keys=KEYS).skip(1).data(3, keys=KEYS)
    room = view([FIRST, spare], sends=SENT, compacted={"B": 2})
    assert anomalies("lost-write", room) == [("lost-write", "A", 0)]
    assert anomalies("lost-write", but(room, windows=[flap])) == []
    again = view(
        [FIRST, b], sends=SENT, compacted={"B": 2}, windows=[replace(flap, fault="failover-forced")]
    )
    assert anomalies("lost-write", again) == [("lost-write", "A", 0)]


def test_only_what_crossed_and_came_later_replaces_on_the_other_side() -> None:
    """3, with the key of 1, had not crossed; or 1, with the key of 3, came before."""
    late = view(
        [FIRST, Log("B").skip(1).data(2, keys=KEYS).data(9, keys={9: 7})],
        sends=SENT, promotions=[promoted(2)], compacted={"B": 3},
    )  # fmt: skip
    assert anomalies("lost-write", late) == [("lost-write", "A", 0)]
    own = but(late, compacted={"B": 3})
    own = replace(
        own,
        replicas=[
            FIRST.replica(),
            Log("B").skip(1).data(2, keys=KEYS).data(9, keys={9: 5}).replica(),
        ],
    )
    assert anomalies("lost-write", own) == []  # 9 is B's own, with the key of 1


def test_an_aborted_record_replaces_nothing_and_a_tombstone_goes_once_it_has_expired() -> None:
    keys = {1: 5, 2: 6, 3: 6, 9: 5}
    b = Log("B").skip(1).data(2, keys=keys).data(3, keys=keys)
    aborted = b.data(9, keys=keys, pid=7, transactional=True).marker("abort", pid=7)
    a = Log("A").data(1, keys=keys).data(2, keys=keys).data(3, keys=keys)
    rest: History = {"sends": SENT, "compacted": {"B": 5}, "promotions": [promoted(3)]}
    assert anomalies("lost-write", view([a, aborted], **rest)) == [("lost-write", "A", 0)]
    gone = Log("A").data(1, keys=keys, digest={1: NULL}).data(2, keys=keys).data(3, keys=keys)
    one = view([gone, Log("B").skip(1).data(2, keys=keys).data(3, keys=keys)], **rest)
    one = but(one, compacted={"B": 3})
    assert anomalies("lost-write", one) == [("lost-write", "A", 0)]
    assert anomalies("lost-write", but(one, topic_config={"delete.retention.ms": "0"})) == []


@pytest.mark.parametrize("what", ["source", "destination"])
def test_without_keys_it_is_unknown_what_a_cleaner_took(what: str) -> None:
    one = sent_to_b(1, 3)
    cluster = {"source": "A", "destination": "B"}[what]
    blind = [replace(r, parts=no_parts()) if r.cluster == cluster else r for r in one.replicas]
    seen = replace(one, replicas=blind)
    assert (anomalies("lost-write", seen), unjudged("lost-write", seen)) == (
        [],
        [
            "1 records of A are missing on B, which is compacted, and whether its cleaner took "
            "them cannot be known"
        ],
    )


def test_behind_the_last_record_that_is_there_more_than_its_own_may_have_been_written() -> None:
    """Of an exactly-once mirror, whose markers are gone too."""
    keys = {1: 5, 2: 6, 3: 7}
    one = sent_to_b(1, keys=keys)
    lost = [("lost-write", "A", 1)]  # 2 and 3
    assert anomalies("lost-write", one) == lost
    mirror = {"delivery": "exactly-once", "isolation": "read_committed"}
    b = Log("B").data(1, keys=keys).skip(2).data(9, keys={9: 8})
    seen = view(
        [Log("A").data(1, keys=keys).data(2, keys=keys).data(3, keys=keys), b],
        sends=SENT, mirror=mirror, promotions=[promoted(3)], compacted={"B": 4},
    )  # fmt: skip
    assert (anomalies("lost-write", seen), len(unjudged("lost-write", seen))) == ([], 1)


FLAP = Window(id="flap", fault="link-flap", target="A->B", start=1, end=2)


def repeated(
    *left: int, keys: dict[int, int], kind: str = "planned", null: int = 0
) -> PartitionView:
    """1 2 3, mirrored by MirrorMaker 2 to B, which may have written some again and has these left;
    `null` is a tombstone. B wrote 9, with a key of its own."""
    b, digest = Log("B"), {null: NULL}
    for one in left:
        b = b.data(one, keys=keys, digest=digest) if one else b.skip(1)
    a = Log("A")
    for one in (1, 2, 3):
        a = a.data(one, keys=keys, digest=digest)
    logs, end = [a, b.data(9, keys={9: 70})], len(left)
    promotions = [promoted(end, kind=kind)]
    compacted = {"B": end + 1}
    return view(logs, sends=SENT, windows=[FLAP], compacted=compacted, promotions=promotions)


OTHERS = {1: 5, 2: 6, 3: 7}


@pytest.mark.parametrize(
    ("one", "lost", "unknown"),
    [
        (repeated(1, 2, 0, 3, keys=OTHERS), [], 0),
        (repeated(1, 2, 0, 0, keys=OTHERS), [2], 0),
        (repeated(1, 2, 0, 0, keys=OTHERS, kind="forced"), [], 1),
        (repeated(0, 0, 2, 1, keys={1: 6, 2: 5, 3: 6}), [], 1),  # 1 came again behind 3
        (repeated(1, 2, 0, 0, keys={1: 6, 2: 5, 3: 6}), [2], 0),  # 1 was there before 3 was
        (repeated(0, 2, 0, 0, keys={1: 6, 2: 5, 3: 6}, null=1), [2], 0),
        (but(repeated(0, 2, 0, 0, keys={1: 6, 2: 5, 3: 6}, null=1), topic_config=AT_ONCE), [], 1),
    ],
)
def test_a_planned_failover_waited_for_what_a_mirror_that_may_repeat_brought(
    one: PartitionView, lost: list[int], unknown: int
) -> None:
    """The last record of a key is lost if nothing that came again can have replaced it, nor a
    tombstone that came again and is gone."""
    assert anomalies("lost-write", one) == [("lost-write", "A", n) for n in lost]
    assert [k for k, *_ in anomalies("order-equality", one)] == ["mirror-hole"] * len(lost)
    assert len(unjudged("lost-write", one)) == unknown


@pytest.mark.parametrize(("b", "unknown"), [(Log("B").skip(1), 1), (Log("B"), 0)])
def test_late_records_may_have_come_before_where_a_cleaner_made_room(b: Log, unknown: int) -> None:
    """B has 2 1 3, or had 1 2 1 3."""
    one = view([FIRST, b.data(2, 1, 3)], sends=SENT, windows=[FLAP], compacted={"B": 3 + unknown})
    found = {"order-equality": "mirror-inversion", "send-order": "internal-inversion"}
    for check, kind in found.items():
        assert [k for k, *_ in anomalies(check, one)] == [kind] * (1 - unknown)
        assert len(unjudged(check, one)) == unknown
        once = but(one, windows=())
        assert [k for k, *_ in anomalies(check, once)] == [kind]


@pytest.mark.parametrize(
    ("left", "lost"), [((2, 3), []), ((1, 3), [("mirror-phantom", "B", 1)]), ((1, 2), [])]
)
def test_a_compacted_source_lacks_only_what_a_later_record_replaced(
    left: tuple[int, ...], lost: list[tuple[str, str, int]]
) -> None:
    a = lacking(*left, name="A").data(4, keys={4: 5})
    b = Log("B").data(1, keys=KEYS).data(2, keys=KEYS).data(3, keys=KEYS).data(4, keys={4: 5})
    one = view([a, b], compacted={"A": 4})
    assert anomalies("order-equality", one) == lost
    assert unjudged("order-equality", one) == []
    assert len(unjudged("order-equality", but(one, compacted={"A": 1}))) == (left == (2, 3))


def test_a_tombstone_of_the_sources_clients_that_is_gone_may_have_replaced_it() -> None:
    values = {"transactional-1": Values(1, 1, keys=1, tombstones=1.0)}
    keys = {1: digested(values["transactional-1"].key(0)), 2: 6, 3: 7}
    a = Log("A").skip(1).data(2, keys=keys).skip(1).data(3, keys=keys)
    b = Log("B").data(1, keys=keys).data(2, keys=keys).data(3, keys=keys)
    one = view([a, b], sends=[send(9, acked=2)], compacted={"A": 3})
    assert (anomalies("order-equality", one), len(unjudged("order-equality", one))) == ([], 1)
    known = but(one, values=values, topic_config={"delete.retention.ms": "0"})
    assert (anomalies("order-equality", known), unjudged("order-equality", known)) == ([], [])
    lost = [("mirror-phantom", "B", 0)]
    assert anomalies("order-equality", replace(known, sends=())) == lost
    assert anomalies("order-equality", but(known, topic_config={})) == lost


def test_a_tombstone_that_came_from_further_upstream_may_have_replaced_it() -> None:
    """9 deleted 1's key on A and B, before C had it."""
    values = {"transactional-1": Values(1, 1, keys=1, tombstones=1.0)}
    keys = {1: digested(values["transactional-1"].key(0)), 2: 6}
    logs = [Log(name).skip(2).data(2, keys=keys) for name in "AB"]
    one = view(
        [*logs, Log("C").data(1, keys=keys)],
        topology="A->B->C",
        sends=[send(9, acked=1)],
        compacted={"A": 3, "B": 3},
    )
    known = but(one, values=values)
    assert [k for k, _, _ in anomalies("order-equality", known)] == []
    assert "1 records of C are missing on B" in str(unjudged("order-equality", known))
    nobody = replace(known, sends=())
    assert anomalies("order-equality", nobody) == [("mirror-phantom", "C", 0)]


MAPPINGS = {"kept": 7, "negate": -9, "complement": 2**63 - 9, "region": -(2**63) + 7}


@pytest.mark.parametrize("how", MAPPINGS)
def test_producer_ids_that_a_mirror_maps_are_the_same_producers(how: str) -> None:
    """B was promoted while 1's transaction was open, and aborted it; A committed it later. Or A's
    marker is gone from B, and its transaction is not."""
    theirs, mirror = MAPPINGS[how], {"producer_ids": how} if how != "kept" else {}
    a = Log("A").data(4, pid=7, transactional=True, keys={4: 8}).marker("commit", pid=7)
    a = a.data(1, pid=7, transactional=True, keys=KEYS).data(2, keys=KEYS).marker("commit", pid=7)
    b = Log("B").data(4, pid=theirs, transactional=True, keys={4: 8}).marker("commit", pid=theirs)
    short = b.skip(1).data(2, keys=KEYS).marker("abort", pid=theirs)
    one = view(
        [a, short],
        mirror_kind="shadow",
        mirror=mirror,
        promotions=[promoted(4)],
        compacted={"B": 5},
    )
    assert (anomalies("record-equality", one), unjudged("record-equality", one)) == ([], [])
    again = Log("B").data(4, pid=theirs, transactional=True, keys={4: 8}).skip(1)
    again = again.data(1, pid=theirs, transactional=True, keys=KEYS).data(2, keys=KEYS)
    lost = view(
        [a, again.marker("commit", pid=theirs)],
        mirror_kind="shadow",
        mirror=mirror,
        compacted={"B": 5},
    )
    assert [f for f in anomalies("byte-equality", lost) if f[0] == "byte-hole"] == [
        ("byte-hole", "B", 1)
    ]


SEEDED = Values(1, 1, keys=2, tombstones=0.25)
EXPIRED = {"delete.retention.ms": "0"}


def seeded(key: int, *, tombstone: bool = False, nth: int = 0) -> int:
    """A payload id whose record has one of two keys, and a value or none."""
    rows = (n for n in range(1, 99) if (n % 2, SEEDED.value(n) is None) == (key, tombstone))
    return list(rows)[nth]


FIRST_OF_0, SECOND_OF_0 = (seeded(0, nth=n) for n in range(2))
FIRST_OF_1, TOMBSTONE = seeded(1), seeded(0, tombstone=True)
WRITTEN = (FIRST_OF_0, FIRST_OF_1, SECOND_OF_0)


def own(
    left: tuple[int, ...],
    *,
    written: tuple[int, ...] = WRITTEN,
    below: int = 3,
    sent: Sequence[Send] | None = None,
    log: Log | None = None,
    **more: Any,
) -> PartitionView:
    """A alone, which acknowledged each record at its place, and has those that are left, and a
    marker behind them."""
    made = log or Log("A")
    for each in written if log is None else ():
        keys = {each: digested(SEEDED.key(each))}
        null = {each: NULL} if SEEDED.value(each) is None else {}
        made = made.data(each, keys=keys, digest=null) if each in left else made.skip(1)
    made = made if log else made.marker("abort", pid=9)
    acked = [send(each, acked=at) for at, each in enumerate(written)]
    one = view([made], sends=acked if sent is None else sent, compacted={"A": below})
    return but(one, **({"values": {"1": SEEDED}} | more))


def of_source(one: PartitionView) -> tuple[list[int], int]:
    """The offsets of what is lost, and how many reasons why that is unknown; ghost-ack says the
    same as lost-write."""
    lost = [offset for _, _, offset in anomalies("lost-write", one)]
    assert [offset for _, _, offset in anomalies("ghost-ack", one)] == lost
    reasons = [why for why in unjudged("lost-write", one) if not why.startswith("no log of B")]
    assert unjudged("ghost-ack", one) == reasons
    return lost, len(reasons)


@pytest.mark.parametrize(
    ("left", "below", "lost", "unknown"),
    [
        (WRITTEN, 3, [], 0),
        (WRITTEN[1:], 3, [], 0),
        (WRITTEN[:2], 3, [2], 0),  # the last record of its key
        ((FIRST_OF_0, SECOND_OF_0), 3, [1], 0),
        ((FIRST_OF_1,), 3, [2], 0),  # the first one was replaced by what was lost then
        (WRITTEN[1:], 2, [], 1),  # what replaced it is above the checkpoint
        (WRITTEN[:2], 2, [2], 0),
        ((), 3, [], 1),  # nothing is left that shows how the client chose its keys
    ],
)
def test_without_a_mirror_a_cleaner_leaves_the_last_record_of_each_key(
    left: tuple[int, ...], below: int, lost: list[int], unknown: int
) -> None:
    assert of_source(own(left, below=below)) == (lost, unknown)


def test_the_seed_is_believed_where_what_is_left_has_its_keys() -> None:
    assert of_source(own(WRITTEN[:2], values={})) == ([], 1)
    assert of_source(own(WRITTEN[:2], values={"1": Values(2, 1, keys=2)})) == ([], 1)
    two = {"1": SEEDED, "2": Values(2, 1, keys=2)}
    assert of_source(own(WRITTEN[:2], values=two)) == ([2], 0)
    ambiguous = {"1": SEEDED, "2": Values(1, 1, keys=2, tombstones=0.9)}
    assert of_source(own((), values=ambiguous)) == ([], 1)


def test_a_copy_of_another_replica_tells_the_key_without_a_seed() -> None:
    follower = Log("A", broker=2, canonical=False, leader=False).data(
        *WRITTEN, keys={each: digested(SEEDED.key(each)) for each in WRITTEN}
    )
    one = own(WRITTEN[:2], values={})
    assert of_source(replace(one, replicas=[*one.replicas, follower.replica()])) == ([2], 0)


@pytest.mark.parametrize(
    ("left", "config", "lost"),
    [
        ((FIRST_OF_1,), EXPIRED, []),
        ((FIRST_OF_1,), {}, [2]),  # after a day only
        ((FIRST_OF_1, TOMBSTONE), {}, []),
    ],
)
def test_a_tombstone_goes_when_it_has_expired_and_not_before(
    left: tuple[int, ...], config: dict[str, str], lost: list[int]
) -> None:
    written = (FIRST_OF_0, FIRST_OF_1, TOMBSTONE)
    assert of_source(own(left, written=written, topic_config=config)) == (lost, 0)


def test_an_unacknowledged_tombstone_may_have_come_and_gone() -> None:
    acked = [send(FIRST_OF_0, acked=0), send(FIRST_OF_1, acked=1)]
    for outcome, found in (("info", ([], 1)), ("fail", ([0], 0))):
        refused = [TOMBSTONE] if outcome == "fail" else []
        sent = [*acked, send(TOMBSTONE, outcome=outcome, refused=refused)]
        one = own((FIRST_OF_1,), written=WRITTEN[:2], sent=sent, topic_config=EXPIRED)
        assert of_source(one) == found
        assert of_source(but(one, topic_config={})) == ([0], 0)
    value = [*acked, send(SECOND_OF_0, outcome="info")]
    assert of_source(own((FIRST_OF_1,), written=WRITTEN[:2], sent=value)) == ([0], 0)


def test_an_unacknowledged_tombstone_that_was_read_was_there() -> None:
    acked = [send(FIRST_OF_0, acked=0), send(FIRST_OF_1, acked=1)]
    one = own(
        (FIRST_OF_1,),
        written=WRITTEN[:2],
        sent=[*acked, send(TOMBSTONE, outcome="info")],
        topic_config=EXPIRED,
    )
    for isolation, unknown in (("read_committed", 0), ("read_uncommitted", 1)):
        seen = replace(poll((2, TOMBSTONE)), isolation=isolation)
        assert of_source(replace(one, reads=[seen])) == ([], unknown)


def test_aborted_record_replaces_nothing_and_an_open_one_may() -> None:
    keys = {each: digested(SEEDED.key(each)) for each in WRITTEN}
    for end, found in (("commit", ([], 0)), ("abort", ([0], 0)), (None, ([], 1))):
        log = Log("A").skip(1).data(FIRST_OF_1, keys=keys)
        log = log.data(SECOND_OF_0, keys=keys, pid=7, transactional=True)
        log = log.marker(end, pid=7) if end else log
        sent = [send(FIRST_OF_0, acked=0), send(FIRST_OF_1, acked=1)]
        assert of_source(own((), log=log, sent=sent)) == found


def test_an_offset_that_has_another_record_or_a_marker_never_had_the_absent_one() -> None:
    keys = {each: digested(SEEDED.key(each)) for each in WRITTEN}
    log = Log("A").data(FIRST_OF_1, keys=keys).data(SECOND_OF_0, keys=keys)
    one = own((), log=log, sent=[send(FIRST_OF_0, acked=0)])
    assert of_source(one) == ([0], 0)
    log = Log("A").marker("commit", pid=7).data(SECOND_OF_0, keys=keys)
    assert of_source(own((), log=log, sent=[send(FIRST_OF_0, acked=0)])) == ([0], 0)


def test_unreadable_records_of_other_clients_may_have_replaced_it() -> None:
    log = Log("A").skip(1).data(FIRST_OF_1, keys={FIRST_OF_1: digested(SEEDED.key(FIRST_OF_1))})
    one = own((), log=log.data(-1), sent=[send(FIRST_OF_0, acked=0), send(FIRST_OF_1, acked=1)])
    assert of_source(one) == ([0], 0)  # its key is another
    (replica,) = one.replicas
    parts = replace(
        replica.parts,
        **{n: getattr(replica.parts, n)[:1] for n in replica.parts.__slots__},
    )
    assert of_source(replace(one, replicas=[replace(replica, parts=parts)])) == ([], 1)


def test_a_promoted_log_leaves_the_last_record_of_each_key_too() -> None:
    keys = {each: digested(SEEDED.key(each)) for each in WRITTEN}
    sent = [send(FIRST_OF_1, acked=0), send(SECOND_OF_0, acked=1, cluster="B")]
    for left, lost in (((SECOND_OF_0,), []), ((), [("lost-write", "B", 1)])):
        a, b = (Log(name).data(FIRST_OF_1, keys=keys) for name in "AB")
        one = view(
            [a, b.data(*left, keys=keys) if left else b],
            sends=sent,
            mirror_kind="shadow",
            promotions=[promoted(1)],
            compacted={"B": 2},
        )
        assert anomalies("lost-write", but(one, values={"1": SEEDED})) == lost


KILLED = commit(2, outcome="info")
GOT = poll((1, 2))


def of(start: int, *, sends: Sequence[Send] = (), reads: Sequence[Read] = (GOT,)) -> PartitionView:
    """A's log begins at `start`, with payload 9 there; B has it too."""
    logs = [Log("A", start=start).data(9), Log("B", start=start).data(9)]
    return view(logs, sends=[KILLED, *sends], reads=reads)


def test_records_read_below_the_log_start_were_deleted() -> None:
    seen = of(2)
    for check in ("lost-write", "torn-transaction"):
        assert anomalies(check, seen) == []
        assert not unjudged(check, seen)


def test_records_read_at_the_log_start_or_above_are_lost() -> None:
    assert anomalies("lost-write", of(1)) == [("lost-write", "A", -1)]


TWO = commit(2, 3, outcome="info")
"""Nobody read 3: 2 shows that it was committed."""


@pytest.mark.parametrize(
    ("later", "lost", "known"),
    [
        ([send(5, acked=2)], [], True),
        ([send(5, acked=3)], [], True),
        ([send(5, acked=4)], [], False),
        ([], [], False),
    ],
    ids=["before the start", "at the start", "behind it", "nothing"],
)
def test_a_record_is_before_the_next_of_its_producer(
    later: list[Send], lost: list[tuple[str, str, int]], known: bool
) -> None:
    logs = [Log(cluster, start=3).data(8, 5) for cluster in "AB"]
    seen = view(logs, sends=[TWO, *later], reads=[poll((1, 2))])
    assert anomalies("lost-write", seen) == lost
    assert bool(unjudged("lost-write", seen)) is not known
    assert anomalies("torn-transaction", seen) == []


def test_a_record_behind_one_that_is_still_there_was_not_deleted() -> None:
    logs = [Log("A", start=3).data(2), Log("B", start=3).data(2)]
    seen = view(logs, sends=[TWO], reads=[poll((3, 2))])
    assert anomalies("lost-write", seen) == [("lost-write", "A", -1)]


def test_another_producers_records_say_nothing() -> None:
    other = 1 << 40
    logs = [Log("A", start=3).data(other), Log("B", start=3).data(other)]
    seen = view(logs, sends=[TWO, send(other, acked=3)], reads=[poll((1, 2))])
    assert anomalies("lost-write", seen) == []
    assert unjudged("lost-write", seen)


def test_missing_record_without_a_deletion_is_lost() -> None:
    seen = view([Log("A").data(9), Log("B").data(9)], sends=[KILLED], reads=[GOT])
    assert anomalies("lost-write", seen) == [("lost-write", "A", -1)]
