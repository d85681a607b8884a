"""Programs that read and write: relays that die in mid-transaction, and the user's own application
and mirror."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pytest

import linkflap
from linkflap.api.fixtures import FixtureRun
from linkflap.chaos import scenario_file
from linkflap.harness.capture.logs import Captures
from linkflap.harness.model.events import FaultBite, ProgramStarted, WireRecorded
from linkflap.harness.model.history import SHARE_SAMPLER, Operation
from linkflap.harness.model.scenario import MirrorSpec, Scenario, WorkloadSpec
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.model.verdict import Verdict
from linkflap.harness.rundir import Run, RunReader, RunWriter
from linkflap.harness.runtimes.process import deploy
from linkflap.recording.run import record
from linkflap.report.progress import shown_on
from linkflap.spark_verify.checks import REGISTRY, finding_rows
from linkflap.spark_verify.checks.finding_rows import FindingRow
from tests.cells import BEFORE_KAFKA_20734, topology
from tests.command_line import environment
from tests.command_line import linkflap as cli
from tests.kafka_log import batches_in, field_of, rewrite
from tests.run_copy import seal, views
from tests.scenarios import scenario_of
from tests.waiting import eventually
from tests.workload_rig import clients_of, topics_made

# Relays on a real broker that dies in mid-transaction: each input has its one output; a changed
# history is found.


WORKLOADS = (
    WorkloadSpec(
        kind="transactional", home="A", options={"rate": 20.0, "records": 10, "open_share": 0.0}
    ),
    WorkloadSpec(
        kind="relay",
        home="A",
        clients=2,
        options={"rate": 20.0, "group": "g", "abort_share": 0.3, "batch": 20, "timeout": 20.0},
    ),
)
ENOUGH = 150


def judged(folder: Path) -> list[FindingRow]:
    check = REGISTRY["exactly-once"]
    assert check.combine is not None
    rows = [row for view in views(folder) for row in finding_rows.examine(check, view)]
    partials = [row for row in rows if row.finding == "partial"]
    return [
        *(row for row in rows if row.finding != "partial"),
        *finding_rows.combined(check, "run", partials),
    ]


def found(folder: Path) -> set[tuple[str, str]]:
    return {(row.finding, row.kind) for row in judged(folder) if row.finding != "examined"}


@contextlib.contextmanager
def finished(writer: RunWriter) -> Iterator[None]:
    """Closes the files of a run also when a test fails: an open one fails the next test."""
    try:
        yield
    finally:
        writer.close("finished")


def recorded(folder: Path) -> None:
    """A run: a broker with active relays is killed and restarted, and they continue."""
    alone = Topology(clusters=(ClusterSpec(name="A", kafka=BEFORE_KAFKA_20734),), links=())
    scenario = scenario_of(alone, seed=7, workloads=WORKLOADS)
    run = Run.begun(scenario, "process")
    writer = RunWriter(folder, run)
    with (
        finished(writer),
        deploy(alone, folder=folder.parent / "clusters", recorder=writer) as deployment,
    ):
        cluster = deployment.clusters["A"]
        there = topics_made(cluster, WORKLOADS)
        assert set(there) == {"A.orders", "A.relayed"}
        clients = clients_of(WORKLOADS, deployment, writer, there)
        relays = clients.workloads[1]

        def relayed(least: int) -> None:
            eventually(
                f"{least} outputs",
                lambda: relays.progress().acknowledged >= least,
                state=relays.progress,
                within=180,
            )

        clients.start()
        try:
            relayed(ENOUGH)
            eventually("an open transaction", lambda: clients.open_transactions("A"))
            cluster.brokers[1].kill()
            before = relays.progress().acknowledged
            cluster.brokers[1].start()
            relayed(before + ENOUGH)
            eventually("an aborted relay", lambda: relays.progress().aborted)
        finally:
            clients.stop()
        assert clients.crashes == []
        Captures(deployment, writer).take("1-end", "A")


def test_each_input_has_one_output_and_a_history_without_it_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    recorded(folder)
    assert found(folder) == set()
    assert sum(row.count for row in judged(folder) if row.finding == "examined") >= ENOUGH // 3
    operations, damage = RunReader(folder).operations()
    assert not damage
    committed = [
        o
        for o in operations
        if o.group and o.phase == "return" and o.outcome == "ok" and o.ending == "commit"
    ]
    aborted = [
        o
        for o in operations
        if o.group and o.phase == "return" and o.outcome == "ok" and o.ending == "abort"
    ]
    assert committed
    assert aborted
    assert all(
        s.made_from is not None and sum(n for _, _, n in s.made_from.runs) == s.count
        for o in committed
        for s in o.sends
    )

    # What came from a partition last may as well be still to come.
    first = min(committed, key=lambda o: o.time)
    without = shutil.copytree(folder, tmp_path / "without")
    rewritten(without, lambda o: None if o.number == first.number else o)
    assert ("found", "input-lost") in found(without)


def rewritten(folder: Path, change: Callable[[Operation], Operation | None]) -> None:
    """Changes the operations of a run directory, or leaves them out."""
    for path in folder.glob("operations/*.jsonl"):
        rows = [
            msgspec.json.decode(line, type=Operation) for line in path.read_bytes().splitlines()
        ]
        kept = [row for row in map(change, rows) if row is not None]
        path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in kept))
    seal(folder)


SPARK = [pytest.mark.nightly, pytest.mark.spark]
SEED = secrets.randbits(32)
CLUSTERS = topology("relay", "")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            "shadow",
            marks=[
                *SPARK,
                pytest.mark.linkflap(
                    scenario="relay", topology=CLUSTERS, mirror="shadow", seed=SEED
                ),
            ],
        ),
        pytest.param(
            "mm2",
            marks=[
                *SPARK,
                pytest.mark.linkflap(scenario="relay", topology=CLUSTERS, mirror="mm2", seed=SEED),
            ],
        ),
    ],
)
def test_relays_go_on_after_a_failover(linkflap_run: FixtureRun, name: str) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why
    (check,) = (c for c in linkflap_run.document["checks"] if c["name"] == "exactly-once")
    assert check["examined"]["A/native"] > 0
    assert check["examined"]["B/native"] > 0
    kinds = {a["kind"] for a in linkflap_run.document["anomalies"] if a["check"] == "exactly-once"}
    assert kinds <= {"output-repeated-by-failover", "output-lost-by-failover"}


# The user's own application and mirror, both started by command, in one run.


EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
BOTH = f"""
schema = 1
name = "both"
topology = "A->B"
duration = 3.0

