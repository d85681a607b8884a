"""Small random runs as the checks see them: written as run directories, and read again."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from linkflap.spark_verify.facts.view import PartitionView
from tests.faithful.changes import NOT_THERE, random_run
from tests.run_copy import views

IN_MEMORY = Path("/dev/shm")


def written(seed: int, root: Path, *, faithful: bool = False) -> str:
    """Writes the run of a seed; returns what it is."""
    made, afterwards, what = random_run(seed, (0,) if faithful else range(7))
    made.write(root)
    for change in afterwards:
        with suppress(*NOT_THERE):
            change(root)
    return what


def seen(seed: int, *, faithful: bool = False) -> tuple[list[PartitionView], str]:
    """The partitions of the run of a seed, and what it is."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder:
        root = Path(folder) / "run"
        what = written(seed, root, faithful=faithful)
        return list(views(root)), what
