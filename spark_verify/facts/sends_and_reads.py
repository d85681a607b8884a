"""The clients' sends to a partition and reads from it, one for each operation and poll."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One send group of one operation, invoke and return joined. Outcome info: never returned, or
    unknown.

    `returned` is -1 if it never did; `ended_at` is then 0 even if the ending had been requested.
    `offsets[i]` is the acknowledged offset of uid `first_uid + i`, -1 where there was no
    acknowledgement; `refused[i]` where the client knows for certain that it was not written. If its
    records have inputs, `inputs[i]` is the offset of record i's input in the partition
    (`input_topic`, `input_partition`) of the same cluster, `input_uids[i]` the input's payload id,
    and `position` the offset to commit for `group` in the same transaction. `error` is the name of
    the error with which it returned.
    """

    number: int
    client: str
    process: int
    cluster: str
    kind: str
    ending: str
    outcome: str
    transactional_id: str
    invoked: int
    ended_at: int
    returned: int
    producer_id: int
    producer_epoch: int
    first_uid: int
    group: str = ""
    input_topic: str = ""
    input_partition: int = -1
    position: int = -1
    error: str = ""
    offsets: Ints
    refused: Bools
    inputs: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    input_uids: Ints = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The records of one poll in this partition. `uids` and `offsets` are in the order of the poll.
    For a member of a share group: its action (`harness.model.history.ShareKind`); for acquired
    records, `position` is the delivery count.
    """

    reader: str
    process: int
    cluster: str
    isolation: str
    kind: str
    group: str
    time: int
    returned: int
    position: int
    uids: Ints
    offsets: Ints
