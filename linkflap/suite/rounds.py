"""Rounds: recordings on clusters that are kept. A few processes each own clusters of one shape, and
record round after round on them (`recording.kept_clusters`); where no process with a run's shape is
free, another is started. A soak has one process, whose clusters age."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from linkflap.chaos import scenario_file
from linkflap.chaos.faults import ON_THE_WIRE
from linkflap.chaos.generator import GeneratorBounds
from linkflap.chaos.generator.bounds import arrows_of
from linkflap.harness.machine import untrusted_files
from linkflap.harness.machine.children import Child, module, spawn
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure, InputError
from linkflap.harness.model.scenario import NO_MIRROR, Scenario, through_recorders
from linkflap.harness.model.texts import counted
from linkflap.harness.model.topology import Topology
from linkflap.recording.cleanliness import MEMORY
from linkflap.recording.kept_clusters import (
    AGING,
    AS_NEW,
    CLUSTERS,
    RoundRequest,
    Size,
    several_brokers,
)
from linkflap.suite.folder import Plan, SuiteFolder
from linkflap.suite.work import LONGEST, Recording, start
from linkflap.topologies import parse

DISK: Final = 1500 << 20
"""Bytes of disk that the clusters of a soak may take, with the brokers' own logs."""
SOAK: Final = "soak"
ROUNDS: Final = "rounds"
LOG: Final = f"{CLUSTERS}.log"
MIRROR: Final = "shadow"
MIRRORS_OF_ROUNDS: Final = frozenset({"shadow", "mm2", NO_MIRROR.kind})
"""Mirrors that keep no state but in topics and processes, which are removed after a round."""
NOT_IN_ROUNDS: Final = ON_THE_WIRE | {"rolling-upgrade"}
"""Faults that need recorders, or change the clusters for good: after them, another release runs."""


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
    if bounds.kinds != (MIRROR,):
        raise InputError(
            f"a soak needs the mirror {MIRROR}, and a link for it: other mirrors keep positions "
            "for topics, and each round creates the topics again; leave --mirrors out, and name a "
            "topology with a link"
        )
    if wrong := sorted(NOT_IN_ROUNDS & set(bounds.faults)):
        raise InputError(
            f"a soak cannot play {wrong[0]}, because all its rounds use the same clusters, and "
            "without recorders; leave it out"
        )
    if plan.fresh:
        raise InputError("a soak uses the same clusters in all rounds; leave --fresh out")
    if plan.shard != (0, 1):
        raise InputError(
            "a soak has no shards; leave --shard out, and start a separate soak on each machine"
        )


def needs_own(scenario: Scenario) -> str:
    """Why a run has clusters of its own, in words; empty if it can have kept ones.

    After a failover a cluster hands out producer ids beside mirrored ones. A mirror that mixes them
    up is noticed only where both begin at the same number, as they do on new clusters; on kept ones
    that is restored only for clusters of one broker (`kept_clusters.align_producer_ids`).
    """
    fails_over = any(fault.name.fails_over for fault in scenario.schedule)
    if fails_over and several_brokers(scenario.topology):
        return "it has a failover, and clusters of several brokers"
    if scenario.topology.attached:
        return "its clusters run already"
    if scenario.mirror.kind not in MIRRORS_OF_ROUNDS:
        return f"its mirror is {scenario.mirror.kind}"
    if any(workload.command for workload in scenario.workloads):
        return "it has programs of the user's"
    if any(map(through_recorders, scenario.workloads)):
        return "its clients connect through recorders"
    if any(cluster.security for cluster in scenario.topology.clusters):
        return "its clusters are secured"
    return ""


@dataclass(slots=True, kw_only=True)
class Round(Recording):
    """One round. It is over when its answer is written; the process stays for the next round."""

    answer: Path

    @property
    def log(self) -> str:
        return LOG

    @property
    def over(self) -> bool:
        if self.child.alive and time.monotonic() - self.began > LONGEST:
            self.child.kill()
        return not self.child.alive or self.answer.exists()


@dataclass(slots=True, kw_only=True)
class _Owner:
    """A process, the shape of its clusters, and its last round."""

    topology: Topology
    mirror: str
    child: Child
    write: int
    round: Round | None = None

    @property
    def free(self) -> bool:
        """Whether it waits for a round."""
        return self.write >= 0 and self.child.alive and not _ended(self.round)

    def let_go(self) -> None:
        """Lets the process end by itself, its clusters first: it ends when it reads the end of the
        requests."""
        if self.write >= 0:
            os.close(self.write)
            self.write = -1


def _ended(last: Round | None) -> bool:
    """Whether a round is not over, or its clusters are of no more use."""
    return last is None or not last.answer.exists() or bool(_size(last.answer).ended)


