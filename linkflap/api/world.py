"""The World of a `linkflap.deploy` block: its clusters, links and mirrors by name, and faults on
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, final

from linkflap.api import runs
from linkflap.api.faults import BreakableBroker, BreakableLink, Faults, Window
from linkflap.api.runs import Judged
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.faults import KILL
from linkflap.harness.model.protocols import Cluster, Deployment, Mirror
from linkflap.harness.model.scenario import Option
from linkflap.harness.model.security import PRINCIPALS, Principal, Security, entered_by, security_of
from linkflap.harness.model.texts import nearest
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.wait import until
from linkflap.recording.world import RunWorld

DRAINS_WITHIN: Final = 60.0


@final
class WorldMirror:
    """The mirror of one link."""

    def __init__(self, name: str, world: RunWorld, fault: Faults) -> None:
        self.name = name
        self._world, self._faults = world, fault

    @property
    def _mirror(self) -> Mirror:
        return self._world.mirrors[self.name]

    @property
    def alive(self) -> bool:
        return self._mirror.alive

    def lag(self) -> int | None:
        """The number of source records that it has not mirrored yet; None while that is
        unknown."""
        return self._mirror.lag()

    def wait(self, *, within: float = DRAINS_WITHIN) -> None:
        """Returns when the lag is 0. Raises DeadlineExceeded."""
        until(
            lambda: self.lag() == 0,
            within=within,
            every=0.1,
            what=f"the mirror of {self.name} to catch up",
            state=self.lag,
        )

    def kill(self) -> Window:
        """SIGKILL of its worker. At the end of the block the worker starts again."""
        return self._faults.make(KILL, self.name, {})


@final
class World:
    """The object that `linkflap.deploy` gives: clusters and links by name, and the faults on
    them."""

    def __init__(
        self,
        deployment: Deployment,
        inner: RunWorld,
        faults: Faults,
        folder: Path,
        end: Callable[[], None],
        *,
        recorded: bool,
    ) -> None:
        self.folder, self._recorded = folder, recorded
        self.judged = False
        """Whether `verify` gave a verdict."""
        self._end = end
        self._deployment, self._inner, self._faults = deployment, inner, faults

    @property
    def topology(self) -> Topology:
        return self._deployment.topology

    @property
    def clusters(self) -> Mapping[str, Cluster]:
        """By name; `clusters["A"].bootstrap` leads to the brokers directly."""
        return self._deployment.clusters

    @property
    def links(self) -> Mapping[str, BreakableLink]:
        """By name: links, their reverses, and `*->A`, the proxied path of ordinary clients, for
        every cluster."""
        return MappingProxyType({name: self.link(name) for name in self._deployment.links})

    def cluster(self, name: str) -> Cluster:
        """A cluster. Raises InputError."""
        return self.clusters[self._known("cluster", name, self.clusters)]

    def entry(self, name: str, principal: Principal = "client") -> Security:
        """The security settings of a cluster (docs/security.md), for librdkafka and for Java.

        Raises InputError.
        """
        if principal not in PRINCIPALS:
            raise InputError(
                f"there is no principal {principal!r}{nearest(principal, PRINCIPALS)}; known: "
                f"{', '.join(PRINCIPALS)}"
            )
        return security_of(entered_by(self.cluster(name).bootstrap, principal))

    def recorded(self, name: str) -> str:
        """The bootstrap servers of a cluster for clients that are recorded on the wire. Raises
        InputError."""
        self.cluster(name)
        if not self._recorded:  # there may be recorders for faults alone
            raise InputError('nothing is recorded on the wire here; deploy with record="wire"')
        return self._deployment.recorders[name].bootstrap

    def link(self, name: str) -> BreakableLink:
        """A link, `A->B`, or the proxied path of clients to a cluster, `*->A`. Raises
        InputError."""
        self._known("link", name, self._deployment.links)
        return BreakableLink(name, self._deployment.links[name].bootstrap, self.fault)

    def broker(self, name: str) -> BreakableBroker:
        """A broker, `A/1`. Raises InputError."""
        brokers = {
            f"{c.name}/{number}": broker
            for c in self.clusters.values()
            for number, broker in c.brokers.items()
        }
        return BreakableBroker(
            self._known("broker", name, brokers), brokers[name].client_address, self.fault
        )

    def mirror(self, name: str) -> WorldMirror:
        """The mirror of a link. Raises InputError."""
        return WorldMirror(
            self._known("mirror", name, self._inner.mirrors), self._inner, self._faults
        )

    def fault(self, kind: str, target: str, **options: Option) -> Window:
        """Any fault of `linkflap list faults`, as a context manager. Raises InputError."""
        self._check_open()
        return self._faults.make(kind, target, options)

    def failover(self, link: str, kind: Literal["planned", "forced"] = "planned") -> Window:
        """Ends the mirror of a link permanently. In the block, clients write to its destination;
        these writes are the bite.

        planned: the mirror drains first, so end all transactions before. forced: the brokers of the
        source are killed.
        """
        return self.fault(f"failover-{kind}", link)

    def verify(self) -> Judged:
        """Judges the run directory. In the with block, it stops everything first."""
        self._end()
        judged = runs.verify(self.folder)
        self.judged = True
        return judged

    def _known(self, what: str, name: str, known: Mapping[str, object]) -> str:
        self._check_open()
        if name not in known:
            raise InputError(
                f"there is no {what} {name!r} here; known: {', '.join(sorted(known)) or 'none'}"
            )
        return name

    def _check_open(self) -> None:
        if self._inner.stopping:
            raise InputError(
                "the clusters are stopped: their with block has ended, or the run was judged"
            )