[mirror]
kind = "command"
options = {{ manifest = "{EXAMPLES / "replicator" / "mirror.toml"}" }}

[[workload]]
kind = "transactional"
home = "A"

[[workload]]
kind = "readers"
home = "A"

[[workload]]
command = ["python3", "payments.py"]
folder = "{EXAMPLES / "application"}"
home = "A"
reads = ["orders"]
writes = ["payments"]
library = "java"
[workload.options]
group = "payments"

[[workload]]
command = ["sleep", "600"]
home = "B"
starts = "in:pause"

[[workload]]
kind = "readers"
home = "A"
starts = "in:pause"
options = {{ group = "late" }}

[[fault]]
id = "pause"
fault = "program-pause"
target = "A"
at = 0.5
duration = 0.5

[[fault]]
id = "kill"
fault = "client-kill"
target = "A"
when = "after:pause"
[fault.options]
workload = "command"

[[fault]]
id = "crash"
fault = "mirror-kill"
target = "A->B"
at = 1.0
duration = 0.2

[[fault]]
id = "failover"
fault = "failover-planned"
target = "A->B"
when = "after:kill,crash"

[minimums]
afterwards = 100
aborted = 0
"""


@pytest.mark.spark
@pytest.mark.nightly
def test_an_application_and_a_mirror_by_command_are_killed_and_fail_over(tmp_path: Path) -> None:
    scenario = tmp_path / "both.toml"
    scenario.write_text(BOTH)
    judged = linkflap.run(scenario, folder=tmp_path / "run", seed=13)
    assert judged.valid, judged.why
    assert judged.checks["fault-bite"].examined == {"run/faults": 4}
    assert judged.checks["lost-write"].examined["B/native"] > 0
    events, _ = RunReader(tmp_path / "run").events()
    bitten = next(n for n, e in enumerate(events) if isinstance(e, FaultBite) and e.id == "pause")
    started = {n: e.cluster for n, e in enumerate(events) if isinstance(e, ProgramStarted)}
    assert list(started.values()) == ["A", "B", "A", "B"]
    assert list(started)[1] > bitten
    polls, _ = RunReader(tmp_path / "run").polls()
    late = [poll.time for poll in polls if poll.reader == "readers-2"]
    assert min(late) > events[bitten].time
    pids = [e.pid for e in events if isinstance(e, ProgramStarted)]
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


# A program with an ordinary client, recorded on the wire.


def confluent_kafka(folder: Path) -> tuple[str, ...]:
    """The command of the example, in a copy of its folder."""
    shutil.copy(EXAMPLES / "clients" / "confluent_python.py", folder)
    return "python3", "confluent_python.py"


def franz_go(folder: Path, name: str = "franz-go") -> tuple[str, ...]:
    made("go", "build", "-o", str(folder / "payments"), ".", at=EXAMPLES / "clients" / name)
    return (str(folder / "payments"),)


def sarama(folder: Path) -> tuple[str, ...]:
    return franz_go(folder, "sarama")


def kafkajs(folder: Path) -> tuple[str, ...]:
    for name in ("payments.js", "package.json", "package-lock.json"):
        shutil.copy(EXAMPLES / "clients" / "kafkajs" / name, folder)
    made("npm", "ci", "--no-audit", "--no-fund", at=folder)
    return "node", "payments.js"


def kafka_go(folder: Path) -> tuple[str, ...]:
    return franz_go(folder, "kafka-go")


def aiokafka(folder: Path) -> tuple[str, ...]:
    made(sys.executable, "-m", "venv", str(folder / "venv"), at=folder)
    python, example = str(folder / "venv" / "bin" / "python"), EXAMPLES / "clients" / "aiokafka"
    made(python, "-m", "pip", "install", "-q", "-r", str(example / "requirements.txt"), at=folder)
    return python, str(example / "payments.py")


def java(_folder: Path) -> tuple[str, ...]:
    program = EXAMPLES / "clients" / "java" / "Payments.java"
    return "sh", "-c", f'exec "$LINKFLAP_JAVA" -cp "$LINKFLAP_CLASSPATH" {program}'


Build = Callable[[Path], tuple[str, ...]]
CLIENTS: tuple[Build, ...] = (
    java, confluent_kafka, franz_go, sarama, kafka_go, kafkajs, aiokafka,
)  # fmt: skip
SIX = ("failover", "coordinators", "half-open", "unanswered", "killed", "failback")
"""Scenario files of docs/examples/clients that do different things to a client."""


def of_client(client: Build, folder: Path, name: str = "failover") -> Scenario:
    """A scenario file of the examples, whose payments this client writes and, but for
    confluent-kafka's program, reads."""
    folder.mkdir()
    scenario = scenario_file.read(EXAMPLES / "clients" / f"{name}.toml", seed=SEED)
    writer, reader = scenario.workloads
    library = "java" if client is java else writer.library
    writer = replace(writer, command=client(folder), folder=str(folder), library=library)
    if client is not confluent_kafka:
        reader = replace(writer, reads=writer.writes, writes=(), options=reader.options)
    schedule = scenario.schedule
    if client is kafka_go:  # it has no transactions
        schedule = tuple(each for each in schedule if each.options.get("api") != "EndTxn")
    return replace(scenario, workloads=(writer, reader), schedule=schedule)


