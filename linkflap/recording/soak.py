"""`python -m linkflap.recording.soak`: the process that owns the clusters of a soak. It
records rounds on request.

It inherits an open file, and each line of that file requests one round: the scenario file and the
run directory, as JSON. It answers with a file that has the size of the clusters. It ends when that
file ends, when its parent dies, or after a round that breaks clusters.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from linkflap.chaos import scenario_file
from linkflap.harness.model import interrupts
from linkflap.harness.model.errors import INTERRUPTED, LinkflapError
from linkflap.harness.model.guarantee import Seconds
from linkflap.harness.rundir import write_whole
from linkflap.recording.rounds import LivingClusters
from linkflap.report.progress import Progress

CLUSTERS: Final = "clusters"


class RoundRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One round to record; `answer` is the file that is written when it has ended."""

    scenario: str
    folder: str
    answer: str


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """What the clusters took after a round: bytes of disk, resident bytes of all brokers.

    `round` counts from 1 on these clusters; `age`: seconds since they were started.
    """

    round: int
    age: Seconds
    disk: int
    memory: int


def serve(handle: int, folder: Path, runtime: str) -> None:
    """Records the requested rounds, on clusters in `folder`, which is created anew: the clusters of
    a killed soak are dead."""
    shutil.rmtree(folder, ignore_errors=True)
    living, began, count = None, time.monotonic(), 0
    try:
        with os.fdopen(handle) as asked:
            for line in asked:
                what = msgspec.json.decode(line, type=RoundRequest)
                scenario = scenario_file.read(Path(what.scenario), seed=0)
                if living is None:
                    living = LivingClusters(scenario.topology, runtime=runtime, folder=folder)
                count += 1
                with Progress() as progress:
                    living.record(
                        scenario,
                        Path(what.folder),
                        command=f"linkflap run {what.scenario}",
                        progress=progress,
                    )
                disk, memory = living.size()
                size = Size(
                    round=count, age=round(time.monotonic() - began, 1), disk=disk, memory=memory
                )
                write_whole(Path(what.answer), msgspec.json.encode(size))
    finally:
        if living is not None:
            living.close()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    interrupts.obey()
    handle, folder, runtime = sys.argv[1:]
    try:
        serve(int(handle), Path(folder), runtime)
    except KeyboardInterrupt:
        return INTERRUPTED
    except LinkflapError as failure:
        sys.stderr.write(f"linkflap: {failure}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
