"""The rounds of a soak, as recordings. One process records round after round on the same clusters;
a round that breaks the clusters ends it, and the next round starts others."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from linkflap.chaos.generator import GeneratorBounds
from linkflap.chaos.generator.bounds import arrows_of
from linkflap.harness.machine import untrusted_files
from linkflap.harness.machine.children import Child, module, spawn
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.recording.soak import CLUSTERS, RoundRequest, Size
from linkflap.suite.folder import Plan, SuiteFolder
from linkflap.suite.work import LONGEST, Recording
from linkflap.topologies import parse

DISK: Final = 1500 << 20
"""Bytes of disk that the clusters of a soak may take, with the brokers' own logs."""
MEMORY: Final = 600 << 20
"""Resident bytes that each broker may take: heap, other memory of the JVM, and mapped pages of its
logs."""
SOAK: Final = "soak"
ROUNDS: Final = "rounds"
MIRROR: Final = "shadow"
NOT_IN_ROUNDS: Final = frozenset({"rolling-upgrade"})
"""Faults that change the clusters for good: after them, another release runs."""


def faults(runtime: str) -> tuple[str, ...]:
    """The faults that a soak draws from by default."""
    return tuple(
        name for name in GeneratorBounds(runtime=runtime).allowed if name not in NOT_IN_ROUNDS
    )


def check(plan: Plan) -> None:
    """Raises InputError for options that clusters shared by all rounds do not allow."""
    bounds = plan.bounds
    if len(bounds.topologies) != 1 or len(bounds.kafka) != 1:
        raise InputError(
            "a soak uses the same clusters in all rounds, so it has one topology and one Kafka "
            "release; name one of each"
        )
    if bounds.mirrors != (MIRROR,):
        raise InputError(
            f"a soak needs the mirror {MIRROR}: other mirrors keep positions for topics, and each "
            "round creates the topics again; leave --mirrors out"
        )
    if wrong := sorted(NOT_IN_ROUNDS & set(bounds.faults)):
        raise InputError(
            f"a soak cannot play {wrong[0]}, which changes its clusters for good; leave it out"
        )
    if plan.shard != (0, 1):
        raise InputError(
            "a soak has no shards; leave --shard out, and start a separate soak on each machine"
        )


@dataclass(slots=True, kw_only=True)
class Round(Recording):
    """One round. It is over when its answer is written; the process stays for the next round."""

    answer: Path

    @property
    def over(self) -> bool:
        if self.child.alive and time.monotonic() - self.began > LONGEST:
            self.child.kill()
        return not self.child.alive or self.answer.exists()


class Rounds:
    """Starts rounds; `start` is a `Works.record`. The first round starts the clusters. If a round
    broke them, the next one starts new clusters."""

    def __init__(self, folder: SuiteFolder) -> None:
        self._suite = folder
        self._child: Child | None = None
        self._write = -1
        (folder.root / ROUNDS).mkdir(exist_ok=True)

    def start(self, number: int, scenario: Path, folder: Path, *, runtime: str) -> Round:
        """Requests a round from the process. Raises EnvironmentFailure if the clusters take more
        disk or memory than they may."""
        self._check()
        if self._child is None or not self._child.alive:
            self._begin(runtime)
        assert self._child is not None
        answer = self._suite.root / ROUNDS / f"{number:04d}.json"
        answer.unlink(missing_ok=True)
        asked = RoundRequest(
            scenario=str(scenario.absolute()),
            folder=str(folder.absolute()),
            answer=str(answer.absolute()),
        )
        os.write(self._write, msgspec.json.encode(asked) + b"\n")
        return Round(number=number, folder=folder, child=self._child, answer=answer)

    def _begin(self, runtime: str) -> None:
        self.close()
        root = self._suite.root.absolute()
        read, self._write = os.pipe()
        try:
            command, environment = module(
                "linkflap.recording.soak", str(read), str(root / CLUSTERS), runtime
            )
            self._child = spawn(
                command,
                name="soak",
                folder=root,
                output=root / f"{CLUSTERS}.log",
                environment=environment,
                handles=[read],
            )
        finally:
            os.close(read)

    def _check(self) -> None:
        disk, memory = bound(self._suite)
        for size in sizes(self._suite).values():
            for what, is_, may in (("disk", size.disk, disk), ("memory", size.memory, memory)):
                if is_ > may:
                    raise EnvironmentFailure(
                        f"the clusters of {self._suite.root} took {is_ >> 20} MiB of {what} after "
                        f"{size.round} rounds, and may take {may >> 20}; find out from {ROUNDS}/ "
                        "what grows, and begin another soak"
                    )

    def close(self) -> None:
        """Ends the process, which stops its clusters first."""
        if self._write >= 0:
            os.close(self._write)
            self._write = -1
        if self._child is not None:
            self._child.stop(within=60.0)
            self._child = None


def sizes(folder: SuiteFolder) -> dict[int, Size]:
    """The disk and memory of the clusters after each round, by number of the run. Raises
    InputError."""
    found = {}
    for path in sorted((folder.root / ROUNDS).glob("*.json")):
        try:
            size = untrusted_files.decoded(untrusted_files.content(path), Size)
            found[int(path.stem)] = size
        except (OSError, ValueError) as error:
            raise InputError(
                f"{path} cannot be read ({error}); remove it, which loses only this measurement"
            ) from None
    return found


def bound(folder: SuiteFolder) -> tuple[int, int]:
    """The bytes of disk, and of memory, that the clusters may take."""
    brokers = sum(
        cluster.brokers for cluster in parse(arrows_of(folder.plan.bounds.topologies[0])).clusters
    )
    return DISK, brokers * MEMORY


def table(folder: SuiteFolder) -> list[str]:
    """Markdown: the size of the clusters after the first two rounds, the middle and last one."""
    found = sorted(sizes(folder).items())
    if not found:
        return []
    disk, memory = bound(folder)
    shown = dict([*found[:2], found[len(found) // 2], found[-1]])
    return [
        (
            f"The clusters after some of the rounds; limits: {disk >> 20} MiB of disk and "
            f"{memory >> 20} MiB of memory:"
        ),
        "",
        "| run | round of these clusters | their age, s | disk, MiB | brokers' memory, MiB |",
        "|---|---|---|---|---|",
        *(
            f"| {n} | {s.round} | {s.age:.0f} | {s.disk >> 20} | {s.memory >> 20} |"
            for n, s in shown.items()
        ),
        "",
    ]
