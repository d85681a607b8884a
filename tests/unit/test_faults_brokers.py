"""Faults of brokers: disks, clocks, releases and elections: what is refused, what bites, where
they are generated."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from linkflap.chaos import schedule
from linkflap.chaos.faults.brokers import BrokerDiskSlow, ClockSkew, bitten, clock_of, is_near
from linkflap.chaos.faults.clusters import RollingUpgrade, older, running
from linkflap.chaos.faults.leaders import PartitionMetadata, UncleanElection, read_lost
from linkflap.chaos.generator import Coverage, GeneratorBounds, generate
from linkflap.chaos.schedule import check_losses
from linkflap.harness.capture.replicas import PartitionFolder
from linkflap.harness.guarantees import mm2, shadow
from linkflap.harness.log.layout import ABORT, COMMIT
from linkflap.harness.machine import cache, ledger
from linkflap.harness.model.errors import FaultError, InputError, SetupError
from linkflap.harness.model.events import Event, FaultBite, LostRange
from linkflap.harness.model.history import Watermark
from linkflap.harness.model.protocols import Broker, FaultWorld
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.verdict import Anomaly
from linkflap.harness.rundir import RunWriter
from linkflap.harness.runtimes import disks, faketime
from linkflap.harness.runtimes.disks import SlowDisk
from linkflap.harness.runtimes.distribution.kafka import released
from linkflap.harness.runtimes.kraft.broker import ServiceProgram, last_error
from linkflap.spark_verify.facts.partition_facts import Loss, Window
from linkflap.spark_verify.read.plan import RunPlan, plan
from linkflap.spark_verify.verdict.allowances import why_allowed
from linkflap.topologies import parse
from tests.events import event
from tests.kafka_log import batch, marker, ours, record, segment
from tests.scenarios import drawn
from tests.unit.recorded_run import run

# Folders of replicas, and clusters none of whose brokers runs.


@dataclass
class DeadBroker:
    """The part of a stopped broker that capture needs: its id and its folder."""

    id: int
    log_dir: Path
    cluster: str = "A"
    state: str = "stopped"


def replica(
    tmp_path: Path, number: int, records: int, *, topic: str = "A.x", epoch: int = 0
) -> PartitionFolder:
    broker = DeadBroker(number, tmp_path / str(number))
    folder = broker.log_dir / f"{topic}-0"
    segment(folder, [batch(offset, [ours(offset)]) for offset in range(records)])
    (folder / "leader-epoch-checkpoint").write_text(f"0\n1\n{epoch} 0\n")
    return PartitionFolder(broker=cast(Broker, broker), topic=topic, partition=0, folder=folder)


def sampled(leader: int, high_watermark: int) -> Watermark:
    return Watermark(
        time=1, returned=2, cluster="A", leader=leader, topic="A.x", partition=0, log_start=0,
        last_stable=0,
        high_watermark=high_watermark,
    )  # fmt: skip


class NoCluster:
    """A cluster without a running broker: it gets no request."""

    name, bootstrap = "A", "127.0.0.1:1"

    def __init__(self, *found: PartitionFolder) -> None:
        self.brokers = {replica.broker.id: replica.broker for replica in found}


# unclean-election: what is refused, what its bite reports as lost, what that allows, and where
# it is generated.


A_0, A_1 = ("A.t", 0), ("A.t", 1)


def spec(target: str = "A") -> FaultSpec:
    return FaultSpec(id="f", fault="unclean-election", target=target, at=0, duration=0)


def fault(brokers: int = 3) -> Any:
    nodes = {
        n: SimpleNamespace(id=n, state="running", client_address="") for n in range(1, brokers + 1)
    }
    cluster = SimpleNamespace(name="A", brokers=nodes, bootstrap="")
    world = SimpleNamespace(
        deployment=SimpleNamespace(clusters={"A": cluster}), topics={"A.t": 2}, stopping=True
    )
    return UncleanElection(spec(), cast(FaultWorld, world))


def led(leader: int, *replicas: int) -> PartitionMetadata:
    return PartitionMetadata(leader=leader, replicas=replicas, in_sync=frozenset(replicas))


def test_a_cluster_that_is_not_there_is_refused() -> None:
    world = cast(
        FaultWorld, SimpleNamespace(deployment=SimpleNamespace(clusters={"A": None, "B": None}))
    )
    with pytest.raises(InputError, match="the clusters are A, B"):
        UncleanElection(spec("C"), world)


def test_partitions_with_one_replica_are_refused_before_anything_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = fault()
    monkeypatch.setattr(one, "_led", lambda: {A_0: led(1, 1)})
    with pytest.raises(FaultError, match="one replica each"):
        one.inject()
    monkeypatch.setattr(one, "_led", dict)
    with pytest.raises(FaultError, match="leads no partition"):
        one.inject()


def test_unclean_election_bites_when_the_elected_replica_leads_and_lacks_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = fault()
    one._before, one._elected = {A_0: led(1, 1, 2, 3), A_1: led(1, 1, 3, 2)}, 2
    one._kept, one._acknowledged = {A_0: 5, A_1: 7}, {A_0: 9, A_1: 7}
    monkeypatch.setattr(one, "_led", lambda: {A_0: led(2, 2, 1), A_1: led(2, 2, 1)})
    assert one._measure() == (True, {"A.t-0": [5, 9]})
    monkeypatch.setattr(one, "_led", lambda: {A_0: led(1, 1, 2), A_1: led(2, 2, 1)})
    assert not one._measure()[0], "the old leader leads again"
    one._acknowledged = {A_0: 5, A_1: 7}
    monkeypatch.setattr(one, "_led", lambda: {A_0: led(2, 2, 1), A_1: led(2, 2, 1)})
    assert one._measure() == (False, {}), "nothing was lost"


def test_a_fault_that_was_not_injected_needs_no_heal() -> None:
    assert fault().heal() == ["nothing was changed"]


def bitten_by(row: LostRange) -> FaultBite:
    return FaultBite(
        time=9, target="A", id="f", bit=True, observable="o", measured=1, expected=1, lost=(row,)
    )


def planned(tmp_path: Path, bite: Event, fault: str = "unclean-election") -> RunPlan:
    """The plan of a run in which a fault had this bite."""
    writer = RunWriter(tmp_path / "run", run())
    writer.write(event("fault-start", "A", at=1, id="f", fault=fault))
    writer.write(bite)
    writer.close("finished")
    return plan(tmp_path / "run")


@pytest.mark.parametrize(
    ("fault_name", "bit", "measured", "lost"),
    [
        (
            "unclean-election",
            True,
            {"A.t-1": [3, 8], "A.t-0": [5, 9]},
            (("A.t", 0, 5, 9, 7), ("A.t", 1, 3, 8, 7)),
        ),
        ("unclean-election", False, {"A.t-0": [5, 9]}, ()),
        ("unclean-election", True, "nothing", ()),
        ("unclean-election", True, {"A.t": [5, 9], "A.t-0": [5], "A.t-1": ["5", 9]}, ()),
        ("records-deleted", True, {"A.t-0": [5, 9]}, ()),
    ],
    ids=["bitten", "not bitten", "not measured", "torn", "another fault"],
)
def test_losses_of_a_window_are_read_from_its_bite(
    tmp_path: Any, fault_name: str, bit: bool, measured: object, lost: object
) -> None:
    bite = event(
        "fault-bite", "A", at=7, id="f", bit=bit, observable="o", measured=measured, expected="e"
    )
    (window,) = planned(tmp_path, bite, fault_name).facts.windows
    assert tuple(_short(each) for each in window.lost) == lost
    assert all(each.cluster == "A" and each.records is None for each in window.lost)


def _short(loss: Loss) -> tuple[str, int, int, int, int]:
    """Where it is, and when the election was."""
    return loss.topic, loss.partition, loss.start, loss.end, loss.elected


def test_a_window_lost_exactly_what_its_bite_lists(tmp_path: Any) -> None:
    row = LostRange(
        topic="A.t", partition=1, start=3, end=8, deposed_epoch=4, elected_epoch=6, elected=5,
        records=((77, 3, 2, 9),), markers=((5, 9, 0, True),),
    )  # fmt: skip
    (window,) = planned(tmp_path, bitten_by(row)).facts.windows
    assert window.lost == (
        Loss(
            cluster="A", topic="A.t", partition=1, start=3, end=8, elected=5,
            elected_epoch=6, records=row.records, markers=row.markers,
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("records", "markers", "why"),
    [
        ([(77, 2, 2, 9)], [], "lists more than offsets 3 to 99999999"),
        ([(77, 3, 2, 9)], [(10**8, 9, 0, True)], "lists more than offsets 3 to 99999999"),
        ([(77, 3, 1 << 24, 9)], [], "lists 16777216 records, which is too many to be read"),
    ],
)
def test_a_bite_that_lists_what_it_cannot_have_taken_away_is_damage(
    tmp_path: Any, records: Any, markers: Any, why: str
) -> None:
    row = LostRange(
        topic="A.t", partition=1, start=3, end=99_999_999, deposed_epoch=4, elected_epoch=6,
        elected=5, records=tuple(records), markers=tuple(markers),
    )  # fmt: skip
    run_plan = planned(tmp_path, bitten_by(row))
    assert run_plan.facts.windows[0].lost == ()
    assert f"the bite of fault f {why}" in [each.reason for each in run_plan.damage]


@pytest.mark.parametrize("elected", [0, 10])
def test_an_election_outside_of_its_fault_is_damage(tmp_path: Any, elected: int) -> None:
    row = LostRange(
        topic="A.t", partition=1, start=3, end=8, deposed_epoch=4, elected_epoch=6,
        elected=elected, records=((77, 3, 2, 9),), markers=(),
    )  # fmt: skip
    run_plan = planned(tmp_path, bitten_by(row))
    assert run_plan.facts.windows[0].lost == ()
    why = "the bite of fault f dates its election outside of the fault"
    assert why in [each.reason for each in run_plan.damage]


def test_the_dead_leaders_log_lists_every_record_and_marker_that_the_elected_replica_lacks(
    tmp_path: Any,
) -> None:
    first = 5 << 40
    segment(
        tmp_path,
        [
            batch(0, [ours(first)], leader_epoch=1, pid=9),
            batch(1, [ours(first + 1), ours(first + 2)], leader_epoch=1, pid=9),
            marker(3, COMMIT, pid=7, epoch=2, leader_epoch=1),
            batch(4, [ours(first + 3)], leader_epoch=1, pid=9),
            batch(5, [record(b"foreign"), record(b"foreign")], leader_epoch=1),
            marker(7, ABORT, pid=8, epoch=0, leader_epoch=1),
        ],
    )
    read = read_lost(tmp_path, A_0, start=1, end=8, elected_epoch=3, elected=50)
    assert read == LostRange(
        topic="A.t", partition=0, start=1, end=8, deposed_epoch=1, elected_epoch=3, elected=50,
        records=((first + 1, 1, 2, 9), (first + 3, 4, 1, 9), (-1, 5, 2, -1)),
        markers=((3, 7, 2, True), (7, 8, 0, False)),
    )  # fmt: skip
    end = read_lost(tmp_path, A_0, start=8, end=8, elected_epoch=3, elected=50)
    assert (end.records, end.markers, end.deposed_epoch) == ((), (), -1)


@pytest.mark.parametrize(
    ("kind", "partition", "by", "allowed"),
    [
        ("lost-write", 0, "f", True),
        ("lost-write", 0, "", False),
        ("lost-write", 0, "g", False),
        ("lost-write", 1, "f", False),
        ("uncommitted-read", 0, "f", False),
    ],
    ids=["lost", "not lost", "another fault", "another partition", "another kind"],
)
def test_unclean_election_allows_exactly_the_lost_records(
    kind: str, partition: int, by: str, allowed: bool
) -> None:
    loss = Loss(cluster="A", topic="A.t", partition=0, start=5, end=9, elected=3)
    window = Window(id="f", fault="unclean-election", target="A", start=0, end=9, lost=(loss,))
    anomaly = Anomaly(
        check="", kind=kind, cluster="A", topic="A.t", partition=partition, offset=5,
        evidence={"lost_by": by} if by else {},
    )  # fmt: skip
    why = why_allowed(anomaly, shadow.guarantee({}), "", [window])
    assert (why is not None) == allowed
    assert why is None or "unclean-election (f) lost offsets 5 to 8 of A.t-0 on A" in why
    unmeasured = replace(window, lost=())
    assert why_allowed(anomaly, shadow.guarantee({}), "", [unmeasured]) is None


@pytest.mark.parametrize(
    ("fault", "target"),
    [("unclean-election", "A"), ("broker-disk-slow", "A/1"), ("clock-skew", "A/1")],
)
def test_a_fault_is_drawn_only_where_it_is_named_and_on_three_brokers(
    library: Path, fault: str, target: str
) -> None:
    named = (fault, "link-cut")
    GeneratorBounds(faults=named).check()
    of_three = drawn(GeneratorBounds(topologies=("A:3->B", "A->B"), faults=named, most=6))
    targets = {each.target for each in of_three if each.fault == fault}
    assert target in targets <= {"A", "A/1", "A/2", "A/3"}
    of_one = drawn(GeneratorBounds(topologies=("A->B",), faults=named))
    assert {each.fault for each in of_one} == {"link-cut"}
    unnamed = drawn(GeneratorBounds(topologies=("A:3->B",)))
    assert fault not in {each.fault for each in unnamed}


def test_a_mirror_that_moves_offsets_is_refused_with_the_reason_and_not_drawn() -> None:
    with pytest.raises(
        InputError,
        match="'f' \\(unclean-election\\) does not apply: this mirror does not keep offsets",
    ):
        check_losses([spec()], mm2.guarantee({}))
    check_losses([spec()], shadow.guarantee({}))
    bounds = GeneratorBounds(
        topologies=("A:3->B",), mirrors=("mm2",), faults=("unclean-election", "link-cut"), most=6
    )
    assert {fault.fault for fault in drawn(bounds)} == {"link-cut"}


# broker-disk-slow: what is refused, what counts as slow, and where it is generated.


def test_a_rate_at_which_no_broker_starts_is_refused() -> None:
    broker = SimpleNamespace(cluster="A", id=1, log_dir=Path("/nowhere/data"))
    clusters = {"A": SimpleNamespace(name="A", brokers={1: broker})}
    world = cast(FaultWorld, SimpleNamespace(deployment=SimpleNamespace(clusters=clusters)))
    spec = FaultSpec(
        id="f", fault="broker-disk-slow", target="A/1", at=0, duration=1, options={"rate": 8.0}
    )
    with pytest.raises(InputError, match=r"is 8\.0; give a number of 16 or more"):
        BrokerDiskSlow(spec, world)


@pytest.mark.parametrize(
    ("limited", "free", "bit"),
    [
        (1.0, 0.01, True),
        (1.0, 0.5, True),
        (0.4, 0.01, False),
        (1.0, 0.9, False),
        (30.0, 29.0, False),
    ],
    ids=[
        "as the rate says",
        "half without",
        "no limit to be seen",
        "slow without",
        "a disk that is slow for everybody",
    ],
)
def test_only_a_write_that_is_slow_for_this_broker_alone_counts(
    limited: float, free: float, bit: bool
) -> None:
    assert bitten(limited, free) == bit


def test_slow_disk_writes_its_limit_to_the_control_group_of_version_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ordinary files replace the cgroup's; `io.max`: Documentation/admin-guide/cgroup-v2.rst."""
    monkeypatch.setattr(disks, "_FIRST", tmp_path / "no-version-1")
    monkeypatch.setattr(disks, "_SECOND", tmp_path)
    SlowDisk(tmp_path, "A-1").slow(4711, rate=131072)
    group = tmp_path / f"linkflap-{os.getpid()}-A-1"
    device = os.stat(tmp_path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+io"
    assert (group / "io.max").read_text() == f"{number} wbps=131072"
    assert (group / "cgroup.procs").read_text() == "4711"
    ledger.remove_folder(group)


def test_a_disk_that_cannot_be_made_leaves_the_folder_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "kept").write_text("content")
    monkeypatch.setenv("LINKFLAP_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setattr("linkflap.harness.runtimes.disks._tool", refused)
    with pytest.raises(SetupError, match="no disk of its own can be mounted"):
        SlowDisk(folder, "A-1").put(spare=1 << 20)
    assert [path.name for path in tmp_path.iterdir() if path.name != "runtime"] == ["data"]
    assert (folder / "kept").read_text() == "content"


def refused(name: str, *_words: str) -> None:
    raise OSError(1, f"{name}: not permitted")


def test_healing_a_disk_without_limit_does_nothing(tmp_path: Path) -> None:
    SlowDisk(tmp_path, "A-1").fast()


# The error about a broker that ended while it started.


START = "[2026-11-25 18:59:04,100] INFO Starting (kafka.server.BrokerServer)\n"
FATAL = "[2026-11-25 18:59:04,700] ERROR Exiting Kafka due to fatal exception (kafka.Kafka$)\n"
MISSING = "java.lang.NoClassDefFoundError: org/apache/kafka/coordinator/mirror/Mirror\n"
FRAME = "\tat kafka.server.BrokerServer.startup(BrokerServer.scala:300)\n"
CAUSE = "Caused by: java.lang.ClassNotFoundException: org.apache.kafka.coordinator.mirror.Mirror\n"
SHUTDOWN = "[2026-11-25 18:59:04,795] INFO registration shutdown (NodeToController)\n" * 4


@pytest.mark.parametrize(
    ("log", "error"),
    [
        (START + SHUTDOWN, []),
        (START + FATAL + SHUTDOWN, [FATAL]),
        (START + FATAL + MISSING + FRAME + CAUSE + FRAME + SHUTDOWN, [FATAL, MISSING, CAUSE]),
        (FATAL + MISSING + START + FATAL + CAUSE + SHUTDOWN, [FATAL, CAUSE]),
        ("", []),
    ],
    ids=["none", "one", "with its exceptions", "the last", "empty"],
)
def test_the_last_error_and_its_exceptions(tmp_path: Path, log: str, error: list[str]) -> None:
    (tmp_path / "server.log").write_text(log)
    assert last_error(tmp_path / "server.log") == [line.strip() for line in error]


def test_a_long_line_of_a_program_s_output_is_shortened(tmp_path: Path) -> None:
    def none() -> Any:
        raise AssertionError

    (tmp_path / "output.log").write_bytes(b"begins\n" + bytes(100_000) + b"\nends\n")
    program = ServiceProgram("one", folder=tmp_path, log="output.log", spawn=none)
    long, last = program.last_words(lines=2)
    assert last == "ends"
    assert len(long) < 500
    assert long.endswith(" …")


def test_without_a_log_there_is_no_error(tmp_path: Path) -> None:
    assert last_error(tmp_path / "server.log") == []


def test_a_folder_that_is_being_made_is_partial(tmp_path: Path) -> None:
    assert not cache.is_partial(tmp_path / "archives" / "java17" / "run" / "1")
    assert cache.is_partial(tmp_path / "archives" / ".java17.partial-ozy63tqh" / "run" / "1")


# rolling-upgrade: from which releases to which it goes, and what proves that a broker runs
# another one.


def upgrade_spec(**options: Option) -> FaultSpec:
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
def test_releases_are_ordered_and_folders_are_neither_older_nor_newer(
    one: str, other: str, true: bool
) -> None:
    assert older(one, other) is true
    assert not older(one, "/opt/kafka")
    assert not older("/opt/kafka", other)


def test_to_the_same_or_an_older_release_is_refused() -> None:
    cluster = SimpleNamespace(kafka="4.2.0", brokers={})
    world = cast(FaultWorld, SimpleNamespace(deployment=SimpleNamespace(clusters={"A": cluster})))
    for to in ("4.2.0", "4.1.2"):
        with pytest.raises(
            InputError, match=r"it runs 4\.2\.0, and \S+ is no newer; name a newer one"
        ):
            RollingUpgrade(upgrade_spec(to=to), world)
    RollingUpgrade(upgrade_spec(to="4.3.1"), world)


def test_the_newest_release_is_upgraded_to_nothing() -> None:
    assert "no newer release is known" in str(
        RollingUpgrade.applies_to("A", parse(f"A@{released()[-1]}:3->B"))
    )
    assert RollingUpgrade.applies_to("A", parse("A@4.1.2:3->B")) is None


def test_containers_are_refused_before_anything_starts() -> None:
    schedule.check_runtime([upgrade_spec()], "process")
    with pytest.raises(InputError, match="run it with --runtime process"):
        schedule.check_runtime([upgrade_spec()], "docker")


def test_rolling_upgrade_is_drawn_once_on_three_brokers_of_an_older_release() -> None:
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


# clock-skew: its options, where it is generated, what is refused without its library, and how a
# clock is read.


def skew_spec(**options: Option) -> FaultSpec:
    return FaultSpec(id="f", fault="clock-skew", target="A/1", at=0, duration=0, options=options)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "libfaketimeMT.so.1"
    made.touch()
    monkeypatch.setenv(faketime.VARIABLE, str(made))
    return made


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without the library."""
    monkeypatch.delenv(faketime.VARIABLE, raising=False)
    monkeypatch.setattr(faketime, "_FOLDERS", (tmp_path,))


class SkewedBroker:
    """A broker that answers nobody, and records what is done to it."""

    cluster, id, state, pid, client_address = "A", 1, "running", None, "127.0.0.1:1"

    def __init__(self, done: list[str], log: Path) -> None:
        self.done, self.log = done, log

    def stop(self) -> None:
        self.done.append("stop")

    def start(self) -> None:
        self.done.append("start")


def world(done: list[str], log: Path) -> FaultWorld:
    cluster = SimpleNamespace(
        name="A", brokers={1: SkewedBroker(done, log)}, bootstrap="127.0.0.1:1"
    )
    skew = lambda cluster, broker, seconds: done.append(f"{cluster}/{broker} {seconds:+g}")  # noqa: E731
    return cast(
        FaultWorld,
        SimpleNamespace(
            deployment=SimpleNamespace(clusters={"A": cluster}, skew_clock=skew), stopping=True
        ),
    )


@pytest.mark.parametrize(
    ("options", "off"),
    [({}, -30), ({"clock": "ahead"}, 30), ({"clock": "ahead", "seconds": 600.0}, 600)],
)
def test_the_broker_is_restarted_with_its_clock_off(
    tmp_path: Path, options: dict[str, Option], off: float
) -> None:
    done: list[str] = []
    made = world(done, tmp_path / "server.log")
    fault = ClockSkew(skew_spec(**options), made)
    fault.take_down(made.deployment.clusters["A"].brokers[1])
    assert done == ["stop", f"A/1 {off:+g}", "start"]


@pytest.mark.parametrize("seconds", [1.0, 3600.0])
def test_seconds_that_are_no_skew_are_refused(tmp_path: Path, seconds: float) -> None:
    with pytest.raises(InputError, match="give a number from 2 to 3000"):
        ClockSkew(skew_spec(seconds=seconds), world([], tmp_path / "server.log"))


def test_without_its_library_it_is_refused_before_anything_starts(bare: None) -> None:
    with pytest.raises(InputError, match="apt install libfaketime"):
        schedule.check_runtime([skew_spec()], "process")
    with pytest.raises(InputError, match="apt install libfaketime"):
        GeneratorBounds(faults=("clock-skew",)).check()
    with pytest.raises(InputError, match="run it with --runtime process"):
        schedule.check_runtime([skew_spec()], "docker")


def test_a_library_that_is_named_has_to_be_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(faketime.VARIABLE, str(tmp_path / "none"))
    with pytest.raises(InputError, match="which is no file"):
        faketime.library()


def test_the_library_is_loaded_into_one_command(library: Path) -> None:
    schedule.check_runtime([skew_spec()], "process")
    before = faketime.command(-30.0)
    assert before[0] == "/usr/bin/env"
    assert {f"LD_PRELOAD={library}", "FAKETIME=-30", "FAKETIME_FORCE_MONOTONIC_FIX=0"} <= set(
        before
    )


def test_shared_memory_of_this_and_of_dead_processes_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faketime, "_SHARED", tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    mine, other, gone = (f"faketime_shm_{pid}" for pid in (os.getpid(), os.getppid(), ended.pid))
    for name in (mine, other, gone, f"sem.faketime_sem_{os.getpid()}", "faketime_shm_x"):
        (tmp_path / name).touch()
    faketime.forget(os.getpid())
    assert {path.name for path in tmp_path.iterdir()} == {other, "faketime_shm_x"}


@pytest.mark.parametrize("off", [0.0, -30.0, 600.0])
@pytest.mark.parametrize("separator", ["T", " "])
def test_a_clock_is_read_from_a_log_whose_file_has_the_machines_time(
    tmp_path: Path, off: float, separator: str
) -> None:
    log, at = tmp_path / "server.log", time.time() - 100
    stamp = (
        datetime.fromtimestamp(at + off)
        .isoformat(sep=separator, timespec="milliseconds")
        .replace(".", ",")
    )
    log.write_text(
        f"[2020-01-01T00:00:00,000] INFO first\n[{stamp}] INFO last (K)\n\tat a.stack.Trace\n[no "
        "time] x\n"
    )
    os.utime(log, (at, at))
    found = clock_of(log)
    assert found is not None
    assert abs(found - off) < 0.01
    assert is_near(found, 30.0) is False
    assert is_near(found, off) or not off


def test_a_log_without_a_time_proves_nothing(tmp_path: Path) -> None:
    assert clock_of(tmp_path / "server.log") is None
    (tmp_path / "server.log").write_text("words\n[not a time] more\n")
    assert clock_of(tmp_path / "server.log") is None
    assert not is_near(None, 30.0)
