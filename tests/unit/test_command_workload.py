"""A user's program as a workload: its settings in scenario files, and how it is started, moved,
killed, paused and stopped. No broker runs here."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from linkflap.chaos import scenario_file
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.events import ClientDied
from linkflap.harness.model.scenario import WorkloadSpec
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import RunReader, RunWriter
from linkflap.harness.workloads import groups, topics, topics_for
from linkflap.harness.workloads.clients import WorkloadClients
from linkflap.harness.workloads.command import Command, check
from linkflap.harness.workloads.make_crew import make_all
from tests.unit.program_addresses import ADDRESSES
from tests.unit.recorded_run import run

SCENARIO = """
schema = 1
name = "mine"
topology = "A->B"
[[workload]]
command = ["python3", "app.py"]
home = "A"
folder = "service"
reads = ["orders"]
writes = ["paid"]
[workload.options]
group = "mine"
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RunWriter]:
    made = RunWriter(tmp_path / "run", run())
    yield made
    made.close("finished")


def test_a_scenario_file_has_it_with_its_folder_from_there(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SCENARIO)
    read = scenario_file.read(path, seed=1)
    (spec,) = read.workloads
    assert (spec.kind, spec.command, spec.folder) == (
        "command",
        ("python3", "app.py"),
        str(tmp_path / "service"),
    )
    again = tmp_path / "again.toml"
    scenario_file.save(read, again)
    assert scenario_file.read(again, seed=1) == read


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('command = ["python3", "app.py"]\n', "", "line 5: 'kind' is missing; add kind"),
        ('command = ["python3", "app.py"]', "command = []", "'kind' is missing"),
        (
            'command = ["python3", "app.py"]',
            'command = "python3 app.py"',
            "line 6: workload.0.command is wrong",
        ),
        (
            'command = ["python3", "app.py"]',
            'command = ["./nothing"]',
            "there is no program './nothing'",
        ),
        (
            'command = ["python3", "app.py"]',
            'kind = "transactional"',
            "no option of transactional 'group'",
        ),
        (
            '[workload.options]\ngroup = "mine"\n',
            'kind = "transactional"\n',
            "command is of a program of your own, and transactional is linkflap's",
        ),
        (
            'group = "mine"',
            'groop = "mine"',
            "line 12: there is no option of command 'groop' (did you mean 'group'?)",
        ),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(
    tmp_path: Path, before: str, after: str, says: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SCENARIO.replace(before, after))
    with pytest.raises(InputError) as raised:
        scenario_file.read(path, seed=1)
    assert says in str(raised.value)


