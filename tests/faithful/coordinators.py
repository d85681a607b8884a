"""What coordinators write into Kafka's own topics: the states of transactional ids (KIP-98), and
the commits of groups.

The formats are Kafka's message definitions (TransactionLogKey and -Value, OffsetCommitKey and
-Value), written again without code of `harness.log`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace

from tests.faithful.clusters import Cluster, Log, Spot
from tests.faithful.entries import ABORT, COMMIT, Entry, Rec

STATES: Spot = ("__transaction_state", 0)
COMMITS: Spot = ("__consumer_offsets", 0)
METADATA: Spot = ("__cluster_metadata", 0)
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)


def began(cluster: Cluster, name: str, pid: int, epoch: int, ms: int) -> None:
    """State Empty: a transactional id has a producer id and epoch, and no transaction."""
    _write(cluster, STATES, *state_of(name, pid, epoch, EMPTY, [], ms), ms)


def goes_on(
    cluster: Cluster, name: str, pid: int, epoch: int, spots: Iterable[Spot], ms: int
) -> None:
    """State Ongoing: a transaction has added partitions."""
    _write(cluster, STATES, *state_of(name, pid, epoch, ONGOING, sorted(spots), ms), ms)


def decided(
    cluster: Cluster, name: str, pid: int, epoch: int, ends: int, spots: Iterable[Spot], ms: int
) -> None:
    """State PrepareCommit or PrepareAbort: the coordinator writes the markers next, in this
    epoch."""
    state = PREPARE_COMMIT if ends == COMMIT else PREPARE_ABORT
    _write(cluster, STATES, *state_of(name, pid, epoch, state, sorted(spots), ms), ms)


def done(cluster: Cluster, name: str, pid: int, epoch: int, ends: int, ms: int) -> None:
    """State CompleteCommit or CompleteAbort: all markers are written."""
    state = COMPLETE_COMMIT if ends == COMMIT else COMPLETE_ABORT
    _write(cluster, STATES, *state_of(name, pid, epoch, state, [], ms), ms)


def joined(cluster: Cluster, group: str, ms: int, *, members: int) -> None:
    """A group has members, or has none any more. A classic group: version 3 of its value is not a
    flexible version."""
    value = struct.pack(">h", 3) + _text("consumer") + struct.pack(">i", 1)
    value += (_text("range") + _text("m") if members else struct.pack(">hh", -1, -1)) + struct.pack(
        ">qi", ms, members
    )
    for _ in range(members):
        value += (
            _text("m")
            + struct.pack(">h", -1)
            + _text("client")
            + _text("/host")
            + struct.pack(">iiii", 1, 1, 0, 0)
        )
    _write(cluster, COMMITS, struct.pack(">h", 2) + _text(group), value, ms)


def committed(
    cluster: Cluster, group: str, spot: Spot, offset: int, ms: int, *, member: bool = True
) -> None:
    """A member of a group commits an offset; or a mirror commits it while the group is empty."""
    if cluster.present.get(group, False) != member:
        cluster.present[group] = member
        joined(cluster, group, ms, members=int(member))
    key = struct.pack(">h", 1) + _text(group) + _text(spot[0]) + struct.pack(">i", spot[1])
    value = struct.pack(">hqi", 3, offset, -1) + _text("") + struct.pack(">q", ms)
    _write(cluster, COMMITS, key, value, ms)


def ticked(cluster: Cluster, ms: int) -> None:
    """A NoOpRecord of the controller."""
    _write(cluster, METADATA, b"", b"\x01\x14\x00\x00", ms)


def _write(cluster: Cluster, spot: Spot, key: bytes, value: bytes, ms: int) -> None:
    log = cluster.own.setdefault(spot, Log(cluster))
    log.append(Entry(offset=0, records=(Rec(0, -1, -1, -1, ms, key, value),)))


def state_of(
    name: str, pid: int, epoch: int, state: int, spots: list[Spot], ms: int
) -> tuple[bytes, bytes]:
    """Key and value of one state: version 0 of the key, and version 1 of the value, which is a
    flexible version."""
    topics = sorted({topic for topic, _ in spots})
    value = struct.pack(">hqhib", 1, pid, epoch, 10000, state)
    value += bytes([len(topics) + 1]) if spots or state == ONGOING else b"\x00"
    for topic in topics:
        mine = [partition for name_, partition in spots if name_ == topic]
        value += bytes([len(topic) + 1]) + topic.encode() + bytes([len(mine) + 1])
        value += b"".join(struct.pack(">i", partition) for partition in mine) + b"\x00"
    value += struct.pack(">qq", ms, ms) + b"\x01\x00\x08" + struct.pack(">q", pid)
    return struct.pack(">h", 0) + _text(name), value


def _text(word: str) -> bytes:
    return struct.pack(">h", len(word)) + word.encode()


def state_in(entry: Entry) -> int:
    """The state in a batch of `__transaction_state`."""
    return (entry.records[0].value or b"")[16]


def with_state(entry: Entry, state: int) -> Entry:
    """The same batch with another state."""
    (record,) = entry.records
    value = record.value or b""
    return replace(
        entry, records=(record._replace(value=value[:16] + bytes([state]) + value[17:]),)
    )


def decided_in(log: list[Entry], pid: int) -> list[Entry]:
    """Rewrites `__transaction_state`: the last ongoing transaction of a producer id gets the states
    prepared to commit and complete."""
    ongoing = [
        e
        for e in log
        if state_in(e) == ONGOING
        and struct.unpack_from(">q", e.records[0].value or b"", 2)[0] == pid
    ][-1]
    states = (PREPARE_COMMIT, COMPLETE_COMMIT)
    return [
        *log,
        *(
            replace(with_state(ongoing, state), offset=log[-1].end + n)
            for n, state in enumerate(states)
        ),
    ]


def committed_at(entry: Entry) -> tuple[str, Spot, int]:
    """Group, partition and offset of a batch of `__consumer_offsets`; -1 for a record of a group's
    members."""
    (record,) = entry.records
    key, value = record.key or b"", record.value or b""
    if struct.unpack_from(">h", key)[0] != 1:
        return key[4:].decode(), ("", -1), -1
    size = struct.unpack_from(">h", key, 2)[0]
    group, rest = key[4 : 4 + size].decode(), key[4 + size :]
    length = struct.unpack_from(">h", rest)[0]
    spot = rest[2 : 2 + length].decode(), struct.unpack_from(">i", rest, 2 + length)[0]
    return group, spot, struct.unpack_from(">q", value, 2)[0]


def fence(cluster: Cluster, transactional_id: str, ms: int) -> None:
    """A successor starts, or the coordinator's timeout expires: the epoch is raised, and open
    transactions are aborted in the new epoch."""
    known = cluster.transactional[transactional_id]
    known[1] += 1
    spots = [spot for spot, log in sorted(cluster.logs.items()) if known[0] in log.open]
    decided(cluster, transactional_id, known[0], known[1], ABORT, spots, ms)
    for spot in spots:
        cluster.logs[spot].mark(ABORT, pid=known[0], epoch=known[1], timestamp=ms)
    done(cluster, transactional_id, known[0], known[1], ABORT, ms)
