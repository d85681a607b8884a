"""Causes: anomalies are ranked, grouped under their cause, and summed up in one sentence.

The sentence of a cause: it names the cluster, partition and offset.

The consequences of a transaction's marker, or of a commit that has none.

Copied logs that lost their beginning, and with it the record of a promotion: what is known of
them, and what is unknown.
"""

from __future__ import annotations

from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path
from random import Random
from string import Formatter
from typing import Any

import pytest

from linkflap.harness.capture.logs_named import LogsRequest
from linkflap.harness.capture.promotions_from_bytes import promotions_in
from linkflap.harness.log import batches
from linkflap.harness.model.events import Event, Promotion, PromotionUnknown
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.model.verdict import Anomaly, CheckResult, Verdict
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.verdict.causes import TRACED, rank
from linkflap.spark_verify.verdict.judge import EXAMPLES, Judgement, show
from linkflap.spark_verify.verdict.sentences import begin, kind_of, sentence
from tests.copied_logs import KIP_1279, asked, judged
from tests.kafka_log import batch, batches_in, field_of, mirror_pid_reset, record, rewrite, segment
from tests.unit.found_anomalies import (
    ALL,
    NAMES,
    collision,
    found,
    ghost,
    lost,
    marker,
    ranked,
    uid,
    unseen,
    visible,
)


def test_an_id_collision_is_the_cause_of_what_it_led_to() -> None:
    anomalies = [unseen(12, 0), lost(12, 0), collision(6, 12), ghost(12, 0)]
    assert ranked(*anomalies) == [
        ("producer-id-collision", {"ghost-ack": 1, "lost-write": 1, "unseen-write": 1})
    ]
    (cause,) = rank(anomalies, REGISTRY)
    assert cause.first == 2


def test_another_payload_at_another_offset_has_a_cause_of_its_own() -> None:
    assert ranked(ghost(12, 0), lost(12, 0), lost(500, 44)) == [
        ("ghost-ack", {"lost-write": 1}),
        ("lost-write", {}),
    ]


def test_records_of_a_range_follow_from_any_of_it() -> None:
    assert ranked(lost(10, 0, records=20), unseen(25, 15)) == [("lost-write", {"unseen-write": 1})]
    assert ranked(lost(10, 0, records=20), unseen(30, 20)) == [
        ("lost-write", {}),
        ("unseen-write", {}),
    ]


def test_of_one_cluster_and_not_of_another() -> None:
    other = found("ghost-ack", "ghost-ack", 3, cluster="C", producer_id=6, uid=uid(9, 1))
    assert ranked(collision(6), other) == [("producer-id-collision", {}), ("ghost-ack", {})]


def test_the_source_of_a_mirrored_record_is_the_same_thing() -> None:
    hole = found("order-equality", "mirror-hole", 7, source="A", source_offset=5, records=2)
    gone = found("lost-write", "lost-write", 6, cluster="A")
    assert ranked(gone, hole) == [("mirror-hole", {"lost-write": 1})]


@pytest.mark.parametrize(
    ("offset", "partition", "follows"),
    [(139, 0, True), (20, 0, True), (19, 0, False), (139, 1, False)],
)
def test_a_state_follows_from_what_is_before_it_in_its_partition(
    offset: int, partition: int, follows: bool
) -> None:
    shown_as_data = found(
        "order-equality",
        "mirrored-aborted",
        20,
        records=10,
        uid=uid(9, 3),
        source="A",
        source_offset=20,
    )
    sample = found(
        "last-stable-offset",
        "lso-mismatch",
        offset,
        partition=partition,
        last_stable=offset,
        recomputed=20,
    )
    assert ranked(sample, shown_as_data)[0] == (
        "mirrored-aborted",
        {"lso-mismatch": 1} if follows else {},
    )


def test_kinds_of_one_check_at_one_offset_are_one() -> None:
    above = found("last-stable-offset", "lso-above-high-watermark", 12)
    differs = found("last-stable-offset", "lso-mismatch", 12)
    assert ranked(differs, above) == [("lso-above-high-watermark", {"lso-mismatch": 1})]


def test_the_member_with_the_most_consequences_names_the_cause() -> None:
    anomalies = [collision(5, 3), collision(6, 12), ghost(12, 0, pid=6)]
    (cause,) = rank(anomalies, REGISTRY)
    assert (cause.first, list(cause.members)) == (1, [1, 0])


