"""The real behaviour of MirrorMaker 2 on real clusters: repeats, aborted records, group offsets;
all counted, none hidden.

One run per mode and one Spark job for all of them. In CI the two modes with the clearest answers;
the rest is nightly.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from linkflap.chaos.scenarios.base import GROUP, default_workloads
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec, Scenario, WorkloadSpec
from linkflap.harness.model.verdict import Anomaly, CheckResult, Verdict
from linkflap.recording.run import record
from linkflap.report.progress import Progress
from linkflap.spark_verify.verdict.judge import Judgement
from linkflap.spark_verify.verify import verify
from linkflap.topologies import parse

pytestmark = pytest.mark.spark

PAIR = parse("A->B")
CRASH = FaultSpec(
    id="crash", fault="mirror-kill", target="A->B", at=2.0, duration=0.5, when="mirror-behind"
)
LEAVE = FaultSpec(
    id="failover",
    fault="failover-forced",
    target="A->B",
    at=4.0,
    duration=0.0,
    when="open-transactions",
)


BACKLOG = WorkloadSpec(kind="idempotent", home="A", options={"rate": 20.0})
"""Enough that the worker writes records between any two commits of its position."""


def run_of(
    name: str,
    *schedule: FaultSpec,
    duration: float = 5.0,
    more: tuple[WorkloadSpec, ...] = (),
    **options: str,
) -> Scenario:
    return Scenario(
        name=name,
        about="what MirrorMaker 2 does",
        seed=11,
        topology=PAIR,
        mirror=MirrorSpec(kind="mm2", options=options),
        workloads=(*default_workloads(PAIR, "A"), *more),
        schedule=schedule,
        duration=duration,
    )


# A kill right after the worker has committed its position repeats nothing: three of them do not all
# fall there.
ATTEMPTS = tuple(run_of(f"at-least-once-{n}", CRASH, more=(BACKLOG,)) for n in range(3))
UNCOMMITTED = run_of("uncommitted", isolation="read_uncommitted", duration=4.0)
NIGHTLY = (
    run_of("exactly-once", CRASH, delivery="exactly-once"),
    run_of("groups", LEAVE, duration=8.0),
)


def judged(
    scenarios: tuple[Scenario, ...], folder: Path, spark: SparkSession
) -> dict[str, Judgement]:
    with Progress() as progress:
        folders = [
            record(
                scenario,
                runtime="process",
                folder=folder / scenario.name,
                command="pytest",
                progress=progress,
            )
            for scenario in scenarios
        ]
    return {judgement.folder.name: judgement for judgement in verify(folders, spark=spark)}


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> dict[str, Judgement]:
    folder = tmp_path_factory.mktemp("mm2")
    first, *others = ATTEMPTS
    found = judged((first, UNCOMMITTED), folder, spark)
    killed = found[first.name]
    for attempt in others:
        if of_kind(killed, "mirrored-duplicate"):
            break
        killed = judged((attempt,), folder, spark)[attempt.name]
    return found | {"at-least-once": killed}


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> dict[str, Judgement]:
    return judged(NIGHTLY, tmp_path_factory.mktemp("mm2-nightly"), spark)


def of_kind(judgement: Judgement, *kinds: str) -> list[Anomaly]:
    return [a for a in judgement.anomalies if a.kind in kinds]


def records(anomalies: Iterable[Anomaly]) -> int:
    return sum(int(cast("int | str", a.evidence["records"])) for a in anomalies)


def check(judgement: Judgement, name: str) -> CheckResult:
    return next(c for c in judgement.checks if c.name == name)


def assert_killed(judgement: Judgement) -> None:
    assert check(judgement, "fault-bite").examined == {"run/faults": 1}
    assert check(judgement, "fault-bite").verdict is Verdict.VALID, check(
        judgement, "fault-bite"
    ).reason


def test_a_killed_worker_repeats_at_least_once_and_loses_nothing(
    short: dict[str, Judgement],
) -> None:
    """Whether a kill falls between a write and the commit of its position is random; at least one
    of three must. Repeats are counted, equally by both checks that find them, and allowed because
    of the kill; nothing else is found."""
    judgement = short["at-least-once"]
    assert_killed(judgement)
    repeats = of_kind(judgement, "mirrored-duplicate")
    counted = {
        name: sum(int(cast("int | str", a.evidence["records"])) for a in repeats if a.check == name)
        for name in ("duplicate", "order-equality")
    }
    assert counted["duplicate"] == counted["order-equality"] > 0
    assert all(a.allowed and "mirror-kill (crash)" in str(a.evidence["why"]) for a in repeats)
    assert judgement.verdict is Verdict.VALID, judgement.document["reason"]
    arrived = check(judgement, "order-equality").examined["B/mirrored"]
    committed = check(judgement, "lost-write").examined["A/native"]
    assert arrived == committed + counted["order-equality"]


def test_reading_uncommitted_turns_aborted_records_into_plain_ones(
    short: dict[str, Judgement],
) -> None:
    judgement = short["uncommitted"]
    assert judgement.verdict is Verdict.INVALID
    plain, read = of_kind(judgement, "mirrored-aborted"), of_kind(judgement, "aborted-read")
    assert plain
    assert read
    assert not any(a.allowed for a in (*plain, *read))
    assert {a.cluster for a in (*plain, *read)} == {"B"}
    assert {a.evidence["state"] for a in plain} == {"aborted"}
    assert {a.evidence["witness"] for a in read} == {"client"}
    assert records(plain) >= len(plain)


@pytest.mark.nightly
def test_a_killed_worker_repeats_nothing_visible_exactly_once(long: dict[str, Judgement]) -> None:
    judgement = long["exactly-once"]
    assert_killed(judgement)
    assert of_kind(judgement, "mirrored-duplicate") == []
    assert judgement.verdict is Verdict.VALID, judgement.document["reason"]
    assert (
        check(judgement, "order-equality").examined["B/mirrored"]
        == check(judgement, "lost-write").examined["A/native"]
    )


@pytest.mark.nightly
def test_a_group_that_fails_over_skips_nothing_and_repeats_within_bounds(
    long: dict[str, Judgement],
) -> None:
    judgement = long["groups"]
    assert judgement.verdict is Verdict.VALID, judgement.document["reason"]
    groups = check(judgement, "group-offsets")
    assert groups.examined["B/mirrored"] > 0
    assert [
        a for a in judgement.anomalies if a.check == "group-offsets" and a.kind != "group-replay"
    ] == []
    assert groups.examined["A/checkpoints"] > 0
    replays = of_kind(judgement, "group-replay")
    assert replays, (
        "the source died with transactions open, so that "
        "what was committed last had not been synced"
    )
    for replay in replays:
        assert replay.allowed
        assert replay.evidence["group"] == GROUP
        assert (
            0
            < int(cast("int | str", replay.evidence["records"]))
            <= int(cast("int | str", replay.evidence["bound"]))
        )
