"""ACLs that a mirror syncs, and synced group offsets that are beyond the log, of a later epoch,
stale, or of a group of another type (KIP-1279)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial
from typing import Final

from linkflap.chaos.cases import wire
from linkflap.chaos.cases.bench import ONE, PAIR, WITHIN, Bench, wait_for
from linkflap.chaos.cases.branch_mirror import branch_mirror
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clients import CaseMember, RawJavaConsumer
from linkflap.chaos.cases.wire import Wire
from linkflap.harness.mirrors.cluster_mirroring import comparison
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.model.wait import pause
from linkflap.harness.wire import messages

WATCHED: Final = 20.0
"""Seconds for which ACLs are watched: ten refreshes of the mirror's metadata."""
EVERY: Final = 0.1


@case("KIP-1279-acls-after-promotion", PAIR, claim={"deleted": False}, control={"deleted": True})
def acls_after_promotion(bench: Bench, *, deleted: bool) -> Observation:
    """B is promoted, and ACLs are made on a topic of its own; `deleted`: its mirror is deleted
    before."""
    topic = bench.topic()
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(1)
        mirror.promoted(1)
        if deleted:
            mirror.admin.delete(mirror.name)
        own = bench.topic("own", cluster="B")
        if not comparison.make_acls(bench.admin("B"), [own]):
            raise EnvironmentFailure("B keeps no ACLs")
        held = partial(_acls_on, bench, own)
        wait_for(f"B to have the ACLs on {own}", held, every=0.05)
        began = time.monotonic()
        while held() and time.monotonic() - began < WATCHED:
            pause(EVERY, lambda: False)
        seconds = round(time.monotonic() - began, 1)
        left = held()
        states = dict(mirror.states())
    facts = {"acls_left": left, "watched_for": seconds, "states_at_the_end": states}
    return Observation(shown=left < comparison.ACLS_PER_TOPIC, facts=facts)


def _acls_on(bench: Bench, topic: str) -> int:
    """How many of the ACLs that were made on it B has."""
    return len((comparison.acls_of(bench.admin("B"), [topic]) or {}).get(topic, ()))


INTO_C: Final = Topology(
    clusters=tuple(ClusterSpec(name=name) for name in "ABC"),
    links=(LinkSpec(source="A", destination="C"), LinkSpec(source="B", destination="C")),
)


@case("KIP-1279-acls-of-two-mirrors", INTO_C, claim={"both": True}, control={"both": False})
def acls_of_two_mirrors(bench: Bench, *, both: bool) -> Observation:
    """`both`: a second mirror leads to C, of a topic of B."""
    sources = "AB" if both else "A"
    topics = {source: bench.topic(cluster=source) for source in sources}
    with ExitStack() as mirrors:
        for source, topic in topics.items():
            if not comparison.make_acls(bench.admin(source), [topic]):
                raise EnvironmentFailure(f"{source} keeps no ACLs")
            mirror = mirrors.enter_context(branch_mirror(bench, topic, "C", source=source))
            mirror.mirrors(1)
        for topic in topics.values():
            wait_for(f"C to have the ACLs on {topic}", partial(_holds, bench, topic), every=EVERY)
        missing = dict.fromkeys(sources, 0)
        went = dict.fromkeys(sources, 0)
        here = dict.fromkeys(sources, True)
        asked = 0
        began = time.monotonic()
        while time.monotonic() - began < WATCHED:
            held = _held(bench, topics.values())
            asked += 1
            for source, topic in topics.items():
                missing[source] += not held[topic]
                went[source] += here[source] and not held[topic]
                here[source] = held[topic]
            pause(EVERY, lambda: False)
    return Observation(
        shown=any(went.values()),
        facts={"asked": asked, "without_those_of": missing, "times_that_they_went": went},
    )


def _held(bench: Bench, topics: Collection[str]) -> dict[str, bool]:
    """Topic -> whether C has the ACLs that were made on it."""
    found = comparison.acls_of(bench.admin("C"), topics) or {}
    return {topic: len(found.get(topic, ())) == comparison.ACLS_PER_TOPIC for topic in topics}


def _holds(bench: Bench, topic: str) -> bool:
    return _held(bench, [topic])[topic]


BEYOND = 10


