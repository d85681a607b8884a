"""A run directory as values, made from a story, which mutations change before it is written.

Logs are lists of `Entry`, by replica and moment of their capture. The history is rows of
`harness.model.history`. Nothing is sorted or repaired on writing, so the verifier reads exactly
what a mutation has made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from linkflap.harness.model.history import Bounds, EventRow, GroupOffset, Operation, Poll, Watermark
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.rundir import FORMAT, Run, write_whole
from tests.faithful.clusters import Entry
from tests.faithful.observers import Written
from tests.run_copy import seal

END = "2-end"
"""The moment of the capture at the end of a run, of all clusters that are alive."""


class LogKey(NamedTuple):
    """One captured replica of one partition."""

    moment: str
    cluster: str
    broker: int
    topic: str
    partition: int

    def folder(self, root: Path) -> Path:
        """Its segments in the run directory."""
        name = f"{self.topic}-{self.partition}"
        return root / "captures" / self.moment / self.cluster / str(self.broker) / name


@dataclass(slots=True, kw_only=True)
class Captured:
    """The captured logs of one replica. `edges_at` are the offsets at which new segments begin."""

    entries: list[Entry]
    bounds: Bounds
    edges_at: tuple[int, ...] = ()

    def segments(self) -> Iterator[tuple[int, list[Entry]]]:
        """(base offset, batches) of every segment file."""
        first = self.entries[0].offset if self.entries else self.bounds.log_start
        edges = [first, *(edge for edge in self.edges_at if edge > first), 2**62]
        for start, end in pairwise(edges):
            mine = [e for e in self.entries if start <= e.offset < end]
            if mine or start == first:
                yield start, mine


@dataclass(slots=True, kw_only=True)
class Made:
    """A run that is not yet written to disk. Rows are in the order of their writing."""

    scenario: Scenario
    started: int
    ended: int
    logs: dict[LogKey, Captured] = field(default_factory=dict)
    events: list[EventRow] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    marks: list[Watermark] = field(default_factory=list)
    groups: list[GroupOffset] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    endings: dict[int, int] = field(default_factory=dict)
    recorded: bool = True
    homes: dict[str, str] = field(default_factory=dict)
    readers: dict[str, str] = field(default_factory=dict)
    """Name of a reader here -> its name in the run directory, where clients are numbered by
    kind."""

    def log_keys(
        self, cluster: str, partition: int | None = None, *, moment: str = "", topic: str = ""
    ) -> list[LogKey]:
        """The captured replicas of a cluster, the leader's first. They are of its last capture
        unless a moment is given, and those of Kafka's own topics only if a topic is given."""
        moment = moment or self.moment(cluster)
        found = [
            p
            for p in self.logs
            if p.cluster == cluster and p.moment == moment and p.topic == (topic or p.topic)
        ]
        found = [p for p in found if topic or not p.topic.startswith("__")]
        found = [p for p in found if partition in (None, p.partition)]
        return sorted(
            found, key=lambda p: (p.topic, p.partition, not self.logs[p].bounds.leader, p.broker)
        )

    def moment(self, cluster: str) -> str:
        """The moment of the last capture of a cluster."""
        return max(p.moment for p in self.logs if p.cluster == cluster)

    def log(
        self, cluster: str, partition: int = 0, *, moment: str = "", topic: str = ""
    ) -> list[Entry]:
        """The leader's log of a partition."""
        return self.logs[self.log_keys(cluster, partition, moment=moment, topic=topic)[0]].entries

    def change(
        self,
        cluster: str,
        partition: int,
        how: Callable[[list[Entry]], list[Entry]],
        *,
        moment: str = "",
        topic: str = "",
    ) -> None:
        """Rewrites every replica of a partition of a cluster."""
        for key in self.log_keys(cluster, partition, moment=moment, topic=topic):
            self.rewrite(key, how)

    def rewrite(self, key: LogKey, how: Callable[[list[Entry]], list[Entry]]) -> None:
        """Rewrites one replica. A high watermark that was at the log's end moves with the end."""
        captured = self.logs[key]
        before = end_of(captured.entries)
        captured.entries = how(list(captured.entries))
        if captured.bounds.high_watermark == before:
            captured.bounds = replace(captured.bounds, high_watermark=end_of(captured.entries))

    def set_on_topics(self, **config: str) -> None:
        """Adds settings of the scenario's topics; `_` stands for `.`."""
        named = {name.replace("_", "."): value for name, value in config.items()}
        topics = self.scenario.topics
        self.scenario = replace(
            self.scenario, topics=replace(topics, config={**topics.config, **named})
        )

    def write(self, root: Path) -> Path:
        """Writes the run directory."""
        root.mkdir(parents=True)
        for kind, rows in self._rows():
            path = root / kind
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"".join(_JSON.encode(row) + b"\n" for row in rows))
        moments: dict[str, list[Bounds]] = {}
        for key, captured in self.logs.items():
            moments.setdefault(key.moment, []).append(captured.bounds)
            folder = key.folder(root)
            folder.mkdir(parents=True)
            for base, entries in captured.segments():
                (folder / f"{base:020}.log").write_bytes(b"".join(e.encoded() for e in entries))
        for moment, bounds in moments.items():
            (root / "captures" / moment / "bounds.json").write_bytes(_JSON.encode(bounds))
        run = Run(
            format=FORMAT,
            linkflap="0",
            command="made up",
            runtime="none",
            status="finished",
            started=self.started,
            ended=self.ended,
            scenario=self.scenario,
            recorded=self.recorded,
            homes=self.homes,
        )
        write_whole(root / "run.json", _JSON.encode(run))
        seal(root)
        return root

    def _rows(self) -> Iterator[tuple[str, Sequence[object]]]:
        yield "events.jsonl", self.events
        if not self.recorded:
            return
        yield "operations/clients.jsonl", self.operations
        yield (
            "polls/readers.jsonl",
            [
                replace(poll, reader=self.readers.get(poll.reader, poll.reader))
                for poll in self.polls
            ],
        )
        yield "watermarks/sampled.jsonl", self.marks
        yield "groups/sampled.jsonl", self.groups


_JSON = msgspec.json.Encoder()


def end_of(entries: list[Entry]) -> int:
    """The log end offset according to the bytes."""
    return entries[-1].end if entries else 0
