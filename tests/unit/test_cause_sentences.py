"""The sentence of a cause: it names the cluster, partition and offset."""

from __future__ import annotations

from string import Formatter
from typing import Any

import pytest

from linkflap.harness.model.verdict import Anomaly
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.verdict.sentences import begin, kind_of, sentence
from linkflap.spark_verify.verdict.shown import show
from tests.unit.found_anomalies import ALL, NAMES, collision, found, ghost, lost, uid, unseen


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
