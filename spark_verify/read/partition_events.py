"""What the events of a run say of each partition: promotions, truncations, ends of mirrors and their descriptions of themselves.

An event that cannot be read is damage to the directory, and the others count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

from linkflap.harness.model.history import Event
from linkflap.harness.rundir import Damage
from linkflap.spark_verify.facts.story import Description, Promotion, Stop, Truncation
from linkflap.spark_verify.read.captures import Key


def promotions(events: Sequence[Event], damage: list[Damage]) -> Mapping[Key, Sequence[Promotion]]:
    """Promotions by partition in time order, each with what the failover of its link said nearest in time."""
    found: dict[Key, list[Promotion]] = defaultdict(list)
    failovers = [e for e in events if e.kind == "failover"]
    for event in events:
        if event.kind != "promotion":
            continue
        data = cast("Mapping[str, Any]", event.data)
        try:
            source, _, destination = event.subject.partition("->")
            cluster = str(data["cluster"])
            beside = [f for f in failovers if f.subject == event.subject]
            failover = cast("Mapping[str, Any]", min(beside, key=lambda f: abs(f.time - event.time)).data) if beside else {}
            promotion = Promotion(
                link=event.subject,
                kind=_failover_kind(failover),
                source=source if cluster == destination else destination,
                cluster=cluster,
                offset=int(data["offset"]),
                time=event.time,
                fault_time=int(failover.get("fault_time") or event.time),
            )
            found[str(data["topic"]), int(data["partition"])].append(promotion)
        except (KeyError, TypeError, ValueError) as error:
            damage.append(Damage(path="events.jsonl", reason=f"a promotion of {event.subject} that cannot be read: {error!r}"))
    return dict(found)


Row = TypeVar("Row", Truncation, Stop, Description, tuple[str, int])


def by_partition(
    events: Sequence[Event], kind: str, read: Callable[[Event], Iterator[tuple[Key, Row]]], damage: list[Damage]
) -> Mapping[Key, Sequence[Row]]:
    """What the events of one kind tell of each partition, in time order."""
    found: dict[Key, list[Row]] = defaultdict(list)
    for event in events:
        if event.kind == kind:
            try:
                for key, row in read(event):
                    found[key].append(row)
            except (KeyError, TypeError, ValueError) as error:
                damage.append(Damage(path="events.jsonl", reason=f"a {kind} of {event.subject} that cannot be read: {error!r}"))
    return dict(found)


def truncations(event: Event) -> Iterator[tuple[Key, Truncation]]:
    data = cast("Mapping[str, Any]", event.data)
    yield (
        (str(data["topic"]), int(data["partition"])),
        Truncation(
            link=event.subject, cluster=str(data["cluster"]), offset=int(data["offset"]), end=int(data["end"]), time=event.time
        ),
    )


def descriptions(event: Event) -> Iterator[tuple[Key, Description]]:
    data = cast("Mapping[str, Any]", event.data)
    for row in data["rows"]:
        yield (
            (str(row["topic"]), int(row["partition"])),
            Description(
                link=event.subject,
                state=str(row["state"]),
                mirrors=bool(row["mirrors"]),
                lag=int(row["lag"]),
                asked=int(data["asked"]),
                returned=event.time,
            ),
        )


def unclear(event: Event) -> Iterator[tuple[Key, tuple[str, int]]]:
    data = cast("Mapping[str, Any]", event.data)
    yield (str(data["topic"]), int(data["partition"])), (str(data["cluster"]), int(data["offset"]))


def stops(event: Event) -> Iterator[tuple[Key, Stop]]:
    """Of a mirror that keeps no journal there is nothing to tell."""
    data = cast("Mapping[str, Any]", event.data)
    for row in data.get("partitions", ()):
        yield (
            (str(row["topic"]), int(row["partition"])),
            Stop(
                link=event.subject,
                cluster=event.subject.partition("->")[2],
                time=event.time,
                mirrored=int(row["mirrored"]),
                promoted=int(row["promoted"]),
                truncated=tuple((int(end), int(offset)) for end, offset in row.get("truncated", ())),
                appended=tuple((int(offset), str(what)) for offset, what in row.get("appended", ())),
                epochs=tuple((int(epoch), int(start)) for epoch, start in row.get("epochs", ())),
            ),
        )


def _failover_kind(data: Mapping[str, Any]) -> Literal["planned", "forced"]:
    return "planned" if data.get("kind") == "planned" else "forced"


def contradicted(events: Sequence[Event]) -> Iterator[Damage]:
    """Truncations of which the mirror, when it stopped, reported another place or another end of the log."""
    for event in events:
        if event.kind != "truncation":
            continue
        said = (event.data.get("offset"), event.data.get("end"))
        for row in _journal_after(event, events):
            same = all(row.get(name) == event.data.get(name) for name in ("topic", "partition"))
            if same and row.get("cut_from", -1) != -1 and (row.get("cut"), row.get("cut_from")) != said:
                where = f"{event.data.get('topic')}-{event.data.get('partition')} on {event.data.get('cluster')}"
                reason = f"a truncation of {where} says {said}, its mirror {(row.get('cut'), row.get('cut_from'))} (offset, end)"
                yield Damage(path="events.jsonl", reason=reason)


def _journal_after(event: Event, events: Sequence[Event]) -> Sequence[Mapping[str, object]]:
    """The partitions in the next journal of the mirror that reported an event; empty where there is none."""
    stops = [e for e in events if e.kind == "mirror-stopped" and e.subject == event.subject and e.time >= event.time]
    rows = stops[0].data.get("partitions") if stops else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
