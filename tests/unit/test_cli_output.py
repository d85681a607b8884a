"""Readers that stop reading, full disks and closed streams of the command: its exit code stays the
same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kafka_log import batch, record, segment

FORENSICS = (sys.executable, "-m", "linkflap", "forensics")


@pytest.fixture
def bad(tmp_path: Path) -> str:
    """Logs with many findings, all of them invalid."""
    data = [batch(n, [record(b"v")], pid=1, epoch=0, seq=2 * n) for n in range(40)]
    segment(tmp_path / "orders-0", data)
    return str(tmp_path)


@contextmanager
def nobody() -> Iterator[int]:
    """The writing end of a pipe without a reader."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)


def ends(*arguments: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, check=False, text=True, timeout=300, **streams)


def test_a_reader_that_is_gone_changes_no_exit_code(bad: str) -> None:
    with nobody() as gone:
        done = ends(*FORENSICS, bad, stdout=gone, stderr=subprocess.PIPE)
        assert (done.returncode, done.stderr) == (1, "")
        assert ends(*FORENSICS, bad, stdout=gone, stderr=gone).returncode == 1
        assert ends(*FORENSICS, f"{bad}/none", stdout=gone, stderr=gone).returncode == 254


def test_a_full_disk_at_standard_output_is_one_sentence(bad: str) -> None:
    with open("/dev/full", "w") as full:
        done = ends(*FORENSICS, bad, stdout=full, stderr=subprocess.PIPE)
        said = (
            "linkflap: standard output cannot be written: No space left on device; make room on "
            "its disk"
        )
        assert (done.returncode, done.stderr.splitlines()) == (
            255,
            [f"{said}, then run the command again"],
        )
        assert ends(*FORENSICS, bad, stdout=subprocess.DEVNULL, stderr=full).returncode == 1


def test_streams_that_were_closed_take_nothing_of_the_files_that_are_opened(bad: str) -> None:
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        assert (
            ends(
                "sh", "-c", f'"$@" {closed}', "sh", *FORENSICS, bad, stdout=subprocess.DEVNULL
            ).returncode
            == 1
        )
