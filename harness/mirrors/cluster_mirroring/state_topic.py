"""The topic `__mirror_state`: waits until its replicas exist, and compares its records with what
describe reports.

The first create on a cluster creates the topic. A broker that is asked for a partition's state
before it has its replica answers NOT_COORDINATOR, and is never asked again. The partition then
stays stuck (docs/findings/cluster-mirroring-stuck-at-start.md).

Keys and values have the format of the branch's first generation (MirrorPartitionStateKey,
MirrorPartitionStateValue). Brokers answer describe from these records, so both must agree once
nothing changes any more.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from linkflap.harness.log.coordinators import PrimitiveReader, Undecodable
from linkflap.harness.mirrors.cluster_mirroring.admin import DescribeRow, MirrorAdmin, VerbRefused
from linkflap.harness.mirrors.topics import read_to_end, reader
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.model.wait import until

STATES: Final = "__mirror_state"
"""The internal topic with the states of mirrored partitions."""
LOADED_SECONDS: Final = 60.0
LEFT_SECONDS: Final = 10.0
"""A partition is stuck after this long in the state; others leave it within two seconds."""
_ANSWERS_WITHIN: Final = 5.0
_NAMED: Final = 4


def lacking(
    replicas: Mapping[int, Collection[int]], held: Mapping[int, Collection[TopicPartition]]
) -> list[str]:
    """Names the brokers that lack replicas of the state topic. `replicas`: partition -> its
    brokers; `held`: broker -> its replicas."""
    missing: dict[int, list[int]] = {}
    for partition, brokers in sorted(replicas.items()):
        for broker in brokers:
            if broker in held and (STATES, partition) not in held[broker]:
                missing.setdefault(broker, []).append(partition)
    return [
        f"broker {broker} lacks {STATES}-{', -'.join(map(str, missing[broker]))}"
        for broker in sorted(missing)
    ]


def await_loaded(
    admin: MirrorAdmin, here: AdminClient, destination: Cluster, *, in_vain: bool = False
) -> None:
    """Returns when each running broker of the destination has its replicas of the state topic, and
    every partition of that has a leader.

    Raises DeadlineExceeded with what is missing. With `in_vain` it only waits, and the start that
    follows is judged instead.
    """
    reason = "no answer"
    brokers = sorted(
        number for number, broker in destination.brokers.items() if broker.state == "running"
    )

    def loaded() -> bool:
        nonlocal reason
        try:
            found = here.list_topics(STATES, timeout=_ANSWERS_WITHIN).topics[STATES].partitions
            held = admin.replicas(brokers)
        except (KafkaException, VerbRefused) as error:
            reason = str(error)
            return False
        missing = lacking({number: each.replicas for number, each in found.items()}, held)
        missing += [
            f"{STATES}-{number} has no leader" for number, each in found.items() if each.leader < 0
        ]
        reason = "; ".join(missing[:_NAMED]) if found else f"there is no {STATES}"
        return bool(found) and not missing

    what = f"replicas of {STATES} on brokers {', '.join(map(str, brokers))}"
    with suppress(DeadlineExceeded) if in_vain else nullcontext():
        until(loaded, within=LOADED_SECONDS, every=0.1, what=what, state=lambda: reason)


class LeftAligning:
    """Partitions that are stuck in the state `aligning` at a first start, because their coordinator
    did not know them yet. Each gets another leader once, which asks again."""

    def __init__(self, admin: MirrorAdmin, here: AdminClient, aligning: str) -> None:
        self._admin, self._here, self._aligning = admin, here, aligning
        self._since: dict[TopicPartition, float] = {}
        self.moved: list[TopicPartition] = []

    def look(self, rows: Sequence[DescribeRow], now: float) -> None:
        """Compares describe's rows at time `now`, in seconds, with the earlier ones."""
        aligning = {(row.topic, row.partition) for row in rows if row.state == self._aligning}
        self._since = {tp: self._since.get(tp, now) for tp in sorted(aligning)}
        left = [tp for tp, since in self._since.items() if now - since >= LEFT_SECONDS]
        if wanted := [tp for tp in left if tp not in self.moved]:
            self._move(wanted)

    def _move(self, partitions: Sequence[TopicPartition]) -> None:
        try:
            topics = self._here.list_topics(timeout=_ANSWERS_WITHIN).topics
            known = {tp: topics[tp[0]].partitions[tp[1]] for tp in partitions}
            orders = {tp: next_first(one.replicas, one.leader) for tp, one in known.items()}
            if several := {tp: order for tp, order in orders.items() if len(order) > 1}:
                self._admin.lead(several)
        except (KafkaException, KeyError, VerbRefused):
            return  # retried at the next call
        self.moved.extend(partitions)


