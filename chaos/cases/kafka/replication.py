"""Leadership, replication, and the settings of topics: KAFKA-18723, KAFKA-19522,
deleted-topic-settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from linkflap.chaos.cases import wire
from linkflap.chaos.cases.bench import (
    ONE,
    PAIR,
    THREE,
    WITHIN,
    Bench,
    happens,
    records,
    table,
    wait_for,
)
from linkflap.chaos.cases.case import Observation, case
from linkflap.harness.log.coordinators import PrimitiveReader
from linkflap.harness.log.layout import LOG_APPEND_TIME
from linkflap.harness.log.reference import ReferenceBatch
from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.mirrors.shadow.mirror import ShadowMirror
from linkflap.harness.model.errors import EnvironmentFailure

TOPIC: Final = "__cluster_metadata"
_TOPIC, _PARTITION_CHANGE, _BROKER_CHANGE, _REGISTER = 2, 5, 17, 27
_LEADER_TAG, _FENCED_TAG = 1, 0
Kind = Literal["registered", "fenced", "unfenced", "leader"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One record. `broker`: who registered, was fenced or unfenced, or leads from now on (-1:
    nobody); `offset` in the log."""

    offset: int
    kind: Kind
    broker: int

    @property
    def words(self) -> str:
        return f"{self.kind} {self.broker} @ {self.offset}"


def changes(log: Iterable[ReferenceBatch], topic: str) -> list[Change]:
    """The entries of the log about brokers, and about the leader of a topic's first partition."""
    topic_id = b""
    found: list[Change] = []
    for record in records(log):
        value = PrimitiveReader(record.value or b"")
        _, kind, _ = value.varint(), value.varint(), value.varint()  # between two versions
        if kind == _TOPIC:
            if value.text(flexible=True) == topic:
                topic_id = value.raw(16)
        elif (change := _change(kind, value, topic_id, record.offset)) is not None:
            found.append(change)
    return found


def _change(kind: int, body: PrimitiveReader, topic_id: bytes, offset: int) -> Change | None:
    if kind == _REGISTER:
        return Change(offset=offset, kind="registered", broker=body.number(">i"))
    if kind == _BROKER_CHANGE:
        broker, _ = body.number(">i"), body.number(">q")  # the broker's epoch
        # 1: fenced from now on, 255: no longer, 0: as before
        fenced = body.tags().get(_FENCED_TAG, b"\0")[0]
        named: Kind | None = {1: "fenced", 255: "unfenced"}.get(fenced)  # type: ignore[assignment]
        return Change(offset=offset, kind=named, broker=broker) if named else None
    if kind == _PARTITION_CHANGE and (body.number(">i"), body.raw(16)) == (0, topic_id):
        leader = body.tags().get(_LEADER_TAG)
        return (
            Change(offset=offset, kind="leader", broker=int.from_bytes(leader, signed=True))
            if leader is not None
            else None
        )
    return None


BEFORE, BEHIND = 10, 10
AHEAD = 20
"""How far the batch's epoch is above the leader's: more than the mirror's start adds by fencing
itself."""
PATIENCE = 20.0


@case("KAFKA-18723", PAIR, claim={"ahead": AHEAD}, control={"ahead": 0})
def kafka_18723(bench: Bench, *, ahead: int) -> Observation:
    """B's broker follows a leader that serves batches of its own leader epoch, and then some of an
    epoch `ahead` of it.

    The leader is the shadow, which brokers follow like any broker. The leader epoch is not covered
    by a batch's checksum. It is the same as in a response whose last bytes a deposed leader sends
    from what it has fetched again.
    """
    topic = bench.topic()
    mirror = bench.mirror("shadow")
    if not isinstance(mirror, ShadowMirror):
        raise EnvironmentFailure("the mirror `shadow` is another one here; take linkflap's own")
    mirror.start()
    bench.write(topic, [b"before %d" % n for n in range(BEFORE)])
    bench.drained(mirror)
    wait_for("B to have all", lambda: bench.log_end(topic, cluster="B") == BEFORE, every=0.1)
    mirror.crash()
    journal = Journal(mirror.log.parent)
    note = journal.partition(topic, 0)
    own = max((epoch for epoch, _ in note.epochs), default=0)
    if ahead:
        note.epochs = [*note.epochs, (own + ahead, BEFORE)]
        journal.save()
    mirror.restart()
    bench.write(topic, [b"behind %d" % n for n in range(BEHIND)])
    # a follower that rejects the batch reports that to nobody
    happens(
        "B to have what is behind",
        lambda: bench.log_end(topic, cluster="B") == BEFORE + BEHIND,
        within=PATIENCE,
        every=0.2,
    )
    of_leader = wire.answered(bench.broker(cluster="B").client_address, topic)[0].epoch
    log = bench.log(topic, cluster="B")
    later = [batch.base_offset for batch in log if batch.leader_epoch > of_leader]
    facts = {
        "leader_epoch_of_the_partition": of_leader,
        "first_offset_of_a_later_epoch": later[:1],
        "log_end_of_the_follower": bench.log_end(topic, cluster="B"),
        "log_end_of_the_leader": BEFORE + BEHIND,
        "follower": table(log)[-4:],
    }
    if not ahead and bench.log_end(topic, cluster="B") < BEFORE + BEHIND:
        raise EnvironmentFailure(
            "B's broker does not follow a leader whose epochs are right; the machine is too busy"
        )
    return Observation(shown=bool(later), facts=facts)


FEATURE = "eligible.leader.replicas.version"


@case("KAFKA-19522", THREE, claim={"eligible": True}, control={"eligible": False})
def kafka_19522(bench: Bench, *, eligible: bool) -> Observation:
    """The only replica dies and restarts uncleanly, which removes it from the eligible leader
    replicas at its registration."""
    asked = bench.ask(bench.up())
    level = asked.features().get(FEATURE, 0)
    if eligible and not level:
        asked.upgrade(FEATURE, 1)
    if level and not eligible:
        asked.downgrade(FEATURE, 0)
    home = bench.broker(3)
    other = bench.broker(1)
    topic = bench.topic(replicas=[home.id])
    bench.write(topic, [b"record"] * 10)
    home.kill()
    bench.unled(topic, by=other)
    home.start()
    bench.led(topic, by=other)

    def seen() -> list[Change]:
        found = changes(bench.log(TOPIC, broker=other.id), topic)
        back = max(
            (one.offset for one in found if one.kind == "registered" and one.broker == home.id),
            default=-1,
        )
        return [one for one in found if one.offset >= back]

    wait_for(
        f"the controller's log to have broker {home.id} unfenced and leading",
        lambda: {"unfenced", "leader"} <= {one.kind for one in seen() if one.broker == home.id},
        every=0.2,
    )
    after = [one for one in seen() if one.broker == home.id]
    unfenced = min(one.offset for one in after if one.kind == "unfenced")
    leads = min(one.offset for one in after if one.kind == "leader")
    facts = {
        FEATURE: int(eligible),
        "after_the_registration": [one.words for one in after],
        "read": len(bench.read(topic)),
    }
    return Observation(shown=leads < unfenced, facts=facts)


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
    if removed_first:
        _remove_setting(bench.admin(), topic)
    bench.delete_topic(topic)
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
