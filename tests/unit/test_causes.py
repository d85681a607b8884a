"""Causes: anomalies are ranked, grouped under their cause, and summed up in one sentence that
names the cluster, partition and offset."""

from __future__ import annotations

from dataclasses import replace
from graphlib import TopologicalSorter
from string import Formatter
from typing import Any

import pytest

from linkflap.harness.model.payload import PROCESS_SHIFT
from linkflap.harness.model.verdict import Anomaly
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.last_stable_offset import LINGERING
from linkflap.spark_verify.verdict.causes import TRACED, rank
from linkflap.spark_verify.verdict.judge import EXAMPLES, show
from linkflap.spark_verify.verdict.sentences import (
    SentenceNames,
    allowed_in_words,
    begin,
    kind_of,
    labels,
    number_of,
    sentence,
)

# Anomalies as checks find them, and the causes under which they are ranked.


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


def visible(cluster: str = "B", offset: int = 20, **evidence: object) -> Anomaly:
    known: dict[str, Any] = {"uid": uid(9, 3), "records": 2, "source": "A", "state": "aborted"}
    return found("order-equality", "mirrored-aborted", offset, cluster, **(known | evidence))


def split() -> Anomaly:
    """That transaction has another outcome on A."""
    of: dict[str, Any] = {"producer_id": 3, "first_offset": 20, "source": "A"}
    return found("marker-pairing", "outcome-split", 22, **of, outcomes=["ABORT", "COMMIT"])


def words_of(anomaly: Anomaly) -> str:
    return sentence(anomaly, REGISTRY, NAMES)


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


def test_anomaly_on_another_cluster_is_no_consequence() -> None:
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
    shown_as_data = visible(records=10, source_offset=20)
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


