"""The catalogue behind `linkflap list`: every name that a user can give, with a description."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from linkflap.chaos.default_workloads import KINDS as SEVERAL
from linkflap.chaos.faults import FAULTS
from linkflap.chaos.scenarios import SCENARIOS, about
from linkflap.chaos.triggers import documented, known
from linkflap.harness.mirrors import MIRRORS
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.scenario import LIBRARIES
from linkflap.harness.model.security import WORDS
from linkflap.harness.workloads import COMMAND, COMMAND_OPTIONS, KINDS
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import RUN_GUARANTEES
from linkflap.topologies import TOPOLOGIES


def catalogue() -> Mapping[str, Mapping[str, str]]:
    """Title -> name -> description in one line."""
    return {
        "scenarios": {name: about(name) for name in SCENARIOS},
        "topologies": {name: _first_paragraph(build) for name, build in TOPOLOGIES.items()},
        "security": dict(WORDS),
        "mirrors": {
            name: _first_paragraph(inspect.getmodule(kind.make)) for name, kind in MIRRORS.items()
        },
        "workloads": {name: kind.about for name, kind in KINDS.items()}
        | {COMMAND: "a program of your own (linkflap docs own-application)", **SEVERAL},
        "clients": dict(LIBRARIES),
        "faults": {name: _first_paragraph(fault) for name, fault in FAULTS.items()},
        "triggers": {name: _first_paragraph(documented(name)) for name in known()},
        "checks": {name: check.guarantee for name, check in REGISTRY.items()}
        | dict(RUN_GUARANTEES),
    }


def options() -> Mapping[str, Mapping[str, OptionAbout]]:
    """`mirror NAME`, `workload NAME` or `fault NAME` -> option -> its values, default and
    description."""
    return {
        **{f"mirror {name}": kind.about for name, kind in MIRRORS.items()},
        **{f"workload {name}": kind.options for name, kind in KINDS.items()},
        f"workload {COMMAND}": COMMAND_OPTIONS,
        **{f"fault {name}": fault.options for name, fault in FAULTS.items() if fault.options},
    }


def _first_paragraph(thing: object) -> str:
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
