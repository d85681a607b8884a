"""A check: a declaration and a pure kernel, in one file and one line of the registry
(`spark_verify.checks`).

The kernel gets one partition of one run and returns findings. It never decides a verdict, never
raises for a violation, and counts what it examined. A check that must look across partitions
returns partial findings from its kernel. Its `combine` then gets all partial findings of a run, or
of an independent part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from linkflap.harness.model.events import Event
from linkflap.harness.model.failover_cost import Failover
from linkflap.harness.model.scenario import Scenario
from linkflap.spark_verify.facts.story import Promotion
from linkflap.spark_verify.facts.view import Origin, PartitionView

FailoverCost = Literal["torn", "skipped", "replayed"]
Input = Literal["batches", "records", "sends", "reads", "watermarks", "promotions", "groups"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyKind:
    """A kind of anomaly: its kebab-case noun, what it means, and the smallest example in words.

    `despite_torn`: what is there of a log proves it, whatever is missing. Any other kind found in a
    partition of which a log is torn is reported as a reason why it could not be judged: a lost
    marker turns committed into aborted, a lost batch makes a gap. `sentence` says of one anomaly
    who did what where, with fields of `spark_verify.verdict.sentences` and of the evidence.
    `counted` is what some of them come to for the user, for one and for many (`write is lost|writes
    are lost`); empty where they come to nothing by themselves. `latent`: what it led to is said in
    the same sentence, because alone it would harm nobody. `alone` is what it can come to, said
    where nothing that harms clients was found to follow; empty where it is such harm itself.
    `failover_cost`: the figure of a failover's certificate in which it is counted. Of kinds that
    count as `skipped` or `replayed` the evidence has the number of `records`; of those that count
    as `torn` the `operation` and the `link`. `repeats_sequence`: a batch has a sequence that the
    log had already; `linkflap forensics` looks whether two producers share the id then.
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
    repeats_sequence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An anomaly of the partition at hand. `offset` is -1 when the thing is nowhere; evidence is
    plain JSON values."""

    kind: str
    cluster: str
    offset: int
    evidence: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """How many things (records, batches, transactions: the check's own unit) were looked at, of
    what origin, where.

    `start` is where their era, or the part of it that was looked at, begins in which `generation`
    of a log; -1: no era is meant. Of committed offsets of groups that were sampled on a cluster the
    origin is `checkpoints`: they are in no log.
    """

    cluster: str
    origin: Origin | Literal["checkpoints"]
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
    data: Mapping[str, object]
    topic: str = ""
    partition: int = -1
    together: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """What a check measured of the failovers of a run, and why some of it could not be measured,
    which makes it unknown."""

    failovers: Sequence[Failover]
    missing: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The declaration of a check: all that the judge, the Spark job, `linkflap forensics` and the
    docs know of it.

    Where something is due it must have been examined for the verdict to be valid: a check that
    looked at nothing there is unknown. `due` says of which origins: native wherever clients of the
    workload write, mirrored wherever a link leads. A check for which that is not the rule has
    `due_at` (scenario and all promotions in, (cluster, origin) pairs out), and `when` for people.

    `complete` are the inputs of which a row that is missing could make an anomaly out of nothing:
    where one of them is damaged, what was found is reported, but proves nothing. So it is with all
    checks where a whole capture is missing, but for kinds that are proven `despite_torn`.
    `internal`: its kernel also gets the partitions of Kafka's own topics. `from_bytes`: it is made
    of logs alone too, without a client history. `of_one_cluster`: and of one cluster's logs
    (`linkflap forensics`). `examines_any_log`: it has something to examine in any log; what others
    examine (transactions, producer ids) not every log has. `only_our_records`: of logs alone,
    records that linkflap's clients did not write are nothing to it (unless the mirror maps producer
    ids), so those need not be decoded. `of_replicas`: it compares the replicas of a cluster.
    `time_based`: what it says rests on times, so a host that stood still makes it unknown.
    `judges_readers`: it judges what readers got; others with reads among their inputs learn from
    them what must be there. `only_relays`: it looks at what relays read, and at no other reader.
    `only_of`: it examines nothing but transactions, or batches of producers that have an id. Of a
    recorded run in which no client asked for one nothing is due. `measure`: from all partial
    findings of a run, and its events, what its failovers cost. `follows` names the checks of whose
    anomalies those of this one may be a consequence (`spark_verify.verdict.causes`).
    """

    name: str
    guarantee: str
    source: str
    inputs: frozenset[Input]
    anomalies: tuple[AnomalyKind, ...]
    kernel: Callable[[PartitionView], Sequence[Finding]]
    combine: Callable[[Sequence[PartialFinding]], Sequence[Combined]] | None = None
    unit: str = "records"
    due: frozenset[Origin] = frozenset({"native", "mirrored"})
    due_at: (
        Callable[
            [Scenario, Sequence[Promotion]], Collection[tuple[str, Origin | Literal["checkpoints"]]]
        ]
        | None
    ) = None
    when: str = ""
    complete: frozenset[Input] = frozenset()
    measure: Callable[[Sequence[PartialFinding], Sequence[Event]], Measured] | None = None
    from_bytes: bool = False
    of_one_cluster: bool = False
    examines_any_log: bool = False
    only_our_records: bool = False
    of_replicas: bool = False
    time_based: bool = False
    judges_readers: bool = False
    only_relays: bool = False
    only_of: Literal["", "transactions", "producer ids"] = ""
    internal: bool = False
    follows: frozenset[str] = frozenset()

    @property
    def due_where(self) -> str:
        """Where something is due, in words."""
        words = {"native": "where clients write", "mirrored": "where a link leads"}
        asked = f", once a client has asked for {self.only_of}" if self.only_of else ""
        return (
            self.when
            or " and ".join(f"{origin} ones {words[origin]}" for origin in sorted(self.due))
        ) + asked
