"""Waits at a start until every running broker has its replicas of `__mirror_state`, which the first
create on a cluster creates.

A broker that is asked for a partition's state before it has its replica answers NOT_COORDINATOR,
and is never asked again. The partition then stays stuck
(docs/findings/cluster-mirroring-stuck-at-start.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.harness.mirrors.cluster_mirroring.admin import MirrorAdmin
from linkflap.harness.mirrors.cluster_mirroring.answers import DescribeRow, VerbRefused
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
    """Which brokers lack replicas of the state topic, in words. `replicas`: partition -> its
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