@pytest.mark.parametrize(
    ("check", "kind", "one", "other"),
    [
        (
            "marker-pairing", "transaction-left-open",
            {"producer_id": 6, "producer_epoch": 1}, {"producer_id": 7, "producer_epoch": 1},
        ),
        (
            "marker-pairing", "outcome-split",
            {"producer_id": 6, "producer_epoch": 1}, {"producer_id": 7, "producer_epoch": 1},
        ),
        ("last-stable-offset", "hanging-transaction", {"producer_id": 6}, {"producer_id": 7}),
        ("torn-transaction", "torn-transaction", {"operation": 6}, {"operation": 7}),
        ("commit-aborted", "commit-aborted", {"operation": 6}, {"operation": 7}),
    ],
)  # fmt: skip
def test_a_transaction_of_several_partitions_is_counted_once(
    check: str, kind: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    wide = [found(check, kind, 4, partition=n, records=5, **one) for n in range(3)]
    declared = kind_of(check, kind, REGISTRY)
    assert declared is not None
    assert number_of(REGISTRY[check], declared, wide) == 1
    elsewhere = replace(wide[0], cluster="C")
    again = replace(wide[0], offset=90)  # two of one producer in one partition
    for more in (elsewhere, again, found(check, kind, 4, records=5, **other)):
        assert number_of(REGISTRY[check], declared, [*wide, more]) == 2


def test_log_line_is_quoted_in_the_cause() -> None:
    said = show(
        [lost(12, 0)], ALL, REGISTRY, NAMES, logged=lambda several: ["B/1 said no"] * len(several)
    ).cause
    assert said.endswith("; B/1 said no.")


def test_cause_names_one_consequence_of_each_check_harm_to_clients_first() -> None:
    hole = found("order-equality", "mirror-hole", 22, uid=uid(7, 0), source="A", source_offset=22)
    phantom = found("order-equality", "mirror-phantom", 22, uid=uid(8, 0), source="A")
    sample = found("last-stable-offset", "lso-mismatch", 23, last_stable=23, recomputed=3)
    said = show([marker(), hole, phantom, lost(22, 0), sample], ALL, REGISTRY, NAMES).cause
    assert said.endswith("; 1 mirrored record is missing, 1 acknowledged write is lost, "
                         "1 sample of the last stable offset "
                         "contradicts the bytes.")  # fmt: skip


def test_allowed_anomaly_is_no_cause() -> None:
    allowed = found("order-equality", "mirrored-duplicate", 5, allowed=True, uid=uid(7, 0))
    assert ranked(allowed, found("duplicate", "mirrored-duplicate", 5, uid=uid(7, 0))) == [
        ("mirrored-duplicate", {})
    ]
    assert ranked(allowed) == []


def test_allowed_anomalies_are_counted_in_words() -> None:
    twice = [
        found("order-equality", "mirrored-duplicate", at, allowed=True, uid=uid(7, at), records=3)
        for at in (5, 9)
    ]
    always = found("last-stable-offset", LINGERING, 3, allowed=True)
    wrong = found("duplicate", "duplicate", 5, uid=uid(7, 0))
    by_another = [
        found("duplicate", "mirrored-duplicate", at, allowed=True, uid=uid(7, at), records=3)
        for at in (5, 9)
    ]
    said = allowed_in_words([*twice, *by_another, wrong, always], REGISTRY)
    assert said == "6 records were mirrored twice"
    elsewhere = [replace(each, cluster="C") for each in twice]
    assert allowed_in_words([*twice, *elsewhere], REGISTRY) == (
        "6 records were mirrored twice on B, 6 records were mirrored twice on C"
    )


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


def test_consequences_beyond_the_traced_ones_are_counted_with_the_first() -> None:
    anomalies = [ghost(n, n) for n in range(TRACED + 5)] + [lost(n, n) for n in range(TRACED + 5)]
    assert ranked(*anomalies) == [("ghost-ack", {"lost-write": TRACED + 5})]


def test_checks_follow_from_others_and_never_in_a_circle() -> None:
    graph = {name: check.follows for name, check in REGISTRY.items()}
    own = {
        kind.name: kind.follows
        for check in REGISTRY.values()
        for kind in check.anomalies
        if kind.follows is not None
    }
    assert not own.keys() & graph.keys()
    graph |= own
    assert set().union(*graph.values()) <= set(graph)
    TopologicalSorter(graph).prepare()


def shortened(broker: int, end: int, was: int, partition: int = 0) -> Anomaly:
    """A replica that lost committed records."""
    return found(
        "last-stable-offset", "replica-end-regression", end, partition=partition,
        broker=broker, log_end=end, high_watermark=was, before={"log_end": was},
    )  # fmt: skip


MISSING = found("replica-agreement", "replica-missing", 60, brokers=[2, 3], missing_on=2)
"""Broker 2 lacks a batch at 60."""


def test_shortened_replica_causes_missing_batches_there_and_on_the_mirror() -> None:
    hole = found("byte-equality", "byte-hole", 60, source="A", batch=[60, 60])
    state = found("last-stable-offset", "lso-regression", 0, last_stable=0)
    assert ranked(hole, MISSING, state, shortened(2, 0, 100)) == [
        ("replica-end-regression", {"replica-missing": 1, "byte-hole": 1, "lso-regression": 1})
    ]


def test_replicas_that_differ_are_still_among_the_first_causes() -> None:
    stalled = found("progress", "stalled", cluster="A")
    hole = found("byte-equality", "byte-hole", 60, source="A", batch=[60, 60])
    assert ranked(stalled, hole, MISSING) == [
        ("replica-missing", {"byte-hole": 1}),
        ("stalled", {}),
    ]


@pytest.mark.parametrize(
    "lost",
    [shortened(1, 0, 100), shortened(2, 0, 60), shortened(2, 61, 100), shortened(2, 0, 100, 1)],
    ids=["other broker", "ended before", "kept it", "other partition"],
)
def test_a_batch_that_a_replica_did_not_lose_so_is_missing_for_another_reason(
    lost: Anomaly,
) -> None:
    assert ranked(MISSING, lost) == [
        ("replica-end-regression", {}),
        ("replica-missing", {}),
    ]


def test_anomaly_of_an_unknown_check_is_no_cause() -> None:
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
    assert words_of(bare) == f"B A.orders-0 @ 12: t{meaning[1:].rstrip('.')}"
    assert words_of(found("gone", "of-old", 3)) == "B A.orders-0 @ 3: of-old"


def test_hostile_names_are_words_and_no_format() -> None:
    hostile = Anomaly(
        check="lost-write", kind="lost-write", cluster="B", topic="{cluster.__class__}",
        partition=0, offset=1,
        evidence={"uid": 3, "how": "{0} {evil}"},
    )  # fmt: skip
    assert "{cluster.__class__}-0 @ 1, is lost: {0} {evil}" in words_of(hostile)


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
    return begin(words_of(Anomaly(check=check, kind=kind, evidence=evidence, **position)))


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
    mirror: dict[str, Any] = {"link": "A->B", "mirrored": 9, "promoted": 7}
    check, topic = "truncation-accounting", "A.orders"
    steps: dict[str, Any] = {"truncated": [], "appended": []}
    said = in_words(check, "promotion-unaccounted", 7, topic, **mirror, **steps)
    begun = "The mirror A->B says that it mirrored A.orders-0 on B to 9 and promoted it at 7"
    assert said == f"{begun}, and its truncations and markers do not lead from the one to the other"
    reported: dict[str, Any] = {"end": 9, "truncated_to": 7, "before": 0}
    holds = {"base": 7, "leader_epoch": 0}
    said = in_words(check, "truncation-not-made", 7, topic, **mirror, **reported, holds=holds)
    begun = "The mirror A->B says that it truncated A.orders-0 on B from 9 to 7"
    assert said == f"{begun}, and the log still has a batch of before"


def test_anomalies_at_records_of_a_transaction_follow_from_its_marker() -> None:
    read = found("aborted-read", "aborted-read", 20, uid=uid(9, 3), records=2, reader="readers-1")
    elsewhere = visible(offset=23, uid=uid(9, 9), records=1)
    assert ranked(split(), read, marker(), visible(), elsewhere) == [
        ("byte-divergence", {"mirrored-aborted": 1, "outcome-split": 1, "aborted-read": 1}),
        ("mirrored-aborted", {}),
    ]


@pytest.mark.parametrize("joined", [True, False])
def test_two_roots_with_a_common_consequence_are_one_where_the_one_can_follow_from_the_other(
    joined: bool,
) -> None:
    """The marker is at 22 and the records are at 20; the anomaly of two outcomes concerns both."""
    root = marker(first_offset=22) if joined else found("internal-topics", "log-disorder", 22)
    causes = ranked(split(), root, visible())
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
        words_of(marker())
        == f"{seen}COMMIT where A has ABORT, so 2 records that A aborted are visible on B"
    )
    hidden = marker(ours="ABORT", ends=1)
    assert (
        words_of(hidden)
        == f"{seen}ABORT where A has COMMIT, so 1 record that A committed is hidden on B"
    )
    assert words_of(marker(ends=0)) == f"{seen}COMMIT where A has ABORT"
    assert words_of(marker(markers=None)) == f"{seen}crc differs"
    assert words_of(marker(markers=None, fields=["length", "crc"])) == f"{seen}length, crc differ"
    changed = [
        {"offset": 22, "uid": 3, "fields": ["key", "value"]},
        {"offset": 23, "uid": 4, "fields": ["value", "headers"]},
    ]
    other = marker(markers=None, changed=changed, records=[22, 23, 24])
    assert words_of(other) == f"{seen}3 records differ in key, value, headers"
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
    assert words_of(promoted) == (
        "partial promotion: the forced failover over A->B was refused with NOT_STOPPED (145), and "
        "1 of 10 partitions were promoted all the same, among them A.orders-0 @ 100 on B"
    )