def test_a_mirrored_anomaly_is_the_same_anomaly() -> None:
    """A chain: C has B's copy of the source's marker, and another marker that C wrote itself."""
    anomalies = [
        marker("C"),
        visible("C"),
        marker("B"),
        visible("B"),
        replace(marker("C", "B", first_offset=29), offset=30),
    ]

    def upstream(anomaly: Anomaly) -> str:
        return {"C": "B", "B": "A"}[anomaly.cluster]

    causes = rank(anomalies, REGISTRY, upstream)
    assert [(c.cluster, c.kind, c.led_to) for c in causes] == [
        ("B", "byte-divergence", 3),
        ("C", "byte-divergence", 0),
    ]
    assert anomalies[causes[0].first] == marker("B")
    alone = rank(anomalies, REGISTRY)
    assert [(c.cluster, len(c.members)) for c in alone] == [("B", 1), ("C", 2)]


def test_clusters_that_have_it_from_each_other_are_not_followed_for_ever() -> None:
    causes = rank(
        [marker("B"), marker("C")], REGISTRY, lambda anomaly: "B" if anomaly.cluster == "C" else "C"
    )
    assert [(c.cluster, c.led_to) for c in causes] == [("C", 1)] or [
        (c.cluster, c.led_to) for c in causes
    ] == [("B", 1)]


def test_a_cause_without_harm_says_what_it_can_come_to() -> None:
    shown = show([collision(6, 12)], ALL, REGISTRY, NAMES)
    assert (
        shown.cause
        == "On B producer id 6 belongs to two producers at A.orders-0 @ 12 (idempotent-2, and one"
        " whose batches were mirrored up to offset 90); no client was seen to be harmed, but "
        "where epoch and sequence meet, a broker takes a record of the one for a repeat of the "
        "other's, acknowledges it and does not append it."
    )
    sample = found("last-stable-offset", "lso-mismatch", 12, last_stable=12, recomputed=3)
    harmless = show([marker(markers=None), sample], ALL, REGISTRY, NAMES).cause
    assert (
        "no client was seen to be harmed, but what only the source's bytes say is lost to whoever "
        "reads B." in harmless
    )
    assert "no client" not in show([marker(), visible()], ALL, REGISTRY, NAMES).cause
    assert "no client" not in show([lost(12, 0)], ALL, REGISTRY, NAMES).cause


def test_a_batch_that_differs_from_several_sources_is_counted_once() -> None:
    assert (
        "mirrored batches"
        not in show([marker("C", "A"), marker("C", "B")], ALL, REGISTRY, NAMES).cause
    )


def test_of_each_check_one_consequence_is_said_what_harms_clients_first() -> None:
    hole = found("order-equality", "mirror-hole", 22, uid=uid(7, 0), source="A", source_offset=22)
    phantom = found("order-equality", "mirror-phantom", 22, uid=uid(8, 0), source="A")
    sample = found("last-stable-offset", "lso-mismatch", 23, last_stable=23, recomputed=3)
    said = show([marker(), hole, phantom, lost(22, 0), sample], ALL, REGISTRY, NAMES).cause
    assert said.endswith("; 1 mirrored record is missing, 1 acknowledged write is lost, "
                         "1 sample of the last stable offset "
                         "contradicts the bytes.")  # fmt: skip


def test_what_is_allowed_causes_nothing() -> None:
    allowed = found("order-equality", "mirrored-duplicate", 5, allowed=True, uid=uid(7, 0))
    assert ranked(allowed, found("duplicate", "mirrored-duplicate", 5, uid=uid(7, 0))) == [
        ("mirrored-duplicate", {})
    ]
    assert ranked(allowed) == []


def test_the_order_of_anomalies_does_not_matter() -> None:
    anomalies = [
        unseen(12, 0),
        lost(12, 0),
        collision(6, 12),
        ghost(12, 0),
        lost(70, 9),
        collision(2, 99),
    ]
    assert ranked(*anomalies) == ranked(*anomalies[::-1])


def test_many_are_counted_where_the_first_of_them_is() -> None:
    anomalies = [ghost(n, n) for n in range(TRACED + 5)] + [lost(n, n) for n in range(TRACED + 5)]
    assert ranked(*anomalies) == [("ghost-ack", {"lost-write": TRACED + 5})]


def test_checks_follow_from_others_and_never_in_a_circle() -> None:
    graph = {name: check.follows for name, check in REGISTRY.items()}
    assert set().union(*graph.values()) <= set(REGISTRY)
    TopologicalSorter(graph).prepare()


def test_what_proves_nothing_is_no_cause() -> None:
    shown = show([lost(12, 0)], frozenset(), REGISTRY, NAMES)
    assert (shown.cause, shown.causes) == ("", [])
    assert [a.cause for a in shown.anomalies] == [0]


