"""What Kafka's own dump-log tool (DumpLogSegments of the release) says of files that a broker
wrote, as plain values.

Its words are taken over as they are (`baseOffset`, `isvalid`, …): one dictionary of strings per
line, so that a field that a release adds or drops is seen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from linkflap.harness.machine import children
from linkflap.harness.runtimes.kraft.installation import broker_command
from linkflap.harness.runtimes.process import install

MAIN = "org.apache.kafka.tools.DumpLogSegments"
_MEMORY = ("-Xms64m", "-Xmx256m")
_HARMLESS = ("Log starting offset: ", "Non-consecutive offsets in ", "  -1 is followed by ")
"""The tool assumes that every segment except the first follows offset -1."""
_FIELD = re.compile(r"(\w+): (\S+)")
_RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) (?P<type>\w+): (?P<timestamp>-?\d+)"
    r" keySize: (?P<key_size>-?\d+) valueSize: (?P<value_size>-?\d+)"
    r" sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<headers>[^\]]*)\](?P<rest>.*)",
    re.DOTALL,
)
Fields = dict[str, str]


@dataclass(slots=True)
class Dumped:
    """The tool's output for one file: for a segment its batches with their records, for another
    file its entries."""

    batches: list[Fields] = field(default_factory=list)
    records: list[list[Fields]] = field(default_factory=list)
    entries: list[Fields] = field(default_factory=list)


def dump(files: Sequence[Path], *options: str, kafka: str, folder: Path) -> dict[Path, Dumped]:
    """Runs the tool once over all files. Raises AssertionError with the end of its output if it
    fails."""
    folder.mkdir(parents=True, exist_ok=True)
    installation = install(kafka)
    command = broker_command(
        installation.kafka, installation.java, main=MAIN, memory=_MEMORY, log=folder / "tool.log",
        archive=[],
        arguments=["--deep-iteration", *options, "--files", ",".join(map(str, files))],
    )  # fmt: skip
    output = folder / f"dump{''.join(options)}.txt"
    status = children.run(
        command, name="the dump-log tool", folder=folder, output=output, within=300
    )
    said = output.read_text()
    assert status == 0, said[-2000:]
    return _parsed(said)


def _parsed(said: str) -> dict[Path, Dumped]:
    found: dict[Path, Dumped] = {}
    at = Dumped()
    for line in said.splitlines():
        if line.startswith("Dumping "):
            at = found[Path(line.removeprefix("Dumping "))] = Dumped()
        elif line.startswith("baseOffset: "):
            at.batches.append(_fields(line))
            at.records.append([])
        elif line.startswith("| offset: "):
            at.records[-1].append(_record(line))
        elif _FIELD.match(line) and not line.startswith(_HARMLESS):
            at.entries.append(_fields(line))
        else:
            assert not line or line.startswith(_HARMLESS), line
    return found


def _fields(line: str) -> Fields:
    return {name: value.rstrip(",") for name, value in _FIELD.findall(line)}


def _record(line: str) -> Fields:
    """`rest` is the text after the header keys: ` key: … payload: …`, or the content of a control
    record."""
    found = _RECORD.fullmatch(line)
    assert found is not None, line
    return found.groupdict()
