"""The output of linkflap inspect on a folder of logs, as a document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from linkflap.harness.cli.commands import linkflap
from tests.kafka_log import record

ONE, TWO = [record(b"one")], [record(b"two"), record(b"three")]


def look(*folders: Path, code: int) -> dict[str, Any]:
    """The document; checks the exit code."""
    result = CliRunner().invoke(
        linkflap, ["forensics", "--json", *map(str, folders)], standalone_mode=False
    )
    assert result.exception is None, result.output
    assert result.return_value == code, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def found(document: dict[str, Any]) -> list[tuple[str, str, int, int]]:
    return [(c["kind"], c["topic"], c["partition"], c["offset"]) for c in document["cases"]]