def test_the_anomaly_that_names_a_cause_is_never_left_out() -> None:
    anomalies = [
        *(collision(100 + n, n) for n in range(EXAMPLES + 10)),
        collision(6, 900),
        ghost(12, 0),
    ]
    shown = show(anomalies, ALL, REGISTRY, NAMES)
    assert (shown.anomalies[0].offset, shown.causes[0].anomaly, shown.left_out) == (900, 1, 10)
    assert shown.causes[0].count == EXAMPLES + 11


def test_the_first_cause_in_one_sentence() -> None:
    anomalies = [
        unseen(12, 0),
        unseen(13, 1),
        lost(12, 0),
        lost(13, 1),
        ghost(12, 0),
        ghost(13, 1),
        collision(6, 12),
    ]
    shown = show(anomalies, ALL, REGISTRY, NAMES)
    assert (
        shown.cause
        == "On B producer id 6 belongs to two producers at A.orders-0 @ 12 (idempotent-2, and one"
        " whose batches were mirrored up to offset 90); B acknowledged idempotent-2/2 #0 "
        "(producer id 6) at A.orders-0 @ 12 and did not append it there: below the promotion "
        "offset 110; 2 acknowledged writes are lost, 2 acknowledged writes were never read."
    )
    assert [a.kind for a in shown.anomalies] == [
        "producer-id-collision", "ghost-ack", "ghost-ack", "lost-write", "lost-write",
        "unseen-write", "unseen-write",
    ]  # fmt: skip
    assert {a.cause for a in shown.anomalies} == {1}
    assert [(c.kind, c.count, c.anomaly) for c in shown.causes[0].consequences] == [
        ("ghost-ack", 2, 2),
        ("lost-write", 2, 4),
        ("unseen-write", 2, 6),
    ]


def test_producers_are_named_by_client_and_incarnation() -> None:
    assert NAMES.record(uid(3, 4)) == "idempotent-2 #4"
    assert NAMES.record(uid(7, 0)) == "idempotent-2/2 #0"
    assert NAMES.record(uid(70, 0)) == "producer 70 #0"
    assert NAMES.record(-1) == "a record of no known client"
    assert NAMES.operation(uid(9, 2)) == "transaction #2 of zombie-1"


def test_a_sentence_that_lacks_its_evidence_says_what_the_kind_means() -> None:
    bare = found("ghost-ack", "ghost-ack", 12)
    meaning = REGISTRY["ghost-ack"].anomalies[0].meaning
    assert sentence(bare, REGISTRY, NAMES) == f"B A.orders-0 @ 12: t{meaning[1:].rstrip('.')}"
    assert sentence(found("gone", "of-old", 3), REGISTRY, NAMES) == "B A.orders-0 @ 3: of-old"


def test_hostile_names_are_words_and_no_format() -> None:
    hostile = Anomaly(
        check="lost-write", kind="lost-write", cluster="B", topic="{cluster.__class__}",
        partition=0, offset=1,
        evidence={"uid": 3, "how": "{0} {evil}"},
    )  # fmt: skip
    assert "{cluster.__class__}-0 @ 1, is lost: {0} {evil}" in sentence(hostile, REGISTRY, NAMES)


@pytest.mark.parametrize(
    ("check", "kind"),
    [(check.name, kind.name) for check in REGISTRY.values() for kind in check.anomalies]
)  # fmt: skip
def test_sentences_are_plain_fields_without_a_full_stop(check: str, kind: str) -> None:
    declared = kind_of(check, kind, REGISTRY)
    assert declared is not None
    assert declared.sentence, "every kind of anomaly has a sentence of its own"
    fields = [
        name
        for _, name, spec, conversion in Formatter().parse(declared.sentence)
        if name and not (spec or conversion)
    ]
    assert all(name.isidentifier() for name in fields)
    assert not declared.sentence.endswith(".")
    assert declared.counted.count("|") == (1 if declared.counted else 0)
    assert declared.counted or declared.alone or declared.noted, (
        "a first screen names what it comes to, or can come to"
    )
    assert declared.alone or not declared.latent
    assert {name for _, name, _, _ in Formatter().parse(declared.alone) if name} <= {
        "cluster",
        "source",
    }
    assert not declared.alone.endswith(".")


OF_A_CLIENT = {("progress", "stalled"), ("progress", "client-unusable")}
"""About a client as a whole: what it waited for names the partition, where there is one."""