def made(*command: str, at: Path) -> None:
    """Builds a client, or skips the test where its language is not installed."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    subprocess.run(command, cwd=at, check=True, capture_output=True, timeout=300)


@pytest.mark.parametrize(
    ("client", "mirror"),
    [
        (confluent_kafka, "shadow"),
        pytest.param(confluent_kafka, "mm2", marks=pytest.mark.nightly),
        pytest.param(kafka_go, "shadow", marks=pytest.mark.nightly),
    ],
)
def test_a_program_is_judged_by_what_crossed_the_wire(
    tmp_path: Path, client: Build, mirror: str
) -> None:
    """A forced failover under an unmodified client is valid, with its acknowledgements examined;
    the same run without an acknowledged record is not."""
    folder = tmp_path / "run"
    scenario = replace(of_client(client, tmp_path / "programs"), mirror=MirrorSpec(kind=mirror))
    with shown_on() as progress:
        record(scenario, runtime="process", folder=folder, command="", progress=progress)
    events, _ = RunReader(folder).events()
    reports = {e.cluster: e for e in events if isinstance(e, WireRecorded)}
    assert reports.keys() == {"A", "B"}
    assert all(e.acknowledged and not e.unread and not e.passed for e in reports.values())
    assert all(e.delivered and e.committed for e in reports.values())
    operations, damage = RunReader(folder).operations()
    assert not damage
    ended = {(o.cluster, o.ending) for o in operations if o.outcome == "ok"}
    committed = "none" if client is kafka_go else "commit"  # it has no transactions
    assert {("A", committed), ("B", committed)} <= ended
    assert client is kafka_go or "abort" in {ending for _, ending in ended}
    valid = wire_findings(folder)
    assert {row for row in valid if row[0] != "examined"} == set()
    assert {("examined", "A", "lost-write"), ("examined", "B", "ghost-ack")} <= valid
    assert {("examined", c, check) for c in "AB" for check in OF_READERS} <= valid
    unread = wire_findings(without_a_fetch(shutil.copytree(folder, tmp_path / "unread")))
    assert {("found", "A", "poll-continuity"), ("found", "A", OF_READERS[0])} <= unread

    changed = shutil.copytree(folder, tmp_path / "changed")
    lost = next(
        (group.topic, group.partition, offset)
        for o in operations
        if (o.cluster, o.ending, o.outcome) == ("A", committed, "ok")
        for group in o.sends
        for _, _, offset in group.acks
        if offset > 0
    )
    replicas = list(changed.glob(f"captures/*/A/*/{lost[0]}-{lost[1]}/*.log"))
    assert len(replicas) == 3
    for path in replicas:
        rewrite(path, [d for _, d in batches_in(path) if field_of(d, "base_offset") != lost[2]])
    seal(changed)
    assert ("found", "A", "lost-write") in wire_findings(changed)


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("name", SIX)
@pytest.mark.parametrize("client", CLIENTS)
def test_real_clients_under_six_scenarios(tmp_path: Path, client: Build, name: str) -> None:
    """The promises and deliveries to each client hold (docs/clients.md)."""
    scenario = of_client(client, tmp_path / "programs", name)
    with shown_on() as progress:
        record(scenario, runtime="process", folder=tmp_path / "run", command="", progress=progress)
    judged = linkflap.verify(tmp_path / "run")
    assert judged.valid, judged
    examined = {name: check.examined for name, check in judged.checks.items()}
    assert examined["lost-write"]["A/native"] > 100
    assert examined["inconsistent-offset"]["A/native"] > 100
    assert sum(examined["fault-bite"].values()) == len(scenario.schedule)


DELETES = """
import os
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
where = {"bootstrap.servers": os.environ["LINKFLAP_BOOTSTRAP"]}
admin = AdminClient(where)
admin.create_topics([NewTopic("scratch", 2)])["scratch"].result()
producer = Producer(where | {"transactional.id": "scratch"})
producer.init_transactions()
producer.begin_transaction()
for number in range(100):
    producer.produce("scratch", str(number))
