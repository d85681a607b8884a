"""A check: a declaration and a pure kernel, in one file and one line of the registry
(`spark_verify.checks`).

The kernel gets one partition of one run and returns findings. It never decides a verdict, never
raises for a violation, and counts what it examined. A check that must look across partitions
returns partial findings from its kernel. Its `combine` then gets all partial findings of a run, or
of an independent part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, SupportsInt, TypeVar

import numpy as np

from linkflap.harness.model.events import Event
from linkflap.harness.model.guarantee import Equality, Guarantee
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.model.verdict import Failover
from linkflap.spark_verify.facts.partition_facts import LogPromotion
from linkflap.spark_verify.facts.view import Origin, PartitionView

Part = TypeVar("Part")
Key = TypeVar("Key")
FailoverCost = Literal["torn", "skipped", "replayed"]
Examinable = Origin | Literal["checkpoints"]
"""Where what is examined comes from; sampled committed offsets of groups are in no log."""
Due = Collection[tuple[str, Examinable]]
"""Clusters, and what must have been examined of each."""
Input = Literal["batches", "records", "sends", "reads", "watermarks", "promotions", "groups"]


_PROMISED: Final[Mapping[str, str]] = {
    "order": "records keep their order",
    "records": "records keep their offsets",
}


def nothing_due(_scenario: Scenario, _promotions: Sequence[LogPromotion]) -> Due:
    """The rule of a check that not every run of a scenario has something for."""
    return ()


def _unwrap(declared: object) -> None:
    """Joins the lines of every text of a declaration."""
    for each in fields(declared):  # type: ignore[arg-type]
        if isinstance(text := getattr(declared, each.name), str):
            object.__setattr__(declared, each.name, " ".join(text.split()))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyKind:
    """A kind of anomaly: its kebab-case noun, what it means, and the smallest example in words.

    `despite_torn`: the remaining part of a log proves it, whatever is missing. Any other kind that
    is found in a partition with a torn log is reported as a reason why the partition could not be
    judged: a lost marker turns committed into aborted, a lost batch makes a gap. `sentence`
    describes one anomaly (who did what where), with fields of `spark_verify.verdict.sentences` and
    of the evidence. `counted` is the harm to the user of one and of many (`write is lost|writes are
    lost`); empty if it does no harm by itself. `latent`: the same sentence names its consequence,
    because alone it would do no harm. `alone` is its possible harm, reported if no anomaly that
    harms clients follows from it; empty if it is such harm itself. `failover_cost`: the figure of a
    failover's certificate that counts it. For kinds that count as `skipped` or `replayed` the
    evidence has the number of `records`; for kinds that count as `torn`, the `operation` and the
    `link`. `noted`: reported, and never makes a run invalid. `repeats_sequence`: a batch has a
    sequence that the log had already; `linkflap forensics` then examines whether two producers
    share the id. `one_per`: fields of the evidence that are the same of one thing in several
    partitions (a transaction), which is then counted once. `follows`: as that of a check, of a kind
    with causes of its own (None: its check's); other checks name such a kind in theirs.
    """

    name: str
    meaning: str
    smallest: str
    despite_torn: bool = False
    sentence: str = ""
    counted: str = ""
    latent: bool = False
    alone: str = ""
    failover_cost: FailoverCost | None = None
    noted: bool = False
    repeats_sequence: bool = False
    one_per: tuple[str, ...] = ()
    follows: AbstractSet[str] | None = None

    def __post_init__(self) -> None:
        _unwrap(self)


def _plain(value: object) -> object:
    """The same as JSON has it."""
    if isinstance(value, np.generic):
        return value.item()
    return [_plain(each) for each in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An anomaly of the partition at hand. `offset` is -1 when the thing is nowhere; evidence is
    plain JSON values."""

    kind: str
    cluster: str
    offset: int
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def at(kind: str, cluster: str, offset: SupportsInt, /, **evidence: object) -> Found:
        """An anomaly whose offset and evidence may have numbers of NumPy."""
        return Found(
            kind=kind,
            cluster=cluster,
            offset=int(offset),
            evidence={name: _plain(value) for name, value in evidence.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """How many things (records, batches, transactions: the check's own unit) were examined, with
    their cluster and origin.

    `start` is the offset at which their era, or the examined part of it, begins in that
    `generation` of the log; -1: no era is meant. Sampled committed offsets of groups have the
    origin `checkpoints`: they are in no log.
    """

    cluster: str
    origin: Examinable
    count: int
    generation: int = 0
    start: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialFinding:
    """Something only `combine` can judge, with the partition it came from filled in by the caller.

    `data` are plain JSON values, and columns of numbers (arrays of int64) where there is one for
    each record or transaction. Where not all partial findings of a run have to be seen together,
    those that do say the same word in `together`.
    """

    cluster: str
    offset: int
    data: Mapping[str, Any]
    topic: str = ""
    partition: int = -1
    together: str = ""

    @property
    def tp(self) -> str:
        return f"{self.topic}-{self.partition}"

    def combined(self, found: Found | Unjudged) -> Combined:
        """The judgement of `combine` on this partition."""
        return Combined(found=found, topic=self.topic, partition=self.partition)


def grouped(parts: Iterable[Part], key: Callable[[Part], Key]) -> dict[Key, list[Part]]:
    """The parts by key, in their order."""
    found: dict[Key, list[Part]] = {}
    for part in parts:
        found.setdefault(key(part), []).append(part)
    return found


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A reason why this partition could not be judged (an input is missing or torn): the verdict is
    at least unknown."""

    reason: str


Finding = Found | Examined | PartialFinding | Unjudged


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """An anomaly that took several partitions to see, or why one could not be judged by what others
    say."""

    found: Found | Unjudged
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A check's measurements of the failovers of a run, and the reason why some could not be
    measured, which makes the check unknown."""

    failovers: Sequence[Failover]
    missing: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The declaration of a check: everything that the judge, the Spark job, `linkflap forensics`
    and the docs know about it.

    If something is due, it must have been examined for the verdict to be valid: a check that
    examined nothing there is unknown. `due` names the origins: native wherever clients of the
    workload write, mirrored at every link's destination. A check with another rule has `due_at`
    (scenario and all promotions in, (cluster, origin) pairs out), and `when` describes it for
    people.

    `complete` are the inputs whose missing rows could cause a false anomaly (promotions, unless the
    check needs no eras): if one of them is damaged, findings are reported, but prove nothing. If an
    entire capture is missing, that goes for all checks, except for kinds that are proven
    `despite_torn`. `internal`: its kernel also gets the partitions of Kafka's own topics.
    `from_bytes`: it also runs on logs alone, without a client history; `from_content`: there only
    if the mirror promises this equality. `of_one_cluster`: and on one cluster's logs (`linkflap
    forensics`). `examines_any_log`: it has something to examine in any log; other checks examine
    things that some logs lack (transactions, producer ids). `only_our_records`: on logs alone it
    ignores records that linkflap's clients did not write, so those need not be decoded.
    `of_replicas`: it compares the replicas of a cluster. `time_based`: its findings depend on
    times, so a host stall makes it unknown. `judges_readers`: it judges readers; other checks with
    reads among their inputs learn from them what must be there. `only_read_committed`: it examines
    only what readers with this isolation got. `only_relays`: it examines the reads of relays, and
    no other reader. `only_of`: it examines only transactions, or only batches of producers with an
    id. If no client of a recorded run used one, nothing is due. `wire`: what a history proves that
    was recorded on the wire, or does not. `measure`: computes the cost of a run's failovers from
    all its partial findings and its events. `follows` names the checks, and the kinds with a
    `follows` of their own, from whose anomalies those of this one may follow
    (`spark_verify.verdict.causes`).
    """

    name: str
    guarantee: str
    source: str
    inputs: AbstractSet[Input]
    anomalies: tuple[AnomalyKind, ...]
    kernel: Callable[[PartitionView], Iterable[Finding]]
    combine: Callable[[Sequence[PartialFinding]], Iterable[Combined]] | None = None
    unit: str = "records"
    due: AbstractSet[Origin] = frozenset({"native", "mirrored"})
    due_at: Callable[[Scenario, Sequence[LogPromotion]], Due] | None = None
    when: str = ""
    complete: AbstractSet[Input] = frozenset({"promotions"})
    measure: Callable[[Sequence[PartialFinding], Sequence[Event]], Measured] | None = None
    from_bytes: bool = False
    of_one_cluster: bool = False
    from_content: Equality | None = None
    examines_any_log: bool = False
    only_our_records: bool = False
    of_replicas: bool = False
    time_based: bool = False
    judges_readers: bool = False
    only_read_committed: bool = False
    only_relays: bool = False
    only_of: Literal["", "transactions", "producer ids"] = ""
    internal: bool = False
    wire: str = ""
    follows: AbstractSet[str] = frozenset()

    def __post_init__(self) -> None:
        _unwrap(self)

    def runs_on(self, guarantee: Guarantee, *, recorded: bool) -> bool:
        """Whether the check can judge a run directory, which may have no client history."""
        return recorded or self.from_bytes or guarantee.equality == self.from_content

    @property
    def due_where(self) -> str:
        """Where something is due, in words."""
        words = {"native": "where clients write", "mirrored": "where a link leads"}
        asked = f", once a client has asked for {self.only_of}" if self.only_of else ""
        heard = ", if a workload reads with read_committed" if self.only_read_committed else ""
        return (
            (
                self.when
                or " and ".join(f"{origin} ones {words[origin]}" for origin in sorted(self.due))
            )
            + asked
            + heard
        )

    @property
    def facts(self) -> Mapping[str, str]:
        """The properties of the check beside its guarantee, for docs/checks.md and for reports."""
        either = " or ".join(", ".join(sorted(self.complete)).rsplit(", ", 1))
        whole = f"; unknown when {either} are damaged" if either else ""
        alone = (
            "; also runs on logs without a client history"
            if self.from_bytes or self.from_content
            else ""
        )
        if self.from_content:
            alone += f", if their mirror promises that {_PROMISED[self.from_content]}"
        return {
            "Source": self.source,
            "Examines": f"{self.unit}; needs {self.due_where}",
            "Reads": f"{', '.join(sorted(self.inputs))}{whole}{alone}",
            "May follow from": ", ".join(sorted(self.follows)) or "no other check",
            **({"On the wire": self.wire} if self.wire else {}),
        }


RUN_GUARANTEES: Final[Mapping[str, str]] = {
    "recording": (
        "The run's record is complete, its readers read to the end, and it did at least what its "
        "scenario asks for."
    ),
    "fault-bite": (
        "Every scheduled fault was seen to have an effect within its window, and to be healed."
    ),
}
"""The checks of a run itself, by name, and their guarantees (`spark_verify.verdict.run_checks`)."""
RUN_CHECKS: Final = tuple(RUN_GUARANTEES)
