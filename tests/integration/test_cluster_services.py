"""Services that a cluster needs besides Kafka, beside real brokers: started before them and ended
after them, reached over a link that faults break, and never left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from linkflap.chaos import scenario_file
from linkflap.harness.machine import ledger
from linkflap.harness.model.errors import SetupError
from linkflap.harness.model.events import FaultBite, FaultEnd, LinkProven, ServiceDied, of_kind
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.model.topology import ClusterSpec, ServiceSpec, Topology
from linkflap.harness.rundir import RunReader
from linkflap.harness.runtimes.process import ProcessDeployment
from linkflap.recording.run import record
from linkflap.report.progress import Progress
from tests import command_line, small_service
from tests.command_line import alive, use_ledger
from tests.on_runtimes import Events, of
from tests.waiting import eventually

PROGRAM = small_service.__file__
FILE = f"""\
schema = 1
name = "served"
topology = "A"
duration = 3.0

[cluster.A.config]
"broker.rack" = "rack at {{store}}"

[cluster.A.service.store]
command = ["python3", "{PROGRAM}", "{{port}}", "notes"]
protocol = "http"
ready = ["python3", "-c", "import socket; socket.create_connection(('127.0.0.1', {{port}}))"]

[[workload]]
kind = "idempotent"
home = "A"

[[workload]]
kind = "readers"
home = "A"
"""
FAULTS = """
[[fault]]
id = "slow"
fault = "link-latency"
target = "A->store"
at = 0.2
duration = 0.5

[[fault]]
id = "half-open"
fault = "link-half-open"
target = "A->store"
when = "after:slow"
duration = 0.5

[[fault]]
id = "cut"
fault = "link-cut"
target = "A->store"
when = "after:half-open"
duration = 0.5

[[fault]]
id = "flap"
fault = "link-flap"
target = "A->store"
when = "after:cut"
duration = 2.0

[[fault]]
id = "reset"
fault = "link-reset"
target = "A->store"
when = "after:flap"
duration = 0.5

[[fault]]
id = "kill"
fault = "service-kill"
target = "A->store"
when = "after:reset"
duration = 0.5
"""


def scenario_in(folder: Path, text: str) -> Scenario:
    file = folder / "served.toml"
    file.write_text(text)
    return scenario_file.read(file, seed=3)


def notes_in(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "notes").read_text())
    return found


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or not alive(psutil.Process(pid))


def test_a_service_lives_around_its_brokers_and_its_link_is_broken(tmp_path: Path) -> None:
    scenario = scenario_in(tmp_path, FILE + FAULTS)
    folder = record(
        scenario,
        runtime="process",
        folder=tmp_path / "run",
        command="",
        progress=Progress(time.monotonic, lambda _sign, _text: None),
    )
    noted = notes_in(tmp_path)
    assert (noted["began_beside"], noted["ended_beside"]) == ([0, 1], 0)
    assert gone(noted["pid"])
    assert gone(noted["child"])
    reader = RunReader(folder)
    events = reader.events()[0]
    assert reader.run.status == "finished"
    proven = {event.link: event.proxied for event in of_kind(events, LinkProven)}
    properties = (folder / "logs" / "A" / "1" / "server.properties").read_text()
    assert f"broker.rack=rack at {proven['A->store'][0]}\n" in properties
    played = ["slow", "half-open", "cut", "flap", "reset", "kill"]
    assert [(e.id, e.bit) for e in of_kind(events, FaultBite)] == [(id, True) for id in played]
    assert [e.id for e in of_kind(events, FaultEnd)] == played
    service = folder / "logs" / "A" / "services" / "store"
    assert '"GET / HTTP/1.1" 200' in (service / "output.log").read_text()
    assert not (service / "data").exists()


def test_a_service_that_dies_is_named_and_the_run_has_failed(tmp_path: Path) -> None:
    def kill(sign: str, text: str) -> None:
        if (sign, text) == ("phase", "breaking things"):
            os.kill(notes_in(tmp_path)["pid"], signal.SIGKILL)

    folder = record(
        scenario_in(tmp_path, FILE),
        runtime="process",
        folder=tmp_path / "run",
        command="",
        progress=Progress(time.monotonic, kill),
    )
    reader = RunReader(folder)
    (died,) = of_kind(reader.events()[0], ServiceDied)
    assert (died.cluster, died.service, died.status) == ("A", "store", -signal.SIGKILL)
    assert reader.run.status == "failed"
    assert "service store of A died by itself (exit status 137, SIGKILL" in str(reader.run.error)
    assert gone(notes_in(tmp_path)["child"])


def is_service(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return PROGRAM in process.cmdline() and alive(process)
    return False


@pytest.mark.parametrize(
    ("command", "ready", "says"),
    [
        (("{port}", "notes"), ("false",), "false exits with 1"),
        (("{port}", "notes"), ("python3", "-c", "1/0"), "ZeroDivisionError"),
        (("65", "notes", "{port}"), (), "it does not answer http at 127.0.0.1:"),
        (("none {port}", "notes"), (), "ended with exit status 1 while it started; its output"),
    ],
)
def test_a_service_that_is_not_ready_ends_the_start_before_any_broker(
    command: tuple[str, ...], ready: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    spec = ServiceSpec(
        command=("python3", PROGRAM, *command),
        protocol="http",
        folder=str(tmp_path),
        ready=ready,
        ready_within=1.5,
    )
    topology = Topology(clusters=(ClusterSpec(name="A", services={"store": spec}),), links=())
    deployment = ProcessDeployment(topology, folder=tmp_path / "logs", recorder=Events())
    with deployment, pytest.raises(SetupError) as error:
        deployment.start()
    assert "service store of A" in str(error.value)
    assert says in str(error.value)
    assert not list((tmp_path / "logs" / "A" / "1").glob("server.log"))
    assert not [each for each in psutil.Process().children(recursive=True) if is_service(each)]


@pytest.mark.nightly
def test_a_service_in_a_container_lives_around_its_brokers(engine: Any, tmp_path: Path) -> None:
    """Its image is linkflap's own, with this machine's Python."""
    from linkflap.harness.runtimes.docker.images import python_image  # needs an engine

    store = f"""\