@case("VK12-commit-beyond-the-end", ONE, claim={"clamped": False}, control={"clamped": True})
def commit_beyond_end(bench: Bench, *, clamped: bool) -> Observation:
    """The data are 10 records behind the synced offset; the group comes back while the application
    writes on."""
    topic = bench.topic()
    group = bench.name("group")
    bench.write(topic, [b"mirrored"] * 5)
    end = bench.bound("high", topic)
    asked = bench.ask(bench.coordinator(group, 0))
    committed = end if clamped else end + BEYOND
    error = asked.commit_offset(group, (topic, 0), committed)
    bench.write(topic, [b"after the failover"] * BEYOND)
    read = _read_on(bench, topic, group, end + BEYOND)
    skipped = [offset for offset in range(end, end + BEYOND) if offset not in read]
    facts = {
        "log_end_at_failover": end,
        "committed": committed,
        "commit": error,
        "read": read,
        "skipped": skipped,
    }
    return Observation(shown=error == "none" and bool(skipped), facts=facts)


def _read_on(bench: Bench, topic: str, group: str, end: int) -> list[int]:
    """The offsets that the group gets before its position is the log's end; one more record shows
    that it reads."""
    consumer = bench.consumer(group, auto_offset_reset="latest", enable_partition_eof=True)
    consumer.subscribe([topic])
    read: list[int] = []
    written = False

    def read_up() -> bool:
        nonlocal written
        for message in consumer.consume(100, 0.2):
            if message.error() is None:
                read.append(message.offset() or 0)
            elif not written:
                bench.write(topic, [b"last"])
                written = True
        return bool(read) and read[-1] >= end

    wait_for(f"group {group} to read the last record", read_up, state=lambda: read)
    return read


PATIENCE = 12.0
"""Seconds without a record after which a consumer of a local broker stands still; the control needs
one or two."""
AHEAD = 7


@case("JR11-committed-epoch-ahead", ONE, claim={"epoch": AHEAD}, control={"epoch": 0})
def committed_epoch_ahead(bench: Bench, epoch: int) -> Observation:
    """A committed offset whose leader epoch is above the leader's: the group's consumer stands
    still (JR11)."""
    topic = bench.topic()
    group = bench.name("group")
    bench.write(topic, [b"record"] * 10)
    asked = bench.ask(bench.coordinator(group, 0))
    error = asked.commit_offset(group, (topic, 0), 4, leader_epoch=epoch)
    poll = (
        _java(bench, topic, group)
        if bench.variant.client == "java"
        else _librdkafka(bench, topic, group)
    )
    began = time.monotonic()
    read = 0

    def some() -> bool:
        nonlocal read
        read += poll()
        return read > 0

    try:
        wait_for("a record", some, within=PATIENCE if epoch else WITHIN)
    except DeadlineExceeded:
        read = 0
    facts = {
        "committed_epoch": epoch,
        "leader_epoch": asked.leadership(topic)[0].epoch,
        "commit": error,
        "records": read,
        "seconds": round(time.monotonic() - began, 1),
    }
    return Observation(shown=error == "none" and read == 0, facts=facts)


def _librdkafka(bench: Bench, topic: str, group: str) -> Callable[[], int]:
    consumer = bench.consumer(group)
    consumer.subscribe([topic])
    return lambda: sum(message.error() is None for message in consumer.consume(100, 0.5))


def _java(bench: Bench, topic: str, group: str) -> Callable[[], int]:
    consumer = RawJavaConsumer(bench.java(), bench.bootstrap(), group, {})
    consumer.subscribe(topic)
    bench.closing(consumer)
    return lambda: len(consumer.poll(0.5))


@case("VK10-group-clash", ONE, claim={"same_id": True}, control={"same_id": False})
def group_clash(bench: Bench, *, same_id: bool) -> Observation:
    """VK10: a share group cannot have the id of a group whose offsets were synced, and only its
    members' first heartbeat says so."""
    topic, group = bench.topic(), bench.name("group")
    bench.write(topic, [b"record"])
    asked = bench.ask(bench.coordinator(group, 0))
    synced = asked.commit_offset(group, (topic, 0), 1)
    m = messages.request("share_group_heartbeat", 1)
    join = m.ShareGroupHeartbeatRequest(
        group_id=group if same_id else bench.name("another"),
        member_id=str(uuid.uuid4()),
        member_epoch=0,
        rack_id=None,
        subscribed_topic_names=(topic,),
    )
    answer = asked.call("share_group_heartbeat", 1, join)
    facts = {
        "offset_commit": synced,
        "type_by_list_groups": _type(asked, group),
        "share_group_heartbeat": str(answer.error_code.name),
        "message": answer.error_message,
    }
    return Observation(
        shown=synced == "none" and answer.error_code != messages.Error.none, facts=facts
    )


