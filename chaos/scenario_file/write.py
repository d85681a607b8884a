"""Writes a scenario as a file. `read` gives the same scenario again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from linkflap.chaos.scenario_file.schema import (
    BudgetsTable,
    ClusterTable,
    FaultTable,
    MinimumsTable,
    MirrorTable,
    ScenarioFile,
    TopicsTable,
    WorkloadTable,
)
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import (
    LIBRDKAFKA,
    NO_MIRROR,
    SCHEMA_VERSION,
    Option,
    Scenario,
    least_of,
)
from linkflap.harness.workloads import COMMAND
from linkflap.topologies.notation import arrows


def render(scenario: Scenario) -> str:
    """The file's text, without defaults."""
    theirs = {w.library for w in scenario.workloads if w.kind != COMMAND}
    common = theirs.pop() if len(theirs) == 1 else LIBRDKAFKA
    file = ScenarioFile(
        schema=SCHEMA_VERSION,
        name=scenario.name,
        topology=arrows(scenario.topology),
        workload=[
            WorkloadTable(
                kind=w.kind,
                home=w.home,
                clients=w.clients,
                library=None
                if w.library == (LIBRDKAFKA if w.kind == COMMAND else common)
                else w.library,
                options=dict(w.options),
                command=list(w.command),
                folder=w.folder,
                reads=list(w.reads),
                writes=list(w.writes),
                exactly_once=w.exactly_once,
                record=w.record,
                starts=w.starts,
                progress_within=w.progress_within,
            )
            for w in scenario.workloads
        ],
        about=scenario.about,
        seed=scenario.seed,
        duration=scenario.duration,
        progress_within=scenario.progress_within,
        runtime=scenario.runtime,
        clients=common,
        checks=list(scenario.checks),
        mirror=MirrorTable()
        if scenario.mirror == NO_MIRROR
        else MirrorTable(kind=scenario.mirror.kind, options=dict(scenario.mirror.options)),
        topics=TopicsTable(
            partitions=scenario.topics.partitions,
            replicas=scenario.topics.replicas,
            capture=scenario.topics.capture,
            config=_config(scenario.topics.config),
        ),
        cluster=_clusters(scenario),
        fault=[
            FaultTable(
                id=f.id,
                fault=f.fault,
                target=f.target,
                at=f.at,
                duration=f.duration,
                when=f.when,
                options=dict(f.options),
            )
            for f in scenario.schedule
        ],
        minimums=MinimumsTable(**_asked(scenario)),
        budgets=BudgetsTable(**_fields(scenario.budgets)),
    )
    tables: dict[str, Any] = msgspec.to_builtins(file)
    if scenario.mirror != NO_MIRROR:
        tables["mirror"] = {"kind": file.mirror.kind, **tables["mirror"]}
    return tomli_w.dumps({name: value for name, value in tables.items() if value != {}})


def _clusters(scenario: Scenario) -> dict[str, ClusterTable]:
    return {
        c.name: ClusterTable(
            config=_config(c.config),
            commands={verb: list(words) for verb, words in c.commands.items()},
            folder=c.folder,
        )
        for c in scenario.topology.clusters
        if c.config or c.commands
    }


def save(scenario: Scenario, path: Path) -> None:
    """Writes a new file. Raises InputError if the file exists or cannot be written."""
    text = render(scenario)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(
            f"{path} exists, and --save overwrites nothing; name another file"
        ) from None
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}); name another file with --save"
        ) from None


def _config(given: Mapping[str, str]) -> dict[str, Option]:
    return dict(given)


def _asked(scenario: Scenario) -> dict[str, Any]:
    """The minimums that differ from those that follow from the workloads."""
    follow = _fields(least_of(scenario.workloads))
    return {
        name: least for name, least in _fields(scenario.minimums).items() if least != follow[name]
    }


def _fields(values: object) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(values).items() if value is not None}
