"""VK10: a share group cannot have the id of a group whose offsets were synced, and only its
members' first heartbeat says so."""

from __future__ import annotations

import uuid

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.wire import Wire
from linkflap.harness.wire import messages


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
    """What a check before the failover would see: ListGroups says of which type the group is
    (KIP-848, version 5)."""
    m = messages.request("list_groups", 5)
    found = asked.call("list_groups", 5, m.ListGroupsRequest(states_filter=(), types_filter=()))
    return next(
        (str(one.group_type) for one in found.groups if one.group_id == group), "not listed"
    )
