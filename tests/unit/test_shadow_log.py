"""A shadow's copies of logs: batches that are stamped, mapped and split; windows and leader epochs
of a partition; which replica it reads."""

from __future__ import annotations

import asyncio
import dataclasses
import struct
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from linkflap.harness.log import reference
from linkflap.harness.log.layout import walk
from linkflap.harness.log.reference import control_type
from linkflap.harness.mirrors.shadow import batches
from linkflap.harness.mirrors.shadow import partition as partitions
from linkflap.harness.mirrors.shadow.batches import (
    Stamped,
    abort_marker,
    end_of,
    reset_marker,
    stamp,
    within,
)
from linkflap.harness.mirrors.shadow.destination.client import MetadataSnapshot
from linkflap.harness.mirrors.shadow.destination.leader import Leader
from linkflap.harness.mirrors.shadow.group_offsets import clamped
from linkflap.harness.mirrors.shadow.journal import Journal, PartitionNote, TopicNote
from linkflap.harness.mirrors.shadow.partition import NONE, Lineage, MirroredLog, Partition
from linkflap.harness.mirrors.shadow.settings import ProducerIds, ShadowOptions
from linkflap.harness.mirrors.shadow.source import (
    LogDivergence,
    Reading,
    ReplicaReaders,
    truncation_point,
)
from linkflap.harness.wire import messages
from linkflap.harness.wire.requests import Led, Topic
from tests import kafka_log
from tests.kafka_log import batch, record
from tests.shadows import config

# Batches of the shadow mirror, compared with the decoder that judges a run: stamped, mapped,
# split, and created.


NEVER = 1 << 62


def three() -> list[bytes]:
    """Offsets 10-11, 12 (another source epoch), 15 after a gap."""
    return [
        batch(10, [record(b"a"), record(b"b")], pid=7, epoch=0, seq=0, leader_epoch=3),
        batch(12, [record(b"c")], leader_epoch=4),
        batch(15, [record(b"d")], pid=9, epoch=1, seq=5, leader_epoch=4, codec="lz4"),
    ]


def stamped(
    raw: bytes,
    position: int = 10,
    *,
    below: int = NEVER,
    ids: Callable[[int], int] | None = None,
    source_epoch: int = 3,
    epoch_at: Callable[[int, int], int] = lambda _base, _epoch: 20,
) -> Stamped:
    return stamp(
        memoryview(bytearray(raw)),
        position=position,
        below=below,
        source_epoch=source_epoch,
        epoch_at=epoch_at,
        ids=ids,
    )


def decoded(data: bytes | memoryview) -> list[reference.ReferenceBatch]:
    return list(reference.batches(bytes(data)))


def test_only_the_leader_epoch_changes() -> None:
    raw = b"".join(three())
    made = stamped(raw)
    assert (made.base, made.end, made.top_producer) == (10, 16, 9)
    assert made.epochs == [(4, 12)]
    before, after = decoded(raw), decoded(made.data)
    assert all(b.crc_ok for b in after)
    assert [dataclasses.replace(b, leader_epoch=20) for b in before] == after


def test_batches_below_the_position_and_a_partial_batch_are_left_out() -> None:
    raw = b"".join(three())
    made = stamped(raw[:-3], position=12)
    assert [(b.base_offset, b.last_offset) for b in decoded(made.data)] == [(12, 12)]
    assert (made.base, made.end) == (12, 13)
    assert len(stamped(raw[:20]).data) == 0


def test_batches_end_below_the_bound() -> None:
    made = stamped(b"".join(three()), below=15)
    assert made.end == 13
    assert [b.base_offset for b in decoded(made.data)] == [10, 12]


@pytest.mark.parametrize("name", ["negate", "complement", "region"])
def test_mapped_producer_ids_get_a_right_crc_and_keep_everything_else(name: ProducerIds) -> None:
    ids = batches.mapping(ShadowOptions(producer_ids=name), "source")
    assert ids is not None
    raw = b"".join(three())
    before, after = decoded(raw), decoded(stamped(raw, ids=ids).data)
    assert all(b.crc_ok for b in after)
    assert [b.producer_id for b in after] == [ids(7), -1, ids(9)]
    kept = attrgetter(
        "base_offset", "length", "attributes", "producer_epoch", "base_sequence", "count", "body"
    )
    assert [*map(kept, before)] == [*map(kept, after)]