OF_A_LINK = {
    ("failover", "rpo-over-budget"),
    ("failover", "rto-over-budget"),
    ("failover", "failover-refused"),
}
"""About a failover as a whole: the link names both clusters, and no partition is meant."""


NOWHERE = {
    ("internal-topics", "marker-missing"),
    *(("topic-sync", kind.name) for kind in REGISTRY["topic-sync"].anomalies),
    ("mirror-states", "record-differs"),
    ("mirror-states", "state-lie"),
    ("mirror-states", "verb-disagreement"),
}
"""A missing record has no offset, nor has a verb; for a lag, the sentence has the wrong number."""


OFFSETS = {
    "at", "offset", "last_stable", "high_watermark", "log_start", "stood_at", "began_at",
    "position", "committed", "promoted",
    "parted_at", "end",
}  # fmt: skip


@pytest.mark.parametrize(
    ("check", "kind"),
    [(check.name, kind.name) for check in REGISTRY.values() for kind in check.anomalies]
)  # fmt: skip
def test_a_sentence_names_cluster_partition_and_offset(check: str, kind: str) -> None:
    declared = kind_of(check, kind, REGISTRY)
    assert declared is not None
    fields = {name for _, name, _, _ in Formatter().parse(declared.sentence) if name}
    if (check, kind) in OF_A_LINK:
        assert {"failover", "link"} <= fields
        return
    assert "cluster" in fields
    if (check, kind) in OF_A_CLIENT:
        assert "client" in fields
        return
    assert fields & {"at", "tp"}
    assert fields & OFFSETS or (check, kind) in NOWHERE


def test_a_sentence_about_different_records_names_who_saw_which() -> None:
    seen = [{"uid": uid(3, 1), "by": ["log"]}, {"uid": uid(7, 2), "by": ["reader-1", "reader-2"]}]
    said = in_words(
        "inconsistent-offset", "inconsistent-offset", 4, "A.orders", records=1, seen=seen
    )
    begun = "Observers saw different records at A.orders-0 @ 4 of B"
    assert (
        said == f"{begun}: the log saw idempotent-2 #1 and reader-1, reader-2 saw idempotent-2/2 #2"
    )


def test_a_sentence_about_a_step_back_names_both_values() -> None:
    for kind, name in (
        ("lso-regression", "last_stable"), ("high-watermark-regression", "high_watermark"),
        ("log-start-regression", "log_start"),
    ):  # fmt: skip
        said = in_words(
            "last-stable-offset", kind, 97, "A.orders", **{name: 97, "before": {name: 110}}
        )
        what = {
            "last_stable": "last stable offset",
            "high_watermark": "high watermark",
            "log_start": "log start",
        }[name]
        assert said == f"The leader of A.orders-0 on B moved its {what} back from 110 to 97"


def test_a_name_at_the_beginning_stays_as_it_is() -> None:
    assert begin("the mirror") == "The mirror"
    assert begin("readers-3 got") == "readers-3 got"


def in_words(check: str, kind: str, offset: int, topic: str, **evidence: object) -> str:
    position: dict[str, Any] = {"cluster": "B", "topic": topic, "partition": 0, "offset": offset}
    return begin(
        sentence(Anomaly(check=check, kind=kind, evidence=evidence, **position), REGISTRY, NAMES)
    )


def test_logs_of_kafkas_own_topics_are_named_with_their_broker() -> None:
    own, log = "internal-topics", "__transaction_state"
    said = {
        "log-disorder": in_words(own, "log-disorder", 4, log, broker=1, batch=[4, 5], after=7),
        "replica-missing": in_words(
            own, "replica-missing", 4, log, brokers=[1, 2], batch=4, missing_on=2
        ),
        "epochs": in_words(
            own, "leader-epoch-regression", 4, log, broker=1, capture="2-end", epoch=1, before=3
        ),
        "offsets-missing": in_words(own, "offsets-missing", 4, log, broker=1, offsets=6),
        "ends-early": in_words(
            own, "ends-early", 4, log, broker=1, high_watermark=9, **{"from": "the leader"}
        ),
    }
    assert said == {
        "log-disorder": (
            "The log of broker 1 of B is out of order at __transaction_state-0 @ 4: it follows "
            "offset 7"
        ),
        "replica-missing": (
            "Broker 2 of B lacks what another replica has at __transaction_state-0 @ 4"
        ),
        "epochs": (
            "The leader epoch falls from 3 to 1 at __transaction_state-0 @ 4 on broker 1 of B"
        ),
        "offsets-missing": (
            "The log of broker 1 of B lacks offsets where no cleaner was: 6, the first at "
            "__transaction_state-0 @ 4"
        ),
        "ends-early": (
            "The log of broker 1 of B ends at __transaction_state-0 @ 4, below its high watermark 9"
        ),
    }


