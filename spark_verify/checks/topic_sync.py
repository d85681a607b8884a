"""topic-sync: a mirror's destination has the source's topics, with as many partitions and the same
settings and ACLs (KIP-1279).

Topics that are created, grown or reconfigured while a mirror runs are synced at each refresh of its
metadata. The check compares them at the end of a run, when everything was copied and the mirror had
time for many refreshes: a difference then is not a delay. Settings that a mirror leaves out by
default are not compared, nor those that only the destination has: removing a setting from the
source does not remove it there.

Another mirror has settings of its own on its topics while it mirrors (no retention, no compaction),
and a failover gives them back those of their home. From ten seconds later on (brokers learn of it
one after the other) the samples of the promoted cluster's topics have to equal the home's last ones
in both directions, until the cluster follows another or a fault changes them. The home may have
changed a setting just before, which the mirror had no time to follow. The number of replicas that
have to be in sync is a choice of each cluster: it is the home's when the topic was made, or as many
replicas as there can be.

A mirror that syncs settings leaves them where they are when it stops: after a failover those that
it syncs have to be the home's last ones in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from linkflap.harness.model.faults import UNCLEAN
from linkflap.harness.model.scenario import IN_SYNC, Scenario
from linkflap.harness.model.topology import DISKLESS, LinkSpec
from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Due,
    Examined,
    Finding,
    Found,
    Unjudged,
)
from linkflap.spark_verify.facts.eras import on_cluster
from linkflap.spark_verify.facts.partition_facts import Comparison, LogPromotion, TopicSettings
from linkflap.spark_verify.facts.view import PartitionView

MISSING = "topic-missing"
PARTITIONS = "partitions-differ"
SETTING = "setting-differs"
ACL = "acl-differs"
SAMPLED_WITHIN = int(10e9)
"""Settings are sampled once a second; a dead cluster beside may delay that."""
FOLLOWED_WITHIN = int(15e9)
"""Nanoseconds that a mirror may take to follow a change at home."""
_NOT_COPIED = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    DISKLESS,
)
"""The first two name brokers of one cluster. What the shadow mirrors has a log on the
destination."""
_NOT_SYNCED = frozenset(
    {
        *(name for name in _NOT_COPIED if name != DISKLESS),
        IN_SYNC,
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "unclean.leader.election.enable",
    }
)
"""The settings that KIP-1279 leaves out by default (mirror.topic.properties.exclude)."""


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Judges the last comparison of each link."""
    last = {each.link: each for each in sorted(view.comparisons, key=lambda each: each.time)}
    for each in last.values():
        yield Examined(cluster=LinkSpec.parse(each.link).destination, origin="mirrored", count=1)
        yield from _differences(each)
    promised = view.guarantee.restores_settings or view.guarantee.syncs_topics
    if promised and view.settings and not view.partition:
        for promotion in view.promotions:
            yield from _restored(view, promotion)


def _restored(view: PartitionView, promotion: LogPromotion) -> Iterator[Finding]:
    """Holds what a failover left on a topic against its home's settings."""
    home, cluster = _owner(view, promotion), promotion.cluster
    over = _until(view, promotion)
    theirs = [s for s in view.settings if s.cluster == home and s.asked < promotion.fault_time]
    by = min(_sampled_by(view, promotion), over)
    if cluster in view.deaths or (over < view.ended and by == over):
        return
    ours = _after(view, promotion, by, over)
    if not theirs or not ours:
        missing = cluster if theirs else home
        yield Unjudged(f"nothing says what was set on {view.topic} on {missing}")
        return
    yield Examined(cluster=cluster, origin="mirrored", count=1)
    yield from _not_restored(view, promotion, theirs, _in_force_from(ours, by))


def _after(
    view: PartitionView, promotion: LogPromotion, by: int, over: int
) -> Sequence[TopicSettings]:
    """The samples of the promoted cluster that say what was set there from `by` to `over`."""
    return [
        s
        for s in view.settings
        if s.cluster == promotion.cluster
        and s.asked <= over
        and (s.until >= by or s.asked >= promotion.time)
    ]


