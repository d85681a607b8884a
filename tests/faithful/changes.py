"""Random changes of a run that is not yet written to disk: of a row, of a log, or of a file; or a
mutation of the catalogue, whatever else was changed before."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from linkflap.harness.model.history import EventRow
from linkflap.harness.model.scenario import Budgets
from tests.faithful.clusters import ABORT, COMMIT, RESET, Entry, Rec, compacted
from tests.faithful.made import Made, end_of
from tests.faithful.mutations import CATALOGUE
from tests.faithful.mutations.base import Afterwards, Mutation, NothingToChange
from tests.faithful.mutations.progress import waited
from tests.faithful.observers import SECOND
from tests.faithful.spec import Spec, spec
from tests.faithful.stories import story, without_history
from tests.kafka_log import batches_in, rewrite

Change = Callable[[Made, Random], Afterwards | None]
_MUTATIONS: Final = tuple(CATALOGUE.values())
NOT_THERE: Final = (
    NothingToChange, StopIteration, LookupError, ValueError, AssertionError, FileNotFoundError,
)  # fmt: skip
"""A change raises this for a run that has nothing to change."""


def random_run(seed: int, changes: Sequence[int] = range(7)) -> tuple[Made, list[Afterwards], str]:
    """The small run of a seed, with so many changes; what changes its files once it is written; and
    the names of the changes."""
    rng = Random(f"run {seed}")
    mutation = rng.choice(_MUTATIONS) if rng.random() < 0.7 else None
    drawn = _small(seed, rng, mutation)
    made = story(drawn)
    _budgets(made, rng)
    count = rng.choice(changes)
    chosen: list[Change] = [mutation.how] if mutation and count else []
    while len(chosen) < count:
        chosen.append(rng.choice(_CHANGES) if rng.random() < 0.8 else rng.choice(_MUTATIONS).how)
    done, afterwards = [], []
    for how in chosen:
        try:
            later = how(made, rng)
        except NOT_THERE:
            continue
        done.append(how.__name__)
        if later is not None:
            afterwards.append(later)
    for captured in made.logs.values():
        captured.entries = [_fitted(entry) for entry in captured.entries]
    return made, afterwards, f"{drawn.shape}, {drawn.mirror}: {', '.join(done) or 'no change'}"


def _small(seed: int, rng: Random, mutation: Mutation | None) -> Spec:
    """A story of a few steps, of the kind that a mutation needs; often with all that may happen
    beside it."""
    size = {"steps": rng.randint(0, 8), "partitions": rng.choice((1, 1, 2))}
    size["brokers"] = rng.choice((1, 2))
    if Random(f"program {seed}").random() < 0.1:
        size |= {"relay": True, "program": True}
    needs = dict(mutation.on) if mutation else {}
    if rng.random() < 0.5:
        needs = {name: value for name, value in needs.items() if value or name == "forced"}
    return spec(seed, **{**size, **needs})


def _budgets(made: Made, rng: Random) -> None:
    records, seconds = rng.choice((None, 0, 3)), rng.choice((None, 0.5, 5.0))
    budgets = Budgets(rpo_records=records, rto_seconds=seconds)
    made.scenario = replace(made.scenario, budgets=budgets)


# --- rows of clients, samplers and mirrors -------------------------------------------------------


def _rows(made: Made, rng: Random) -> list[Any]:
    kinds: list[list[Any]] = [made.operations, made.polls, made.marks, made.groups, made.events]
    return rng.choice([rows for rows in kinds if rows])


def _alike(rows: list[Any], rng: Random) -> list[Any]:
    """The rows, but of events only those of one kind, often one that tells of logs."""
    if not isinstance(rows[0], EventRow):
        return rows
    kinds = sorted({row.kind for row in rows if row.data})
    kind = rng.choice([k for k in kinds if k in _OF_LOGS and rng.random() < 0.7] or kinds)
    return [row for row in rows if row.kind == kind]


_OF_LOGS: Final = ("promotion", "truncation", "mirror-stopped", "failover")


def change_row(made: Made, rng: Random) -> None:
    """One value of a row is another: near to it, or that of another row."""
    rows = _rows(made, rng)
    alike = _alike(rows, rng)
    row = rng.choice(alike)
    document = _document(row)
    path = rng.choice(list(_leaves(document)))
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    other = _value_at(_document(rng.choice(alike)), path)
    near = _near(holder[path[-1]], rng)
    holder[path[-1]] = near if other is None or (near is not None and rng.random() < 0.6) else other
    try:
        rows[rows.index(row)] = msgspec.convert(document, type(row))
    except msgspec.ValidationError as error:
        raise NothingToChange(str(error)) from None


def _document(row: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(row))


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list | tuple):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _leaves(value[key], (*path, key))
    elif path[-1] not in ("topic", "number", "phase"):
        yield path


def _value_at(document: Any, path: Sequence[Any]) -> Any:
    for step in path:
        try:
            document = document[step]
        except (KeyError, IndexError, TypeError):
            return None
    return document


def _near(value: Any, rng: Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        far = rng.choice((-20, -5, 5, 30)) * SECOND if value > SECOND else 40
        return value + rng.choice((1, 1, -1, -1, 2, -2, far))
    return None


def tie_knot(made: Made, rng: Random) -> None:
    """Transactions were made from each other's records, or one from its own."""
    rows = [
        (at, n) for at, row in enumerate(made.operations)
        for n, group in enumerate(row.sends) if group.made_from and group.made_from.runs
    ]  # fmt: skip
    one, other = rng.choice(rows), rng.choice(rows)
    uids = [made.operations[at].sends[n].first_uid for at, n in (one, other)]
    for (at, n), uid in ((one, uids[1]), (other, uids[0])):
        row = made.operations[at]
        sends = list(row.sends)
        fetched = sends[n].made_from
        assert fetched is not None
        runs = ((uid, *fetched.runs[0][1:]), *fetched.runs[1:])
        sends[n] = replace(sends[n], made_from=replace(fetched, runs=runs))
        made.operations[at] = replace(row, sends=tuple(sends))


