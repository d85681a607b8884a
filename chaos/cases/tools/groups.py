"""Members of consumer groups (KIP-848), each heartbeat sent by hand."""

from __future__ import annotations

from datetime import timedelta

from linkflap.chaos.cases.tools.wire import Wire
from linkflap.harness.model.wait import until
from linkflap.harness.wire import messages
from linkflap.harness.wire.messages import Error, Message

JOIN, LEAVE = 0, -1
"""The epochs with which a member joins its group and leaves it."""


def heartbeat(asked: Wire, group: str, member: str, epoch: int, topic: str) -> int:
    """The member's epoch after a heartbeat that the coordinator took. Raises DeadlineExceeded when
    it takes none."""
    m = messages.request("consumer_group_heartbeat", 1)
    body = m.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        instance_id=None,
        rack_id=None,
        rebalance_timeout=timedelta(seconds=30),
        subscribed_topic_names=(topic,),
        subscribed_topic_regex=None,
        server_assignor=None,
        topic_partitions=(),
    )
    answer: Message = None

    def accepted() -> bool:
        nonlocal answer
        answer = asked.call("consumer_group_heartbeat", 1, body)
        return bool(answer.error_code == Error.none)

    until(
        accepted,
        within=60,
        what=f"group {group} to take a heartbeat",
        every=0.1,
        state=lambda: answer,
    )
    return int(answer.member_epoch)
