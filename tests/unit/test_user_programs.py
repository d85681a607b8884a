"""The user's programs as workloads and mirrors: their settings, process groups, environment,
guarantees and reports. No broker runs here."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from click.testing import CliRunner

from linkflap.chaos import scenario_file
from linkflap.chaos.scenario_file import read as read_scenario
from linkflap.harness import mirrors
from linkflap.harness.machine.children import Child
from linkflap.harness.machine.user_programs import HIDDEN, Foreign, redacted
from linkflap.harness.machine.user_programs import program as start_program
from linkflap.harness.mirrors.command import mirror
from linkflap.harness.mirrors.command.mirror import Order
from linkflap.harness.model.errors import (
    DeadlineExceeded,
    EnvironmentFailure,
    InputError,
    SetupError,
)
from linkflap.harness.model.events import ClientDied
from linkflap.harness.model.guarantee import Allowance, Guarantee
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.scenario import MirrorSpec, Option, WorkloadSpec
from linkflap.harness.rundir import RunReader, RunWriter
from linkflap.harness.workloads import check_topics, groups, topics, topics_for
from linkflap.harness.workloads.clients import WorkloadClients, make_all
from linkflap.harness.workloads.command import Command, check
from tests.command_line import ran
from tests.unit.recorded_run import run
from tests.waiting import eventually

PARENT = """
import pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
{then}
"""


PYTHON = (sys.executable, "-c")


def foreign(tmp_path: Path, **secrets: str) -> Foreign:
    return Foreign(
        name="the program", folder=tmp_path, log=tmp_path / "output.log", secrets=secrets
    )


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def started(tmp_path: Path, then: str) -> tuple[Child, int]:
    """A program that starts a child; returns the child's pid too."""
    note = tmp_path / "pid"
    child = foreign(tmp_path).start([*PYTHON, PARENT.format(then=then), str(note)])
    eventually("the program to start another", lambda: note.exists() and note.read_text())
    return child, int(note.read_text())


def test_a_killed_programs_children_are_killed(tmp_path: Path) -> None:
    child, grandchild = started(tmp_path, "child.wait()")
    foreign(tmp_path).kill(child)
    assert gone(grandchild)
    assert child.group() == frozenset()


def test_a_program_that_ends_leaves_no_children(tmp_path: Path) -> None:
    child, grandchild = started(tmp_path, "sys.exit(7)")
    assert eventually("the program to end", child.end_group) == 7
    eventually("what it left to die", lambda: gone(grandchild))


def test_the_exit_of_a_program_killed_by_a_signal_names_it(tmp_path: Path) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    child = foreign(tmp_path).start([*PYTHON, code])
    assert eventually("the program to end", child.end_group) == -signal.SIGKILL


def test_program_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    code = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); "
        "signal.pause(); signal.pause()"
    )
    mine = foreign(tmp_path)
    child = mine.start([*PYTHON, code])
    eventually("the program to start", lambda: "up" in mine.last_words())
    assert not mine.end(child, within=0.3)
    assert child.group() == frozenset()


def test_suspended_program_can_be_ended(tmp_path: Path) -> None:
    mine = foreign(tmp_path)
    child = mine.start([*PYTHON, "import signal; print('up', flush=True); signal.pause()"])
    eventually("the program to start", lambda: "up" in mine.last_words())
    child.pause()
    assert child.paused
    assert mine.end(child, within=60)


def test_a_program_that_stops_itself_can_be_killed(tmp_path: Path) -> None:
    mine = foreign(tmp_path)
    child = mine.start([*PYTHON, "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"])
    eventually("the program to stop itself", lambda: child.any_suspended)
    assert not child.paused
    mine.kill(child)
    assert not child.any_suspended


