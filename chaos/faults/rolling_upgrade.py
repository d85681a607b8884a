"""rolling-upgrade: the brokers of a cluster are upgraded to a newer release one after the other, on
their data.

Breaks    as rolling-restart. In addition, between the first broker and the last, the cluster runs
          two releases: leaders, followers and coordinators use the versions that both know, and
          each release reads the other's data.
Bite      each broker answered before its turn, did not in it, and its process then runs the jars of
          the new release.
Heal      every process runs, every listener answers, every broker is in the ISR of every partition
          that it holds.

The cluster keeps the features that it had (metadata.version, transaction.version, …): raising them
is a separate step, which cannot be undone. Brokers must be processes: a container has one image.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import psutil

from linkflap.chaos.faults.broker_parts import BrokerParts
from linkflap.chaos.faults.cluster_target import cluster_reason
from linkflap.chaos.faults.rolling_restart import RollingRestart
from linkflap.chaos.faults.settings import settings
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Bite, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import DEFAULT_KAFKA, Topology
from linkflap.harness.runtimes.distribution.kafka import released

_JAR: Final = re.compile(r"kafka-clients-([0-9.]+)\.jar")
_TARGETS: Final = (
    DEFAULT_KAFKA,
    *(release for release in reversed(released()) if release != DEFAULT_KAFKA),
)


class RollingUpgrade(RollingRestart):
    """Restarts all brokers of a cluster with a newer release, one after the other; option to.
    Process runtime only."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {"to": "|".join(_TARGETS)}
    abouts: ClassVar[Mapping[str, str]] = {"to": "the release that all brokers run in the end"}

    def __init__(self, spec: FaultSpec, world: World) -> None:
        super().__init__(spec, world)
        self._to = str(settings(spec, self.defaults)["to"])
        runs = world.deployment.clusters[spec.target].kafka
        if not older(runs, self._to):
            raise InputError(
                f"fault {spec.id!r} upgrades {spec.target} to {self._to}, and it runs {runs}; name "
                "a newer release"
            )
        self._running: dict[int, str | None] = {}

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        if reason := cluster_reason(target, topology):
            return reason
        runs = topology.cluster(target).kafka
        if older(runs, released()[-1]):
            return None
        return (
            f"{target!r} runs {runs}, and no newer release is known; give it an older one: "
            f"{target}@{released()[-2]}"
        )

    def before_start(self, parts: BrokerParts) -> None:
        self._world.deployment.replace_release(self._target, parts.broker.id, self._to)

    def inject(self) -> None:
        super().inject()
        self._running = {parts.broker.id: running(parts.broker.pid) for parts in self._parts}

    def bite(self) -> Bite:
        gone = super().bite()
        bit = gone.bit and set(self._running.values()) == {self._to}
        measured = {"turns": gone.measured, "runs": self._running}
        return Bite(
            bit=bit,
            observable="each broker's own listener, and what its process runs",
            measured=measured,
            expected=f"all run {self._to}",
        )

    def heal(self) -> Sequence[str]:
        return [
            *super().heal(),
            *(f"broker {number} runs {release}" for number, release in self._running.items()),
        ]


def older(one: str, other: str) -> bool:
    """Whether both releases are known, and the first is older. A user's folder is not a known
    release."""
    known = released()
    return one in known and other in known and known.index(one) < known.index(other)


def running(pid: int | None) -> str | None:
    """The release of the jars on a process's class path."""
    try:
        found = _JAR.search(" ".join(psutil.Process(pid).cmdline())) if pid else None
    except psutil.NoSuchProcess:
        return None
    return found[1] if found else None
