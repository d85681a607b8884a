"""The readers of a run and their histories: finds readers that recorded nothing or did not read to
the end.

run.json names the readers: clients are numbered by kind in the order of the workloads
(`harness.model.scenario.clients`). If a reader has no row, its reads are unknown. If its rows end
early, without a row `drained`, the reader is like a hung consumer: it is unknown what it would have
read of the rest, whatever other readers got. Relays are stopped with the producers, so they need
not be drained. At the end of a run only live clusters are read to the end; in a group one member
must be drained per partition. In a run that did not finish no reader has to be drained, because
none had the time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from linkflap.harness.model.events import ClientsMoved, Event, of_kind
from linkflap.harness.model.history import Operation, Poll
from linkflap.harness.model.scenario import Scenario, WorkloadSpec, clients
from linkflap.harness.model.topology import TopicPartition, is_data_topic
from linkflap.harness.rundir import Damage, Run
from linkflap.spark_verify.read.captures import CapturedReplica

READERS: Final = "readers"
RELAY: Final = "relay"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnheardReader:
    """A reader without any rows (`missing`), or one that did not read to the end."""

    reader: str
    kind: str
    missing: bool
    reason: str

    @property
    def damage(self) -> Damage:
        """The missing part of the run directory."""
        return Damage(path=f"polls/{self.reader}.jsonl", reason=self.reason)


@dataclass(slots=True)
class Histories:
    """The readers' rows. A row of an error is no read."""

    heard: set[str] = field(default_factory=set)
    groups: dict[str, str] = field(default_factory=dict)
    drained: dict[tuple[str, str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    partitions: set[TopicPartition] = field(default_factory=set)
    """Partitions that clients write or read."""

    def operation(self, row: Operation) -> None:
        self.partitions.update((group.topic, group.partition) for group in row.sends)

    def poll(self, row: Poll) -> None:
        if row.kind == "error":
            return
        self.heard.add(row.reader)
        self.groups[row.reader] = row.group
        self.partitions.update((each.topic, each.partition) for each in row.fetched)
        for each in row.fetched if row.kind == "drained" else ():
            self.drained[row.cluster, each.topic, each.partition].add(row.group or row.reader)


def asks_readers(run: Run) -> bool:
    """Whether readers had the time to read to the end, and their history was recorded."""
    return run.recorded and run.status == "finished"


def silent(
    scenario: Scenario,
    events: Sequence[Event],
    histories: Histories,
    replicas: Sequence[CapturedReplica],
) -> Sequence[UnheardReader]:
    """The readers of a finished run that left no rows or did not read to the end. Events in time
    order."""
    living = _living(replicas)
    found: list[UnheardReader] = []
    for name, workload in clients(scenario.workloads):
        if workload.kind not in (READERS, RELAY):
            continue
        if name not in histories.heard:
            reason = f"missing: run.json names {name}, and no row says what it read"
            found.append(
                UnheardReader(reader=name, kind=workload.kind, missing=True, reason=reason)
            )
        elif workload.kind == READERS:
            cluster = ends_at(workload, events)
            due = {
                p
                for p in living.get(cluster, ())
                if (p[0] in workload.reads or is_data_topic(p[0], (workload.home,)))
                and p in histories.partitions
            }
            audience = histories.groups[name] or name
            short = sorted(
                p for p in due if audience not in histories.drained.get((cluster, *p), ())
            )
            if short:
                found.append(
                    UnheardReader(
                        reader=name,
                        kind=workload.kind,
                        missing=False,
                        reason=_unfinished(name, cluster, short),
                    )
                )
    return found


def _unfinished(name: str, cluster: str, short: Sequence[TopicPartition]) -> str:
    more = f" and {len(short) - 1} more partitions" if len(short) > 1 else ""
    return (
        f"{name} ends in the middle: it never read {short[0][0]}-{short[0][1]}{more} of {cluster} "
        "to the end"
    )


def _living(replicas: Sequence[CapturedReplica]) -> Mapping[str, Collection[TopicPartition]]:
    """The partitions of each cluster that lived when the run ended."""
    found: dict[str, set[TopicPartition]] = defaultdict(set)
    for captured in replicas:
        if captured.bounds.alive:
            found[captured.bounds.cluster].add(captured.key)
    return found


def ends_at(workload: WorkloadSpec, events: Sequence[Event]) -> str:
    """The last cluster of a workload's clients. Clients move together, except for readers that
    stay."""
    cluster = str(workload.options.get("cluster", workload.home))
    if workload.options.get("follow", not workload.options.get("assign", False)):
        for moved in of_kind(events, ClientsMoved):
            if moved.cluster == cluster:
                cluster = moved.to
    return cluster