def _not_restored(
    view: PartitionView,
    promotion: LogPromotion,
    theirs: Sequence[TopicSettings],
    ours: Sequence[TopicSettings],
) -> Iterator[Found]:
    """The first sample of the promoted cluster that differs from all its home may have had."""
    home, cluster = _owner(view, promotion), promotion.cluster
    wanted = _in_force_from(theirs, promotion.fault_time - FOLLOWED_WITHIN)
    for sample in ours:
        differing = [_differing(view, each, sample, theirs) for each in wanted]
        if all(differing):
            yield _other_settings(cluster, home, differing[-1], link=promotion.link)
            return


def _sampled_by(view: PartitionView, promotion: LogPromotion) -> int:
    """When the settings of a cluster were surely sampled: it may not have answered during
    faults."""
    by = promotion.time + SAMPLED_WITHIN
    for window in sorted(on_cluster(view.windows, promotion.cluster), key=lambda w: w.start):
        if window.start <= by:
            by = max(by, window.end + SAMPLED_WITHIN)
    return by


def _owner(view: PartitionView, promotion: LogPromotion) -> str:
    """The cluster whose clients owned the topic before: the source, or what it mirrored."""
    cluster, hops = promotion.source, list(view.hops())
    earlier = {p.cluster for p in view.promotions if p.time < promotion.time}
    for _ in hops:
        above = [source for source, destination in hops if destination == cluster]
        if cluster == view.home or cluster in earlier or not above:
            break
        cluster = above[0]
    return cluster


def _until(view: PartitionView, promotion: LogPromotion) -> int:
    """When a cluster follows another, or a fault begins to change its settings."""
    changes = [
        w.start
        for w in view.windows
        if w.start > promotion.time
        and (
            (w.fault == UNCLEAN and w.on.cluster == promotion.cluster)
            or ((w.name.reverses or w.name.fails_over) and w.on.source == promotion.cluster)
        )
    ]
    return min([view.ended, *changes])


def _in_force_from(samples: Sequence[TopicSettings], time: int) -> Sequence[TopicSettings]:
    """The last sample that was asked for until then, and those after it."""
    return [
        *[sample for sample in samples if sample.asked <= time][-1:],
        *(sample for sample in samples if sample.asked > time),
    ]


def _differing(
    view: PartitionView,
    theirs: TopicSettings,
    ours: TopicSettings,
    ever: Sequence[TopicSettings],
) -> Sequence[tuple[str, str | None, str | None]]:
    if view.guarantee.syncs_topics:
        synced = theirs.settings.keys() - _NOT_SYNCED - view.partition_facts.unknown_settings
        return [
            (name, theirs.settings[name], ours.settings.get(name))
            for name in sorted(synced)
            if theirs.settings[name] != ours.settings.get(name) and not name.startswith("mirror.")
        ]
    left_out = {*_NOT_COPIED, *view.partition_facts.unknown_settings, IN_SYNC}
    names = sorted((theirs.settings.keys() | ours.settings.keys()) - left_out)
    found = [(name, theirs.settings.get(name), ours.settings.get(name)) for name in names]
    here, most = ours.settings.get(IN_SYNC), view.topology.cluster(ours.cluster).brokers
    allowed = {sample.settings.get(IN_SYNC) for sample in ever}
    allowed |= {str(min(int(each), most)) for each in allowed if each is not None}
    if here not in allowed:
        found.append((IN_SYNC, theirs.settings.get(IN_SYNC), here))
    return [each for each in found if each[0] == IN_SYNC or each[1] != each[2]]


def _differences(each: Comparison) -> Iterator[Found]:
    """Differences of settings; they concern an entire topic, and have no offset."""
    source, destination = LinkSpec.parse(each.link).ends
    about = {"source": source, "there": each.there, "here": each.here}
    if not each.here:
        yield Found.at(MISSING, destination, -1, **about)
        return
    if each.here != each.there:
        yield Found.at(PARTITIONS, destination, -1, **about)
    if each.differing:
        yield _other_settings(destination, source, each.differing)
    if each.missing or each.beside:
        acls = "; ".join(
            f"{what}: {', '.join(some)}"
            for what, some in (("missing", each.missing), ("not there", each.beside))
            if some
        )
        yield Found.at(ACL, destination, -1, source=source, acls=acls)


