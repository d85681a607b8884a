"""The budget of shrinking: a failure whose replays take too long is not shrunk."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

from linkflap.harness.suite.replays import Replays
from linkflap.harness.suite.work import Workers


def test_the_time_that_replays_take_is_no_time_of_shrinking(tmp_path: Path) -> None:
    replays = Replays(
        folder=tmp_path, kind="lost-write:lost-write", works=cast(Workers, None), seconds=600.0
    )
    replays._began = time.monotonic() - 700.0
    assert replays.spent
    replays.shrinks()
    assert not replays.spent