@pytest.mark.parametrize("name", ["negate", "complement"])
def test_a_second_hop_gives_the_first_ids_back(name: ProducerIds) -> None:
    ids = batches.mapping(ShadowOptions(producer_ids=name), "source")
    assert ids is not None
    assert [ids(ids(n)) for n in (0, 1, 5, 1 << 40)] == [0, 1, 5, 1 << 40]


def test_negated_and_region_ids_are_negative_and_never_none() -> None:
    region = batches.region("source")
    for n in (0, 1, 4711, (1 << 31) - 1):
        assert batches.negate(n) < -1
        assert -(1 << 63) <= region(n) < -1
        assert batches.complement(n) > 1 << 62
    assert region(1 << 31) == region(0), "ids above 2^31 fold"
    assert batches.region("other")(0) != region(0)


@pytest.mark.parametrize("name", ["keep", "jump", "reset"])
def test_other_strategies_leave_ids_alone(name: ProducerIds) -> None:
    assert batches.mapping(ShadowOptions(producer_ids=name), "source") is None


def test_an_abort_marker_is_a_coordinators() -> None:
    (made,) = decoded(
        abort_marker(42, epoch=5, producer_id=7, producer_epoch=2, coordinator_epoch=9)
    )
    (known,) = decoded(kafka_log.marker(42, 0, pid=7, epoch=2, leader_epoch=5))
    assert made.crc_ok
    same = attrgetter(
        *("base_offset", "length", "leader_epoch", "attributes", "producer_id"),
        *("producer_epoch", "base_sequence", "count"),
    )
    assert same(made) == same(known)
    (ours,), (theirs,) = reference.records(made), reference.records(known)
    assert (ours.key, ours.value) == (theirs.key, b"\0\0\0\0\0\x09")


def test_a_reset_is_the_record_of_kip_1279() -> None:
    raw = reset_marker(3, epoch=5, source_cluster="MkU3OEVBNTcwNTJENDM2Qk")
    (made,) = decoded(raw)
    assert made.crc_ok
    assert len(raw) == 98  # as on the public branch, with a cluster id of 22 characters
    assert (made.producer_id, made.producer_epoch, made.base_sequence, made.transactional) == (
        -1,
        -1,
        -1,
        False,
    )
    assert (
        control_type(0, made.body)[0]
        == control_type(0, decoded(kafka_log.mirror_pid_reset(3))[0].body)[0]
    )


def test_as_many_batches_as_fit_and_one_in_any_case() -> None:
    parts = three()
    whole = memoryview(b"".join(parts))
    two = len(parts[0]) + len(parts[1])
    assert bytes(within(whole, two, at_least_one=False)) == b"".join(parts[:2])
    assert bytes(within(whole, two + 1, at_least_one=False)) == b"".join(parts[:2])
    assert bytes(within(whole, 1, at_least_one=True)) == parts[0]
    assert bytes(within(whole, 1, at_least_one=False)) == b""
    assert bytes(within(whole, 1 << 20, at_least_one=True)) == bytes(whole)


def test_stamped_batches_are_read_from_the_middle_and_truncated() -> None:
    made = stamped(b"".join(three()))
    assert [b.base for b in walk(made.from_offset(11))] == [10, 12, 15]
    assert [b.base for b in walk(made.from_offset(13))] == [15]
    assert len(made.from_offset(16)) == 0
    below = made.below(15)
    assert (below.end, end_of(below.data)) == (13, 13)
    assert end_of(b"") == -1


# A shadow that leads one partition, and its followers' requests, as bytes in both directions.


TOPIC, NUMBER = "A.t", 0
ID = uuid.UUID(int=7)
REAL = {name: {1: "127.0.0.1:1", 2: "127.0.0.1:1"} for name in ("INTERNAL", "CLIENT")}
FETCHES, CLIENT_FETCHES = (15, 16, 17, 18), range(4, 19)
BATCHES = b"".join(batch(offset, [record(b"x" * 20)]) for offset in range(4))


async def nothing_behind(*_: object) -> bytes:
    return b""