def _other_settings(
    cluster: str,
    source: str,
    differing: Sequence[tuple[str, str | None, str | None]],
    **evidence: object,
) -> Found:
    settings = "; ".join(
        f"{name}: {_said(there)} there, {_said(here)} here" for name, there, here in differing
    )
    return Found.at(SETTING, cluster, -1, source=source, settings=settings, **evidence)


def _said(value: str | None) -> str:
    return "not set" if value is None else value


def _due(scenario: Scenario, _promotions: Sequence[LogPromotion]) -> Due:
    """A mirror that is stopped for good syncs nothing any more, and is not asked at its end."""
    fails_over = any(fault.name.fails_over for fault in scenario.schedule)
    if fails_over or not scenario.mirror.guarantee.syncs_topics:
        return ()
    return {(link.destination, "mirrored") for link in scenario.topology.links}


CHECK = Check(
    name="topic-sync",
    guarantee="""If a mirror syncs topics, its destination has each of the source's topics, with as
        many partitions, the source's settings, and its ACLs. The settings stay at a failover. A
        mirror that changes settings while it mirrors gives the topics those of their home then.""",
    source="""KIP-1279 (topics, partitions, configurations and ACLs are synced at each metadata
        refresh)""",
    inputs={"promotions"},
    anomalies=(
        AnomalyKind(
            name=MISSING,
            meaning="""A topic of the source was not on the destination at the end of the run, when
                all records had been copied and the mirror had had time to sync.""",
            sentence="{cluster} has no topic of {tp}, which {source} has with {there} partitions",
            counted="topic is missing on the destination|topics are missing on the destination",
            alone="what is written to it is not mirrored",
            smallest="A has the topic t with 2 partitions, B has no topic t: nowhere on B.",
            despite_torn=True,
        ),
        AnomalyKind(
            name=PARTITIONS,
            meaning="""A topic had another number of partitions on the destination than on the
                source, in the same situation.""",
            sentence="the topic of {tp} has {here} partitions on {cluster} and {there} on {source}",
            counted="""topic has another number of partitions|topics have another number of
                partitions""",
            alone="keys lie elsewhere than they are looked for after a failover",
            smallest="t has 2 partitions on A and 1 on B: nowhere on B.",
            despite_torn=True,
        ),
        AnomalyKind(
            name=SETTING,
            meaning="""A setting of the source's topic that mirrors sync by default had another
                value on the destination, or was not set there, in the same situation. Settings that
                only the destination has are not compared. After a failover: a setting was not the
                home's; of a mirror that restores settings also: it is set on the destination
                alone.""",
            sentence="""settings of the topic of {tp} on {cluster} are not those on {source}:
                {settings}""",
            counted="topic has other settings|topics have other settings",
            alone="after a failover the topic is kept, compacted or limited otherwise than before",
            smallest="t has retention.ms=1000 on A, and none of its own on B: nowhere on B.",
            despite_torn=True,
        ),
        AnomalyKind(
            name=ACL,
            meaning="""The ACLs on a topic were not the same on the destination as on the source, in
                the same situation.""",
            sentence="ACLs on the topic of {tp} on {cluster} are not those on {source}: {acls}",
            counted="topic has other ACLs|topics have other ACLs",
            alone="after a failover others may read or write the topic than before",
            smallest="t may be read by u on A, and B has no such ACL: nowhere on B.",
            despite_torn=True,
        ),
    ),
    kernel=kernel,
    unit="topics",
    due_at=_due,
    when="""what is mirrored by a mirror that syncs topics, in a run without a failover; and what
        was promoted by one that syncs or restores their settings, if they were sampled""",
)