def fail_operation(made: Made, rng: Random) -> None:
    """An operation returned an error."""
    at = rng.choice([n for n, row in enumerate(made.operations) if row.phase == "return"])
    error = rng.choice(("_FENCED", "_FATAL", "INVALID_TXN_STATE", "_MSG_TIMED_OUT"))
    made.operations[at] = replace(made.operations[at], error=error)


def wait(made: Made, rng: Random) -> None:
    """Clients had time to make progress after all that happened."""
    kinds = [each.kind for each in made.scenario.workloads]
    waited(made, promised=rng.choice(kinds), within=rng.choice((1.0, 5.0, 20.0, 60.0)))


def lose_rows(made: Made, rng: Random) -> None:
    """Some rows that follow each other are not there."""
    rows = _rows(made, rng)
    at = rng.randrange(len(rows))
    del rows[at : at + rng.choice((1, 1, 2, 5))]


def repeat_row(made: Made, rng: Random) -> None:
    """A row is there again, beside itself or at the end."""
    rows = _rows(made, rng)
    row = rng.choice(rows)
    rows.insert(rng.choice((rows.index(row), len(rows))), row)


def move_reader(made: Made, rng: Random) -> None:
    """From some time on, a reader's rows are of another cluster, or later."""
    since = rng.choice(made.polls)
    cluster = rng.choice(sorted({poll.cluster for poll in made.polls}))
    later = rng.choice((0, 5, 20)) * SECOND
    for at, poll in enumerate(made.polls):
        if poll.reader == since.reader and poll.time >= since.time:
            moved = {"time": poll.time + later, "returned": poll.returned + later}
            made.polls[at] = replace(poll, **(moved if later else {"cluster": cluster}))


def break_broker(made: Made, rng: Random) -> None:
    """A broker was killed for some seconds."""
    start = rng.randint(made.started, made.ended)
    cluster = rng.choice(sorted({key.cluster for key in made.logs}))
    name = f"kill-{start}"
    for kind, time, data in (
        ("fault-start", start, {"fault": "broker-kill", "options": {}, "restores": True}),
        ("fault-end", start + 9 * SECOND, {}),
    ):
        event = EventRow(time=time, kind=kind, subject=f"{cluster}/1", data={"id": name, **data})
        made.events.append(event)


def lose_history(made: Made, rng: Random) -> None:
    """A user has only copied the logs, and knows the promotion offsets."""
    if any(key.moment != made.moment(key.cluster) for key in made.logs) or rng.random() < 0.5:
        raise NothingToChange("logs were truncated that nobody copied")
    without_history(made)


# --- logs ----------------------------------------------------------------------------------------


def _log(made: Made, rng: Random, how: Callable[[list[Entry]], list[Entry]]) -> None:
    """Rewrites one replica of a log, or every replica that is the same; the high watermark may stay
    as it was."""
    key = rng.choice([key for key, captured in made.logs.items() if captured.entries])
    before, everywhere = made.logs[key].entries, rng.random() < 0.7
    after = how(list(before))
    for each, captured in made.logs.items():
        same = each.cluster == key.cluster and captured.entries == before
        if each != key and not (everywhere and same and rng.random() < 0.9):
            continue
        if rng.random() < 0.3:
            captured.entries = list(after)
        else:
            made.rewrite(each, lambda _: list(after))