def leading(tmp_path: Path) -> Leader:
    """Leads one partition of four records in epoch 3, which began at offset 2."""
    journal = Journal(tmp_path)
    journal.notes.topics[TOPIC] = TopicNote(source_id=str(ID), destination_id=str(ID))
    mirrored = MirroredLog(config(real=REAL), journal)
    mirrored.names[ID], mirrored.brokers = TOPIC, frozenset({1, 2})
    partition = mirrored.add(TOPIC, NUMBER)
    partition.leader_epoch, partition.position, partition.end = 3, 0, 4
    for epoch, start in ((1, 0), (3, 2)):
        partition.epochs.begin(epoch, start)
    epochs = lambda base, _: 1 if base < 2 else 3  # noqa: E731
    partition.keep(stamped(BATCHES, 0, source_epoch=0, epoch_at=epochs))
    return Leader(mirrored, nothing_behind)


def fetch(version: int, *, broker: int = 1, offset: int = 0, epoch: int = 3, last: int = -1) -> Any:
    m = messages.request("fetch", version)
    named = {"topic_id": ID} if version >= 13 else {"topic": TOPIC}
    row = {"partition": NUMBER, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    row |= {"current_leader_epoch": epoch} if version >= 9 else {}
    row |= {"last_fetched_epoch": last} if version >= 12 else {}
    fields = {"max_wait": timedelta(milliseconds=20), "min_bytes": 1, "max_bytes": 1 << 20}
    fields |= (
        {"replica_state": m.ReplicaState(replica_id=broker)}
        if version >= 15
        else {"replica_id": broker}
    )
    fields |= {"forgotten_topics_data": ()} if version >= 7 else {}
    return m.FetchRequest(
        topics=(m.FetchTopic(partitions=(m.FetchPartition(**row),), **named),), **fields
    )


def ask(leader: Leader, key: int, api: str, version: int, body: object) -> Any:
    """Sends a request and returns the response, both through their bytes."""
    frame = messages.encode_request(api, version, 11, "broker", body)[4:]
    pieces = asyncio.run(leader.answer(key, version, 11, frame))
    assert pieces is not None
    answer = bytes(pieces)
    assert struct.unpack_from(">ii", answer) == (len(answer) - 4, 11)
    return messages.decode_response(api, version, answer[4:])


# A shadow's mirrored log: its partitions, their windows, and their leader epochs.


def test_epochs_rise_and_an_old_one_changes_nothing() -> None:
    lineage = Lineage([(0, 0), (3, 10)])
    assert not lineage.begin(3, 20)
    assert not lineage.begin(1, 20)
    assert lineage.begin(5, 20)
    assert lineage.entries == [(0, 0), (3, 10), (5, 20)]
    assert [lineage.at(offset) for offset in (-1, 0, 9, 10, 19, 20, 99)] == [NONE, 0, 0, 3, 3, 5, 5]


def test_an_epoch_that_wrote_nothing_is_forgotten() -> None:
    lineage = Lineage([(0, 0), (3, 10)])
    lineage.begin(4, 10)
    assert lineage.entries == [(0, 0), (4, 10)]


@pytest.mark.parametrize(
    ("epoch", "end", "diverges"),
    [
        pytest.param(-1, 0, None, id="empty"),
        pytest.param(0, 10, None, id="the same up to an earlier epoch"),
        pytest.param(3, 15, None, id="the same"),
        pytest.param(0, 12, (0, 10), id="more of an earlier epoch"),
        pytest.param(3, 17, (3, 15), id="more of the last epoch"),
        pytest.param(2, 12, (0, 10), id="an unknown epoch between two"),
        pytest.param(7, 12, (3, 15), id="an unknown epoch after the last"),
    ],
)
def test_a_follower_is_truncated_where_its_log_leaves_the_lineage(
    epoch: int, end: int, diverges: tuple[int, int] | None
) -> None:
    assert Lineage([(0, 0), (3, 10)]).diverges(epoch, end, 15) == diverges
    assert Lineage().diverges(7, 12, 0) == (7, 0)


def test_a_truncation_forgets_epochs_that_begin_after_it() -> None:
    lineage = Lineage([(0, 0), (3, 10), (5, 20)])
    lineage.truncate(10)
    assert lineage.entries == [(0, 0)]
    lineage.begin(6, 10)
    assert lineage.diverges(3, 12, 12) == (0, 10)


FRAME = 1 << 20


@pytest.fixture
def mirrored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MirroredLog:
    monkeypatch.setattr(partitions, "BUDGET_BYTES", 3 * FRAME)
    return MirroredLog(config(), Journal(tmp_path))


def read_log(mirrored: MirroredLog, sizes: dict[int, int]) -> bytearray:
    """A frame that has so many bytes for each partition."""
    frame = bytearray(b"x" * FRAME)
    at = 0
    for number, size in sizes.items():
        partition = mirrored.add("t", number)
        base = max(partition.position, 0)
        data = memoryview(frame)[at : at + size]
        partition.keep(Stamped(base=base, end=base + 1, data=data, epochs=[], top_producer=-1))
        at += size
    return frame


def test_a_frame_counts_whole_and_once(mirrored: MirroredLog) -> None:
    read_log(mirrored, {0: 10, 1: FRAME - 10})
    assert (mirrored.memory(), mirrored.held) == (FRAME, FRAME)
    mirrored.partitions["t", 1].drop_window(0)
    assert (mirrored.memory(), mirrored.held) == (FRAME, 10)


def test_the_rest_of_many_frames_is_copied_when_the_budget_is_used(
    mirrored: MirroredLog,
) -> None:
    used = read_log(mirrored, {0: 10, 1: FRAME - 10})
    for _ in range(3):
        read_log(mirrored, {2: 100})
    assert mirrored.memory() == FRAME + 3 * 100
    assert {bytes(chunk.data) for p in mirrored.partitions.values() for chunk in p.window} == {
        b"x" * size for size in (10, FRAME - 10, 100)
    }
    assert mirrored.partitions["t", 0].window[0].frame is used


def test_frames_that_are_in_use_stay(mirrored: MirroredLog) -> None:
    for _ in range(4):
        read_log(mirrored, {0: FRAME // 2, 1: FRAME // 2})
    assert mirrored.memory() == 4 * FRAME == mirrored.held


def one(offset: int) -> bytes:
    return batch(offset, [record(b"x" * 50)])


def read(partition: Partition, offset: int, limit: int) -> tuple[bytes, int]:
    found = partition.read(offset, limit)
    assert found is not None
    return bytes(found[0]), found[1]


def led(epochs: Sequence[tuple[int, int]] = (), **more: Any) -> Partition:
    """A partition whose log has these leader epochs."""
    return Partition(
        topic="t",
        number=0,
        note=PartitionNote(),
        epochs=Lineage(list(epochs)),
        source_epochs=Lineage(),
        **more,
    )


@pytest.fixture
def partition() -> Partition:
    """Led in epoch 0, offsets 0 to 9 in two batches of five."""
    made = led([(0, 0)], leader_epoch=0, position=0)
    for first in (0, 5):
        raw = b"".join(map(one, range(first, first + 5)))
        made.keep(stamped(raw, first, source_epoch=0, epoch_at=lambda _base, _epoch: 0))
    made.end = 10
    return made


def test_partition_window_is_read_from_any_offset(partition: Partition) -> None:
    everything = b"".join(map(one, range(10)))
    assert read(partition, 0, 1 << 20) == (everything, 10)
    assert read(partition, 7, 1 << 20) == (everything[7 * len(one(0)) :], 10)
    assert read(partition, 0, len(one(0)) * 6 + 1) == (everything[: 6 * len(one(0))], 6)
    assert read(partition, 3, 1) == (one(3), 4)
    assert read(partition, 10, 1 << 20) == (b"", 10)


def test_batches_that_all_live_followers_have_are_released(partition: Partition) -> None:
    partition.heard(1, 7, 0)
    partition.release()
    assert (partition.window_start, partition.held) == (5, 5 * len(one(0)))
    assert partition.read(4, 1 << 20) is None
    partition.heard(2, 3, 0)  # another one, which is behind: it gets a read of its own
    partition.heard(1, 10, 0)
    partition.release()
    assert partition.window_start == 5


def test_the_high_watermark_does_not_wait_for_a_lagging_follower(
    partition: Partition,
) -> None:
    partition.heard(1, 7, 0)
    partition.heard(2, 4, 0)
    assert partition.advance()
    assert partition.high_watermark == 4
    partition.heard(2, 9, 0)
    partition.followers[1].asked -= 60
    assert partition.advance()
    assert partition.high_watermark == 9
    assert not partition.advance()


def test_a_follower_of_another_epoch_does_not_count(partition: Partition) -> None:
    partition.heard(1, 7, 3)
    assert partition.live() == {}
    assert not partition.advance()


@pytest.mark.parametrize("end", [0, 3, 5, 8, 10])
def test_a_truncation_keeps_batches_that_end_below_it(partition: Partition, end: int) -> None:
    partition.heard(1, 10, 0)
    partition.advance()
    partition.served = 10
    partition.truncate(end)
    assert (partition.end, partition.high_watermark, partition.served, partition.position) == (
        end,
        end,
        end,
        end,
    )
    assert read(partition, 0, 1 << 20) == (b"".join(map(one, range(end))), end)


def test_partition_is_not_ready_before_its_end_is_known_nor_while_it_needs_an_epoch(
    partition: Partition,
) -> None:
    assert partition.ready
    partition.raise_to = 1
    assert not partition.ready
    partition.raise_to, partition.end = -1, -1
    assert not partition.ready


@pytest.mark.parametrize(
    ("committed", "expected"),
    [(5, 5), (0, 2), (12, 8)],
    ids=["within", "below the log start", "beyond the end"],
)
def test_group_offsets_are_clamped(partition: Partition, committed: int, expected: int) -> None:
    partition.start = 2
    assert clamped(committed, partition, 8) == expected


# Which replica a shadow reads from, and when the answers of replicas under another shadow mean
# that a log was truncated.


PARTITION = ("A.records", 0)
BROKERS = {1: "one:1", 2: "two:2", 3: "three:3", 1000: "shadow:0"}


def picture(leader: int, *, live: tuple[int, ...] = (1, 2, 3)) -> MetadataSnapshot:
    led = Led(leader=leader, epoch=7, replicas=(1000, 1, 2, 3), in_sync=(1000,))
    brokers = {broker: BROKERS[broker] for broker in (*live, 1000)}
    return MetadataSnapshot(
        brokers=brokers, topics={PARTITION[0]: Topic(id=None, partitions={0: led})}
    )


def chosen(readers: ReplicaReaders) -> Reading:
    found = readers.get(PARTITION)
    assert found is not None
    return found


def test_a_real_leader_is_asked_in_its_epoch_and_a_shadow_never() -> None:
    readers = ReplicaReaders()
    readers.look(picture(2), {})
    assert (chosen(readers).address, chosen(readers).epoch) == ("two:2", 7)
    for leader in (1000, -1):
        readers.look(picture(leader), {})
        assert chosen(readers).address in chosen(readers).replicas == ("one:1", "two:2", "three:3")
        assert not chosen(readers).led
    readers.look(picture(2, live=(1, 3)), {})
    assert readers.get(PARTITION) is None
    readers.look(picture(1000, live=()), {})
    assert readers.get(PARTITION) is None


def test_a_replica_is_kept_while_it_gives_and_left_when_it_is_stuck_or_dead() -> None:
    readers = ReplicaReaders()
    asked = []
    for position in (5, 6, 6, 6, 7):
        readers.look(picture(1000), {PARTITION: position})
        asked.append(chosen(readers).address)
    assert asked == ["one:1", "one:1", "two:2", "three:3", "three:3"]
    readers.turn(PARTITION, "two:2")
    readers.look(picture(1000, live=(1, 3)), {PARTITION: 8})
    assert (chosen(readers).address, chosen(readers).all_live) == ("one:1", False)
    readers.look(picture(1), {PARTITION: 9})
    # the answer of a replica that came when there was a leader again
    readers.turn(PARTITION, "three:3")
    assert chosen(readers).address == "one:1"
    readers.leave(PARTITION)
    assert readers.addresses() == set()


@pytest.mark.parametrize(
    ("words", "all_live", "end"),
    [
        ([LogDivergence(end=50), LogDivergence(end=75)], True, 75),  # all end there: truncated
        ([LogDivergence(end=50), LogDivergence(end=75)], False, -1),  # a dead one may have more
        # written again in a later epoch
        ([LogDivergence(end=50), LogDivergence(end=75, epoch=8)], False, 75),
        ([LogDivergence(end=50, epoch=7), LogDivergence(end=40, epoch=8)], True, 40),
        ([LogDivergence(end=-1), LogDivergence(end=50)], True, -1),
        ([], True, -1),
    ],
)
def test_replicas_that_end_earlier_are_behind_unless_that_is_all_or_a_later_epoch_has_begun(
    words: list[LogDivergence], all_live: bool, end: int
) -> None:
    assert truncation_point(words, all_live=all_live) == end
