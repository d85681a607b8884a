"""The facts about a run and about one partition, from events alone: the eras of a partition follow
from them.

Facts about the run are stored once (`RunFacts`), facts about a partition once (`PartitionFacts`);
plans and views refer to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from linkflap.harness.model.events import FailoverRefused
from linkflap.harness.model.faults import FaultName, Target
from linkflap.harness.model.payload import Values
from linkflap.harness.model.scenario import Budgets, MirrorSpec
from linkflap.harness.model.topology import INTERNAL_TOPICS, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPromotion:
    """On `cluster`, offsets from `offset` on are its own. `time` is when writes to it were let
    in."""

    link: str
    kind: Literal["planned", "forced"]
    source: str
    cluster: str
    offset: int
    time: int
    fault_time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTruncation:
    """The truncation that a mirror recorded of the log of its destination `cluster` when that began
    to follow: offsets [offset, end).
    """

    link: str
    cluster: str
    offset: int
    end: int
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStop:
    """A mirror's record of its own end in a partition: the offset after the last mirrored one, its
    changes then, and the first offset of the destination's clients. `truncated` are (end, truncated
    to), `appended` (offset, what), `epochs` the leader epochs of the mirrored log (epoch, first
    offset), both rising.
    """

    link: str
    cluster: str
    time: int
    mirrored: int
    promoted: int
    truncated: Sequence[tuple[int, int]]
    appended: Sequence[tuple[int, str]]
    epochs: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A mirror's report of a partition, requested and answered between `asked` and `returned`: the
    `state` in the mirror's terms, whether that state means that it `mirrors` or was `promoted`
    (None: not recorded), and the lag in offsets (-1: not reported).
    """

    link: str
    state: str
    mirrors: bool
    lag: int
    asked: int
    returned: int
    promoted: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSample:
    """The log start and end of one replica, requested at `asked` and answered until `returned`.
    A replica has a sample where it changed since the one before."""

    cluster: str
    broker: int
    log_start: int
    log_end: int
    asked: int
    returned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A request on `cluster` to delete the records below an offset (DeleteRecords), made at
    `asked`."""

    cluster: str
    offset: int
    asked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A topic at both ends of a link, compared after its mirror had copied everything and had time
    to sync it.

    Partitions at the source (`there`) and the destination (`here`, 0: it has no such topic), and
    settings that differ: (name, there, here), None where not set; ACLs that are `missing` at the
    destination, and those that it has `beside`. `recorded`: where the mirror's records of its state
    are not what it describes.
    """

    link: str
    there: int
    here: int
    differing: Sequence[tuple[str, str | None, str | None]]
    time: int
    missing: Sequence[str] = ()
    beside: Sequence[str] = ()
    recorded: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of a topic on a cluster, as answered to the request at `asked` and to all later
    ones up to `until`."""

    cluster: str
    settings: Mapping[str, str]
    asked: int
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Verbs of a mirror were answered, or changed it, in a way that its model does not allow:
    `said` in words, and the time of the record."""

    link: str
    said: str
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedBytes:
    """A broker returned a different batch at an offset than in an earlier fetch: the CRCs of both
    (None: no batch)."""

    cluster: str
    broker: int
    offset: int
    crc: tuple[int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The records that a lossy fault removed from one partition of `cluster`: the deposed leader's
    log at offsets [start, end), read after the leader's death. A new leader was elected at
    `elected` or later.

    `records` are (payload id, offset, how many, producer id) and `markers` (offset, producer id,
    producer epoch, whether it is a COMMIT). `records` are None in runs of older versions; then
    `elected` is when the fault was measured, which was right after the election.
    """

    cluster: str
    topic: str
    partition: int
    start: int
    end: int
    elected: int
    elected_epoch: int = -1
    records: tuple[tuple[int, int, int, int], ...] | None = None
    markers: tuple[tuple[int, int, int, bool], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A fault's window: [start, end] in nanoseconds; `end` is after the heal.

    `took_effect` is False for a reversal that truncated nothing and never mirrored, and for a
    failover that was refused or did not complete. `lost` are the losses of an unclean election, by
    partition.
    """

    id: str
    fault: str
    target: str
    start: int
    end: int
    took_effect: bool = True
    lost: tuple[Loss, ...] = ()

    @property
    def name(self) -> FaultName:
        """The name of the fault, parsed."""
        return FaultName(self.fault)

    @property
    def on(self) -> Target:
        """The target of the fault."""
        return Target.parse(self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    """A program of the user's that promises one output for each input its group has passed: its
    name, home, group and topics."""

    name: str
    home: str
    group: str
    reads: frozenset[str]
    writes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """A client that promises progress, or the group of several: on its last cluster, from `since`
    (all faults have ended) to `until` (it is stopped), within any `within` nanoseconds. So does the
    mirror of a link, from `home` to `cluster`.

    `topics` are those that it reads or writes; empty: all of its `home`. `outputs` are those of a
    program without a group. It `produces` under its own name, and no other client fences it; its
    transactions time out after `timeout`. `broken` is when the first fault began (0: there was
    none), `exits` when a program ended by itself. `said` is the coordinator's answer about a client
    without progress, and `last_words` are the last lines of the client's log.
    """

    client: str
    kind: Literal["reader", "group", "share", "producer", "program", "mirror"]
    cluster: str
    home: str
    since: int
    until: int
    within: int
    group: str = ""
    isolation: str = "read_committed"
    topics: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()
    produces: bool = False
    timeout: int = 0
    broken: int = 0
    exits: tuple[int, ...] = ()
    said: str = ""
    last_words: tuple[str, ...] = ()

    def uses(self, topic: str, home: str) -> bool:
        """Whether it reads or writes a topic of this home."""
        return topic in self.topics if self.topics else home == self.home


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The facts about an entire run.

    `ended` is when the run ended, or the time of the last event if the harness was killed. `homes`
    are those of topics whose names do not begin with them. `recorded`: clients' histories were
    recorded. `deaths`: clusters whose brokers were all dead at the end, by themselves or by a
    forced failover, and when. `programs`: topics that users' programs write; `wired`: those of
    them whose writes were recorded on the wire, so that they have a history; `copying`: those whose
    programs promise exactly once. `refusals` are failovers that never took place. `drained` are
    links whose mirror had copied everything whenever it was stopped.
    `awaited` are clients that promise progress. `topic_config` are the settings of the
    clients' topics, and `values` what each of linkflap's own clients writes.
    """

    run: str
    topology: Topology
    mirror: MirrorSpec
    windows: Sequence[Window] = ()
    ended: int = 0
    budgets: Budgets = field(default_factory=Budgets)
    homes: Mapping[str, str] = field(default_factory=dict)
    recorded: bool = True
    deaths: Mapping[str, int] = field(default_factory=dict)
    programs: frozenset[str] = frozenset()
    wired: frozenset[str] = frozenset()
    refusals: Sequence[FailoverRefused] = ()
    drained: frozenset[str] = frozenset()
    copying: tuple[Copying, ...] = ()
    awaited: tuple[Awaited, ...] = ()
    topic_config: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Values] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartitionFacts:
    """The facts about one partition of a run, besides its rows. One object per partition, so that
    its eras are computed once.

    `compacted` is, per cluster, the offset below which one of its brokers has compacted the log
    (cleanup.policy=compact): there a record that is missing is no loss. `unclear` is, per cluster
    of copied logs, the offset from which on its log may be its own or a mirror's: no mark is left.
    `settings` are samples of its topic's; `unknown_settings` are those that the destination's
    release does not have.
    """

    facts: RunFacts
    topic: str
    partition: int
    promotions: Sequence[LogPromotion] = ()
    truncations: Sequence[LogTruncation] = ()
    stops: Sequence[MirrorStop] = ()
    descriptions: Sequence[Description] = ()
    disagreements: Sequence[Disagreement] = ()
    comparisons: Sequence[Comparison] = ()
    replica_samples: Sequence[ReplicaSample] = ()
    settings: Sequence[TopicSettings] = ()
    unknown_settings: frozenset[str] = frozenset()
    deletions: Sequence[Deletion] = ()
    changed_bytes: Sequence[ChangedBytes] = ()
    compacted: Mapping[str, int] = field(default_factory=dict)
    unclear: Mapping[str, int] = field(default_factory=dict)

    @property
    def internal(self) -> bool:
        """Whether this is one of Kafka's own topics: every cluster has one of its own by that name,
        which no link leads to."""
        return self.topic in INTERNAL_TOPICS

    @property
    def home(self) -> str:
        """The cluster whose clients wrote this topic first: as the run says, or its name's first
        part (`topology.topic_name`)."""
        return self.facts.homes.get(self.topic) or self.topic.partition(".")[0]

    def hops(self) -> Iterator[tuple[str, str]]:
        """(source, destination) clusters of every link that leads this topic on."""
        for link in self.facts.topology.links:
            if self.home in self.facts.topology.homes_over(link):
                yield link.source, link.destination
