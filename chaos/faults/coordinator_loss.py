"""coordinator-loss: the broker that coordinates transactions, or groups, is killed (SIGKILL), and
started again at the heal.

Breaks    transactions that are ending, groups that members join or commit to: the next coordinator
          reads its log first.
Bite      the broker does not answer in the window, and the others (where they are a majority) have
          another coordinator.
Heal      its process runs, its listener answers, it is in the ISR of every partition that it holds;
          there is a coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.chaos.faults.elected import ElectedLoss
from linkflap.harness.model.scenario import Option
from linkflap.harness.wire.offsets import quiet

_TOPICS: Final = {"transactions": "__transaction_state", "groups": "__consumer_offsets"}
_ANSWERS_WITHIN: Final = 5


class CoordinatorLoss(ElectedLoss):
    """Kills the coordinator of a cluster, and starts it again at the end; option of (transactions
    or groups)."""

    defaults: ClassVar[Mapping[str, Option]] = {"of": "transactions|groups"}
    abouts: ClassVar[Mapping[str, str]] = {
        "of": "the coordinator of a transactional id, or that of a consumer group",
    }
    office = "coordinator"

    def holder(self, address: str) -> int | None:
        """The leader of the log's first partition: clusters here have one."""
        topic = _TOPICS[str(self.values["of"])]
        try:
            found = (
                AdminClient(quiet(address))
                .list_topics(topic, timeout=_ANSWERS_WITHIN)
                .topics[topic]
            )
        except KafkaException:
            return None
        leader = found.partitions[0].leader if found.partitions else -1
        return leader if leader in self.cluster.brokers else None
