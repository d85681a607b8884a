"""Runs every examination and prints the consequences for each runtime.

A failed examination is a finding too. The exit code is 0 if at least one runtime has everything, or
installs the rest on first use.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Final, TextIO

import psutil
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from linkflap.harness.cli.doctor import machine, software
from linkflap.harness.cli.doctor.finding import Finding
from linkflap.harness.model.errors import FAILED, LinkflapError
from linkflap.harness.runtimes import RUNTIMES

LOOKS: Final[Sequence[Callable[[], Finding]]] = (
    software.look_at_python,
    software.look_at_clients,
    software.look_at_cache,
    software.look_at_java,
    software.look_at_spark,
    software.look_at_kafka,
    software.look_at_toxiproxy,
    machine.look_at_memory,
    machine.look_at_cpu,
    machine.look_at_disk,
    machine.look_at_open_files,
    machine.look_at_ports,
    machine.look_at_clock,
    machine.look_at_leftovers,
    software.look_at_docker,
)


def examine() -> list[Finding]:
    """Runs all examinations. Takes a few seconds at most."""
    return [_safely(look) for look in LOOKS]


def complete(findings: Sequence[Finding], runtime: str) -> bool:
    """Whether `runtime` lacks nothing."""
    return not _lacking(findings, runtime)


def _lacking(findings: Sequence[Finding], runtime: str) -> list[str]:
    return [
        finding.name
        for finding in findings
        if finding.ok is False and finding.needed_by in ("", runtime)
    ]


def show(stream: TextIO | None = None) -> int:
    """Prints the findings and what they mean for each runtime, and returns the exit code."""
    stream = sys.stdout if stream is None else stream
    console = Console(
        file=getattr(stream, "unfiltered", stream),
        width=None if stream.isatty() else 130,
        highlight=False,
        emoji=False,
    )
    findings = examine()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in ("", "what", "found", "how to fix it"):
        table.add_column(column, no_wrap=column in ("", "what"), overflow="fold")
    signs = {True: Text("ok", "green"), None: Text("note", "yellow"), False: Text("lacks", "red")}
    for finding in findings:
        table.add_row(signs[finding.ok], finding.name, Text(finding.says), Text(finding.fix))
    console.print(table)
    console.print()
    for runtime in RUNTIMES:
        console.print(_says_of(findings, runtime), soft_wrap=True)
    return 0 if any(complete(findings, runtime) for runtime in RUNTIMES) else FAILED


def _says_of(findings: Sequence[Finding], runtime: str) -> Text:
    lacking = _lacking(findings, runtime)
    if lacking:
        return Text.assemble(f"runtime {runtime}: ", ("lacks " + ", ".join(lacking), "red"))
    return Text.assemble(
        f"runtime {runtime}: ", ("complete, or completes itself on first use", "green")
    )


def _safely(look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except (LinkflapError, OSError, ValueError, psutil.Error, subprocess.SubprocessError) as error:
        name = look.__name__.removeprefix("look_at_").replace("_", " ")
        return Finding(
            name=name,
            ok=False,
            says=f"cannot be examined: {error}",
            fix="fix that, then run linkflap doctor again",
        )