producer.commit_transaction()
admin.delete_topics(["scratch"])["scratch"].result()
"""


@pytest.mark.spark
def test_a_command_runs_once_while_links_break_and_its_failure_is_the_exit_code(
    tmp_path: Path,
) -> None:
    (tmp_path / "deletes.py").write_text(DELETES)
    done = cli(
        f"exec --json --topic orders --group billing --schedule {EXAMPLES / 'exec' / 'flap.toml'} "
        f"-- sh -c 'python3 {EXAMPLES / 'exec' / 'orders.py'} && python3 deletes.py && exit 3'",
        env=environment(tmp_path / "ledger"),
        cwd=tmp_path,
    )
    assert done.returncode == 3, done.stderr
    assert "1600 orders written, 0 of them not read" in done.stderr
    judged = json.loads(done.stdout)
    assert judged["verdict"] == "valid", judged
    examined = {each["name"]: each["examined"] for each in judged["checks"]}
    assert examined["lost-write"] == {"A/native": 3200}  # orders, and invoices in its own topic
    assert examined["byte-equality"]["B/mirrored"] > 400
    assert examined["fault-bite"] == {"run/faults": 8}
    (recording,) = (each for each in judged["checks"] if each["name"] == "recording")
    assert "topic scratch was deleted on A by a program, and is not judged" in recording["reason"]
    assert examined["unseen"].keys() == {"A/native", "B/mirrored"}


KILLS_ITS_RECORDER = """
import os, psutil, signal
folder = os.environ["LINKFLAP_ADDRESS_FILE"].partition("/commands/")[0]
for process in psutil.process_iter(["cmdline"]):
    words = " ".join(process.info["cmdline"] or ())
    if "linkflap.harness.wire.recorder" in words and folder in words:
        process.kill()
