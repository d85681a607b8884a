"""rolling-upgrade: from which releases to which it goes, and what proves that a broker runs another
one."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.chaos import schedule
from linkflap.chaos.faults.clusters import RollingUpgrade, older, running
from linkflap.chaos.generator import Coverage, GeneratorBounds, generate
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.runtimes.distribution.kafka import released
from linkflap.topologies import parse


def spec(**options: Option) -> FaultSpec:
    return FaultSpec(id="f", fault="rolling-upgrade", target="A", at=0, duration=0, options=options)


@pytest.mark.parametrize(
    ("one", "other", "true"),
    [
        ("4.1.2", "4.3.1", True),
        ("3.9.2", "4.0.0", True),
        ("4.3.1", "4.3.1", False),
        ("4.3.1", "4.1.2", False),
    ],
)
def test_what_is_older_goes_by_the_releases_and_what_is_no_release_is_neither(
    one: str, other: str, true: bool
) -> None:
    assert older(one, other) is true
    assert not older(one, "/opt/kafka")
    assert not older("/opt/kafka", other)


def test_to_the_same_or_an_older_release_is_refused() -> None:
    cluster = SimpleNamespace(kafka="4.2.0", brokers={})
    world = cast(World, SimpleNamespace(deployment=SimpleNamespace(clusters={"A": cluster})))
    for to in ("4.2.0", "4.1.2"):
        with pytest.raises(InputError, match=r"it runs 4\.2\.0; name a newer release"):
            RollingUpgrade(spec(to=to), world)
    RollingUpgrade(spec(to="4.3.1"), world)


def test_the_newest_release_is_upgraded_to_nothing() -> None:
    assert "no newer release is known" in str(
        RollingUpgrade.applies_to("A", parse(f"A@{released()[-1]}:3->B"))
    )
    assert RollingUpgrade.applies_to("A", parse("A@4.1.2:3->B")) is None


def test_containers_are_refused_before_anything_starts() -> None:
    schedule.check_runtime([spec()], "process")
    with pytest.raises(InputError, match="run it with --runtime process"):
        schedule.check_runtime([spec()], "docker")


def test_it_is_drawn_once_on_clusters_of_three_that_run_an_older_release() -> None:
    bounds = GeneratorBounds(
        topologies=("A:3->B", "A->B"),
        kafka=("4.1.2", "4.3.1"),
        faults=("rolling-upgrade", "link-cut"),
        most=6,
    )
    made = [generate(2, n, Coverage(), bounds, guided=False) for n in range(60)]
    upgraded = [(one, f) for one in made for f in one.schedule if f.fault == "rolling-upgrade"]
    assert upgraded
    assert {
        (one.topology.cluster(f.target).brokers, one.topology.cluster(f.target).kafka)
        for one, f in upgraded
    } == {(3, "4.1.2")}
    assert len({id(one) for one, _ in upgraded}) == len(upgraded)


def test_the_jars_of_a_process_say_what_it_runs() -> None:
    command = [
        sys.executable,
        "-c",
        "print(flush=True); input()",
        "-cp",
        "/k/kafka-clients-4.1.2.jar",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # Popen may return before the kernel shows the new program's words
        process.stdout.readline()
        assert running(process.pid) == "4.1.2"
        process.communicate(b"\n")
    assert running(process.pid) is None
    assert running(None) is None