def test_a_program_that_asks_for_java_finds_one_and_the_jars_of_the_clients(
    writer: RunWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = SimpleNamespace(classpath="/libs/*"), SimpleNamespace(path="/java")
    monkeypatch.setattr("linkflap.harness.workloads.jvms._installed", lambda _: installed)
    given = {}
    for library in ("librdkafka", "java@4.3.1"):
        spec = WorkloadSpec(
            kind="command", home="A", command=("true",), folder=str(tmp_path), library=library
        )
        given[library] = Command(spec, "command-1", ADDRESSES, writer)._given()
    assert "LINKFLAP_JAVA" not in given["librdkafka"]
    assert (given["java@4.3.1"]["LINKFLAP_JAVA"], given["java@4.3.1"]["LINKFLAP_CLASSPATH"]) == (
        "/java",
        "/libs/*",
    )


def test_a_program_has_one_library() -> None:
    with pytest.raises(InputError, match="a program takes no turns"):
        check(WorkloadSpec(kind="command", home="A", command=("true",), library="java,librdkafka"))


def test_a_file_gives_java_to_a_program_only_where_the_program_asks(tmp_path: Path) -> None:
    text = """
schema = 1
name = "x"
topology = "A->B"
clients = "java"
[[workload]]
kind = "readers"
home = "A"
[[workload]]
command = ["true"]
home = "A"
[[workload]]
command = ["true"]
home = "A"
library = "java"
"""
    path = tmp_path / "x.toml"
    path.write_text(text)
    read = scenario_file.read(path, seed=1)
    assert [spec.library for spec in read.workloads] == ["java", "librdkafka", "java"]
    again = tmp_path / "again.toml"
    again.write_text(scenario_file.render(read))
    assert [spec.library for spec in scenario_file.read(again, seed=1).workloads] == [
        "java",
        "librdkafka",
        "java",
    ]


SAYS = """
import json, os, pathlib, signal, sys
said = {name: value for name, value in os.environ.items() if name.startswith("LINKFLAP_")}
file = pathlib.Path(os.environ["LINKFLAP_ADDRESS_FILE"])
def moved(*_): print("moved to", file.read_text().strip(), flush=True)
signal.signal(signal.SIGUSR1, moved)
signal.signal(signal.SIGUSR2, lambda *_: print("quiet", flush=True))
signal.signal(signal.SIGTERM, lambda *_: (print("stopped", flush=True), sys.exit(0)))
print(json.dumps(said), flush=True)
while True: signal.pause()
"""


@pytest.fixture
def program(writer: RunWriter, tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Makes one, with options; it prints its environment."""
    made: list[Command] = []

    def make(**options: str) -> Command:
        spec = WorkloadSpec(
            kind="command",
            home="A",
            command=(sys.executable, "-c", SAYS),
            folder=str(tmp_path),
            reads=("orders",),
            options=options,
        )
        made.append(Command(spec, "command-1", ADDRESSES, writer))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def output(writer: RunWriter) -> str:
    log = writer.logs / "commands" / "command-1" / "output.log"
    return log.read_text() if log.exists() else ""


def said(writer: RunWriter, starts: int) -> dict[str, str]:
    """The output of its n-th start."""

    def lines() -> list[str]:
        return [line for line in output(writer).splitlines() if line.startswith("{")]

    until(lambda: len(lines()) >= starts, within=60, what="the program to start")
    environment: dict[str, str] = json.loads(lines()[starts - 1])
    return environment


def test_it_finds_addresses_and_topics_in_its_environment(
    program: Callable[..., Command], writer: RunWriter
) -> None:
    program().start()
    found = said(writer, 1)
    assert found["LINKFLAP_CLUSTER"] == "A"
    assert found["LINKFLAP_BOOTSTRAP"] == found["LINKFLAP_BOOTSTRAP_A"] == "127.0.0.1:1"
    assert found["LINKFLAP_BOOTSTRAP_B"] == "127.0.0.1:2"
    assert (found["LINKFLAP_READS"], found["LINKFLAP_WRITES"]) == ("A.orders", "")


def test_through_the_proxy_it_is_given_the_path_of_clients(
    program: Callable[..., Command], writer: RunWriter
) -> None:
    program(via="proxy").start()
    assert said(writer, 1)["LINKFLAP_BOOTSTRAP"] == "127.0.0.1:11"


def test_it_is_moved_by_a_restart_with_the_other_address(
    program: Callable[..., Command], writer: RunWriter
) -> None:
    mine = program()
    mine.start()
    said(writer, 1)
    assert mine.ask_to_move("B", "A", drained=True) == []
    mine.pause("A")
    assert not mine.alive
    mine.ask_to_move("A", "B", drained=True)
    assert said(writer, 2)["LINKFLAP_BOOTSTRAP"] == "127.0.0.1:2"
    assert output(writer).count("stopped") == 1


def test_it_is_moved_by_a_signal_where_it_says_so(
    program: Callable[..., Command], writer: RunWriter
) -> None:
    mine = program(move="signal")
    mine.start()
    said(writer, 1)
    mine.pause("A")
    until(
        lambda: "quiet" in output(writer),
        within=60,
        what="the program to be asked to write no more",
    )
    mine.ask_to_move("A", "B", drained=False)
    until(
        lambda: "moved to 127.0.0.1:2" in output(writer),
        within=60,
        what="the program to be asked to move",
    )
    assert mine.alive
    assert "stopped" not in output(writer)


def test_one_that_is_killed_is_started_again_and_the_death_is_written_down(
    program: Callable[..., Command], writer: RunWriter
) -> None:
    mine = program()
    clients = WorkloadClients([mine], writer)
    mine.start()
    said(writer, 1)
    death = clients.kill("A", workload="command", moment="any", by="kill", within=10)
    assert (death.status, death.process) == (-signal.SIGKILL, "command-1")
    said(writer, 2)
    assert clients.done_since_restart("command-1") == 1
    with pytest.raises(InputError, match="no program of a workload with a command runs at B"):
        clients.kill("B", workload="command", moment="any", by="kill", within=10)
    events, _ = RunReader(writer.root).events()
    (died,) = [event for event in events if isinstance(event, ClientDied)]
    assert (died.by, died.signal, died.again) == ("kill", "SIGKILL", True)


def test_one_that_ends_by_itself_is_started_again(writer: RunWriter, tmp_path: Path) -> None:
    spec = WorkloadSpec(
        kind="command",
        home="A",
        command=(sys.executable, "-c", "print('up'); raise SystemExit(3)"),
        folder=str(tmp_path),
    )
    mine = Command(spec, "command-1", ADDRESSES, writer)
    mine.start()
    try:
        until(
            lambda: mine.look() or output(writer).count("up") >= 2,
            within=60,
            what="the program to be started again",
        )
    finally:
        mine.stop()
    events, _ = RunReader(writer.root).events()
    assert next(event.status for event in events if isinstance(event, ClientDied)) == 3


def test_it_can_be_suspended_and_continued(
    program: Callable[..., Command], writer: RunWriter
) -> None:
    mine = program()
    mine.start()
    said(writer, 1)
    mine.freeze()
    assert mine.frozen
    mine.thaw()
    assert not mine.frozen
    mine.stop()
    mine.thaw()
    with pytest.raises(InputError, match="does not run"):
        mine.freeze()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"command": ()}, "has no command"),
        ({"command": ("./no-such",)}, "there is no program './no-such'"),
        ({"clients": 2}, "cannot have 2 clients"),
        ({"options": {"speed": 3}}, "has no option 'speed'; it has via, move, group"),
        ({"options": {"move": "hope"}}, "move='hope'; give restart or signal"),
        ({"options": {"group": 3}}, "group=3; give a text"),
        ({"writes": ("../etc",)}, "cannot have the topic '../etc'"),
    ],
)
def test_every_error_is_one_sentence(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as raised:
        check(WorkloadSpec(**{"kind": "command", "home": "A", "command": ("true",), **changed}))
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_its_topics_are_only_read_by_linkflaps_clients(writer: RunWriter) -> None:
    app = WorkloadSpec(
        kind="command",
        home="A",
        command=("true",),
        reads=("orders",),
        writes=("paid",),
        options={"group": "mine"},
    )
    specs = [
        app,
        WorkloadSpec(kind="transactional", home="A"),
        WorkloadSpec(kind="readers", home="A", options={"assign": True}),
    ]
    every = dict.fromkeys(topics(specs), 2)
    assert sorted(every) == ["A.orders", "A.paid"]
    assert [sorted(topics_for(spec, specs, every)) for spec in specs[1:]] == [
        ["A.orders"],
        ["A.orders", "A.paid"],
    ]
    assert groups(specs) == ["mine"]
    crews = make_all(specs, addresses=ADDRESSES, topics=every, writer=writer, seed=1)
    assert [type(crew).__name__ for crew in crews] == ["Command", "Producers", "Readers"]