def test_sentences_about_leaders_and_mirrors_name_their_reports() -> None:
    sampled = {"leader_epoch": 1000, "last_epoch": 3, "time": 1, "last_time": 2, "samples": 1}
    said = in_words("leader-epochs", "sampled-epoch-regression", 7, "A.orders", **sampled)
    begun = "The leader of A.orders-0 on B reported leader epoch 1000 with its high watermark at 7"
    assert said == f"{begun}, and 3 in the last sample"
    mirror = {"link": "A->B", "mirrored": 9, "promoted": 7}
    said = in_words(
        "truncation-accounting",
        "promotion-unaccounted",
        7,
        "A.orders",
        **mirror,
        truncated=[],
        appended=[],
    )
    begun = "The mirror A->B says that it mirrored A.orders-0 on B to 9 and promoted it at 7"
    assert said == f"{begun}, and its truncations and markers do not lead from the one to the other"
    holds = {"base": 7, "leader_epoch": 0}
    said = in_words(
        "truncation-accounting",
        "truncation-not-made",
        7,
        "A.orders",
        **mirror,
        end=9,
        truncated_to=7,
        before=0,
        holds=holds,
    )
    begun = "The mirror A->B says that it truncated A.orders-0 on B from 9 to 7"
    assert said == f"{begun}, and the log still has a batch of before"


def test_what_is_found_at_the_records_of_a_transaction_follows_from_its_marker() -> None:
    split = found(
        "marker-pairing",
        "outcome-split",
        22,
        producer_id=3,
        first_offset=20,
        source="A",
        outcomes=["ABORT", "COMMIT"],
    )
    read = found("aborted-read", "aborted-read", 20, uid=uid(9, 3), records=2, reader="readers-1")
    elsewhere = found(
        "order-equality",
        "mirrored-aborted",
        23,
        uid=uid(9, 9),
        records=1,
        source="A",
        state="aborted",
    )
    assert ranked(split, read, marker(), visible(), elsewhere) == [
        ("byte-divergence", {"mirrored-aborted": 1, "outcome-split": 1, "aborted-read": 1}),
        ("mirrored-aborted", {}),
    ]


@pytest.mark.parametrize("joined", [True, False])
def test_two_roots_with_a_common_consequence_are_one_where_the_one_can_follow_from_the_other(
    joined: bool,
) -> None:
    """The marker is at 22 and the records are at 20; the anomaly of two outcomes concerns both."""
    root = marker(first_offset=22) if joined else found("internal-topics", "log-disorder", 22)
    split = found(
        "marker-pairing",
        "outcome-split",
        22,
        producer_id=3,
        first_offset=20,
        source="A",
        outcomes=["ABORT", "COMMIT"],
    )
    causes = ranked(split, root, visible())
    follow = {"mirrored-aborted": 1, "outcome-split": 1}
    assert causes[0] == (("byte-divergence", follow) if joined else ("log-disorder", {}))
    assert len(causes) == (1 if joined else 2)


def test_a_commit_without_a_marker_follows_from_the_coordinator_that_wrote_none() -> None:
    """The coordinator's anomaly has no offset, and the client does not know its producer id: both
    name the transactional id."""
    coordinator = found(
        "internal-topics", "marker-missing", transactional_id="t1", producer_id=7, decided="COMMIT"
    )
    commit = found(
        "commit-aborted",
        "commit-unmarked",
        42,
        operation=uid(7, 3),
        transactional_id="t1",
        records=3,
    )
    other = replace(commit, evidence={**commit.evidence, "transactional_id": "t2"})
    assert [(c.kind, c.led_to) for c in rank([commit, coordinator], REGISTRY)] == [
        ("marker-missing", 1)
    ]
    assert sorted(c.kind for c in rank([other, coordinator], REGISTRY)) == [
        "commit-unmarked",
        "marker-missing",
    ]


