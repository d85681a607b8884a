"""docs/scenario.schema.json: the JSON Schema of scenario files, from their typed model and the
registries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from linkflap.chaos.default_workloads import KINDS as SEVERAL
from linkflap.chaos.faults import FAULTS
from linkflap.chaos.scenario_file import KEYS
from linkflap.chaos.scenario_file.schema import ScenarioFile
from linkflap.chaos.triggers import known
from linkflap.harness.mirrors import MIRRORS
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.scenario import COMMAND, LIBRARIES, SCHEMA_VERSION
from linkflap.harness.runtimes import RUNTIMES
from linkflap.harness.workloads import COMMAND_OPTIONS, KINDS
from linkflap.topologies import TOPOLOGIES


def json_schema() -> str:
    """JSON Schema (2020-12) of a scenario file, with the names that the registries know."""
    schema: dict[str, Any] = msgspec.json.schema(ScenarioFile)
    tables = schema["$defs"]
    _names(tables["FaultTable"], "fault", FAULTS)
    _names(tables["WorkloadTable"], "kind", (*KINDS, COMMAND, *SEVERAL))
    _names(tables["MirrorTable"], "kind", MIRRORS)
    tables["FaultTable"]["properties"]["when"]["examples"] = [
        *known(),
        "after:flap and open-transactions:3",
        "during:failover and mirror-behind:50",
    ]
    tables["ScenarioFile"]["properties"]["topology"]["examples"] = [
        "A->B",
        "A:3->B",
        "A@3.9.2->B->C",
        "A<->B",
        "A{tls+scram}->B",
        *TOPOLOGIES,
    ]
    _names(tables["ScenarioFile"], "runtime", RUNTIMES)
    tables["ScenarioFile"]["properties"]["clients"]["examples"] = [
        *LIBRARIES,
        "java@3.9.2",
        "java,librdkafka",
    ]
    tables["ScenarioFile"]["properties"]["schema"] = {"const": SCHEMA_VERSION}
    for table, (_, keys) in KEYS.items():
        for name, sentence in keys.items():
            tables[table.__name__]["properties"][name]["description"] = sentence
    for entry in tables.values():  # releases of msgspec indent the lines of a docstring differently
        entry["description"] = " ".join(entry["description"].split())
    _describe(
        tables["WorkloadTable"], [COMMAND_OPTIONS, *(kind.options for kind in KINDS.values())]
    )
    _describe(tables["FaultTable"], [fault.options for fault in FAULTS.values()])
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "linkflap scenario file",
        **schema,
    }
    return json.dumps(whole, indent=2) + "\n"


def _names(table: dict[str, Any], field: str, known: Iterable[str]) -> None:
    table["properties"][field] |= {"enum": sorted(known)}


def _describe(table: dict[str, Any], every: Iterable[Mapping[str, OptionAbout]]) -> None:
    """Adds the descriptions of options; if several kinds have an option of one name, each kind's
    description.
    """
    found: dict[str, list[str]] = {}
    for options in every:
        for name, option in options.items():
            found.setdefault(name, []).append(option.about)
    table["properties"]["options"]["properties"] = {
        name: {"description": "; or ".join(dict.fromkeys(abouts))}
        for name, abouts in sorted(found.items())
    }
