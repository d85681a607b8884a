"""Records of coordinators in Kafka's own topics: the states of transactional ids (KIP-98), and the
commits of groups.

The formats are Kafka's message definitions (TransactionLogKey and -Value, OffsetCommitKey and
-Value), written again without code of `harness.log`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace

from tests.faithful.clusters import ABORT, COMMIT, Cluster, Entry, Log, Rec, Spot, State

STATES: Spot = ("__transaction_state", 0)
COMMITS: Spot = ("__consumer_offsets", 0)
METADATA: Spot = ("__cluster_metadata", 0)
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)


TIMEOUT = 10000


def began(cluster: Cluster, name: str, pid: int, epoch: int, ms: int) -> None:
    """State Empty: a transactional id has a producer id and epoch, and no transaction."""
    _writes(cluster, name, State(pid=pid, epoch=epoch, state=EMPTY, spots=()), ms)


def goes_on(
    cluster: Cluster, name: str, pid: int, epoch: int, spots: Iterable[Spot], ms: int
) -> None:
    """State Ongoing: a transaction has added partitions."""
    state = State(pid=pid, epoch=epoch, state=ONGOING, spots=tuple(sorted(spots)))
    _writes(cluster, name, state, ms)


def decided(
    cluster: Cluster, name: str, pid: int, epoch: int, ends: int, spots: Iterable[Spot], ms: int
) -> None:
    """State PrepareCommit or PrepareAbort: the coordinator writes the markers next, in this epoch.
    With transactions v2 it is one above the data's."""
    kind = PREPARE_COMMIT if ends == COMMIT else PREPARE_ABORT
    before = cluster.states[name]
    version = 2 if epoch > before.epoch else 0
    spots = tuple(sorted(spots))
    _writes(
        cluster, name, State(pid=pid, epoch=epoch, state=kind, spots=spots, version=version), ms
    )


def done(cluster: Cluster, name: str, pid: int, epoch: int, ends: int, ms: int) -> None:
    """State CompleteCommit or CompleteAbort: all markers are written."""
    kind = COMPLETE_COMMIT if ends == COMMIT else COMPLETE_ABORT
    version = cluster.states[name].version
    _writes(cluster, name, State(pid=pid, epoch=epoch, state=kind, spots=(), version=version), ms)


def _writes(cluster: Cluster, name: str, state: State, ms: int) -> None:
    """Writes a state with what it takes over from the one before: the producer id then, and when
    the transaction started."""
    before = cluster.states.get(name)
    begins = before is None or before.state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
    started = -1 if state.state == EMPTY else ms if begins or before is None else before.started
    state = replace(
        state, started=started, previous=before.pid if before is not None else state.pid
    )
    cluster.states[name] = state
    _write(cluster, STATES, *value_of(name, state, ms), ms)


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


def value_of(name: str, state: State, ms: int) -> tuple[bytes, bytes]:
    """Key and value of one state: version 0 of the key, and version 1 of the value, which is a
    flexible version."""
    topics = sorted({topic for topic, _ in state.spots})
    value = struct.pack(">hqhib", 1, state.pid, state.epoch, TIMEOUT, state.state)
    value += b"\x00" if state.state == EMPTY else bytes([len(topics) + 1])
    for topic in topics:
        mine = [partition for name_, partition in state.spots if name_ == topic]
        value += bytes([len(topic) + 1]) + topic.encode() + bytes([len(mine) + 1])
        value += b"".join(struct.pack(">i", partition) for partition in mine) + b"\x00"
    tagged = [(0, struct.pack(">q", state.previous))]
    if state.version:
        tagged.append((2, struct.pack(">h", state.version)))
    value += struct.pack(">qq", ms, state.started) + bytes([len(tagged)])
    value += b"".join(bytes([tag, len(data)]) + data for tag, data in tagged)
    return struct.pack(">h", 0) + _text(name), value


def _text(word: str) -> bytes:
    return struct.pack(">h", len(word)) + word.encode()


def state_in(entry: Entry) -> int:
    """The state in a batch of `__transaction_state`."""
    return (entry.records[0].value or b"")[16]


def with_state(entry: Entry, state: int) -> Entry:
    """The same batch with another state."""
    return _patched(entry, 16, bytes([state]))


