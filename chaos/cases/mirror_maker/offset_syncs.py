"""Offset syncs of MirrorMaker 2 as an exactly-once source: their own producer writes them, outside
the worker's transaction."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools.logs import markers, records
from linkflap.harness.log.reference import ReferenceBatch
from linkflap.harness.log.reference import records as records_of
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.wait import until

SYNCS: Final = "mm2-offset-syncs.A.internal"
KILLS, BURST = 3, 150
"""A burst is longer than `offset.lag.max` (100), so that each has a sync of its own."""


@case("MM2-offset-syncs", PAIR, claim={"killed": True}, control={"killed": False})
def offset_syncs(bench: Bench, *, killed: bool) -> Observation:
    """Kills the worker while copies on the target are in an open transaction. Compares its offset
    syncs with the target's log."""
    topic = bench.topic()
    mirror = bench.mirror("mm2", delivery="exactly-once")
    mirror.start()
    bench.led(topic, cluster="B")

    def arrived(last: bytes) -> bool:
        return last in {value for _, value in bench.read(topic, cluster="B")}

    for number in range(KILLS):
        high = bench.bound("high", topic, cluster="B")
        bench.write(topic, [b"%d of burst %d" % (n, number) for n in range(BURST)])
        if killed:
            copied = partial(_beyond, bench, topic, high)
            until(copied, within=WITHIN, what="a copy on the target", every=0.01)
            mirror.crash()
            mirror.restart()
        last = b"last of burst %d" % number
        bench.write(topic, [last])
        until(
            partial(arrived, last),
            within=2 * WITHIN,
            what="the last record to be mirrored",
            every=0.3,
        )
    mirror.stop()
    log = bench.log(topic, cluster="B")
    there = {record.offset: record.value for record in records(bench.log(topic))}
    here = committed(log)
    pairs = syncs(bench.log(SYNCS, cluster="B"), topic)
    copies = len(records(log))
    wrong = [pair for pair in pairs if here.get(pair[1], b"") != there.get(pair[0])]
    if killed and copies == len(here):
        raise EnvironmentFailure(
            "the worker always committed before it was killed; run the case again"
        )
    if not pairs:
        raise EnvironmentFailure(f"{SYNCS} has no sync of {topic}; look at MirrorMaker's log")
    facts = {
        "syncs": len(pairs),
        "wrong": wrong[:5],
        "copies": copies,
        "aborted_copies": copies - len(here),
    }
    return Observation(shown=bool(wrong), facts=facts)


def _beyond(bench: Bench, topic: str, offset: int) -> bool:
    return bench.bound("high", topic, cluster="B") > offset


def committed(log: Iterable[ReferenceBatch]) -> Mapping[int, bytes | None]:
    """Offset -> value, for records in committed transactions or in none."""
    found: dict[int, bytes | None] = {}
    waiting: dict[int, dict[int, bytes | None]] = {}
    for batch in log:
        if batch.is_control:
            (marker,) = markers([batch])
            ended = waiting.pop(marker.producer_id, {})
            found |= ended if marker.kind == "COMMIT" else {}
        else:
            into = waiting.setdefault(batch.producer_id, {}) if batch.transactional else found
            into.update((record.offset, record.value) for record in records_of(batch))
    return found


def syncs(log: Iterable[ReferenceBatch], topic: str) -> list[tuple[int, int]]:
    """(offset at the source, offset at the target) of each sync of partition 0, in order (KIP-382:
    OffsetSync)."""
    found = []
    for record in records(log):
        key, value = record.key or b"", record.value or b""
        (length,) = struct.unpack_from(">h", key)
        name, (number,) = key[2 : 2 + length].decode(), struct.unpack_from(">i", key, 2 + length)
        if (name, number) == (topic, 0):
            found.append(struct.unpack(">qq", value))
    return found
