"""What a broker makes of its metadata log when it starts."""

from __future__ import annotations

from typing import Final

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from linkflap.chaos.cases.bench import ONE, WITHIN, Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.harness.log.layout import LOG_APPEND_TIME
from linkflap.harness.model.wait import until

SETTING: Final = "message.timestamp.type"


@case(
    "deleted-topic-settings",
    ONE,
    claim={"removed_first": False},
    control={"removed_first": True},
)
def deleted_topic_settings(bench: Bench, *, removed_first: bool) -> Observation:
    """A topic is deleted and created again, and its broker is killed and started."""
    topic = bench.topic(config={SETTING: "LogAppendTime"})
    admin = bench.admin()
    if removed_first:
        _remove_setting(admin, topic)
    admin.delete_topics([topic])[topic].result(WITHIN)
    until(
        lambda: topic not in admin.list_topics(timeout=WITHIN).topics,
        within=WITHIN,
        what=f"the broker to have deleted {topic}",
        every=0.1,
    )
    bench.topic()  # has the same name
    bench.write(topic, [b"before"])
    broker = bench.broker()
    described = {"before": _own_settings(bench, topic)}
    broker.kill()
    broker.start()
    bench.led(topic)
    bench.write(topic, [b"after"])
    described["after"] = _own_settings(bench, topic)
    types = [
        "LogAppendTime" if batch.attributes & LOG_APPEND_TIME else "CreateTime"
        for batch in bench.log(topic)
    ]
    facts = {"described": described, "timestamp_types": types}
    return Observation(shown=types[-1] == "LogAppendTime", facts=facts)


def _remove_setting(admin: AdminClient, topic: str) -> None:
    entry = ConfigEntry(SETTING, "", incremental_operation=AlterConfigOpType.DELETE)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(WITHIN)


def _own_settings(bench: Bench, topic: str) -> dict[str, str | None]:
    """The settings that the broker describes as the topic's own."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = bench.admin()
    found = admin.describe_configs([resource])[resource].result(WITHIN)
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: entry.value for name, entry in found.items() if entry.source == own}
