"""Share groups in a random history: members act at random on records that exist in some log, or do
not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np

from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import PartitionView, Replica
from tests.oracles.worlds import SECOND

KINDS = (
    "acquire",
    "acquire",
    "acquire",
    "accept",
    "accepted",
    "rejected",
    "release",
    "released",
    "renewed",
    "settled",
)


def with_shares(views: Sequence[PartitionView], random: Random) -> list[PartitionView]:
    """The same partitions with one or two groups, which worked for a while on some of their
    clusters."""
    return [replace(view, shares=_shares(view, random)) for view in views]


def _shares(view: PartitionView, random: Random) -> tuple[Read, ...]:
    rows: list[Read] = []
    logs = [replica for replica in view.replicas if replica.canonical and len(replica.records)]
    for group in ("one", "two")[: random.choice((1, 1, 2))] if logs else ():
        homes = random.choices(logs, k=random.choice((1, 1, 2)))
        thorough = random.random() < 0.5
        for replica in homes:
            rows += _through(replica, group, view.ended, random) if thorough else ()
            rows += [_row(replica, group, view.ended, random) for _ in range(random.randint(1, 12))]
    return tuple(sorted(rows, key=lambda r: (r.returned, r.time, r.reader)))


def _through(replica: Replica, group: str, ended: int, random: Random) -> list[Read]:
    """Nearly all records of a log are acquired and accepted, late in the run, and the group reports
    its progress."""
    rows = []
    for at in range(len(replica.records)):
        for number, kind in enumerate(("acquire", "accept", "accepted")):
            if random.random() < 0.93:
                time = ended - (9 - number) * SECOND
                rows.append(_read(replica, group, kind, time, [at], random, position=1))
    position = random.choice((replica.end, int(random.choice(replica.records.offset.tolist()))))
    return [*rows, _read(replica, group, "settled", ended - SECOND, [], random, position=position)]


def _row(replica: Replica, group: str, ended: int, random: Random) -> Read:
    kind = random.choice(KINDS)
    count = 0 if kind == "settled" else random.choice((1, 1, 2, 3))
    first = random.randrange(len(replica.records))
    rows = list(range(first, min(first + count, len(replica.records))))
    position = (
        random.randint(0, replica.end + random.choice((0, 0, 0, 2)))
        if kind == "settled"
        else random.choice((0, 1, 1, 2, 2, 3, 4, 5, 6))
    )
    return _read(
        replica, group, kind, random.randint(0, max(1, ended)), rows, random, position=position
    )


def _read(
    replica: Replica, group: str, kind: str, time: int, rows: list[int], random: Random, *,
    position: int
) -> Read:  # fmt: skip
    isolation = random.choice(("read_committed", "read_committed", "read_uncommitted"))
    return Read(
        reader=random.choice(("m1", "m2")), process=7, cluster=replica.cluster, isolation=isolation,
        kind=kind, group=group,
        time=time, returned=time + random.choice((0, 1, SECOND)), position=position,
        uids=replica.records.uid[np.array(rows, np.int64)],
        offsets=replica.records.offset[np.array(rows, np.int64)],
    )  # fmt: skip