def test_a_marker_that_ends_otherwise_says_both_and_what_it_comes_to() -> None:
    seen = "B has another batch than A at A.orders-0 @ 22: "
    assert (
        sentence(marker(), REGISTRY, NAMES)
        == f"{seen}COMMIT where A has ABORT, so 2 records that A aborted are visible on B"
    )
    hidden = marker(ours="ABORT", ends=1)
    assert (
        sentence(hidden, REGISTRY, NAMES)
        == f"{seen}ABORT where A has COMMIT, so 1 record that A committed is hidden on B"
    )
    assert sentence(marker(ends=0), REGISTRY, NAMES) == f"{seen}COMMIT where A has ABORT"
    assert sentence(marker(markers=None), REGISTRY, NAMES) == f"{seen}crc differs"
    assert (
        sentence(marker(markers=None, fields=["length", "crc"]), REGISTRY, NAMES)
        == f"{seen}length, crc differ"
    )
    changed = [
        {"offset": 22, "uid": 3, "fields": ["key", "value"]},
        {"offset": 23, "uid": 4, "fields": ["value", "headers"]},
    ]
    other = marker(markers=None, changed=changed, records=[22, 23, 24])
    assert sentence(other, REGISTRY, NAMES) == f"{seen}3 records differ in key, value, headers"
    assert sentence(
        marker(markers=None, changed=changed[:1], records=[22]), REGISTRY, NAMES
    ).endswith("1 record differs in key, value")


def test_a_hanging_transaction_follows_from_the_refused_failover() -> None:
    refused = found("failover", "failover-refused", -1, "B", link="A->B", refused_over="A->B")
    hangs = found("last-stable-offset", "hanging-transaction", 7, "B", refused_over="A->B")
    other = found("last-stable-offset", "hanging-transaction", 9, "C", producer_id=4)
    assert ranked(hangs, refused, other) == [
        ("failover-refused", {"hanging-transaction": 1}),
        ("hanging-transaction", {}),
    ]


def test_a_partial_promotion_is_said_first() -> None:
    """B's own ABORT and reset, and the refusal, follow from what the refused stop did."""
    promoted = found(
        "standby-isolation",
        "partial-promotion",
        100,
        link="A->B",
        refused_over="A->B",
        records=2,
        failover="forced",
        how="was refused with NOT_STOPPED (145)",
        extent="partial",
        promoted=1,
        partitions=10,
    )
    strangers = [
        found("byte-equality", "byte-stranger", at, source="A", producer_id=3) for at in (100, 101)
    ]
    refused = found("failover", "failover-refused", -1, "B", link="A->B", refused_over="A->B")
    elsewhere = found("byte-equality", "byte-stranger", 100, partition=1, source="A")
    assert ranked(*strangers, refused, promoted, elsewhere) == [
        ("partial-promotion", {"byte-stranger": 2, "failover-refused": 1}),
        ("byte-stranger", {}),
    ]
    assert sentence(promoted, REGISTRY, NAMES) == (
        "partial promotion: the forced failover over A->B was refused with NOT_STOPPED (145), and "
        "1 of 10 partitions were promoted all the same, among them A.orders-0 @ 100 on B"
    )


THERE, BACK = LinkSpec(source="A", destination="B"), LinkSpec(source="B", destination="A")


def data(offset: int, name: str, *, epoch: int = 0, at: int = 0) -> bytes:
    """One record, written in a millisecond of its own unless that is given."""
    return batch(
        offset,
        [record(name.encode(), timestamp=1_700_000_000_000 + (at or offset))],
        leader_epoch=epoch,
    )


def mark(offset: int, epoch: int) -> bytes:
    return mirror_pid_reset(offset, leader_epoch=epoch)


MIRRORED = [data(n, f"a{n}") for n in range(4)]
TAIL = [data(n, f"tail{n}") for n in range(4, 8)]
"""A's later records, which were never mirrored."""
OWN = [mark(4, 5), *(data(n, f"b{n}", epoch=5, at=1000 + n) for n in range(5, 10))]
AGAIN = [mark(10, 9), *(data(n, f"a{n}", epoch=9, at=2000 + n) for n in range(11, 14))]
"""A's records after it had followed B and was promoted again."""


Promotions = dict[tuple[str, str, int], list[int]]


def kept(*parts: list[bytes], since: int = 0) -> list[bytes]:
    every = [each for part in parts for each in part]
    return [each for each in every if int.from_bytes(each[:8], "big") >= since]


def events(
    tmp_path: Path,
    a: list[bytes],
    b: list[bytes],
    *links: LinkSpec,
    given: Promotions | None = None,
) -> list[Event]:
    logs = {}
    for name, part in (("A", a), ("B", b)):
        first = int.from_bytes(part[0][:8], "big") if part else 0
        logs[name] = batches.scan([segment(tmp_path / name, part, base_offset=first)])
    return promotions_in([(("t", 0), logs)], links or [THERE], given or {})[0]


