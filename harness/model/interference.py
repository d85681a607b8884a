"""How a fault changes programs' requests and answers while they pass through the recorder of a
cluster (`harness.wire.recorder`): the instructions for the recorder, and the errors that a broker
may answer with.

Errors are those of Kafka 4's brokers: `ReplicaManager.appendRecords` and `DelayedProduce` (whose
partition may have moved, or its disk failed, since the append),
`TransactionStateManager.appendTransactionToLog` and `CoordinatorOperationExceptionHelper`, which
turn an append without enough replicas into COORDINATOR_NOT_AVAILABLE, and one whose leader has
moved into NOT_COORDINATOR. Either may have been carried out. `GroupCoordinatorService.heartbeat`
answers without an error while its group is loaded. `OffsetForLeaderEpoch` and `ListOffsets` are
answered by `KafkaApis` and `ReplicaManager`, with the errors of a partition that is not led here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

Does = Literal["unanswered", "delayed", "refused", "repeated", "downgraded", "throttled"]
Stage = Literal["before", "after", "either"]
"""When a broker answers with an error: before it carries the request out, after, or both."""

API_VERSIONS: Final = 18
APIS: Final[Mapping[str, int]] = {
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "Metadata": 3,
    "OffsetCommit": 8,
    "OffsetFetch": 9,
    "FindCoordinator": 10,
    "JoinGroup": 11,
    "Heartbeat": 12,
    "LeaveGroup": 13,
    "SyncGroup": 14,
    "InitProducerId": 22,
    "OffsetForLeaderEpoch": 23,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "TxnOffsetCommit": 28,
    "ConsumerGroupHeartbeat": 68,
}
"""Requests that a fault can choose, and their keys in Kafka's protocol."""
_UNKNOWN: Final = "UNKNOWN_SERVER_ERROR"
_OF_COORDINATORS: Final[Mapping[str, Stage]] = {
    "NOT_COORDINATOR": "either",
    "COORDINATOR_NOT_AVAILABLE": "either",
    "COORDINATOR_LOAD_IN_PROGRESS": "before",
    _UNKNOWN: "either",
}
_OF_HEARTBEATS: Final[Mapping[str, Stage]] = {
    name: when for name, when in _OF_COORDINATORS.items() if name != "COORDINATOR_LOAD_IN_PROGRESS"
}
_OF_TRANSACTIONS: Final[Mapping[str, Stage]] = {
    **_OF_COORDINATORS,
    "CONCURRENT_TRANSACTIONS": "before",
}
_OF_PARTITIONS_READ: Final[Mapping[str, Stage]] = {
    "NOT_LEADER_OR_FOLLOWER": "after",
    "UNKNOWN_TOPIC_OR_PARTITION": "after",
    "KAFKA_STORAGE_ERROR": "after",
    _UNKNOWN: "after",
}
ERRORS: Final[Mapping[str, Mapping[str, Stage]]] = {
    "Produce": {
        "NOT_LEADER_OR_FOLLOWER": "either",
        "UNKNOWN_TOPIC_OR_PARTITION": "before",
        "NOT_ENOUGH_REPLICAS": "before",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "after",
        "REQUEST_TIMED_OUT": "after",
        "KAFKA_STORAGE_ERROR": "either",
        _UNKNOWN: "either",
    },
    "Fetch": _OF_PARTITIONS_READ,
    "Metadata": {
        "LEADER_NOT_AVAILABLE": "after",
        "UNKNOWN_TOPIC_OR_PARTITION": "after",
        _UNKNOWN: "after",
    },
    "ListOffsets": _OF_PARTITIONS_READ,
    "OffsetForLeaderEpoch": _OF_PARTITIONS_READ,
    "FindCoordinator": {"COORDINATOR_NOT_AVAILABLE": "after", _UNKNOWN: "after"},
    "OffsetCommit": _OF_COORDINATORS,
    "OffsetFetch": dict.fromkeys(_OF_COORDINATORS, "after"),
    "JoinGroup": _OF_COORDINATORS,
    "Heartbeat": _OF_HEARTBEATS,
    "SyncGroup": _OF_COORDINATORS,
    "LeaveGroup": _OF_COORDINATORS,
    "ConsumerGroupHeartbeat": _OF_COORDINATORS,
    "InitProducerId": _OF_TRANSACTIONS,
    "AddPartitionsToTxn": _OF_TRANSACTIONS,
    "AddOffsetsToTxn": _OF_TRANSACTIONS,
    "EndTxn": _OF_TRANSACTIONS,
    "TxnOffsetCommit": _OF_COORDINATORS,
}
"""The errors of an API, the commonest first. A request that has no effect at a broker (Fetch,
ListOffsets, …) is always carried out, and its answer is replaced."""
REPEATABLE: Final = (
    "Produce", "OffsetCommit", "Heartbeat", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn",
)  # fmt: skip
"""Requests that change nothing when they are repeated. A second InitProducerId would fence the
first one, a second TxnOffsetCommit could come after the end of its transaction, and a second
JoinGroup makes a member of its own. A Produce without a producer id would be written twice. None of
those is repeated.
"""
WITH_PARTITIONS: Final = frozenset(
    {
        "Produce",
        "Fetch",
        "ListOffsets",
        "OffsetCommit",
        "OffsetForLeaderEpoch",
        "AddPartitionsToTxn",
        "TxnOffsetCommit",
    }
)
"""Requests that name topics and partitions."""
OF_TRANSACTIONS: Final = frozenset(
    {
        "Produce",
        "FindCoordinator",
        "InitProducerId",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "EndTxn",
        "TxnOffsetCommit",
    }
)
"""Requests that name a transactional id."""
LOWEST: Final[Mapping[str, int]] = {
    "Produce": 12,
    "Fetch": 4,
    "Metadata": 0,
    "OffsetCommit": 2,
    "FindCoordinator": 0,
    "JoinGroup": 2,
    "Heartbeat": 0,
    "SyncGroup": 0,
    "InitProducerId": 2,
}
"""API -> the lowest version that may be offered as its highest. A broker with an even lower one
could not have transaction.version 2, which the cluster advertises (KIP-890). Requests of
transactions are missing here for the same reason.
"""
HIGHEST: Final[Mapping[str, Mapping[str, int]]] = {
    "Produce": {"3.7.0": 10, "3.8.0": 11, "4.0.0": 12, "4.1.0": 13},
    "Fetch": {"3.7.0": 16, "3.9.0": 17, "4.1.0": 18},
    "Metadata": {"3.7.0": 12, "4.0.0": 13},
    "OffsetCommit": {"3.7.0": 9, "4.2.0": 10},
    "FindCoordinator": {"3.7.0": 4, "3.8.0": 5, "3.9.0": 6},
    "JoinGroup": {"3.7.0": 9},
    "Heartbeat": {"3.7.0": 4},
    "SyncGroup": {"3.7.0": 5},
    "InitProducerId": {"3.7.0": 4, "3.8.0": 5},
}
"""API -> release -> the highest version that brokers of that release, and of later ones, offer
(`ApiKeys.latestVersion`, without unstable versions)."""


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of an `api` (by its name) that are counted: those that name a `topic` and
    `partition`, or a `transactional_id`, where these are given. `in_flight`: those without an
    answer yet; where they name partitions, the number of these."""

    api: str
    topic: str = ""
    partition: int = -1
    transactional_id: str = ""
    in_flight: bool = False

    @property
    def of_api(self) -> bool:
        """Whether these are all requests of an API, which every recorder counts."""
        return self == Requests(api=self.api)


class Interference(msgspec.Struct, frozen=True, kw_only=True):
    """`count` requests of an API (its key) from the `first` on; those of a `client` (its client.id)
    alone, or those that name a `topic` and `partition`, or a `transactional_id`, where these are
    given. `carried_out`: whether the broker gets them (`delayed`: before the `seconds`). `refused`:
    by `error`, as Kafka names it. `throttled`: answers ask the client to send nothing for
    `seconds`. `downgraded`: answers to ApiVersions offer no higher `version` of `offers` (its
    key)."""

    does: Does
    api: int
    count: int = 1
    first: int = 1
    carried_out: bool = True
    client: str = ""
    topic: str = ""
    partition: int = -1
    transactional_id: str = ""
    seconds: float = 0.0
    error: str = ""
    offers: int = -1
    version: int = -1


def legal_errors(api: str, *, carried_out: bool) -> list[str]:
    """The errors with which a broker may answer a request that it has, or has not, carried out."""
    stage = "after" if carried_out else "before"
    return [name for name, when in ERRORS[api].items() if when in ("either", stage)]