signal.pause()
"""


@pytest.mark.spark
@pytest.mark.nightly
def test_a_command_is_ended_when_a_recorder_dies(tmp_path: Path) -> None:
    (tmp_path / "kills.py").write_text(KILLS_ITS_RECORDER)
    done = cli(
        "exec --json --topology A --topic orders -- python3 kills.py",
        env=environment(tmp_path / "ledger"),
        cwd=tmp_path,
    )
    assert done.returncode == 143, done.stderr
    assert "linkflap: the recorder of A died, so the command was ended" in done.stderr
    assert json.loads(done.stdout)["verdict"] == "unknown"


@pytest.mark.spark
@pytest.mark.nightly
def test_wrong_program_is_found_without_a_change_to_the_program(tmp_path: Path) -> None:
    """It commits before it has written, and writes what was aborted in the end."""
    judged = linkflap.run(EXAMPLES / "clients" / "copier.toml", folder=tmp_path / "run", seed=SEED)
    assert judged.verdict is Verdict.INVALID
    found = judged.checks["program-copies"].kinds
    assert {"input-not-copied", "copy-without-input"} <= found.keys()
    assert not judged.checks["lost-write"].kinds
    assert judged.checks["read-committed-visibility"].examined["A/native"]


OF_WRITERS = ("lost-write", "ghost-ack", "commit-aborted", "provenance", "duplicate")
OF_READERS = ("read-committed-visibility", "aborted-read", "inconsistent-offset")


def without_a_fetch(folder: Path) -> Path:
    """The run without an answer that delivered something, between two others."""
    path = folder / "polls" / "wire-A.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    polls = [line for line in lines if '"kind":"poll"' in line and '"runs":[[' in line]
    lines.remove(polls[len(polls) // 2])
    path.write_text("".join(lines))
    seal(folder)
    return folder


def wire_findings(folder: Path) -> set[tuple[str, str, str]]:
    """The counts of the checks of acknowledgements in a run: finding, cluster, check."""
    return {
        (row.finding, row.cluster, row.check)
        for name in (*OF_WRITERS, *OF_READERS, "poll-continuity")
        for seen in views(folder)
        if not seen.internal
        for row in finding_rows.examine(REGISTRY[name], seen)
        if row.finding != "partial"
    }


@pytest.mark.nightly
def test_share_group_of_a_program_is_judged_by_what_crossed_the_wire(tmp_path: Path) -> None:
    """Kafka's own share consumers under a killed broker are valid; the same run with an
    acceptance that was confirmed twice is not."""
    folder = tmp_path / "run"
    scenario = scenario_file.read(EXAMPLES / "clients" / "share-group.toml", seed=SEED)
    with shown_on() as progress:
        record(scenario, runtime="process", folder=folder, command="", progress=progress)
    (report,) = (e for e in RunReader(folder).events()[0] if isinstance(e, WireRecorded))
    assert (report.unread, report.passed) == ({}, {})
    polls, damage = RunReader(folder).polls()
    assert not damage
    assert {"acquire", "accepted", "released", "rejected"} <= {poll.kind for poll in polls}
    assert {poll.lock_ms for poll in polls if poll.kind == "acquire"} == {30_000}
    starts = [f.position for p in polls if p.reader == SHARE_SAMPLER for f in p.fetched]
    assert max(starts) > 0, starts
    assert share_findings(folder) == {("examined", "")}

    accepted = next(poll for poll in polls if poll.kind == "accepted")
    again = replace(accepted, time=accepted.returned + 1, returned=accepted.returned + 2)
    with (folder / "polls" / "wire-A.jsonl").open("ab") as rows:
        rows.write(msgspec.json.encode(again) + b"\n")
    seal(folder)
    assert ("found", "delivered-again") in share_findings(folder)


def share_findings(folder: Path) -> set[tuple[str, str]]:
    return {
        (row.finding, row.kind)
        for seen in views(folder)
        if not seen.internal
        for row in finding_rows.examine(REGISTRY["share-groups"], seen)
    }