def change_header(made: Made, rng: Random) -> None:
    """One field of a batch's header is another."""

    def how(log: list[Entry]) -> list[Entry]:
        at = rng.randrange(len(log))
        name, bits = rng.choice(_HEADER)
        was, most = getattr(log[at], name), 2 ** (bits - 1) - 1
        value: Any = rng.choice((was + 1, was - 1, -1, 0, most, getattr(rng.choice(log), name)))
        return [*log[:at], replace(log[at], **{name: value}), *log[at + 1 :]]

    _log(made, rng, how)


_HEADER: Final = (
    ("pid", 64), ("pid", 64), ("epoch", 16), ("sequence", 32), ("leader_epoch", 32),
    ("coordinator", 32),
)  # fmt: skip
"""Fields of a header, with their bits."""


def _fitted(entry: Entry) -> Entry:
    """The batch with numbers that its header can hold: those that are too high begin again."""
    held: dict[str, Any] = {}
    for name, bits in _HEADER:
        most = 2 ** (bits - 1)
        held[name] = (getattr(entry, name) + most) % (2 * most) - most
    return replace(entry, **held)


def change_marker(made: Made, rng: Random) -> None:
    """A control record is another one; or a batch is transactional, or is not."""

    def how(log: list[Entry]) -> list[Entry]:
        markers = [at for at, entry in enumerate(log) if entry.ends is not None]
        if not markers or rng.random() < 0.3:
            at = rng.randrange(len(log))
            turned = replace(log[at], transactional=not log[at].transactional)
        else:
            at = rng.choice(markers)
            turned = replace(log[at], ends=rng.choice((ABORT, COMMIT, ABORT, COMMIT, RESET)))
        return [*log[:at], turned, *log[at + 1 :]]

    _log(made, rng, how)


def change_record(made: Made, rng: Random) -> None:
    """One field of a record is another, or that of another record; or no client wrote it."""

    def how(log: list[Entry]) -> list[Entry]:
        positions = [(at, i) for at, e in enumerate(log) for i in range(len(e.records))]
        (at, i), (other, j) = rng.choice(positions), rng.choice(positions)
        records = list(log[at].records)
        records[i] = _changed(records[i], log[other].records[j], rng)
        return [*log[:at], replace(log[at], records=tuple(records)), *log[at + 1 :]]

    _log(made, rng, how)


def _changed(record: Rec, other: Rec, rng: Random) -> Rec:
    match rng.choice(("other", "other", "next", "foreign", "content")):
        case "other":
            name = rng.choice(("uid", "operation", "key", "value", "timestamp"))
            return record._replace(**{name: getattr(other, name)})
        case "next":
            name = rng.choice(("uid", "operation", "timestamp"))
            return record._replace(**{name: getattr(record, name) + rng.choice((1, 77 << 40))})
        case "foreign":
            return record._replace(uid=-1, operation=-1)
        case _:
            return record._replace(value=(record.value or b"") + b"!")


def lose_batches(made: Made, rng: Random) -> None:
    """Some batches are missing: inside of the log, or all to its end."""

    def how(log: list[Entry]) -> list[Entry]:
        at = rng.randrange(len(log))
        return log[:at] + log[at + rng.choice((1, 1, 2, len(log))) :]

    _log(made, rng, how)


def lose_beginning(made: Made, rng: Random) -> None:
    """The first batches are deleted, and the log start offset is after them."""
    key = rng.choice([key for key, captured in made.logs.items() if len(captured.entries) > 1])
    captured = made.logs[key]
    captured.entries = captured.entries[rng.randint(1, len(captured.entries) - 1) :]
    captured.bounds = replace(captured.bounds, log_start=captured.entries[0].offset)


def delete_beginning(made: Made, rng: Random) -> None:
    """The first batches of a partition are deleted on all brokers of a cluster, by request or not,
    or after a time that may be past; samples show it, or not yet."""
    key = rng.choice([key for key, captured in made.logs.items() if len(captured.entries) > 1])
    start = rng.choice(made.logs[key].entries[1:]).offset
    for each in made.log_keys(key.cluster, key.partition, topic=key.topic):
        captured = made.logs[each]
        captured.entries = [entry for entry in captured.entries if entry.offset >= start]
        captured.bounds = replace(captured.bounds, log_start=start)
    time = rng.randint(made.started, made.ended)
    for at, mark in enumerate(made.marks):
        same = (mark.cluster, mark.topic, mark.partition) == (key.cluster, key.topic, key.partition)
        if same and mark.time > time:
            made.marks[at] = replace(mark, log_start=start)
    if rng.random() < 0.5:
        row = {"topic": key.topic, "partition": key.partition, "offset": start}
        event = EventRow(time=time, kind="records-deleted", subject=key.cluster, data=row)
        made.events.append(event)
    made.set_on_topics(
        **rng.choice(({}, {"retention_ms": "1"}, {"message_timestamp_type": "LogAppendTime"}))
    )