def _type(asked: Wire, group: str) -> str:
    """The answer that a check before the failover would get: ListGroups names the type of a group
    (KIP-848, version 5)."""
    m = messages.request("list_groups", 5)
    found = asked.call("list_groups", 5, m.ListGroupsRequest(states_filter=(), types_filter=()))
    return next(
        (str(one.group_type) for one in found.groups if one.group_id == group), "not listed"
    )


MIRRORED: Final = 50
TAIL: Final = 100
"""Records that A alone has: the group has processed them, and committed."""
OF_B: Final = 200
"""Records that are written to B once it was promoted."""
PROCESSED: Final = 30
"""Records of B that the group has processed there."""
SYNCS: Final = 10.0
"""Seconds in which offsets of groups are synced several times: there is a refresh every two."""
OWNER: Final = "case"


@case("KIP-1279-stale-group-offset", PAIR, claim={"dies": True}, control={"dies": False})
def stale_group_offset(bench: Bench, *, dies: bool) -> Observation:
    """The group's member on A dies with A, or leaves the group before."""
    topic, group = bench.topic(), bench.name("group")
    brokers = bench.cluster("A").brokers.values()
    link = bench.deployment.links["A->B"]
    bench.write(topic, [b"of both %d" % n for n in range(MIRRORED)])
    with branch_mirror(bench, topic, groups=".*") as away:
        away.mirrors(1)
        bench.ends_at(MIRRORED, topic)
        try:
            link.add_toxic("timeout", "responses", {"timeout": 0}, owner=OWNER)
            bench.write(topic, [b"of A %d" % n for n in range(TAIL)])
            member = _committed_up_to(bench, topic, group, MIRRORED + TAIL)
            if not dies:
                member.close()
            for broker in brokers:
                broker.pause()
            away.promoted(1)
            for broker in brokers:
                broker.kill()
        finally:
            link.clear(owner=OWNER)
    if dies:
        member.close()
    first = bench.bound("high", topic, cluster="B")
    bench.write(topic, [b"of B %d" % n for n in range(OF_B)], cluster="B")
    on_b = bench.ask(bench.coordinator(group, wire.GROUP, "B"))
    on_b.commit_offset(group, (topic, 0), first + PROCESSED)
    bench.settle()
    with branch_mirror(bench, topic, "A", source="B", groups=".*") as back:
        back.mirrors(1)
        bench.ends_at(bench.bound("high", topic, cluster="B"), topic, cluster="A")
        pause(SYNCS, lambda: False)
        on_a = bench.ask(bench.coordinator(group, wire.GROUP))
        synced = on_a.committed(group, (topic, 0))
        back.promoted(1)
    begun = _first_of_b(bench, topic, group)
    facts = {
        "committed_on_A_before": MIRRORED + TAIL,
        "promoted_at": first,
        "committed_on_B": first + PROCESSED,
        "committed_on_A_after_syncs": synced,
        "first_read_on_A": begun,
        "skipped": max(0, begun - first - PROCESSED),
    }
    return Observation(shown=begun > first + PROCESSED, facts=facts)


def _committed_up_to(bench: Bench, topic: str, group: str, end: int) -> CaseMember:
    """A member of the group on A that has read all, and committed it."""
    member = bench.member(group, enable_auto_commit="true", auto_commit_interval_ms="200")
    member.subscribe(topic)
    on_a = bench.ask(bench.coordinator(group, wire.GROUP))

    def committed() -> bool:
        member.poll(0.2)
        return on_a.committed(group, (topic, 0)) == end

    wait_for(f"group {group} to have committed {end}", committed)
    return member


def _first_of_b(bench: Bench, topic: str, group: str) -> int:
    """The first offset that the group gets when it is back on A."""
    member = bench.member(group)
    member.subscribe(topic)
    read = wait_for(f"group {group} to read on A", lambda: member.poll(0.5), within=2 * WITHIN)
    return read[0][0]
