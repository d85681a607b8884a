"""`linkflap.run` and `linkflap.verify`: the commands of the same names, as functions."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.payload import drawn_seed
from linkflap.harness.model.scenario import Scenario, WorkloadSpec
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.verdict import Anomaly, CheckResult, Failover, Verdict

if TYPE_CHECKING:
    from linkflap.harness.model.scenario import Option, Scenario
    from linkflap.harness.model.topology import Topology
    from linkflap.judging.verifier import VerifierAnswer


LARGEST_SEED: Final = 2**32 - 1
LONGEST: Final = 86_400
_KINDS: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "scenario": ((str, Path, Scenario), "the name of a scenario, a scenario file or a Scenario"),
    "topology": ((str, Topology), "a text like A->B or a Topology"),
    "mirror": ((str,), "the name of a mirror"),
    "clients": ((str,), "librdkafka, java or java@3.9.2"),
    "runtime": ((str,), "process or docker"),
    "record": ((str,), "wire or none"),
    "group": ((str,), "the name of a consumer group"),
    "share_group": ((str,), "the name of a share group"),
    "mirror_options": ((Mapping,), "a mapping of names to values"),
    "topics": ((Mapping, list, tuple), "names of topics, or a mapping of them to partitions"),
    "workloads": ((list, tuple), "a list of WorkloadSpec"),
    "readers": ((bool,), "True or False"),
    "folder": ((str, PathLike), "a path"),
}


def check_arguments(**given: object) -> None:
    """Raises InputError for an argument of a run that has a wrong type or is out of range. None
    means that it was not given."""
    for name, value in given.items():
        if value is None:
            continue
        if name in _KINDS:
            kinds, wanted = _KINDS[name]
            if not isinstance(value, kinds):
                raise InputError(f"{name} is {value!r}; it must be {wanted}")
    _check_seed(given.get("seed"))
    _check_duration(given.get("duration"))
    workloads = given.get("workloads")
    for each in workloads if isinstance(workloads, list | tuple) else ():
        if not isinstance(each, WorkloadSpec):
            raise InputError(f"workloads has {each!r}; it must be a list of WorkloadSpec")
    options = given.get("mirror_options")
    for name, value in options.items() if isinstance(options, Mapping) else ():
        if not isinstance(value, str | int | float | bool):
            raise InputError(
                f"option {name} is {value!r}; it must be a text, a number, True or False"
            )


def _check_seed(seed: object) -> None:
    if seed is None:
        return
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"seed is {seed!r}; it must be a whole number from 0 to {LARGEST_SEED}")


def _check_duration(duration: object) -> None:
    if duration is None:
        return
    number = not isinstance(duration, bool) and isinstance(duration, int | float)
    if not number or math.isnan(duration) or not 1 <= duration <= LONGEST:  # type: ignore[arg-type, operator]
        raise InputError(
            f"duration is {duration!r}; it must be a number of seconds from 1 to {LONGEST}"
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Judged:
    """A run and its verdict.

    `anomalies` includes those that the mirror's guarantee allows (`Anomaly.allowed`). `document` is
    the content of verdict.json, which `linkflap run --json` prints.
    """

    folder: Path
    verdict: Verdict
    checks: Mapping[str, CheckResult]
    anomalies: tuple[Anomaly, ...]
    failovers: tuple[Failover, ...]
    document: Mapping[str, Any]

    @property
    def valid(self) -> bool:
        """Whether every guarantee held, and enough was examined to prove it."""
        return self.verdict is Verdict.VALID

    @property
    def violations(self) -> tuple[Anomaly, ...]:
        """The anomalies that no guarantee allows."""
        return tuple(anomaly for anomaly in self.anomalies if not anomaly.allowed)

    @property
    def why(self) -> str:
        """The first cause with the command that explains it, one line for each check that is
        invalid or unknown, and the run directory."""
        cause = self.document.get("cause")
        first = [cause, f"see it: linkflap explain {quote(str(self.folder))} 1"] if cause else []
        wrong = [
            check
            for check in self.checks.values()
            if check.verdict in (Verdict.INVALID, Verdict.UNKNOWN)
        ]
        lines = [f"{check.name}: {check.verdict}: {check.reason}" for check in wrong]
        return "\n".join([*first, *lines, f"run directory: {self.folder}"])

    def __repr__(self) -> str:
        """One line, which a failed `assert judged.valid` shows."""
        lines = self.why.splitlines()
        return (
            f"<{type(self).__name__} {self.verdict}: "
            f"{'; '.join(dict.fromkeys((lines[0], lines[-1])))}>"
        )

    def found(self, kind: str) -> tuple[Anomaly, ...]:
        """The anomalies of a kind, such as `lost-write`. Raises InputError for an unknown kind."""
        from linkflap.spark_verify.checks import REGISTRY

        known = sorted({each.name for check in REGISTRY.values() for each in check.anomalies})
        if kind not in known:
            raise InputError(f"there is no anomaly {kind!r}; known: {', '.join(known)}")
        return tuple(anomaly for anomaly in self.anomalies if anomaly.kind == kind)


def judged(judgement: VerifierAnswer) -> Judged:
    """Converts the verifier's judgement for users of the API."""
    return Judged(
        folder=judgement.folder,
        verdict=judgement.document.verdict,
        checks={check.name: check for check in judgement.document.checks},
        anomalies=judgement.anomalies,
        failovers=tuple(judgement.document.failovers),
        document=judgement.values,
    )


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
    record: str | None = None,
    command: str = "",
) -> Judged:
    """Runs a scenario in the new run directory `folder`, judges it, and returns the result.

    `scenario` is a built-in name, a scenario file (a path, or a text that ends in .toml) or a
    Scenario. The options from `topology` to `clients` are for built-in scenarios: files and
    Scenarios are complete, except for the seed of a file without one. `clients` are librdkafka,
    java or java@3.9.2. `runtime` is process or docker, by default $LINKFLAP_RUNTIME, the scenario's
    own, or process. `record` (wire, none) says whether programs of yours are recorded on the wire,
    by default as the scenario does. `command` is the command that run.json names. Spark, once
    started, serves all later calls of this process. Raises InputError before anything starts;
    EnvironmentFailure or FaultError if the machine or a process failed.
    """
    from linkflap.chaos import scenario_file
    from linkflap.judging import verifier
    from linkflap.recording import run as recording
    from linkflap.report.progress import shown_on

    check_arguments(
        scenario=scenario, seed=seed, topology=topology, mirror=mirror,
        mirror_options=mirror_options, duration=duration,
        clients=clients, runtime=runtime, folder=folder, record=record,
    )  # fmt: skip
    chosen = _chosen(scenario, seed, topology, mirror, mirror_options or {}, duration, clients)
    if record is not None:
        chosen = recording.with_programs_recorded(chosen, record)
    runtime = usual(chosen.topology, runtime, chosen.runtime)
    if isinstance(scenario, str | Path) and scenario_file.is_file(str(scenario)):
        scenario_file.check_kafka(Path(scenario), chosen, runtime)
    folder = new(folder, chosen.name)
    recording.check(chosen, runtime)
    made_by = command or f"linkflap.run({chosen.name!r}, seed={chosen.seed}, runtime={runtime!r})"
    with shown_on() as progress:
        verifier.warm()
        recording.record(chosen, runtime=runtime, folder=folder, command=made_by, progress=progress)
    return verify(folder)


def usual(topology: Topology, asked: str | None, own: str | None = None) -> str:
    """The requested runtime, else $LINKFLAP_RUNTIME, else the scenario's own, else process. So no
    images are built unless docker is requested. Of clusters that run already it is theirs, or the
    requested one, which is refused."""
    from linkflap.harness import runtimes

    return asked or runtimes.usual(topology, os.environ.get("LINKFLAP_RUNTIME"), own)


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
    from linkflap.judging import verifier

    if folder is None:
        raise InputError("folder is None; it must be the path of a run directory")
    check_arguments(folder=folder)
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