def next_first(replicas: Sequence[int], leader: int) -> list[int]:
    """The replicas of a partition with its leader last."""
    return [*(one for one in replicas if one != leader), leader]


GENERATION: Final = "prefixed keys"
"""The generation with this record format."""
OF_PARTITIONS: Final = 2
"""The kind of record with a partition's state; the other kind has its last epoch."""
NAMES: Final[Mapping[int, str]] = dict(
    enumerate(
        (
            "UNKNOWN",
            "LOG_TRUNCATION",
            "EPOCH_FENCING",
            "MIRRORING",
            "PAUSING",
            "PAUSED",
            "STOPPING",
            "STOPPED",
            "FAILED",
        ),
        start=-1,
    )
)
_SECONDS: Final = 10.0
Key = tuple[str, str, int]
"""(mirror, topic id, partition)"""


def latest(records: Iterable[tuple[bytes, bytes | None]]) -> dict[Key, str]:
    """The latest state of each partition, from keys and values in log order, without those removed
    by a tombstone. Raises ValueError for another format."""
    found: dict[Key, str] = {}
    for key, value in records:
        try:
            of = PrimitiveReader(key)
            if of.number(">h") != OF_PARTITIONS:
                continue
            mirror, topic, partition = of.text(), of.raw(16), of.number(">i")
            about = (mirror, base64.b64encode(topic).decode().rstrip("="), partition)
            if value is None:
                found.pop(about, None)
            else:
                found[about] = NAMES[struct.unpack_from(">hb", value)[1]]
        except (struct.error, KeyError, Undecodable) as error:
            raise ValueError(f"a record of {STATES} has an unknown format: {error}") from error
    return found


def differing(
    mirror: str, found: Mapping[Key, str], ids: Mapping[str, str], rows: Sequence[DescribeRow]
) -> dict[str, tuple[str, ...]]:
    """Topic -> differences between the records and describe, in words, one per partition. Only
    topics in `ids` (topic -> id) are compared."""
    wrong: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: (row.topic, row.partition)):
        if row.topic in ids:
            recorded = found.get((mirror, ids[row.topic], row.partition), "nothing")
            if recorded != row.state:
                words = f"partition {row.partition}: {recorded} recorded, {row.state} described"
                wrong.setdefault(row.topic, []).append(words)
    return {topic: tuple(words) for topic, words in wrong.items()}


def ids_of(admin: AdminClient, topics: Sequence[str]) -> dict[str, str]:
    """Topic -> its id. Raises KafkaException."""
    asked = admin.describe_topics(TopicCollection(list(topics)), request_timeout=_SECONDS)
    return {name: str(future.result(2 * _SECONDS).topic_id) for name, future in asked.items()}


def read(bootstrap: str) -> list[tuple[bytes, bytes | None]]:
    """Every record of the state topic, partition by partition. Raises KafkaException, or
    DeadlineExceeded when its end is not reached."""
    consumer = reader(bootstrap, "read_committed")
    try:
        known = consumer.list_topics(STATES, timeout=_SECONDS).topics[STATES].partitions
        starts = [KafkaPartition(STATES, n, OFFSET_BEGINNING) for n in known]
        found = read_to_end(consumer, starts, within=_SECONDS, what=f"{STATES} to be read")
    finally:
        consumer.close()
    return [(message.key() or b"", message.value()) for message in found]


def disagreeing(
    mirror: str,
    admin: AdminClient,
    bootstrap: str,
    topics: Sequence[str],
    rows: Sequence[DescribeRow],
) -> dict[str, tuple[str, ...]]:
    """Does the same as `differing` for a running cluster. A record of an unknown format counts as a
    difference of every topic. Raises KafkaException when the cluster does not answer in time."""
    try:
        records, ids = read(bootstrap), ids_of(admin, topics)
        return differing(mirror, latest(records), ids, rows)
    except ValueError as error:
        return {topic: (str(error),) for topic in topics}
    except (DeadlineExceeded, TimeoutError) as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, str(error))) from error
