"""The Python API: the cost of `import linkflap`, its names, the caller's own clients, and errors
for wrong arguments. No broker runs here."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Message

import linkflap
from linkflap.api.faults import Faults
from linkflap.api.own_clients import OwnClient, OwnClients
from linkflap.api.runs import Judged
from linkflap.api.world import World
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.scenario import OWN_PRODUCER
from linkflap.harness.rundir import Run, RunWriter
from linkflap.harness.workloads.incarnation import InvokedOperation
from linkflap.recording.world import RunWorld
from tests.command_line import ran
from tests.scenarios import scenario_of

ROOT = Path(linkflap.__file__).parent
EXPECTED = (
    "import sys, linkflap; print(sorted(name for name in sys.modules if "
    "name.startswith(('linkflap', 'confluent', 'pyspark'))))"
)


RECORDED = {"record": "wire", "topics": {"A.orders": 1}}


@pytest.mark.parametrize("recorded", [True, False])
def test_producers_of_its_own_are_refused_only_where_their_topics_are_recorded(
    tmp_path: Path, recorded: bool
) -> None:
    """There may be recorders for faults alone, whose addresses are not given out."""
    writer = RunWriter(tmp_path / "run", Run.begun(scenario_of("A"), "process"))
    deployment = cast(
        Deployment,
        SimpleNamespace(recorders={"A": SimpleNamespace(bootstrap="at-A")}, clusters={"A": None}),
    )
    clients = OwnClients((), writer, deployment, groups=[], topics={}, recorded=recorded)
    mine = cast(OwnClient, SimpleNamespace(let_go=lambda: None))
    inner = cast(RunWorld, SimpleNamespace(stopping=False))
    world = World(deployment, inner, cast(Faults, None), tmp_path, lambda: None, recorded=recorded)
    refused = pytest.raises(linkflap.InputError, match="is for other clients")
    unrecorded = pytest.raises(linkflap.InputError, match="nothing is recorded on the wire")
    try:
        with refused if recorded else nullcontext():
            assert clients.take_in(mine, OWN_PRODUCER) == f"{OWN_PRODUCER}-1"
        with nullcontext() if recorded else unrecorded:
            assert world.recorded("A") == "at-A"
    finally:
        clients.let_go()
        writer.close("finished")


def test_importing_it_imports_nothing_else() -> None:
    done = ran([sys.executable, "-c", EXPECTED], within=60, check=True)
    assert done.stdout.strip() == "['linkflap']"


def test_plugin_imports_two_modules_if_no_test_uses_linkflap(tmp_path: Path) -> None:
    """The plugin then imports two modules, whatever else linkflap needs."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(
        "def pytest_unconfigure():\n    " + EXPECTED.replace("; ", "\n    ") + "\n"
    )
    (tmp_path / "test_theirs.py").write_text("def test_theirs():\n    pass\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-s",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        str(tmp_path),
    ]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    done = ran(command, within=120, env=environment, cwd=tmp_path, check=True)
    assert done.stdout.splitlines()[-1] == "['linkflap', 'linkflap.pytest_plugin']"


def test_every_public_name_is_where_type_checkers_are_sent() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text())
    typed = {
        alias.asname: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert typed == linkflap._HOMES
    for name in typed:
        assert getattr(linkflap, name).__doc__, f"linkflap.{name} has no documentation"
    assert set(typed) <= set(dir(linkflap))
    assert (ROOT / "py.typed").exists()


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'rum'"):
        _ = linkflap.rum


@pytest.mark.parametrize(
    ("scenario", "options", "said"),
    [
        ("link-flop", {}, "there is no scenario 'link-flop'"),
        ("nowhere.toml", {}, "there is no scenario file nowhere.toml"),
        ("nowhere.toml", {"mirror": "mm2"}, "mirror changes a built-in scenario"),
        ("baseline", {"mirror": "mm3"}, "there is no mirror 'mm3'"),
        ("baseline", {"topology": "A->"}, "topology 'A->'"),
        ("baseline", {"runtime": "boat"}, "there is no runtime 'boat'"),
    ],
)
def test_wrong_arguments_are_one_sentence_before_anything_starts(
    tmp_path: Path, scenario: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(linkflap.InputError, match=said):
        linkflap.run(scenario, folder=tmp_path / "run", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: linkflap.verify(cast(Any, 3)), "folder is 3; it must be a path"),
        (lambda: linkflap.verify(cast(Any, None)), "folder is None; it must be the path"),
        (lambda: linkflap.run("baseline", folder=cast(Any, 3)), "folder is 3; it must be a path"),
        (lambda: linkflap.deploy(cast(Any, 3)), "topology is 3; it must be a text like A->B"),
        (lambda: linkflap.deploy(topics="A.orders"), "topics is 'A.orders'; it must be names"),
        (lambda: linkflap.deploy(mirror=cast(Any, 3)), "mirror is 3; it must be the name"),
        (lambda: linkflap.deploy(seed=cast(Any, "x")), "seed is 'x'; it must be a whole number"),
    ],
)
def test_a_wrong_type_is_wrong_input(call: Callable[[], object], said: str) -> None:
    with pytest.raises(linkflap.InputError, match=re.escape(said)):
        call()