command = ["{python_image.PYTHON}", "-m", "http.server", "{{port}}", "--bind", "{{host}}"]
image = "{python_image.ready()}"
ready = ["{python_image.PYTHON}", "-c", "import os; os.stat('{{folder}}')"]
"""
    text = re.sub(r"(?m)^command = .*\n", lambda _: store, FILE)
    text = re.sub(r"(?m)^ready = .*socket.*\n", "", text)
    cut = [fault for fault in FAULTS.split("\n\n") if "link-cut" in fault or "latency" in fault]
    text = "\n".join([text, *cut]).replace("after:half-open", "after:slow")
    folder = record(
        scenario_in(tmp_path, text),
        runtime="docker",
        folder=tmp_path / "run",
        command="",
        progress=Progress(time.monotonic, lambda _sign, _text: None),
    )
    reader = RunReader(folder)
    events = reader.events()[0]
    assert reader.run.status == "finished"
    assert [(e.id, e.bit) for e in of_kind(events, FaultBite)] == [("slow", True), ("cut", True)]
    properties = (folder / "logs" / "A" / "1" / "server.properties").read_text()
    assert re.search(r"(?m)^broker.rack=rack at (?!127)\d+\.\d+\.\d+\.\d+:\d+$", properties)
    words = (folder / "logs" / "A" / "services" / "store" / "output.log").read_text()
    assert '"GET / HTTP/1.1" 200' in words
    assert of(engine, ledger.own().owner) == []


HARNESS = """
import json, pathlib, sys
from linkflap.chaos import scenario_file
from linkflap.harness.machine import cleanup
from linkflap.harness.runtimes import runtime

class Silent:
    def write(self, event):
        return event

topology = scenario_file.read(pathlib.Path(FILE), seed=3).topology
with cleanup.temporary_folder() as folder:
    with runtime("process")(topology, folder=folder, recorder=Silent()) as deployment:
        print(json.dumps(str(folder)), flush=True)
        sys.stdin.read()
"""


def test_kill_9_of_the_harness_leaves_no_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_ledger(monkeypatch, tmp_path / "runtime")
    scenario_in(tmp_path, FILE)
    code = HARNESS.replace("FILE", repr(str(tmp_path / "served.toml")))
    with command_line.harness(code) as (process, folder):
        started = psutil.Process(process.pid).children(recursive=True)
        noted = notes_in(tmp_path)
        assert {noted["pid"], noted["child"]} <= {each.pid for each in started}
        process.kill()
        eventually(
            "every process that the harness started to be gone",
            lambda: not any(map(alive, started)),
            state=lambda: [each for each in started if alive(each)],
        )
    eventually("its folder to be gone", lambda: not Path(folder).exists())
    eventually("its entry to be gone", lambda: not ledger.entries())
