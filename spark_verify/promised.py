"""What a run's events promise of its directory, and the directory does not have: captures that were taken, promotions.

A manifest knows files. It does not know that a whole capture was left out of a copy, or a line out of the events, before
somebody sealed it again; but one event vouches for another, and for files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from harness.model.history import Event
from harness.model.topology import CANARY
from harness.rundir import Damage, RunReader

Place = tuple[str, str]
"""Topic and partition, as they were written down."""


def absent_captures(reader: RunReader, events: Sequence[Event]) -> Mapping[tuple[str, str], Damage]:
    """By (cluster, moment), in the order of the events: captures that were taken and of which nothing is there."""
    found: dict[tuple[str, str], Damage] = {}
    for event in events:
        cluster, moment = event.subject, str(event.data.get("moment"))
        if event.kind != "captured" or not event.data.get("replicas"):
            continue
        rows, _ = reader.bounds(moment)
        path = f"captures/{moment}/{cluster}"
        if not any(row.cluster == cluster for row in rows):
            found[cluster, moment] = Damage(
                path=path, reason="missing: its logs were captured, and nothing says where they began"
            )
        elif not any((reader.root / path).rglob("*.log")):
            found[cluster, moment] = Damage(path=path, reason="missing: its logs were captured, and none is there")
    return found


def rests_on_a_capture(damage: Damage) -> bool:
    """Whether this is a whole capture of a cluster that is not there."""
    return damage.path.startswith("captures/") and "*" not in damage.path and damage.path.count("/") == 2


def absent_promotions(events: Sequence[Event], judges: Callable[[str], bool]) -> Iterator[Damage]:
    """Failovers that promoted nothing, or not all that the mirror's journal names. Events in time order."""
    for link in dict.fromkeys(e.subject for e in events if e.kind == "failover"):
        told = [e for e in events if e.subject == link]
        failovers = [e.time for e in told if e.kind == "failover"]
        for before, time in zip([-1, *failovers], failovers, strict=False):
            # As where promotions are read (`spark_verify.plan`): each is of the failover of its link that is nearest in time.
            near = [e for e in told if e.kind == "promotion" and min(failovers, key=lambda t: abs(t - e.time)) == time]
            journals = [e for e in told if e.kind == "mirror-stopped" and before < e.time <= time]
            yield from _unpromoted(link, {_place(e.data) for e in near}, set(_named(journals[-1], judges)) if journals else set())


def _unpromoted(link: str, promoted: set[Place], named: set[Place]) -> Iterator[Damage]:
    if not promoted:
        yield Damage(path="events.jsonl", reason=f"the failover over {link} has no promotion of any partition")
        return
    for topic, partition in sorted(named - promoted):
        reason = f"the mirror of {link} says that it promoted {topic}-{partition}, and no promotion of it is there"
        yield Damage(path="events.jsonl", reason=reason)


def _named(journal: Event, judges: Callable[[str], bool]) -> Iterator[Place]:
    """The partitions of a mirror's journal, but for what it proves its path with. A mirror without a journal names none."""
    rows = journal.data.get("partitions")
    for row in rows if isinstance(rows, list) else ():
        topic, partition = _place(row) if isinstance(row, dict) else ("", "")
        if judges(topic) and not topic.endswith(f".{CANARY}"):
            yield topic, partition


def _place(data: Mapping[str, object]) -> Place:
    return str(data.get("topic")), str(data.get("partition"))