def repeat_batch(made: Made, rng: Random) -> None:
    """A batch is there again, at the end."""
    _log(made, rng, lambda log: [*log, replace(rng.choice(log), offset=end_of(log))])


def swap_batches(made: Made, rng: Random) -> None:
    """Two neighbouring batches are in the other order."""

    def how(log: list[Entry]) -> list[Entry]:
        at = rng.randrange(len(log) - 1)
        first, second = log[at], log[at + 1]
        second = replace(second, offset=first.offset)
        return [*log[:at], second, replace(first, offset=second.end), *log[at + 2 :]]

    _log(made, rng, how)


def keep_tail(made: Made, rng: Random) -> None:
    """The batches that were to be truncated are back, and the newer ones are missing."""
    earlier = [key for key in made.logs if key.moment != made.moment(key.cluster)]
    key = rng.choice(earlier)
    log = made.logs[key].entries
    end = rng.choice([entry.end for entry in log])
    tail = [entry for entry in log if entry.end > end]
    made.change(
        key.cluster, key.partition, lambda now: [e for e in now if e.end <= end] + tail,
        topic=key.topic,
    )  # fmt: skip


def compact(made: Made, rng: Random) -> None:
    """A broker's log cleaner has cleaned a log."""
    key = rng.choice([key for key, captured in made.logs.items() if captured.entries])
    captured = made.logs[key]
    below = rng.choice([entry.end for entry in captured.entries])
    entries = compacted(captured.entries, below, frozenset(), rng)
    captured.entries, captured.bounds = entries, replace(captured.bounds, compacted=below)
    made.set_on_topics(delete_retention_ms=rng.choice(("0", "86400000")))


def change_bounds(made: Made, rng: Random) -> None:
    """A bound of a captured replica is another."""
    captured = made.logs[rng.choice(list(made.logs))]
    name = rng.choice(("high_watermark", "high_watermark", "log_start", "last_stable", "compacted"))
    value = getattr(captured.bounds, name) + rng.choice((1, 2, -1, -2))
    if value < 0:
        raise NothingToChange("a bound is not negative")
    captured.bounds = replace(captured.bounds, **{name: value})


# --- files ---------------------------------------------------------------------------------------


def tear(made: Made, rng: Random) -> Afterwards:
    """A segment ends in the middle of a batch."""
    return _file(rng, lambda batches, at: [*batches[:at], batches[at][: rng.randrange(61)]])


_DELTA_ENDS: Final = 27


def corrupt(made: Made, rng: Random) -> Afterwards:
    """One byte of a batch is another, and its CRC is wrong: behind the offset delta, because the
    references have a row for each offset below a log's end."""

    def how(batches: list[bytes], at: int) -> list[bytes]:
        one = bytearray(batches[at])
        one[rng.randrange(_DELTA_ENDS, len(one))] ^= 1 << rng.randrange(8)
        return [*batches[:at], bytes(one), *batches[at + 1 :]]

    return _file(rng, how)


def _file(rng: Random, how: Callable[[list[bytes], int], list[bytes]]) -> Afterwards:
    def afterwards(root: Path) -> None:
        path = rng.choice(sorted(p for p in (root / "captures").rglob("*.log") if p.stat().st_size))
        with suppress(struct.error):  # another change has torn it
            batches = [data for _, data in batches_in(path)]
            rewrite(path, how(batches, rng.randrange(len(batches))))

    return afterwards


_ROWS: Final = (
    change_row, change_row, change_row, change_row, lose_rows, repeat_row, move_reader, tie_knot,
    fail_operation, wait,
)  # fmt: skip
_LOGS: Final = (
    change_header, change_header, change_marker, change_record, lose_batches, lose_beginning,
    delete_beginning, repeat_batch, swap_batches, keep_tail, compact, change_bounds,
)  # fmt: skip
_CHANGES: Final[tuple[Change, ...]] = (*_ROWS, *_LOGS, break_broker, lose_history, tear, corrupt)
