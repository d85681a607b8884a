"""topic-sync: a mirror's destination has the source's topics, with as many partitions and the same
settings and ACLs (KIP-1279).

Topics that are created, grown or reconfigured while a mirror runs are synced at each refresh of its
metadata. The check compares them at the end of a run, when everything was copied and the mirror had
time for many refreshes: a difference then is not a delay. Settings that a mirror leaves out by
default are not compared, nor those that only the destination has: removing a setting from the
source does not remove it there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from linkflap.harness.model.scenario import Scenario
from linkflap.harness.model.topology import LinkSpec
from linkflap.spark_verify.checks.base import AnomalyKind, Check, Examined, Finding, Found
from linkflap.spark_verify.facts.partition_facts import Comparison, Promotion
from linkflap.spark_verify.facts.view import Origin, PartitionView

MISSING = "topic-missing"
PARTITIONS = "partitions-differ"
SETTING = "setting-differs"
ACL = "acl-differs"


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Judges the last comparison of each link."""
    last = {each.link: each for each in sorted(view.comparisons, key=lambda each: each.time)}
    findings: list[Finding] = []
    for each in last.values():
        findings.append(
            Examined(cluster=LinkSpec.parse(each.link).destination, origin="mirrored", count=1)
        )
        findings += _differences(each)
    return findings


def _differences(each: Comparison) -> Iterator[Found]:
    """They concern an entire topic, and have no offset."""
    source, destination = LinkSpec.parse(each.link).ends
    about = {"source": source, "there": each.there, "here": each.here}
    if not each.here:
        yield Found(kind=MISSING, cluster=destination, offset=-1, evidence=about)
        return
    if each.here != each.there:
        yield Found(kind=PARTITIONS, cluster=destination, offset=-1, evidence=about)
    if each.differing:
        settings = "; ".join(
            f"{name}: {_said(there)} there, {_said(here)} here"
            for name, there, here in each.differing
        )
        yield Found(
            kind=SETTING,
            cluster=destination,
            offset=-1,
            evidence={"source": source, "settings": settings},
        )
    if each.missing or each.beside:
        acls = "; ".join(
            f"{what}: {', '.join(some)}"
            for what, some in (("missing", each.missing), ("not there", each.beside))
            if some
        )
        yield Found(
            kind=ACL, cluster=destination, offset=-1, evidence={"source": source, "acls": acls}
        )


def _said(value: str | None) -> str:
    return "not set" if value is None else value


def _due(scenario: Scenario, _promotions: Sequence[Promotion]) -> Collection[tuple[str, Origin]]:
    """A mirror that is stopped for good syncs nothing any more, and is not asked at its end."""
    fails_over = any(fault.name.fails_over for fault in scenario.schedule)
    if fails_over or not scenario.mirror.guarantee.syncs_topics:
        return ()
    return {(link.destination, "mirrored") for link in scenario.topology.links}


CHECK = Check(
    name="topic-sync",
    guarantee=(
        "If a mirror syncs topics, its destination has each of the source's topics, with as "
        "many partitions, the source's settings, and its ACLs."
    ),
    source=(
        "KIP-1279 (topics, partitions, configurations and ACLs are synced at each metadata refresh)"
    ),
    inputs=frozenset({"promotions"}),
    anomalies=(
        AnomalyKind(
            name=MISSING,
            meaning=(
                "A topic of the source was not on the destination at the end of the run, when "
                "all records had been copied and the mirror had had time to sync."
            ),
            sentence="{cluster} has no topic of {tp}, which {source} has with {there} partitions",
            counted="topic is missing on the destination|topics are missing on the destination",
            alone="what is written to it is not mirrored",
            smallest="A has the topic t with 2 partitions, B has no topic t: nowhere on B.",
            despite_torn=True,
        ),
        AnomalyKind(
            name=PARTITIONS,
            meaning=(
                "A topic had another number of partitions on the destination than on the source, in"
                " the same situation."
            ),
            sentence="the topic of {tp} has {here} partitions on {cluster} and {there} on {source}",
            counted=(
                "topic has another number of partitions|topics have another number of partitions"
            ),
            alone="keys lie elsewhere than they are looked for after a failover",
            smallest="t has 2 partitions on A and 1 on B: nowhere on B.",
            despite_torn=True,
        ),
        AnomalyKind(
            name=SETTING,
            meaning=(
                "A setting of the source's topic that mirrors sync by default had another "
                "value on the destination, or was not set there, in the same situation. "
                "Settings that only the destination has are not compared."
            ),
            sentence=(
                "settings of the topic of {tp} on {cluster} are not those on {source}: {settings}"
            ),
            counted="topic has other settings|topics have other settings",
            alone="after a failover the topic is kept, compacted or limited otherwise than before",
            smallest="t has retention.ms=1000 on A, and none of its own on B: nowhere on B.",
            despite_torn=True,
        ),
        AnomalyKind(
            name=ACL,
            meaning=(
                "The ACLs on a topic were not the same on the destination as on the source, in the "
                "same situation."
            ),
            sentence="ACLs on the topic of {tp} on {cluster} are not those on {source}: {acls}",
            counted="topic has other ACLs|topics have other ACLs",
            alone="after a failover others may read or write the topic than before",
            smallest="t may be read by u on A, and B has no such ACL: nowhere on B.",
            despite_torn=True,
        ),
    ),
    complete=frozenset({"promotions"}),
    kernel=kernel,
    unit="topics",
    due_at=_due,
    when="what is mirrored by a mirror that syncs topics, in a run without a failover",
)
