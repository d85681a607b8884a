"""Compares each commit of a mirror for a group with the group's own commits on the source, as
`__consumer_offsets` has both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from linkflap.harness.log.coordinators import GroupMembers, TransactionState
from tests.oracles.checks.internal_topics import disturbed
from tests.oracles.mirrored_ranges import Compared, mirrored_ranges
from tests.oracles.plain import NEVER, Anomaly, Plain
from tests.oracles.story import Story


def from_bytes(plain: Plain, offsets: Sequence[Plain]) -> Iterator[Anomaly]:
    """The anomalies in the commits of mirrors for groups."""
    if (
        plain.view.internal
        or not plain.options.get("groups", ".*")
        or not (plain.groups or any(r.group for r in plain.reads))
    ):
        return
    every = list(mirrored_ranges(plain, Story(plain)))
    for there in sorted({c.mirrored_range.destination for c in every}):
        mine = [c for c in every if c.mirrored_range.destination == there]
        sources = [c.mirrored_range.source for c in mine]
        if all(_all_there(cluster, offsets) for cluster in (there, *sources)):
            known = {g for cluster in sources for g in _written(cluster, offsets, plain)[1]}
            for group in sorted(known):
                yield from _of_group(plain, mine, there, group, offsets)


def _all_there(cluster: str, offsets: Sequence[Plain]) -> bool:
    logs = [(each, each.final(cluster)) for each in offsets if each.final(cluster) is not None]
    return bool(logs) and not any(
        log is None or log.torn or log.log_start or each.compacted.get(cluster)
        for each, log in logs
    )


def _written(
    cluster: str, offsets: Sequence[Plain], plain: Plain
) -> tuple[list[tuple[str, int, int]], set[str]]:
    """Commits of a partition as (group, offset, how often the group had become empty), and the
    groups that had members. The number is -1 while the group has members, or in a transaction."""
    found: list[tuple[str, int, int]] = []
    had: set[str] = set()
    for each in offsets:
        log = each.final(cluster)
        replica = next(
            (r for r in reversed(each.view.replicas) if r.cluster == cluster and r.canonical), None
        )
        inside: dict[str, set[str]] = {}
        emptied: dict[str, int] = {}
        for entry in replica.entries if log and replica else ():
            assert log is not None
            assert not isinstance(entry, TransactionState)
            now = inside.setdefault(entry.group, set())
            if isinstance(entry, GroupMembers):
                left = now == {entry.member} and not entry.present
                emptied[entry.group] = emptied.get(entry.group, 0) + left
                if entry.present:
                    now.add(entry.member)
                    had.add(entry.group)
                else:
                    now.discard(entry.member)
            elif (entry.topic, entry.partition) == (plain.topic, plain.partition):
                batch = [b for b in log.batches if b.base_offset <= entry.offset][-1]
                if not batch.inside or (batch.marker is not None and batch.marker.control == 1):
                    found.append(
                        (
                            entry.group,
                            entry.committed,
                            -1 if now or batch.inside else emptied.get(entry.group, 0),
                        )
                    )
    return found, had


def _of_group(
    plain: Plain, mine: Sequence[Compared], there: str, group: str, offsets: Sequence[Plain]
) -> Iterator[Anomaly]:
    exact = plain.mirror != "mm2"
    theirs = {
        c.mirrored_range.source: _mine(c.mirrored_range.source, offsets, plain, group) for c in mine
    }
    tops = {
        source: {0} | {o for o, _ in own} | _noticed(plain, source, group)
        for source, own in theirs.items()
    }
    bound = max(_bound(c, max(tops[c.mirrored_range.source]), exact=exact) for c in mine)
    rows = _mine(there, offsets, plain, group)
    for n, (offset, time) in enumerate(rows):
        if time < 0 or offset < 0:
            continue
        before = -1
        for earlier, when in reversed(rows[:n]):
            if when != time or earlier < 0:
                break
            before = max(before, earlier)
        known = exact or not disturbed(plain, there, NEVER)
        if (
            known
            and offset < before
            and not _may_go_back(plain, there, theirs, before, offset, exact=exact)
        ):
            yield plain.anomaly("checkpoint-regression", there, offset)
        if offset > bound:
            yield plain.anomaly("checkpoint-beyond-commit", there, offset)
        elif (
            exact
            and not _is_theirs(plain, theirs, group, offset)
            and not _may_end(plain, there, offset)
        ):
            yield plain.anomaly("checkpoint-stranger", there, offset)


def _noticed(plain: Plain, cluster: str, group: str) -> set[int]:
    """The group's commits there that clients or samplers recorded."""
    found = {
        r.position
        for r in plain.reads
        if (r.kind, r.group, r.cluster) == ("commit", group, cluster) and r.position >= 0
    }
    return found | {g.offset for g in plain.groups if (g.group, g.cluster) == (group, cluster)}


def _is_theirs(
    plain: Plain, theirs: dict[str, list[tuple[int, int]]], group: str, offset: int
) -> bool:
    return any(
        offset in [o for o, _ in own] or offset in _noticed(plain, source, group)
        for source, own in theirs.items()
    )


def _mine(
    cluster: str, offsets: Sequence[Plain], plain: Plain, group: str
) -> list[tuple[int, int]]:
    return [
        (offset, time)
        for name, offset, time in _written(cluster, offsets, plain)[0]
        if name == group
    ]


def _bound(compared: Compared, top: int, *, exact: bool) -> int:
    if exact:
        return max(top, compared.destination.log_start)
    last = {r.uid: r.offset for r in compared.came}
    sent = {r.uid: r.offset for r in reversed(compared.sent)}
    return min(
        (last[uid] for uid, origin in sent.items() if origin >= top and uid in last), default=NEVER
    )


def _may_go_back(
    plain: Plain,
    there: str,
    theirs: dict[str, list[tuple[int, int]]],
    before: int,
    offset: int,
    *,
    exact: bool,
) -> bool:
    if any(t.cluster == there and t.offset < before for t in plain.view.truncations):
        return True
    promoted = [p.offset for p in plain.view.promotions if p.cluster == there]
    if promoted and offset == max(promoted):
        return True
    for source, own in theirs.items():
        values = [o for o, _ in own]
        if exact and offset in values and disturbed(plain, source, NEVER):
            return True
        for n, earlier in enumerate(values):
            if any(
                (earlier >= before and later == offset) if exact else later < earlier
                for later in values[n:]
            ):
                return True
    return False


def _may_end(plain: Plain, there: str, offset: int) -> bool:
    """Whether the destination's log may have begun or ended at that offset."""
    log = plain.final(there)
    if (
        log is None
        or log.torn
        or plain.compacted.get(there)
        or plain.view.unclear.get(there)
        or offset <= log.log_start
    ):
        return True
    if any(t.cluster == there and t.offset <= offset for t in plain.view.truncations):
        return True
    return any(offset in (b.base_offset, b.last_offset + 1) for b in log.batches)