def with_producer(entry: Entry, *, pid: int = 0, epoch: int = 0) -> Entry:
    """The same batch with a producer id and epoch that are higher by so much."""
    was = struct.unpack_from(">qh", entry.records[0].value or b"", 2)
    return _patched(entry, 2, struct.pack(">qh", was[0] + pid, was[1] + epoch))


def with_longer_timeout(entry: Entry) -> Entry:
    """The same batch with a transaction timeout of 15 minutes."""
    return _patched(entry, 12, struct.pack(">i", 900_000))


def with_start(entry: Entry, *, later: int) -> Entry:
    """The same batch with another start of the transaction, so many milliseconds later."""
    at = _times_at(entry) + 8
    (was,) = struct.unpack_from(">q", entry.records[0].value or b"", at)
    return _patched(entry, at, struct.pack(">q", was + later))


def with_update(entry: Entry, *, later: int) -> Entry:
    """The same batch with another time of its update, so many milliseconds later."""
    at = _times_at(entry)
    (was,) = struct.unpack_from(">q", entry.records[0].value or b"", at)
    return _patched(entry, at, struct.pack(">q", was + later))


def later(entry: Entry, ms: int) -> Entry:
    """The same batch, so many milliseconds later."""
    moved = with_update(with_start(entry, later=ms), later=ms)
    (record,) = moved.records
    return replace(moved, records=(record._replace(timestamp=record.timestamp + ms),))


def with_partitions(entry: Entry, *, fewer: int) -> Entry:
    """The same batch without the last partitions of its last topic."""
    (record,) = entry.records
    value, end = record.value or b"", _times_at(entry)
    topic = value.rfind(b"A.", 0, end)
    size = topic + value[topic - 1] - 1
    if value[size] - 1 <= fewer:
        raise LookupError("the transaction has no more partitions than that")
    changed = value[:size] + bytes([value[size] - fewer]) + value[size + 1 : end - 1 - 4 * fewer]
    return replace(entry, records=(record._replace(value=changed + value[end - 1 :]),))


def _times_at(entry: Entry) -> int:
    """Where the two times of a state begin: behind them are its tagged fields, the first of which
    is the previous producer id."""
    return (entry.records[0].value or b"").rfind(b"\x00\x08") - 17


def _patched(entry: Entry, at: int, data: bytes) -> Entry:
    (record,) = entry.records
    value = record.value or b""
    changed = value[:at] + data + value[at + len(data) :]
    return replace(entry, records=(record._replace(value=changed),))


def name_in(entry: Entry) -> bytes:
    """The key of a batch of `__transaction_state`: its transactional id."""
    return entry.records[0].key or b""


def decided_in(log: list[Entry], pid: int) -> list[Entry]:
    """Rewrites `__transaction_state`: the last ongoing transaction of a producer id gets the states
    prepared to commit and complete."""
    ongoing = [
        e
        for e in log
        if state_in(e) == ONGOING
        and struct.unpack_from(">q", e.records[0].value or b"", 2)[0] == pid
    ][-1]
    prepared = replace(with_state(ongoing, PREPARE_COMMIT), offset=log[-1].end)
    (record,) = ongoing.records
    value, times = record.value or b"", _times_at(ongoing)
    complete = value[:16] + bytes([COMPLETE_COMMIT, 1]) + value[times:]
    return [
        *log,
        prepared,
        replace(ongoing, offset=prepared.end, records=(record._replace(value=complete),)),
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
    """A successor starts, or the coordinator's timeout expires: the epoch is raised, and what is
    ongoing is aborted in the new epoch, in every partition that it has."""
    known = cluster.transactional[transactional_id]
    known[1] += 1
    spots = cluster.states[transactional_id].spots
    decided(cluster, transactional_id, known[0], known[1], ABORT, spots, ms)
    for spot in spots:
        cluster.logs[spot].mark(ABORT, pid=known[0], epoch=known[1], timestamp=ms)
    done(cluster, transactional_id, known[0], known[1], ABORT, ms)


def ongoing(cluster: Cluster, transactional_id: str) -> bool:
    """Whether the coordinator knows a transaction of this id that has not ended."""
    known = cluster.states.get(transactional_id)
    return known is not None and known.state == ONGOING
