"""A fault that never took effect: a real run in which the link's toxics are silently left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from linkflap.chaos.scenarios.base import default_workloads
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec, Scenario
from linkflap.harness.model.verdict import Verdict
from linkflap.harness.runtimes.toxiproxy.link import OWNER, ToxiproxyLink
from linkflap.recording.run import record
from linkflap.report.progress import Progress
from linkflap.spark_verify.verify import verify
from linkflap.topologies import parse

pytestmark = pytest.mark.spark

PAIR = parse("A->B")


def test_a_latency_that_was_never_there_makes_the_verdict_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    add_toxic = ToxiproxyLink.add_toxic

    def only_probes(link: ToxiproxyLink, *given: Any, owner: str = "", **named: Any) -> None:
        if owner == OWNER:  # without those the link would not even be taken for one
            add_toxic(link, *given, owner=owner, **named)

    monkeypatch.setattr(ToxiproxyLink, "add_toxic", only_probes)
    slow = FaultSpec(
        id="slow",
        fault="link-latency",
        target="A->B",
        at=1.0,
        duration=1.0,
        options={"latency": 150},
    )
    scenario = Scenario(
        name="no-toxics",
        about="a latency that nobody adds",
        seed=5,
        topology=PAIR,
        mirror=MirrorSpec(kind="mm2"),
        workloads=default_workloads(PAIR, "A"),
        schedule=(slow,),
        duration=4.0,
    )
    with Progress() as progress:
        folder = record(
            scenario,
            runtime="process",
            folder=tmp_path / "run",
            command="pytest",
            progress=progress,
        )
    (judgement,) = verify([folder], spark=spark)
    assert judgement.verdict is Verdict.UNKNOWN, judgement.document["reason"]
    bite = next(check for check in judgement.checks if check.name == "fault-bite")
    assert "fault slow (link-latency on A->B) did not bite" in bite.reason
    assert {
        check.name
        for check in judgement.checks
        if check.verdict not in (Verdict.VALID, Verdict.NOT_DUE)
    } == {"fault-bite"}
