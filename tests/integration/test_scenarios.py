"""The named scenarios on real clusters, judged: on every runtime, with every mirror, and with
clients that run a tenth of the time."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from _pytest.mark import ParameterSet

from linkflap.api.fixtures import FixtureRun
from linkflap.chaos.scenarios import SCENARIOS, ScenarioRequest, scenario
from linkflap.harness.mirrors import MIRRORS
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.events import FaultBite, FaultHeal, TopicGivenUp, of_kind
from linkflap.harness.rundir import RunReader
from linkflap.recording.run import check as check_scenario
from tests.cells import topology
from tests.command_line import environment, linkflap, start
from tests.on_runtimes import EVERY, skip_without

pytestmark = pytest.mark.spark


NO_RELAY = {
    "write-cycles",
    "exactly-once",
    "program-copies",
    "mirror-states",
    "share-groups",
    "topic-sync",
}
"""Checks of workloads that read inside their transactions, and of mirrors that describe themselves
or sync topics: these runs have none."""


def idle(judged: FixtureRun) -> set[str]:
    """The checks that had nothing to examine."""
    return {c["name"] for c in judged.document["checks"] if not sum(c["examined"].values())}


def failover(judged: FixtureRun) -> dict[str, Any]:
    found: dict[str, Any] = judged.document["failovers"][0]
    return found


@pytest.mark.linkflap(scenario="link-flap", seed=1279)
def test_the_main_job_is_valid(linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why
    assert failover(linkflap_run)["kind"] == "forced"
    assert failover(linkflap_run)["rto_seconds"] > 0
    assert idle(linkflap_run) == NO_RELAY - {
        "topic-sync"
    }  # the shadow restores the settings of topics


@pytest.mark.linkflap(
    scenario="link-flap",
    topology="A{tls+scram}->B:3{tls+scram}",
    mirror="mm2",
    clients="java",
    duration=16.0,
    seed=3,
)
def test_the_main_job_on_secured_clusters_with_mirrormaker_and_java_is_valid(
    linkflap_run: FixtureRun,
) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why
    # MirrorMaker 2 moves offsets, and describes neither its truncations nor its states.
    moves = {"byte-equality", "record-equality", "truncation-accounting"}
    assert idle(linkflap_run) == NO_RELAY | moves


@pytest.mark.nightly
@pytest.mark.linkflap(
    scenario="link-flap", mirror="mm2", seed=secrets.randbits(32), delivery="exactly-once"
)
def test_the_main_job_with_an_exactly_once_mirror(linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why


@pytest.mark.nightly
@pytest.mark.linkflap(
    scenario="link-flap", mirror="mm2", topology="A<->B", seed=secrets.randbits(32)
)
def test_both_directions_of_an_active_active_pair_with_mirrormaker(
    linkflap_run: FixtureRun,
) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why
    for check in ("order-equality", "duplicate", "standby-isolation"):
        assert linkflap_run.checks[check].examined.keys() >= {"A/mirrored", "B/mirrored"}


@pytest.mark.linkflap(scenario="half-open", topology="A", clients="java", seed=37)
def test_one_cluster_without_a_link(linkflap_run: FixtureRun) -> None:
    """Java's clients: librdkafka can lose the transaction after one that is aborted while its
    connection is down (docs/findings/librdkafka-reused-sequences.md)."""
    assert linkflap_run.verdict == "valid", linkflap_run.why
    assert linkflap_run.checks["lost-write"].examined.keys() == {"A/native"}
    assert linkflap_run.checks["byte-equality"].verdict == "not due"


@pytest.mark.nightly
@pytest.mark.linkflap(scenario="broker-loss", topology="A:3", seed=secrets.randbits(32))
def test_one_cluster_loses_brokers(linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why


@pytest.mark.nightly
@pytest.mark.linkflap(scenario="planned-failover", seed=secrets.randbits(32))
def test_a_drained_failover_loses_nothing(linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why
    assert failover(linkflap_run)["rpo_records"] == 0


@pytest.mark.nightly
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.linkflap(seed=seed)) for seed in range(5)]
)
@pytest.mark.linkflap(scenario="link-flap")
def test_the_main_job_with_many_seeds(linkflap_run: FixtureRun, seed: int) -> None:
    assert linkflap_run.document["seed"] == seed
    assert linkflap_run.verdict == "valid", linkflap_run.why


@pytest.mark.nightly
@pytest.mark.linkflap(scenario="planned-failover", topology="A@3.9.2->B", seed=39)
def test_an_older_source(linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why


@pytest.mark.nightly
@pytest.mark.linkflap(scenario="client-kill", seed=secrets.randbits(32))
def test_clients_that_are_killed_are_named_and_leave_nothing_wrong(
    linkflap_run: FixtureRun,
) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why
    by_fault = {died["by"]: died for died in linkflap_run.document["clients_died"]}
    assert {
        "commit",
        "open",
        "relay",
        "send",
        "reader",
        "commit-there",
        "relay-there",
    } <= by_fault.keys()
    assert all(died["in_flight"] for name, died in by_fault.items() if name != "reader")


@pytest.mark.nightly
@pytest.mark.linkflap(
    scenario="failover-open-transactions",
    seed=secrets.randbits(32),
    open_transactions="write-txn-markers",
)
def test_markers_of_the_new_leaders_are_accounted_for(linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why


@pytest.mark.nightly
@pytest.mark.linkflap(
    scenario="failover-open-transactions",
    seed=secrets.randbits(32),
    open_transactions="truncate-once",
)
def test_a_failover_that_truncates_is_invalid(linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "invalid"
    # Nothing ends the transaction that is open again; a watermark went back to a value that a
    # sample had before.
    kinds = {a["kind"] for a in linkflap_run.document["anomalies"]}
    assert kinds & {"hanging-transaction", "high-watermark-regression"}, kinds


@pytest.mark.nightly
@pytest.mark.linkflap(scenario="partitions-added", clients="java", seed=195)
def test_partitions_that_are_added_are_judged_from_their_first_record_on(
    linkflap_run: FixtureRun,
) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why
    assert {e["partition"] for e in linkflap_run.document["eras"] if e["cluster"] == "B"} == {
        0,
        1,
        2,
        3,
    }


@pytest.mark.nightly
@pytest.mark.linkflap(scenario="compacted-topic", topology="A:3->B", seed=secrets.randbits(32))
def test_replicas_that_compact_each_by_itself_are_at_most_unknown(linkflap_run: FixtureRun) -> None:
    open_ones = [
        c for c in linkflap_run.document["checks"] if c["verdict"] not in ("valid", "not due")
    ]
    assert {c["name"] for c in open_ones} <= {"replica-agreement"}, linkflap_run.why
    assert all("batches differ between the brokers of A" in c["reason"] for c in open_ones)


# Every scenario with every mirror on every runtime, judged: nothing above the runtimes depends
# on which one it is.
#
# The main job on containers runs in CI; on child processes it does so in `test_scenarios`, and
# everything else is nightly.


IN_CI = {("link-flap", "shadow", "docker"), ("baseline", "mm2", "docker")}


def possible(name: str, mirror: str) -> bool:
    """MirrorMaker 2 cannot be reversed."""
    try:
        check_scenario(scenario(name, ScenarioRequest(seed=1, mirror=mirror)), "process")
    except InputError:
        return False
    return True


def cells() -> Iterator[ParameterSet]:
    for name, mirror, runtime in itertools.product(SCENARIOS, sorted(MIRRORS), EVERY):
        if not possible(name, mirror):
            continue
        in_ci = (name, mirror, runtime) in IN_CI
        seed = 1279 if in_ci else secrets.randbits(32)
        marks = [
            pytest.mark.linkflap(
                scenario=name,
                topology=topology(name, ""),
                mirror=mirror,
                runtime=runtime,
                seed=seed,
            ),
        ]
        yield pytest.param(
            runtime,
            id=f"{name}-{mirror}-{runtime}",
            marks=marks if in_ci else [*marks, pytest.mark.nightly],
        )


@pytest.fixture
def available(request: pytest.FixtureRequest) -> None:
    skip_without(request.param)


@pytest.mark.parametrize("available", list(cells()), indirect=True)
def test_a_scenario_is_valid_whatever_mirrors_and_whatever_brokers_run_in(
    available: None, linkflap_run: FixtureRun
) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why


# Every scenario with clients that run a tenth of the time: it waits for what it needs, and
# slowness alone never makes it unknown.


CLIENTS = "linkflap.harness.workloads.process"
RUNS, STANDS = 0.1, 0.9
"""Seconds for which all clients run, and for which they are stopped, alternately."""


def clients_of(pid: int) -> Iterator[psutil.Process]:
    """The processes below `pid` in which clients of workloads run."""
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            if (
                CLIENTS in process.cmdline()
                and (parent := process.parent()) is not None
                and CLIENTS in parent.cmdline()
            ):  # not the one that they are forked from
                yield process


@contextmanager
def slowed_tenfold(pid: int) -> Iterator[list[psutil.Process]]:
    """Stops all clients of the run `pid` most of the time. Yields how often they were stopped."""
    over, stops = threading.Event(), []

    def slow() -> None:
        while not over.wait(RUNS) and psutil.pid_exists(pid):
            with suppress(psutil.Error):
                stopped = list(clients_of(pid))
                for process in stopped:
                    with suppress(psutil.Error):
                        process.suspend()
                over.wait(STANDS)
                for process in stopped:
                    with suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGCONT)
                stops.extend(stopped)

    thread = threading.Thread(target=slow, name="slows clients")
    thread.start()
    try:
        yield stops
    finally:
        over.set()
        thread.join()


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_is_valid_with_clients_that_are_ten_times_slower(
    scenario: str, tmp_path: Path
) -> None:
    command = f"run {scenario} --runtime process --out run"
    running = start(command, env=environment(tmp_path / "ledger"), cwd=tmp_path)
    try:
        with slowed_tenfold(running.process.pid) as stops:
            status = running.ends(within=900)
    finally:
        running.close()
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert stops, "no client was slowed"
    assert (status, verdict["verdict"]) == (0, "valid"), verdict.get("reason")


# topic-recreated on real clusters: the shadow reports that it gives such a topic up,
# MirrorMaker 2 copies both into one log.


EXAMPLE = (
    Path(__file__).resolve().parents[2] / "docs" / "examples" / "faults" / "topic-recreated.toml"
)


def test_the_shadow_keeps_the_old_copy_and_says_so(tmp_path: Path) -> None:
    env = environment(tmp_path / "ledger")
    done = linkflap(f"run {EXAMPLE} --out run", env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    events, _ = RunReader(tmp_path / "run").events()
    assert {bite.id: bite.bit for bite in of_kind(events, FaultBite)} == {"cut": True, "open": True}
    assert all(
        "its mirror says: topic A.linkflap-recreated" in heal.checked[0]
        for heal in of_kind(events, FaultHeal)
    )
    assert {event.topic for event in of_kind(events, TopicGivenUp)} == {
        "A.linkflap-recreated.cut",
        "A.linkflap-recreated.open",
    }


@pytest.mark.nightly
def test_mirror_maker_makes_one_log_of_both_which_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "mm2.toml").write_text(f'{EXAMPLE.read_text()}\n[mirror]\nkind = "mm2"\n')
    done = linkflap("run mm2.toml --out run", env=environment(tmp_path / "ledger"), cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert "20 records of the deleted topic and" in said, said[-3000:]
    assert "of the new one, behind one another" in said, said[-3000:]