def test_a_run_directory_is_never_written_over(tmp_path: Path) -> None:
    with pytest.raises(linkflap.InputError, match="exists already"):
        linkflap.run("baseline", folder=tmp_path)
    with pytest.raises(linkflap.InputError, match="there is no folder"):
        linkflap.run("baseline", folder=tmp_path / "no" / "run")


def test_a_folder_that_is_no_run_directory_cannot_be_verified(tmp_path: Path) -> None:
    with pytest.raises(linkflap.InputError, match="is not a run directory"):
        linkflap.verify(tmp_path)


def test_anomalies_are_selected_by_kind() -> None:
    lost = linkflap.Anomaly(
        check="lost-write", kind="lost-write", cluster="B", topic="A.orders", partition=0, offset=-1
    )
    allowed = linkflap.Anomaly(
        check="duplicate",
        kind="mirrored-duplicate",
        cluster="B",
        topic="A.orders",
        partition=0,
        offset=7,
        allowed=True,
    )
    check = linkflap.CheckResult(
        name="lost-write",
        verdict=linkflap.Verdict.INVALID,
        examined={},
        anomalies=1,
        allowed=0,
        reason="1 lost",
    )
    seen = Judged(
        folder=Path("run"), verdict=linkflap.Verdict.INVALID, checks={"lost-write": check},
        anomalies=(lost, allowed),
        failovers=(), document={},
    )  # fmt: skip
    assert seen.found("lost-write") == seen.violations == (lost,)
    assert seen.found("mirrored-duplicate") == (allowed,)
    assert seen.found("duplicate") == ()
    assert seen.why == "lost-write: invalid: 1 lost\nrun directory: run"
    cause = replace(seen, folder=Path("a run"), document={"cause": "B lost it."})
    assert cause.why.startswith(
        "B lost it.\nsee it: linkflap explain 'a run' 1\nlost-write: invalid"
    )
    assert repr(seen) == "<Judged invalid: lost-write: invalid: 1 lost; run directory: run>"
    assert repr(cause) == "<Judged invalid: B lost it.; run directory: a run>"
    assert not seen.valid
    with pytest.raises(linkflap.InputError, match="there is no anomaly 'lost-rite'"):
        seen.found("lost-rite")


SNIPPET = """
from confluent_kafka import KafkaError, Message

import linkflap


def delivered(error: KafkaError | None, message: Message) -> None:
    print(error, message.offset())


with linkflap.deploy("A:3->B", topics={"A.orders": 3}, mirror="shadow") as world:
    a, into_a = world.cluster("A").bootstrap, world.link("*->A").bootstrap
    producer = linkflap.Producer({"bootstrap.servers": a, "transactional.id": "t"})
    consumer = linkflap.Consumer({"bootstrap.servers": into_a, "group.id": "g"})
    consumer.subscribe(["A.orders"])
    producer.init_transactions()
    slowed = world.link("A->B").latency(ms=200)
    with slowed as slow, world.link("*->A").half_open(), world.broker("A/1").kill():
        producer.begin_transaction()
        producer.produce("A.orders", b"one", headers={"a": b"b"}, on_delivery=delivered)
        producer.poll(0)
        producer.commit_transaction()
        print(len(producer), producer.flush(10), slow.bite.measured)
    message = consumer.poll(1.0)
    world.mirror("A->B").wait()
judged: linkflap.Judged = world.verify()
again: linkflap.Judged = linkflap.run("link-flap", seed=7)
assert again.valid, again.why
verdict: linkflap.Verdict = judged.verdict
lost: tuple[linkflap.Anomaly, ...] = judged.found("lost-write")
waited: float | None = judged.failovers[0].rto_seconds
"""


