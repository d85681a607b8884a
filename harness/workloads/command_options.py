"""The options, topics and program of a workload `command`, all checked before anything starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from linkflap.harness.machine.user_programs import program
from linkflap.harness.model.clients import libraries
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Option, WorkloadSpec
from linkflap.harness.workloads import COMMAND_OPTIONS

_TOPIC: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


def check(spec: WorkloadSpec) -> None:
    """Raises InputError for unknown options, or a missing program."""
    if not spec.command:
        raise InputError(
            'workload command has no command; give it one: command = ["python3", "app.py"]'
        )
    if spec.clients != 1:
        raise InputError(
            f"workload command cannot have {spec.clients} clients; name the command once for each"
        )
    for name, value in spec.options.items():
        _check_option(name, value)
    for topic in (*spec.reads, *spec.writes):
        if not _TOPIC.fullmatch(topic):
            raise InputError(
                f"workload command cannot have the topic {topic!r}; name it without its home, in "
                "Kafka's characters"
            )
    if spec.exactly_once:
        _check_exactly_once(spec)
    if len(libraries(spec.library)) > 1:
        raise InputError(
            f"workload command cannot have library={spec.library!r}; a program takes no turns: "
            "name one"
        )
    if program(spec.command[0], Path(spec.folder or ".").absolute()) is None:
        raise InputError(
            f"workload command: there is no program {spec.command[0]!r} to run; give its path, or "
            "install it"
        )


def _check_option(name: str, value: Option) -> None:
    if name not in COMMAND_OPTIONS:
        raise InputError(
            f"workload command has no option {name!r}; it has {', '.join(COMMAND_OPTIONS)}"
        )
    choices = COMMAND_OPTIONS[name]
    if not isinstance(value, str) or (choices and value not in choices):
        raise InputError(
            f"workload command cannot have {name}={value!r}; give "
            f"{' or '.join(choices) or 'a text'}"
        )


def _check_exactly_once(spec: WorkloadSpec) -> None:
    needed = {"reads": spec.reads, "writes": spec.writes, "group": spec.options.get("group")}
    if lacking := [name for name, given in needed.items() if not given]:
        raise InputError(
            f"workload command with exactly_once lacks {' and '.join(lacking)}; outputs are held "
            "against those"
        )