class Rounds:
    """Starts rounds; `start` is a `Works.record`."""

    def __init__(self, folder: SuiteFolder) -> None:
        self._suite, self._aging = folder, folder.plan.name == SOAK
        self._owners: list[_Owner] = []
        self._numbers = count()
        (folder.root / ROUNDS).mkdir(exist_ok=True)
        shutil.rmtree(folder.root / CLUSTERS, ignore_errors=True)  # of a suite that was killed

    def start(self, number: int, scenario: Path, folder: Path, *, runtime: str) -> Recording:
        """Requests a round, or starts a recording on clusters of its own. Raises EnvironmentFailure
        if the clusters of a soak take more disk or memory than they may."""
        if self._aging:
            self._check()
        made = scenario_file.read(scenario, seed=0)
        if not self._aging and needs_own(made):
            return start(number, scenario, folder, runtime=runtime)
        owner = self._owner_for(made, runtime)
        answer = self._suite.root / ROUNDS / f"{number:04d}.json"
        answer.unlink(missing_ok=True)
        asked = RoundRequest(
            scenario=str(scenario.absolute()),
            folder=str(folder.absolute()),
            answer=str(answer.absolute()),
        )
        with suppress(BrokenPipeError):  # it has died, and the round is over at once
            os.write(owner.write, msgspec.json.encode(asked) + b"\n")
        owner.round = Round(number=number, folder=folder, child=owner.child, answer=answer)
        return owner.round

    def fits(self, made: Scenario) -> bool:
        """Whether a process is free whose clusters have the shape of this scenario's."""
        return not needs_own(made) and self._free_owner(made) is not None

    def _free_owner(self, made: Scenario) -> _Owner | None:
        shape = made.topology, made.mirror.kind
        free = (owner for owner in self._owners if owner.free)
        return next((owner for owner in free if (owner.topology, owner.mirror) == shape), None)

    def _owner_for(self, made: Scenario, runtime: str) -> _Owner:
        """A free process with clusters of this shape; else a new one, in the place of all others
        that are free."""
        if (found := self._free_owner(made)) is not None:
            return found
        for owner in self._owners:
            if owner.free or not owner.child.alive:
                owner.let_go()
        self._owners = [owner for owner in self._owners if owner.child.alive]
        self._owners.append(self._begun(made, runtime))
        return self._owners[-1]

    def _begun(self, made: Scenario, runtime: str) -> _Owner:
        root, number = self._suite.root.absolute() / CLUSTERS, next(self._numbers)
        root.mkdir(exist_ok=True)
        read, write = os.pipe()
        try:
            command, environment = module(
                "linkflap.recording.kept_clusters",
                str(read),
                str(root / str(number)),
                runtime,
                AGING if self._aging else AS_NEW,
            )
            child = spawn(
                command,
                name=f"clusters {number}",
                folder=root,
                output=self._suite.root.absolute() / LOG,
                environment=environment,
                handles=[read],
            )
        finally:
            os.close(read)
        return _Owner(topology=made.topology, mirror=made.mirror.kind, child=child, write=write)

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
        """Ends the processes, which stop their clusters first."""
        for owner in self._owners:
            owner.let_go()
        for owner in self._owners:
            try:
                owner.child.stop(within=60.0)
            except DeadlineExceeded:
                owner.child.kill()
        self._owners.clear()
        shutil.rmtree(self._suite.root / CLUSTERS, ignore_errors=True)


def sizes(folder: SuiteFolder) -> dict[int, Size]:
    """The disk and memory of the clusters after each round, by number of the run. Raises
    InputError."""
    return {int(path.stem): _size(path) for path in sorted((folder.root / ROUNDS).glob("*.json"))}


def _size(path: Path) -> Size:
    try:
        return untrusted_files.decoded(untrusted_files.content(path), Size)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read ({error}); remove it, which loses only this measurement"
        ) from None


def bound(folder: SuiteFolder) -> tuple[int, int]:
    """The bytes of disk, and of memory, that the clusters may take."""
    brokers = sum(
        cluster.brokers for cluster in parse(arrows_of(folder.plan.bounds.topologies[0])).clusters
    )
    return DISK, brokers * MEMORY


def table(folder: SuiteFolder) -> list[str]:
    """Markdown: of a soak, the size of the clusters after the first two rounds, the middle and last
    one; of other suites, how often clusters were used, and why they were not used again."""
    found = sorted(sizes(folder).items())
    if not found:
        return []
    return _use(found) if folder.plan.name != SOAK else _growth(found, *bound(folder))


def _use(found: Sequence[tuple[int, Size]]) -> list[str]:
    again = sum(size.round > 1 for _, size in found)
    return [
        (
            f"{again} of {counted(len(found), 'run')} without clusters of their own used those of "
            f"a run before; {ROUNDS}/ has the reason where clusters were not used again."
        ),
        "",
    ]


def _growth(found: Sequence[tuple[int, Size]], disk: int, memory: int) -> list[str]:
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
        *(f"After run {n} new clusters were started: {s.ended}.\n" for n, s in found if s.ended),
    ]