def sides(found: list[Event]) -> list[tuple[str, str, int]]:
    return [
        (e.kind, e.cluster, e.offset) for e in found if isinstance(e, Promotion | PromotionUnknown)
    ]


UNCLEAR = [("promotion", "B", 6), ("promotion-unknown", "B", 6)]


@pytest.mark.parametrize(
    "a",
    [MIRRORED, MIRRORED + TAIL, kept(TAIL, since=6)],
    ids=["given up", "with a tail", "deleted too"],
)
def test_a_log_that_begins_in_what_its_source_has_not_may_be_its_own(
    tmp_path: Path, a: list[bytes]
) -> None:
    assert sides(events(tmp_path, a, kept(OWN, since=6))) == UNCLEAR


def test_a_promotion_is_known_from_its_record_or_from_the_user(tmp_path: Path) -> None:
    assert sides(events(tmp_path, MIRRORED, kept(OWN))) == [("promotion", "B", 4)]
    assert sides(events(tmp_path, MIRRORED, kept(OWN, since=6), given={("B", "t", 0): [4]})) == [
        ("promotion", "B", 4)
    ]


@pytest.mark.parametrize("since", [0, 2])
def test_a_log_that_still_has_mirrored_records_would_have_the_record_of_a_promotion(
    tmp_path: Path, since: int
) -> None:
    """So it was never promoted, and a record that the source lacks is a stranger."""
    assert sides(events(tmp_path, MIRRORED, kept(MIRRORED, OWN[1:], since=since))) == []


def test_a_mirror_of_what_its_source_has_deleted_is_a_mirror(tmp_path: Path) -> None:
    assert (
        sides(events(tmp_path, kept(MIRRORED, TAIL, since=6), kept(MIRRORED, TAIL[:1], since=2)))
        == []
    )
    assert sides(events(tmp_path, MIRRORED, [])) == []


def test_a_mark_that_the_source_has_deleted_came_over_the_link(tmp_path: Path) -> None:
    """B was promoted and the beginning of its log deleted; C, which follows it, still has all of
    it."""
    assert sides(events(tmp_path, kept(OWN, since=6), kept(MIRRORED, OWN[:-1]))) == []
    assert sides(events(tmp_path, kept(MIRRORED, since=2), kept(MIRRORED, OWN))) == [
        ("promotion", "B", 4)
    ]


BOTH = [THERE, BACK]
ROUND = [("promotion", "B", 4), ("promotion", "A", 10)]


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (kept(MIRRORED, OWN, AGAIN), kept(MIRRORED, OWN, AGAIN[:2]), ROUND),
        (kept(MIRRORED, OWN, AGAIN), kept(OWN, AGAIN[:2], since=6), ROUND),
        (kept(MIRRORED, OWN), kept(OWN, since=6), [("promotion", "B", 4)]),
        (kept(OWN, AGAIN, since=6), kept(OWN, AGAIN[:2], since=7),
            [("promotion", "B", 6), ("promotion", "A", 10)]),
        (kept(OWN, AGAIN, since=6), kept(OWN, since=7),
            [("promotion", "B", 6), ("promotion", "A", 10)]),
        (kept(OWN, since=4), kept(OWN, since=2), [("promotion", "B", 4)]),
        (kept(OWN[:-1], since=6), kept(OWN, since=7), UNCLEAR),
        (kept(OWN, since=6), kept(OWN[:-1], since=7), []),
        (kept(MIRRORED, TAIL), kept(OWN, since=6), UNCLEAR),
        (kept(MIRRORED, since=2), kept(MIRRORED[:-1], since=1), []),
    ],
    ids=[
        "nothing is gone", "one mark of B's", "the only one of B's", "of both, and B follows",
        "of both, and B does not yet",
        "the first is left", "no mark, B is ahead", "no mark, A is ahead", "A has not followed",
        "never promoted",
    ],
)  # fmt: skip
def test_where_the_mirror_was_turned_round_the_marks_that_are_left_are_in_turn(
    tmp_path: Path, a: list[bytes], b: list[bytes], wanted: list[tuple[str, str, int]]
) -> None:
    assert sides(events(tmp_path, a, b, *BOTH)) == wanted


def test_that_the_mirror_was_turned_round_the_first_batches_that_are_left_tell(
    tmp_path: Path,
) -> None:
    found = events(tmp_path, kept(OWN, AGAIN, since=6), kept(OWN, AGAIN[:2], since=7), *BOTH)
    assert [e.subject for e in found if e.kind == "mirror-started"] == ["B->A", "A->B"]


# Judged, on logs of a build of KIP-1279's branch.


