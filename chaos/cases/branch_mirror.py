"""A mirror of a build of the KIP-1279 branch, by its own verbs: what the cases of the build ask it
and see of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from confluent_kafka.admin import AdminClient

from linkflap.chaos.cases.bench import WITHIN, Bench, wait_for
from linkflap.harness.machine.java import java_for
from linkflap.harness.mirrors.cluster_mirroring.admin import (
    MIRRORING,
    DescribeRow,
    MirrorAdmin,
    VerbRefused,
)
from linkflap.harness.mirrors.cluster_mirroring.state_topic import STATES, await_loaded
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.runtimes.distribution.cluster_mirroring import generation, lacking
from linkflap.harness.runtimes.distribution.kafka import kafka

STOPPED: Final = "STOPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchMirror:
    """A mirror of one topic of A."""

    admin: MirrorAdmin
    name: str
    topic: str
    configs: Mapping[str, str]
    aligning: str
    """The state in which a partition's log is truncated, as this generation of the branch calls
    it."""
    here: AdminClient
    destination: Cluster

    def create(self) -> None:
        """Raises VerbRefused, as every verb here."""
        self.admin.create(self.name, self.configs)

    def start(self) -> None:
        self.admin.start(self.name, [self.topic], [])

    def stop(self) -> None:
        self.admin.stop(self.name, [self.topic], [])

    def pause(self) -> None:
        self.admin.pause(self.name, [self.topic])

    def resume(self) -> None:
        self.admin.resume(self.name, [self.topic])

    def rows(self) -> Sequence[DescribeRow]:
        """The answer to describe; nothing when there is none."""
        with suppress(VerbRefused):
            return self.admin.describe(self.name)
        return []

    def states(self) -> Mapping[str, int]:
        """State -> how many partitions are in it, by describe."""
        return Counter(row.state for row in self.rows())

    def mirrors(self, partitions: int, between: Sequence[Callable[[], object]] = ()) -> None:
        """Creates and starts it, once the log of the mirrors' states is there, and waits until
        every partition is MIRRORING. `between`: calls after it was created, before its start."""
        self.created()
        for call in between:
            call()
        self.started()
        self.mirroring(partitions)

    def created(self) -> None:
        """Creates it, and waits until the log of the mirrors' states is there."""
        self.create()
        await_loaded(self.admin, self.here, self.destination)

    def mirroring(self, partitions: int, within: float = 2 * WITHIN) -> None:
        """Waits until every partition is MIRRORING."""
        wanted = {MIRRORING: partitions}
        wait_for(
            f"{self.topic} to mirror",
            lambda: self.states() == wanted,
            within=within,
            every=0.25,
            state=self.states,
        )

    def started(self) -> None:
        """Asks for start until it is accepted: right after create it may be refused for a
        moment."""
        self._accepted("start", self.start, WITHIN)

    def promoted(self, partitions: int) -> None:
        """Stops it, and waits until every partition is STOPPED."""
        self.stopping()
        self.stopped(partitions)

    def stopping(self) -> None:
        """Asks for stop until it is accepted: it may be refused for a moment too."""
        self._accepted("stop", self.stop, 2 * WITHIN)

    def stopped(self, partitions: int) -> None:
        """Waits until every partition is STOPPED."""
        wanted = {STOPPED: partitions}
        wait_for(
            f"{self.topic} to be {STOPPED}",
            lambda: self.states() == wanted,
            every=0.2,
            state=self.states,
        )

    def _accepted(self, verb: str, ask: Callable[[], None], within: float) -> None:
        def accepted() -> bool:
            with suppress(VerbRefused):
                ask()
                return True
            return False

        wait_for(f"{verb} of {self.name} to be accepted", accepted, within=within, every=0.25)


def one_coordinator(bench: Bench, cluster: str = "B") -> None:
    """Has broker 1 lead every partition of the log of the mirrors' states: it alone is asked for
    them."""
    for number in sorted(bench.ask(bench.up(cluster)).leadership(STATES)):
        bench.lead(STATES, number, bench.broker(1, cluster), cluster)


@contextmanager
def branch_mirror(
    bench: Bench,
    topic: str,
    to: str = "B",
    *,
    source: str = "A",
    groups: str = "(?!)",
    name: str = "mirror",
) -> Iterator[BranchMirror]:
    """A mirror that is not created yet, of a topic of `source`, on cluster `to`. `groups` is a Java
    regular expression: whose offsets are synced; as it is, nobody's. Raises InputError for a Kafka
    that has no mirrors."""
    build = kafka(bench.variant.kafka)
    names = generation(build)
    if names is None:
        raise InputError(f"Kafka {build.version} {lacking(build)}")
    configs = {
        names.mirror["bootstrap"]: bench.deployment.links[f"{source}->{to}"].bootstrap,
        names.mirror["groups"]: groups,
    }
    folder = bench.folder / f"admin-{name}-{source}-{to}-{bench.stamp}"
    with closing(MirrorAdmin(build, java_for(build.version), folder, bench.bootstrap(to))) as admin:
        yield BranchMirror(
            admin=admin,
            name=bench.name(f"{name}-of-{source}"),
            topic=topic,
            configs=configs,
            aligning=names.aligning,
            here=bench.admin(to),
            destination=bench.cluster(to),
        )
