"""What clients did: transactions and records that they sent, the answers that they got, and polls
of readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, Unpack

import numpy as np

from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from tests.unit.checks.logs import SECOND, ints


class Sent(TypedDict, total=False):
    """The optional fields of a `send`."""

    cluster: str
    outcome: str
    process: int
    producer_id: int
    producer_epoch: int
    returned: int
    invoked: int
    offsets: Sequence[int] | None
    refused: Sequence[int]


class Committed(Sent, total=False):
    """The optional fields of a `commit`."""

    acked: int
    ending: str
    transactional_id: str
    asked: int
    kind: str


class Polled(TypedDict, total=False):
    """The optional fields of a `poll`."""

    cluster: str
    reader: str
    group: str
    isolation: str


def commit(
    *uids: int,
    acked: int = -1,
    cluster: str = "A",
    ending: str = "commit",
    outcome: str = "ok",
    process: int = 1,
    transactional_id: str = "t",
    producer_id: int = -1,
    producer_epoch: int = -1,
    asked: int = 10 * SECOND,
    returned: int = 20 * SECOND,
    kind: str = "transaction",
    invoked: int = SECOND,
    offsets: Sequence[int] | None = None,
    refused: Sequence[int] = (),
) -> Send:
    """The records of a transaction in one partition, acknowledged from offset `acked` on (-1: not
    acknowledged); `refused` are payloads."""
    acks = (
        offsets
        if offsets is not None
        else [acked + i if acked >= 0 else -1 for i in range(len(uids))]
    )
    return Send(
        number=uids[0],
        client="client",
        process=process,
        cluster=cluster,
        kind=kind,
        ending=ending,
        outcome=outcome,
        transactional_id=transactional_id,
        invoked=invoked,
        ended_at=asked,
        returned=returned,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        first_uid=uids[0],
        offsets=ints(*acks),
        refused=np.array([each in refused for each in uids], np.bool_),
    )


def send(*uids: int, acked: int = -1, **rest: Unpack[Sent]) -> Send:
    """Records sent without a transaction."""
    return commit(
        *uids, acked=acked, kind="send", ending="none", transactional_id="", asked=0, **rest
    )


def poll(
    *pairs: tuple[int, int],
    cluster: str = "A",
    reader: str = "r",
    group: str = "",
    isolation: str = "read_committed",
    at: int = 100 * SECOND,
    position: int | None = None,
    kind: str = "poll",
) -> Read:
    """One poll that returned (offset, uid) pairs, or another step of a reader."""
    offsets, uids = [p[0] for p in pairs], [p[1] for p in pairs]
    return Read(
        reader=reader,
        process=0,
        cluster=cluster,
        isolation=isolation,
        kind=kind,
        group=group,
        time=at - 1,
        returned=at,
        position=(offsets[-1] + 1 if offsets else -1) if position is None else position,
        uids=ints(*uids),
        offsets=ints(*offsets),
    )