def test_death_of_the_harness_ends_the_whole_process_group(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    harness = f"""
import sys
from pathlib import Path
from linkflap.harness.machine.user_programs import Foreign
from linkflap.harness.model.wait import until
folder, note = Path({str(tmp_path)!r}), Path({str(note)!r})
mine = Foreign(name="it", folder=folder, log=folder / "output.log")
mine.start([sys.executable, "-c", {PARENT.format(then="child.wait()")!r}, {str(note)!r}])
until(lambda: note.exists() and note.read_text(), within=60, what="it")
import os, signal
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "LINKFLAP_RUNTIME_DIR": str(tmp_path / "ledger")}
    done = ran([*PYTHON, harness], env=environment)
    assert done.returncode == -signal.SIGKILL
    eventually("the program's own child to die", lambda: gone(int(note.read_text())))


def test_a_command_is_run_to_its_end(tmp_path: Path) -> None:
    mine = foreign(tmp_path)
    done = mine.run([*PYTHON, "print('first')"], what="ask", within=60)
    assert done.output == "first\n"
    done = mine.run([*PYTHON, "print('second'); raise SystemExit(3)"], what="ask", within=60)
    assert (done.status, done.output) == (3, "second\n")


def test_command_that_does_not_exit_in_time_is_killed(tmp_path: Path) -> None:
    with pytest.raises(DeadlineExceeded, match="ask of the program to end"):
        foreign(tmp_path).run([*PYTHON, "import signal; signal.pause()"], what="ask", within=0.5)


def test_values_that_the_user_gave_are_in_no_log(tmp_path: Path) -> None:
    mine = foreign(tmp_path, TOKEN="a-secret-value", SHORT="1")
    code = "import os; print(os.environ['TOKEN'], 1)"
    done = mine.run([*PYTHON, code], what="ask", within=60)
    assert "a-secret-value" not in done.output
    assert "a-secret-value" not in mine.log.read_text()
    assert "a-secret-value" not in mine.last_words()
    assert mine.log.read_text().rstrip().endswith(" 1"), "a value that short is no secret"
    assert redacted("see a-secret-value", ["a-secret-value"]) == f"see {HIDDEN}"


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (b"", "(nothing printed)"),
        (b"one\ntwo\n", "one\ntwo"),
        (b"first\n" * 20 + b"last\n", "\n".join(["first"] * 14 + ["last"])),
        (b"x" * (1 << 20) + b"\nlast\n", "last"),
        (b"a-secret-value" * 10_000 + b"\nlast\n", "last"),
        (b"x" * (1 << 20), "(one line of more than 64 KiB)"),
        (b"\xff\n", "\ufffd"),
    ],
    ids=["nothing", "two lines", "many lines", "a long line", "a cut secret", "only one", "bytes"],
)
def test_last_words_are_whole_lines_however_much_was_printed(
    printed: bytes, words: str, tmp_path: Path
) -> None:
    mine = foreign(tmp_path, TOKEN="a-secret-value")
    mine.log.write_bytes(printed)
    assert mine.last_words() == words


def test_programs_are_paths_from_the_folder_or_names_in_the_path(tmp_path: Path) -> None:
    script = tmp_path / "mine.sh"
    script.write_text("#!/bin/sh\n")
    assert start_program("./mine.sh", tmp_path) is None, "it cannot be executed"
    script.chmod(0o755)
    assert start_program("./mine.sh", tmp_path) == str(script)
    assert start_program("mine.sh", tmp_path) is None, "the folder is not in PATH"
    assert start_program("sh", tmp_path)
    with pytest.raises(SetupError, match=r"no program 'mine\.sh'"):
        foreign(tmp_path).start(["mine.sh"])


# Addresses for a program: two clusters, and the client links into them.


ADDRESSES = cast(
    Deployment,
    SimpleNamespace(
        clusters={
            name: SimpleNamespace(bootstrap=f"127.0.0.1:{port}")
            for name, port in (("A", 1), ("B", 2))
        },
        links={
            "*->A": SimpleNamespace(bootstrap="127.0.0.1:11"),
            "*->B": SimpleNamespace(bootstrap="127.0.0.1:12"),
        },
    ),
)


# A user's program as a workload: its settings in scenario files, and how it is started, moved,
# killed, paused and stopped. No broker runs here.


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
COMMAND = 'command = ["python3", "app.py"]'


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RunWriter]:
    made = RunWriter(tmp_path / "run", run())
    yield made
    made.close("finished")


def test_command_of_a_scenario_file_runs_in_a_folder_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()
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
        (f"{COMMAND}\n", "", "line 5: 'kind' is missing; add kind"),
        (COMMAND, "command = []", "'kind' is missing"),
        (
            COMMAND,
            'command = "python3 app.py"',
            "line 6: workload.command is 'python3 app.py'; it must be a list",
        ),
        (COMMAND, 'command = ["./nothing"]', "there is no program './nothing'"),
        (COMMAND, 'kind = "transactional"', "no option of transactional 'group'"),
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
    (tmp_path / "service").mkdir()
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
    path.write_text(scenario_file.render(read))
    assert scenario_file.read(path, seed=1).workloads == read.workloads


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


def command(code: str, writer: RunWriter, folder: Path, **more: Any) -> Command:
    """A workload that is a Python program of the user's."""
    spec = WorkloadSpec(
        kind="command", home="A", command=(*PYTHON, code), folder=str(folder), **more
    )
    return Command(spec, "command-1", ADDRESSES, writer)


def deaths(writer: RunWriter) -> list[ClientDied]:
    return [event for event in RunReader(writer.root).events()[0] if isinstance(event, ClientDied)]


@pytest.fixture
def program(writer: RunWriter, tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Makes one, with options; it prints its environment."""
    made: list[Command] = []

    def make(**options: Option) -> Command:
        made.append(command(SAYS, writer, tmp_path, reads=("orders",), options=options))
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

    eventually("the program to start", lambda: len(lines()) >= starts)
    environment: dict[str, str] = json.loads(lines()[starts - 1])
    return environment


def test_program_gets_addresses_and_topics_in_its_environment(
    program: Callable[..., Command], writer: RunWriter
) -> None:
    program().start()
    found = said(writer, 1)
    assert found["LINKFLAP_CLUSTER"] == "A"
    assert found["LINKFLAP_BOOTSTRAP"] == found["LINKFLAP_BOOTSTRAP_A"] == "127.0.0.1:1"
    assert found["LINKFLAP_BOOTSTRAP_B"] == "127.0.0.1:2"
    assert (found["LINKFLAP_READS"], found["LINKFLAP_WRITES"]) == ("A.orders", "")


def test_program_via_the_proxy_gets_the_client_path(
    program: Callable[..., Command], writer: RunWriter
) -> None:
    program(via="proxy").start()
    assert said(writer, 1)["LINKFLAP_BOOTSTRAP"] == "127.0.0.1:11"


def test_program_is_moved_by_a_restart_with_the_other_address(
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


def test_program_that_chooses_a_signal_is_moved_by_that_signal(
    program: Callable[..., Command], writer: RunWriter
) -> None:
    mine = program(move="signal")
    mine.start()
    said(writer, 1)
    mine.pause("A")
    eventually("the program to be asked to write no more", lambda: "quiet" in output(writer))
    mine.ask_to_move("A", "B", drained=False)
    eventually("the program to be asked to move", lambda: "moved to 127.0.0.1:2" in output(writer))
    assert mine.alive
    assert "stopped" not in output(writer)


def test_killed_program_is_restarted_and_its_death_is_recorded(
    program: Callable[..., Command], writer: RunWriter
) -> None:
    mine = program()
    clients = WorkloadClients([mine], writer)
    mine.start()
    said(writer, 1)
    death = clients.kill("A", workload="command", moment="any", by="kill", within=60)
    assert (death.event.status, death.event.process) == (-signal.SIGKILL, "command-1")
    said(writer, 2)
    assert clients.done_since_restart("command-1") == 1
    with pytest.raises(InputError, match="no program of a workload with a command runs at B"):
        clients.kill("B", workload="command", moment="any", by="kill", within=60)
    (died,) = deaths(writer)
    assert (died.by, died.signal, died.again) == ("kill", "SIGKILL", True)


def test_program_that_exits_by_itself_is_restarted(writer: RunWriter, tmp_path: Path) -> None:
    mine = command("print('up'); raise SystemExit(3)", writer, tmp_path)
    mine.start()
    try:
        eventually(
            "the program to be started again",
            lambda: mine.look() or output(writer).count("up") >= 2,
        )
    finally:
        mine.stop()
    assert deaths(writer)[0].status == 3


def test_program_that_runs_once_is_not_restarted(writer: RunWriter, tmp_path: Path) -> None:
    once = command("raise SystemExit(3)", writer, tmp_path, options={"once": True})
    clients = WorkloadClients([once], writer)
    assert not clients.all_ended
    clients.start()
    eventually("the program to end", lambda: clients.progress() and clients.all_ended)
    clients.stop()
    (died,) = deaths(writer)
    assert (died.status, died.again) == (3, False)


def test_program_that_runs_once_gets_its_new_address_by_file(
    program: Callable[..., Command], writer: RunWriter
) -> None:
    mine = program(once=True)
    mine.start()
    address = Path(said(writer, 1)["LINKFLAP_ADDRESS_FILE"])
    mine.pause("A")
    mine.ask_to_move("A", "B", drained=False)
    assert address.read_text() == "127.0.0.1:2\n"
    assert mine.alive
    assert "stopped" not in output(writer)


@pytest.mark.parametrize("once", [True, False])
def test_only_a_program_that_runs_once_is_ended_when_its_time_is_over(
    program: Callable[..., Command], writer: RunWriter, *, once: bool
) -> None:
    mine = program(once=once)
    clients = WorkloadClients([mine], writer)
    mine.start()
    said(writer, 1)
    clients.end_programs()
    assert (mine.alive, clients.all_ended) == (not once, once)


def test_program_can_be_suspended_and_resumed(
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
        ({"options": {"speed": 3}}, "speed=3; it knows group, move, once, share_group, via"),
        ({"options": {"move": "hope"}}, "move='hope'; give one of restart, signal"),
        ({"options": {"group": 3}}, "group=3; give a text"),
        ({"writes": ("../etc",)}, "cannot have the topic '../etc'"),
    ],
)
def test_every_error_is_one_sentence(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as raised:
        check(WorkloadSpec(**{"kind": "command", "home": "A", "command": ("true",), **changed}))
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_topics_of_a_program_are_only_read_by_linkflaps_clients(writer: RunWriter) -> None:
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
    crews = make_all(specs, deployment=ADDRESSES, topics=every, writer=writer, seed=1)
    assert [type(crew).__name__ for crew in crews] == ["Command", "Producers", "Readers"]


@pytest.mark.parametrize("kind", ["transactional", "idempotent"])
def test_a_workload_that_may_not_write_the_only_topic_of_its_home_is_refused(kind: str) -> None:
    program = WorkloadSpec(kind="command", home="A", command=("true",), writes=("orders",))
    readers = WorkloadSpec(kind="readers", home="A")
    check_topics([program, readers])
    with pytest.raises(InputError, match=rf"^workload {kind} writes A.orders, which the program"):
        check_topics([program, readers, WorkloadSpec(kind=kind, home="A")])


# A mirror of commands: its manifest, its guarantees, its reports, and its lag. No broker runs
# here.


EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "replicator"
SMALLEST = """\
schema = 1
name = "mine"
[guarantee]
equality = "order"
offsets_kept = false
producer_ids = "replaced"
[commands]
start = ["python3", "mine.py"]
"""
START = 'start = ["python3", "mine.py"]'


def written(tmp_path: Path, text: str = SMALLEST) -> Path:
    path = tmp_path / "mirror.toml"
    path.write_text(text)
    return path


def resolved(path: Path) -> MirrorSpec:
    return mirrors.resolve(MirrorSpec(kind="command", options={"manifest": str(path)}))


def test_the_smallest_manifest_declares_its_guarantee(tmp_path: Path) -> None:
    promised = Guarantee(
        equality="order", offsets_kept=False, producer_ids="replaced", delivery="at-least-once"
    )
    assert resolved(written(tmp_path)).guarantee == promised


def test_the_example_has_the_declared_allowances() -> None:
    guarantee = resolved(EXAMPLE / "mirror.toml").guarantee
    assert [(type(line), line.kind, line.reach_after) for line in guarantee.allowed] == [
        (Allowance, "mirrored-duplicate", 30.0)
    ]


def test_run_json_has_the_commands_and_only_names_of_the_environment(tmp_path: Path) -> None:
    spec = resolved(
        written(tmp_path, SMALLEST + 'stop = ["kill", "a b"]\n[environment]\nTOKEN = "geheim"\n')
    )
    assert spec.resolved["commands"] == "start: python3 mine.py; stop: kill 'a b'"
    assert spec.resolved["environment"] == "TOKEN"
    assert "geheim" not in json.dumps(dict(spec.resolved))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("schema = 1", "schema = 2", "schema is 2; this linkflap reads schema = 1"),
        ("schema = 1", "", "schema is missing"),
        ('name = "mine"', 'name = "../mine"', "line 2: name is '../mine'; give it at most 60"),
        (
            'equality = "order"',
            'equality = "bits"',
            "line 4: equality is 'bits'; it can be 'bytes' or 'records' or 'order'",
        ),
        (
            'equality = "order"',
            'equality = "bytes"',
            "equality is bytes, which compares records at the same offset",
        ),
        ("offsets_kept = false", "offsets_kept = 0", "guarantee.offsets_kept"),
        (
            "offsets_kept = false",
            "offset_kept = false",
            "line 5: there is no 'offset_kept' here (did you mean 'offsets_kept'?)",
        ),
        (START, "start = []", "commands.start"),
        (START, 'start = "python3 mine.py"', "commands.start"),
        (START, 'start = ["./no-such"]', "command start: there is no program './no-such'"),
        (START, 'ready = ["true"]', "'start'"),
        (
            "[commands]",
            '[environment]\nLINKFLAP_LINK = "x"\n[commands]',
            "'LINKFLAP_LINK' cannot be set",
        ),
        ("[commands]", "[commands", "is not TOML"),
        (
            'name = "mine"',
            'name = "mine"\nkafka = "1.0"',
            "line 3: no list of jars is kept for Kafka '1.0'",
        ),
        ('name = "mine"', 'name = "mine"\nkafka = "./libs"', "line 3: there is no directory"),
    ],
)
def test_every_error_is_one_sentence_with_the_file(
    tmp_path: Path, before: str, after: str, said: str
) -> None:
    path = written(tmp_path, SMALLEST.replace(before, after))
    with pytest.raises(InputError) as raised:
        resolved(path)
    sentence = str(raised.value)
    assert sentence.startswith(str(path))
    assert said in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "mirror command needs a manifest"),
        ({"manifest": ""}, "mirror command needs a manifest"),
        ({"manifest": "nowhere.toml"}, "there is no manifest .*nowhere.toml"),
        ({"manifest": "/"}, "cannot be read"),
        ({"manifest": "mine.toml", "speed": 3}, "has no option 'speed'"),
    ],
)
def test_a_mirror_without_a_manifest_is_refused(options: dict[str, Option], said: str) -> None:
    with pytest.raises(InputError, match=said):
        mirrors.check(MirrorSpec(kind="command", options=options))


def test_a_manifest_is_looked_for_beside_the_scenario_file() -> None:
    scenario = read_scenario(EXAMPLE / "crash.toml", seed=1)
    assert scenario.mirror.options == {"manifest": str(EXAMPLE / "mirror.toml")}


def test_a_failback_needs_a_command_for_it(tmp_path: Path) -> None:
    with pytest.raises(
        InputError,
        match="use cluster-mirroring, shadow, or a command whose manifest has",
    ):
        mirrors.check(
            MirrorSpec(kind="command", options={"manifest": str(written(tmp_path))}),
            reversible=True,
        )
    able = written(tmp_path, SMALLEST + 'failback = ["true"]\n')
    mirrors.check(MirrorSpec(kind="command", options={"manifest": str(able)}), reversible=True)
    assert resolved(able).guarantee.reversible


def test_a_dry_run_shows_the_commands() -> None:
    from linkflap.cli.run import run

    done = CliRunner().invoke(
        run,
        [str(EXAMPLE / "crash.toml"), "--dry-run", "--runtime", "process"],
        standalone_mode=False,
    )
    assert "mirror, start" in done.output, done.exception
    assert "python3 copier.py" in done.output


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ('{"lag": 12}\n', 12),
        ('connecting …\n{"lag": 0}\nbye\n', 0),
        ("", None),
        ('{"lag": -1}', None),
        ('{"lag": "3"}', None),
        ("7", None),
    ],
)
def test_a_lag_is_the_last_json_object_that_was_printed(printed: str, said: int | None) -> None:
    assert mirror.printed_lag(printed) == said


def test_a_reported_promotion_has_topic_and_partition() -> None:
    assert mirror.printed_promotion('{"promoted": {"A.orders": [4, 7]}}\n', "mine") == {
        ("A.orders", 0): 4,
        ("A.orders", 1): 7,
    }
    assert mirror.printed_promotion("done\n", "mine") == {}
    with pytest.raises(EnvironmentFailure, match="a malformed promotion"):
        mirror.printed_promotion('{"promoted": {"A.orders": [-1]}}', "mine")


def behind(*steps: str) -> int:
    """`s1` is a record of the source, `a1` its arrival."""
    order = Order()
    for step in steps:
        (order.sent if step[0] == "s" else order.arrived)(int(step[1:]))
    return order.behind


def test_records_after_the_last_arrival_are_the_lag() -> None:
    assert behind() == 0
    assert behind("s1", "s2", "s3") == 3
    assert behind("s1", "s2", "s3", "a1", "a2") == 1
    assert behind("s1", "s2", "s3", "a1", "a2", "a3") == 0


def test_records_lost_before_an_arrival_are_no_lag() -> None:
    assert behind("s1", "s2", "s3", "a1", "a3") == 0


def test_an_arrival_may_be_seen_before_its_record_and_a_repeat_after_it() -> None:
    assert behind("a1", "s1", "s2") == 1
    assert behind("s1", "a1", "a1", "s2", "a2", "a1") == 0
    assert behind("a2", "s1", "s2", "s3") == 1


@pytest.mark.parametrize(
    ("topology", "program", "recorded"),
    [
        ("A->B", 'writes = ["t"]', "wire"),
        ("A->B", 'reads = ["t"]', "wire"),
        ("A->B", 'writes = ["t"]\nrecord = "wire"', "wire"),
        ("A->B", 'writes = ["t"]\nrecord = "none"', ""),
        ("A->B", "", ""),
        ("A->B{mtls}", 'writes = ["t"]', ""),
        ("A->B{mtls}", 'writes = ["t"]\nrecord = "wire"', "wire"),
        ("A->B{mtls}", 'reads = ["t"]\noptions = { share_group = "g" }', "wire"),
    ],
)
def test_a_program_is_recorded_on_the_wire_by_default_where_that_is_possible(
    tmp_path: Path, topology: str, program: str, recorded: str
) -> None:
    """What cannot be recorded, and the file asks for, is refused later (test_recorder.py). A saved
    file says the same on clusters where it could be recorded."""
    path, other = tmp_path / "one.toml", tmp_path / "other.toml"
    path.write_text(
        f'schema = 1\nname = "one"\ntopology = "{topology}"\n[mirror]\nkind = "shadow"\n'
        f'[[workload]]\ncommand = ["true"]\nhome = "A"\n{program}\n'
        '[[workload]]\ncommand = ["false"]\nhome = "A"\nwrites = ["u"]\nrecord = "none"\n'
    )
    made = scenario_file.read(path, seed=1)
    assert [w.record for w in made.workloads] == [recorded, ""]
    scenario_file.save(made, other)
    other.write_text(other.read_text().replace("{mtls}", ""))
    again = scenario_file.read(other, seed=1)
    assert [w.record for w in again.workloads] == [recorded, ""]
