"""Both sides of a topic to take over: checks that they are the topics that were mirrored, and reads
their logs' epochs."""

from __future__ import annotations

from linkflap.harness.mirrors.shadow.destination.picture import MetadataSnapshot
from linkflap.harness.mirrors.shadow.failback.follower import Leaders, epochs_of
from linkflap.harness.mirrors.shadow.log.leader_epochs import Lineage
from linkflap.harness.mirrors.shadow.settings import FIRST_BROKER_ID, TakenTopic
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.topology import TopicPartition

Logs = dict[TopicPartition, tuple[Lineage, int]]


def refuse_another(
    name: str, topic: TakenTopic, there: MetadataSnapshot, here: MetadataSnapshot, link: str
) -> None:
    """Raises InputError for a topic that is no longer the mirrored one on either side, or has more
    partitions at the destination."""
    if str(here.topics[name].id) != topic.destination_id:
        raise InputError(
            f"topic {name} exists on the destination of {link} but is not the one that was "
            f"mirrored from there (its id is {here.topics[name].id}, the mirrored one's was "
            f"{topic.destination_id}); remove it there, and it is copied"
        )
    if name not in there.topics or str(there.topics[name].id) != topic.source_id:
        raise InputError(
            f"topic {name} at the source of {link} is not the one that was promoted there (id "
            f"{topic.source_id}), so its records cannot continue the destination's log; "
            "remove it on both sides, or leave the clusters as they are"
        )
    mine, theirs = len(here.topics[name].partitions), len(there.topics[name].partitions)
    if mine > theirs:
        raise InputError(
            f"topic {name} has {mine} partitions on the destination of {link} and {theirs} at "
            f"its source; add partitions at the source until it has {mine} too"
        )


async def logs_of(leaders: Leaders, found: MetadataSnapshot, tps: list[TopicPartition]) -> Logs:
    """Partition -> (leader epochs, log end) on one side. Raises EnvironmentFailure where no real
    broker leads."""
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for topic, number in tps:
        led = found.topics[topic].partitions[number]
        if not 0 <= led.leader < FIRST_BROKER_ID or led.leader not in found.brokers:
            raise EnvironmentFailure(
                f"no broker of its own cluster leads {topic}-{number}; start the brokers that "
                "have it"
            )
        by_leader.setdefault(led.leader, {})[topic, number] = led.epoch
    logs: Logs = {}
    for leader, latest in by_leader.items():
        logs |= await epochs_of(leaders.at(found.brokers[leader]), latest)
    return logs
