"""`linkflap.run` and `linkflap.verify`: the commands of the same names, as functions."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from linkflap.api import arguments
from linkflap.api.judged import Judged, judged
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.seed import drawn_seed

if TYPE_CHECKING:
    from linkflap.harness.model.scenario import Option, Scenario
    from linkflap.harness.model.topology import Topology


RUNS: Final = Path("linkflap-runs")


def run(
    scenario: str | Path | Scenario,
    *,
    folder: str | Path | None = None,
    seed: int | None = None,
    topology: str | Topology | None = None,
    mirror: str | None = None,
    mirror_options: Mapping[str, Option] | None = None,
    duration: float | None = None,
    clients: str | None = None,
    runtime: str | None = None,
    command: str = "",
) -> Judged:
    """Runs a scenario in the new run directory `folder`, judges it, and returns the result.

    `scenario` is a built-in name, a scenario file (a path, or a text that ends in .toml) or a
    Scenario. The options from `topology` to `clients` are for built-in scenarios: files and
    Scenarios are complete, except for the seed of a file without one. `clients` are librdkafka,
    java or java@3.9.2. `runtime` is process or docker, by default $LINKFLAP_RUNTIME, the scenario's
    own, or process. `command` is the command that run.json names. Spark, once started, serves all
    later calls of this process. Raises InputError before anything starts; EnvironmentFailure or
    FaultError if the machine or a process failed.
    """
    from linkflap.chaos import scenario_file
    from linkflap.harness.judging import verifier
    from linkflap.harness.recording.run import check, record
    from linkflap.harness.report.progress import Progress

    arguments.check(
        scenario=scenario, seed=seed, topology=topology, mirror=mirror,
        mirror_options=mirror_options, duration=duration,
        clients=clients, runtime=runtime,
    )  # fmt: skip
    chosen = _chosen(scenario, seed, topology, mirror, mirror_options or {}, duration, clients)
    runtime = usual(runtime, chosen.runtime)
    if isinstance(scenario, str | Path) and scenario_file.is_file(str(scenario)):
        scenario_file.check_kafka(Path(scenario), chosen, runtime)
    folder = new(folder, chosen.name)
    check(chosen, runtime)
    made_by = command or f"linkflap.run({chosen.name!r}, seed={chosen.seed}, runtime={runtime!r})"
    with Progress() as progress:
        verifier.warm()
        record(chosen, runtime=runtime, folder=folder, command=made_by, progress=progress)
    return verify(folder)


def usual(asked: str | None, own: str | None = None) -> str:
    """The requested runtime, else $LINKFLAP_RUNTIME, else the scenario's own, else process. So no
    images are built unless docker is requested."""
    from linkflap.harness import runtimes

    return asked or os.environ.get("LINKFLAP_RUNTIME") or own or runtimes.DEFAULT


def _chosen(
    scenario: str | Path | Scenario,
    seed: int | None,
    topology: str | Topology | None,
    mirror: str | None,
    options: Mapping[str, Option],
    duration: float | None,
    clients: str | None,
) -> Scenario:
    from linkflap.chaos import scenario_file
    from linkflap.chaos.scenarios import ScenarioRequest
    from linkflap.chaos.scenarios import scenario as built_in
    from linkflap.topologies import parse

    drawn = drawn_seed(seed)
    if isinstance(scenario, str) and not scenario_file.is_file(scenario):
        asked = parse(topology) if isinstance(topology, str) else topology
        request = ScenarioRequest(
            seed=drawn,
            topology=asked,
            mirror=mirror,
            mirror_options=options,
            duration=duration,
            clients=clients,
        )
        return built_in(scenario, request)
    given = {
        "topology": topology,
        "mirror": mirror,
        "mirror_options": options,
        "duration": duration,
        "clients": clients,
    }
    if changed := [name for name, value in given.items() if value]:
        raise InputError(
            f"{changed[0]} changes a built-in scenario only; change it in the scenario file or in "
            "the Scenario"
        )
    if isinstance(scenario, str | Path):
        return scenario_file.read(Path(scenario), seed=drawn, chosen=seed is not None)
    if seed not in (None, scenario.seed):
        raise InputError(
            f"seed is {seed}, and the scenario has seed {scenario.seed}; change it in the Scenario"
        )
    return scenario


def verify(folder: str | Path) -> Judged:
    """Judges a run directory. Writes verdict.json and report.html into it if it can be written.

    A run that did not finish is unknown, with the reason. Raises InputError if it is no run
    directory, SetupError if Spark does not start.
    """
    from linkflap.harness.judging import verifier

    return judged(verifier.judge(Path(folder)))


def new(folder: str | Path | None, name: str) -> Path:
    """The path of a new run directory, by default a unique one in `linkflap-runs/`.

    Raises InputError if it exists already, or if its parent folder does not exist.
    """
    if folder is None:
        RUNS.mkdir(exist_ok=True)
        return (
            RUNS / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{secrets.token_hex(2)}"
        )
    path = Path(folder)
    if os.path.lexists(path):
        raise InputError(f"{path} exists already; give a new folder")
    if not path.absolute().parent.is_dir():
        raise InputError(
            f"there is no folder {path.absolute().parent} for the run directory; make it, or give "
            "another path"
        )
    return path