# The caller's own clients: what they refuse, and which histories are decided without a broker.


def test_records_of_one_partition_with_consecutive_ids_are_one_group() -> None:
    flight = InvokedOperation(number=7, kind="transaction")
    records = []
    for uid, partition in enumerate([0, 0, 1, 0, 0]):
        group = flight.add("A.orders", partition, uid)
        records.append((group, group.count - 1))
    planned = [
        (g.topic, g.partition, g.first_uid, g.count)
        for g in (each.planned() for each in flight.groups)
    ]
    assert planned == [("A.orders", 0, 0, 2), ("A.orders", 1, 2, 1), ("A.orders", 0, 3, 2)]
    for (group, index), offset in zip(records, [10, 11, 5, 12, 13], strict=True):
        group.delivered(index, None, Message(offset=offset))
    assert [group.outcome().acks for group in flight.groups] == [
        ((0, 2, 10),),
        ((0, 1, 5),),
        ((0, 2, 12),),
    ]
    assert flight.acked == 5


def test_a_record_that_the_client_did_not_accept_is_certainly_refused() -> None:
    flight = InvokedOperation(number=7, kind="send")
    flight.add("A.orders", 0, 3).handed -= 1
    assert flight.groups[0].all_refused
    assert flight.groups[0].outcome().refused == ((0, 1),)


@pytest.mark.parametrize("kind", ["Producer", "Consumer"])
@pytest.mark.parametrize(
    "config", [{}, {"bootstrap.servers": "localhost:1"}, {"bootstrap.servers": 5}]
)
def test_an_address_of_no_world_is_refused(
    kind: str, config: dict[str, str] | dict[str, int]
) -> None:
    with pytest.raises(linkflap.InputError, match="leads to no cluster of this process"):
        getattr(linkflap, kind)({"group.id": "mine", **config})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"topology": "A->"}, "topology 'A->'"),
        (
            {"topics": {"orders": 1}},
            "topic 'orders' does not begin with its home cluster; call it A.orders",
        ),
        ({"topics": {"C.orders": 1}}, "does not begin with its home cluster"),
        ({"topics": {"A.orders": 0}}, "cannot have 0 partitions"),
        ({"topics": "A.orders"}, "topics is 'A.orders'; it must be names of topics"),
        ({"topics": [5]}, "topics has 5; give names of topics"),
        ({"readers": "yes"}, "readers is 'yes'; it must be True or False"),
        (
            {"workloads": ["transactional"]},
            "workloads has 'transactional'; it must be a list of WorkloadSpec",
        ),
        ({"mirror": "mm3"}, "there is no mirror 'mm3'"),
        ({"mirror_options": {"tasks": 3}}, "mirror_options need a mirror"),
        ({"runtime": "boat"}, "there is no runtime 'boat'"),
        (
            {"workloads": [linkflap.WorkloadSpec(kind="readres", home="A")]},
            "there is no workload 'readres'",
        ),
        ({"workloads": [linkflap.WorkloadSpec(kind="readers", home="C")]}, "no cluster 'C'"),
        ({"record": "wir"}, r"record is 'wir' \(did you mean 'wire'\?\); it must be wire or none"),
        ({"record": "wire"}, "records topics; name them with topics="),
        ({"group": "billing"}, 'group needs record="wire"'),
        ({"share_group": "workers"}, 'share_group needs record="wire"'),
        ({"share_group": 5}, "share_group is 5; it must be the name of a share group"),
        ({**RECORDED, "topology": "A{mtls}->B"}, "cannot show cluster A the certificates"),
        (
            {**RECORDED, "workloads": [linkflap.WorkloadSpec(kind="transactional", home="A")]},
            "workloads write those of A too",
        ),
    ],
)
def test_a_deployment_that_cannot_be_is_one_sentence_before_anything_starts(
    tmp_path: Path,
    arguments: dict[str, Any],
    said: str,
) -> None:
    with (
        pytest.raises(linkflap.InputError, match=said),
        linkflap.deploy(folder=tmp_path / "run", **arguments),
    ):
        pytest.fail("it started")
    assert list(tmp_path.iterdir()) == []
