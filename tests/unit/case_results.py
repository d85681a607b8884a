"""A case, a result of it, and the command linkflap case as a user invokes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click.testing
from click.testing import CliRunner

from linkflap.chaos.cases.bench import Variant
from linkflap.chaos.cases.case import Case, Expected, Observation, Outcome
from linkflap.chaos.cases.runner import CaseResult
from linkflap.cli.case import case
from linkflap.cli.commands import _exit_of
from linkflap.harness.model.topology import ClusterSpec, Topology

# The command linkflap case, invoked as a user would.


ROOT = Path(__file__).parents[2]


def invoked(*words: str) -> click.testing.Result:
    return CliRunner().invoke(case, list(words), standalone_mode=False)


def ended(*words: str) -> tuple[int, str]:
    """The exit code and the error of a command that is refused."""
    error = invoked(*words).exception
    assert error is not None
    return _exit_of(error)


def a_case(**changed: Any) -> Case:
    values: dict[str, Any] = {
        "name": "a-case",
        "title": "A title",
        "kind": "defect",
        "claim": "It happens",
        "sources": ("KAFKA-1",),
        "expected": (Expected(shows=True, since="4.3.0"), Expected(shows=False, until="4.2.1")),
        "schedule": "1. do it",
        "reproduced": "it shows",
        "control": "not done",
        "refuted": "never",
        "topology": Topology(clusters=(ClusterSpec(name="A"),), links=()),
        "play": lambda bench: Observation(shown=True),
        "play_control": lambda bench: Observation(shown=False),
    }
    return Case(**values | changed)


def a_result(version: str = "4.3.1", shown: int = 0, runs: int = 3, **changed: Any) -> CaseResult:
    outcome = Outcome.REPRODUCED if shown else Outcome.NOT_REPRODUCED
    values: dict[str, Any] = {
        "case": "a-case",
        "variant": Variant(kafka=version),
        "version": version,
        "outcome": outcome,
        "shown": shown,
        "runs": runs,
        "needed": 3,
        "controls": runs,
        "expected": a_case().expectation(Variant(kafka=version), version),
    }
    return CaseResult(**values | changed)
