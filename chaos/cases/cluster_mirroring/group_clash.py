"""VK10: a share group cannot have the id of a group whose offsets were synced, and only its
members' first heartbeat says so."""

from __future__ import annotations

import uuid
from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.wire import Wire
from linkflap.harness.wire import messages


def _joined(bench: Bench, *, same_id: bool) -> Observation:
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
    """What a check before the failover would see: ListGroups says of which type the group is
    (KIP-848, version 5)."""
    m = messages.request("list_groups", 5)
    found = asked.call("list_groups", 5, m.ListGroupsRequest(states_filter=(), types_filter=()))
    return next(
        (str(one.group_type) for one in found.groups if one.group_id == group), "not listed"
    )


CASE = Case(
    name="VK10-group-clash",
    title=(
        "After a failover a share group finds its id taken by a consumer group whose offsets were "
        "synced"
    ),
    kind="proposal",
    claim_text=(
        "Consumer groups and share groups have one name space per cluster. A consumer group's "
        "offsets that are synced to the destination make its id unusable for a share group there; "
        "nothing says so before the share group's members join."
    ),
    sources=(
        "KIP-1279 discussion, VK10 (Vaquar Khan): wants a check before",
        "KIP-932, types of groups",
    ),
    expected=(Expected(shows=True, since="4.2.0", basis="runs"),),
    schedule=(
        "1. an offset of group G is committed, as a sync does; 2. a member of share group G sends "
        "its first heartbeat"
    ),
    reproduced="the heartbeat is refused",
    control_text="a share group with another id: its member joins",
    refuted="a heartbeat that is accepted",
    topology=ONE,
    claim=partial(_joined, same_id=True),
    control=partial(_joined, same_id=False),
    clients=("wire",),
    oldest="4.2.0",
)