def begun_at(
    root: Path, name: str, beginnings: tuple[int, int] | list[int], moment: str = "3-diverged"
) -> Path:
    """The logs of a cluster, without what lies before an offset of each partition."""
    for partition, since in enumerate(beginnings):
        path = KIP_1279 / moment / name / f"tx-{partition}" / f"{0:020}.log"
        left = kept([each for _, each in batches_in(path)], since=since)
        segment(root / name / f"tx-{partition}", left, base_offset=since)
    return root / name


def wanted(
    tmp_path: Path,
    *links: str,
    a: tuple[int, int] | list[int] = (0, 0),
    b: tuple[int, int] | list[int] = (23, 9),
    promotions: Promotions | None = None,
    moment: str = "3-diverged",
) -> LogsRequest:
    where = {
        name: begun_at(tmp_path, name, beginnings, moment)
        for name, beginnings in (("A", a), ("B", b))
    }
    return asked(where, *(links or ("A->B",)), promotions=promotions)


def reasons(judgement: Judgement, name: str = "byte-equality") -> CheckResult:
    return next(c for c in judgement.checks if c.name == name)


def test_a_healthy_topic_that_lost_its_mark_is_unknown_and_says_how_to_know(tmp_path: Path) -> None:
    judgement = judged(tmp_path / "run", wanted(tmp_path))
    assert [a.kind for a in judgement.anomalies] == []
    assert judgement.verdict is Verdict.UNKNOWN
    assert "say it with --promotion B:tx-0=OFFSET" in reasons(judgement).reason
    assert reasons(judgement, "sequence-continuity").verdict is Verdict.VALID


def test_a_declared_promotion_suffices_after_all_mirrored_records_are_deleted(
    tmp_path: Path,
) -> None:
    said = {("B", "tx", 0): [21], ("B", "tx", 1): [8]}
    judgement = judged(tmp_path / "run", wanted(tmp_path, promotions=said))
    assert (judgement.verdict, reasons(judgement).verdict) == (Verdict.VALID, Verdict.NOT_DUE)


def test_a_partition_without_its_mark_does_not_prevent_judging_the_other(
    tmp_path: Path,
) -> None:
    judgement = judged(tmp_path / "run", wanted(tmp_path, b=(23, 0)))
    assert reasons(judgement).verdict is Verdict.UNKNOWN
    assert reasons(judgement).examined["B/mirrored"] > 0
    assert "tx-1" not in reasons(judgement).reason


def test_a_round_trip_that_lost_its_first_mark_on_both_sides_is_equal(tmp_path: Path) -> None:
    judgement = judged(
        tmp_path / "run",
        wanted(tmp_path, "A->B", "B->A", a=(24, 11), b=(24, 11), moment="5-a-stopped"),
    )
    assert [a.kind for a in judgement.anomalies] == []


def test_a_log_with_something_mirrored_and_no_mark_is_a_mirror_to_its_end(tmp_path: Path) -> None:
    sides = wanted(tmp_path, b=(5, 0))
    path = tmp_path / "B" / "tx-0" / f"{5:020}.log"
    every = [each for _, each in batches_in(path)]
    rewrite(path, [each for each in every if field_of(each, "base_offset") not in (21, 22)])
    judgement = judged(tmp_path / "run", sides)
    assert judgement.verdict is Verdict.INVALID


ONE_WAY, BOTH_WAYS = ("A->B",), ("A->B", "B->A")
MOMENTS = {
    "2-after-stop": ONE_WAY,
    "3-diverged": ONE_WAY,
    "4-after-failback": BOTH_WAYS,
    "5-a-stopped": BOTH_WAYS,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_wherever_healthy_logs_begin_nothing_is_found_in_them(tmp_path: Path, moment: str) -> None:
    random = Random(moment)
    for number in range(6):
        beginnings: dict[str, Any] = {}
        for name in "AB":
            paths = [KIP_1279 / moment / name / f"tx-{p}" / f"{0:020}.log" for p in (0, 1)]
            beginnings[name.lower()] = [
                random.choice([field_of(d, "base_offset") for _, d in batches_in(path)])
                for path in paths
            ]
        folder = tmp_path / str(number)
        judgement = judged(
            folder / "run", wanted(folder, *MOMENTS[moment], **beginnings, moment=moment)
        )
        # One transaction of these logs was committed on A once B had aborted it.
        found = [
            (a.kind, a.cluster, a.topic, a.partition, a.offset)
            for a in judgement.anomalies
            if a.kind != "outcome-split"
        ]
        assert found == [], beginnings
