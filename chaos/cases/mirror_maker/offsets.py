"""Group offsets and offset syncs of MirrorMaker 2 (KIP-545)."""

from __future__ import annotations

import contextlib
import struct
import uuid
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import PAIR, WITHIN, Bench, transaction, wait_for
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.tools import wire
from linkflap.chaos.cases.tools.clients import JOIN, LEAVE, heartbeat
from linkflap.chaos.cases.tools.logs import markers, records
from linkflap.harness.log.reference import ReferenceBatch
from linkflap.harness.log.reference import records as records_of
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure
from linkflap.harness.model.wait import pause

LAG_MAX = 100
"""MirrorMaker's default of offset.lag.max."""
RECORDS, BEHIND = 1200, 700
TRANSACTIONS = 8
PATIENCE = 20.0


def _on_b(b: wire.Wire, group: str, topic: str, least: int, *, within: float = 2 * WITHIN) -> None:
    """Waits until a group has committed at least this offset on B."""
    wait_for(
        f"{group} to have committed {least} or more on B",
        lambda: b.committed(group, (topic, 0)) >= least,
        within=within,
        every=0.3,
    )


@case("KAFKA-16641", PAIR, claim={"offset": BEHIND}, control={"offset": RECORDS})
def _behind(bench: Bench, *, offset: int) -> Observation:
    """A group that is behind on A, and its offset on B once it no longer changes."""
    topic, group, witness = bench.topic(), bench.name("group"), bench.name("witness")
    mirror = bench.mirror("mm2")
    mirror.start()
    for start in range(0, RECORDS, 100):
        bench.write(topic, [b"%d" % n for n in range(start, start + 100)])
        bench.drained(mirror)
    for name, at in ((group, offset), (witness, RECORDS)):
        bench.ask(bench.coordinator(name, wire.GROUP)).commit_offset(name, (topic, 0), at)
    b = bench.ask(bench.coordinator(witness, wire.GROUP, "B"))
    _on_b(b, witness, topic, 1)
    with contextlib.suppress(DeadlineExceeded):
        _on_b(b, group, topic, offset - LAG_MAX, within=PATIENCE)
    found = b.committed(group, (topic, 0))
    facts = {
        "committed_on_A": offset,
        "on_B": found,
        "read_again": offset - found,
        "offset.lag.max": LAG_MAX,
    }
    mirror.stop()
    return Observation(shown=0 <= found < offset - LAG_MAX, facts=facts)


@case("KIP-545-no-skip", PAIR, claim={"translated": True}, control={"translated": False})
def _skipped(bench: Bench, *, translated: bool) -> Observation:
    """A's log has markers between its records, B's has none. A group in the middle of A's log fails
    over to B."""
    topic, group = bench.topic(), bench.name("group")
    mirror = bench.mirror("mm2")
    mirror.start()
    writer = bench.transactional()
    for number in range(TRANSACTIONS):
        transaction(writer, topic, b"%d" % number)
    bench.led(topic, cluster="B")

    def arrived() -> bool:
        return len(bench.read(topic, cluster="B")) == TRANSACTIONS

    wait_for("B to have all", arrived, within=2 * WITHIN, every=0.3)
    done = TRANSACTIONS // 2
    offset = bench.read(topic)[done][0]
    bench.ask(bench.coordinator(group, wire.GROUP)).commit_offset(group, (topic, 0), offset)
    b = bench.ask(bench.coordinator(group, wire.GROUP, "B"))
    if translated:
        _on_b(b, group, topic, 0)
    else:
        b.commit_offset(group, (topic, 0), offset)
    at = b.committed(group, (topic, 0))
    mirror.stop()
    left = [value.decode() for where, value in bench.read(topic, cluster="B") if where >= at]
    skipped = [n for n in range(done, TRANSACTIONS) if str(n) not in left]
    facts = {"committed_on_A": offset, "on_B": at, "read_on_B": left, "skipped": skipped}
    return Observation(shown=bool(skipped), facts=facts)


AT_RESTART = 500


@case("KAFKA-15905", PAIR, claim={"behind": True}, control={"behind": False})
def kafka_15905(bench: Bench, *, behind: bool) -> Observation:
    """MirrorMaker 2 restarts after it has mirrored everything. A group at the log end shows that it
    syncs offsets."""
    topic, group, witness = bench.topic(), bench.name("group"), bench.name("witness")
    mirror = bench.mirror("mm2")
    mirror.start()
    for start in range(0, RECORDS, 100):
        bench.write(topic, [b"%d" % n for n in range(start, start + 100)])
    bench.drained(mirror)
    mirror.crash()
    wanted = {group: AT_RESTART if behind else RECORDS, witness: RECORDS}
    for name, offset in wanted.items():
        bench.ask(bench.coordinator(name, wire.GROUP)).commit_offset(name, (topic, 0), offset)
    mirror.restart()
    b = bench.ask(bench.coordinator(witness, wire.GROUP, "B"))
    _on_b(b, witness, topic, 1)
    with contextlib.suppress(DeadlineExceeded):
        _on_b(b, group, topic, 1, within=PATIENCE)
    found = b.committed(group, (topic, 0))
    facts = {
        "committed_on_A": wanted[group],
        "on_B": found,
        "of_the_group_at_the_end_on_B": b.committed(witness, (topic, 0)),
    }
    mirror.stop()
    return Observation(shown=found <= 0, facts=facts)


FEW, OLD = 20, 5
OTHERS = 60
"""Idle groups. Each costs a request between the check of a group's state and the write of its
offsets."""
ROUNDS = 60
STAYS = 0.4
"""Seconds for which a member is in the group, and then is not. Offsets are synced every second."""


@case("KAFKA-19794", PAIR, claim={"leaves": True}, control={"leaves": False})
def kafka_19794(bench: Bench, *, leaves: bool) -> Observation:
    """The group is at the log end on B, and at a lower offset on A. Its member on B comes and goes,
    or stays."""
    topic, group = bench.topic(), bench.name("group")
    bench.write(topic, [b"%d" % n for n in range(FEW)])
    mirror = bench.mirror("mm2")
    mirror.start()
    bench.drained(mirror)
    a = bench.ask(bench.coordinator(group, wire.GROUP))
    for name in (group, *(f"{group}-{number}" for number in range(OTHERS))):
        a.commit_offset(name, (topic, 0), OLD)
    b = bench.ask(bench.coordinator(group, wire.GROUP, "B"))
    last = f"{group}-{OTHERS - 1}"
    _on_b(b, last, topic, 0)
    rewound: list[int] = []
    member = str(uuid.uuid4())
    for _ in range(ROUNDS if leaves else ROUNDS // 3):
        member = str(uuid.uuid4()) if leaves else member
        epoch = heartbeat(b, group, member, JOIN, topic)
        b.commit_offset(group, (topic, 0), FEW, member=member, member_epoch=epoch)
        pause(STAYS, lambda: False)
        if leaves:
            heartbeat(b, group, member, LEAVE, topic)
            pause(STAYS, lambda: False)
        if (found := b.committed(group, (topic, 0))) < FEW:
            rewound.append(found)
            break
    mirror.stop()
    facts = {
        "committed_on_A": OLD,
        "committed_on_B": FEW,
        "rewound_to": rewound,
        "idle_groups": OTHERS,
    }
    return Observation(shown=bool(rewound), facts=facts)


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
            wait_for("a copy on the target", copied, every=0.01)
            mirror.crash()
            mirror.restart()
        last = b"last of burst %d" % number
        bench.write(topic, [last])
        wait_for(
            "the last record to be mirrored", partial(arrived, last), within=2 * WITHIN, every=0.3
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
