"""A suite on a full disk reports it in one sentence, whichever write failed."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from linkflap.cli.suite_work import full_disk_named
from linkflap.harness.model.errors import EnvironmentFailure

FOLDER = cast(Any, SimpleNamespace(root=Path("/suites/one")))


def test_no_room_is_the_environments_failure() -> None:
    with (
        pytest.raises(EnvironmentFailure, match="the disk of /suites/one is full; make room"),
        full_disk_named(FOLDER),
    ):
        raise OSError(errno.ENOSPC, "Error writing bytes to file")


def test_any_other_error_is_unchanged() -> None:
    with pytest.raises(PermissionError), full_disk_named(FOLDER):
        raise PermissionError(errno.EACCES, "Permission denied")
