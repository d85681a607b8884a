"""A recorded run with additions of a test, findings in it, and the judge's document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from linkflap.harness.model.events import Event
from linkflap.harness.model.history import (
    Bounds,
    Fetched,
    Operation,
    Poll,
    PollKind,
    SendGroup,
    Watermark,
)
from linkflap.harness.model.scenario import (
    Budgets,
    FaultSpec,
    Minimums,
    MirrorSpec,
    Scenario,
    TopicSpec,
    WorkloadSpec,
)
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.verdict import CheckResult
from linkflap.harness.model.wait import now
from linkflap.harness.rundir import Run, RunWriter
from linkflap.harness.rundir.files import Status
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.finding_rows import FindingName, FindingRow
from linkflap.spark_verify.verdict.judge import Judgement, judge
from linkflap.topologies import parse
from tests.events import event
from tests.run_copy import seal

LINK = "A->B"


class Given(TypedDict, total=False):
    """Parts of the scenario that a test changes."""

    topology: Topology
    mirror: MirrorSpec
    workloads: tuple[WorkloadSpec, ...]
    schedule: tuple[FaultSpec, ...]
    checks: tuple[str, ...]
    minimums: Minimums
    budgets: Budgets
    topics: TopicSpec
    duration: float


def scenario(**rest: Unpack[Given]) -> Scenario:
    plain = Scenario(
        name="test", about="", seed=5, topology=parse(LINK),
        mirror=MirrorSpec(kind="mm2", options={"delivery": "at-least-once"}),
        workloads=(WorkloadSpec(kind="transactional", home="A"),), schedule=(),
    )  # fmt: skip
    return replace(plain, **rest)


class Recorded:
    """A complete run directory: a commit, an abort, a read, and the additions of a test."""

    def __init__(self, folder: Path, **rest: Unpack[Given]) -> None:
        self.folder = folder
        self.writer = RunWriter(
            folder,
            Run(
                format=1, linkflap="0", command="", runtime="process", status="running",
                started=now(), ended=0,
                scenario=scenario(**rest),
            ),
        )  # fmt: skip
        self.operations, self.polls = self.writer.operations("client"), self.writer.polls("reader")
        self.writer.watermarks("A").write(
            Watermark(
                time=now(),
                returned=now(),
                cluster="A",
                leader=1,
                topic="A.t",
                partition=0,
                log_start=0,
                last_stable=1,
                high_watermark=1,
            )
        )

    def event(self, kind: str, subject: str, /, **data: object) -> Event:
        """An event with the fields that a test needs."""
        return self.writer.write(event(kind, subject, at=0, **data))

    def read(
        self,
        kind: PollKind,
        reader: str,
        *,
        cluster: str = "A",
        group: str = "",
        partition: int = 0,
    ) -> None:
        """A row of a reader whose position is offset 3."""
        here = (Fetched(topic="A.t", partition=partition, position=3),)
        fetched = here if kind != "error" else ()
        self.polls.write(
            Poll(
                time=now(), returned=now(), kind=kind, fetched=fetched, reader=reader, process=3,
                cluster=cluster,
                isolation="read_committed", group=group,
            )
        )  # fmt: skip

    def fault(
        self,
        name: str = "f",
        *,
        bit: bool = True,
        healed: bool = True,
        fault: str = "mirror-kill",
        target: str = LINK,
    ) -> None:
        self.event("fault-start", target, id=name, fault=fault, restores=True, options={})
        self.event(
            "fault-bite",
            target,
            id=name,
            bit=bit,
            observable="worker",
            measured="alive",
            expected="dead",
        )
        self.event("fault-heal", target, id=name, healed=healed, checked=[])
        self.event("fault-end", target, id=name)

    def close(
        self, *, commits: int = 1, aborts: int = 1, reads: int = 1, status: Status = "finished"
    ) -> Path:
        for number in range(commits + aborts):
            for phase in ("invoke", "return"):
                self.operations.write(
                    Operation(
                        number=number,
                        phase=phase,
                        time=now(),
                        client="client",
                        process=1,
                        cluster="A",
                        kind="transaction",
                        ending="commit" if number < commits else "abort",
                        outcome="ok",
                        sends=(SendGroup(topic="A.t", partition=0, first_uid=number, count=1),),
                    )
                )
        if reads:
            self.polls.write(
                Poll(
                    time=now(),
                    returned=now(),
                    reader="reader",
                    process=2,
                    cluster="A",
                    isolation="read_committed",
                    kind="poll",
                    fetched=(
                        Fetched(topic="A.t", partition=0, runs=((1, 0, reads),), position=reads),
                    ),
                )
            )
        self.writer.write_bounds("end", [self._bounds(cluster) for cluster in "AB"])
        self.writer.close(status)
        seal(self.folder)
        return self.folder

    @staticmethod
    def _bounds(cluster: str) -> Bounds:
        return Bounds(
            cluster=cluster, broker=1, topic="A.t", partition=0, leader=True, alive=True,
            log_start=0, high_watermark=0,
            high_watermark_from="sampled",
        )  # fmt: skip


class Rest(TypedDict, total=False):
    """The other fields of a finding."""

    topic: str
    cluster: str
    origin: str
    kind: str
    offset: int
    count: int
    data: Mapping[str, object]


def row(folder: Path, check: str, finding: FindingName, **rest: Unpack[Rest]) -> FindingRow:
    plain = FindingRow(
        run=str(folder), topic="A.t", partition=0, check=check, finding=finding, data={}
    )
    return replace(plain, **rest)


def looked(folder: Path, *checks: str) -> list[FindingRow]:
    """The results of checks that examined everything and found nothing."""
    where = (("A", "native"), ("B", "mirrored"))
    return [
        row(folder, c, "examined", cluster=cluster, origin=origin, count=3)
        for c in checks
        for cluster, origin in where
    ]


def result(judgement: Judgement, name: str) -> CheckResult:
    return next(c for c in judgement.checks if c.name == name)


def verdict_of(folder: Path, rows: Sequence[FindingRow], *names: str) -> Judgement:
    return judge(folder, rows, [REGISTRY[name] for name in names])


def document_of(judgement: Judgement) -> Mapping[str, Any]:
    """The verdict document as plain JSON."""
    return judgement.document
