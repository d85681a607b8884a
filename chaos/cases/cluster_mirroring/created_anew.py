"""KIP-1279 itself: a mirror that is created under the name of a deleted one takes the promoted topics back."""

from __future__ import annotations

import contextlib
from contextlib import closing
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import WITHIN, Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.cluster_mirroring.verbs import BUILD
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools.logs import records
from linkflap.harness.machine.java import java_for
from linkflap.harness.mirrors.cluster_mirroring.admin import MirrorAdmin
from linkflap.harness.mirrors.cluster_mirroring.answers import MIRRORING, Refused
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes.distribution.cluster_mirroring import generation
from linkflap.harness.runtimes.distribution.kafka import kafka

WATCHED: Final = 20.0
"""Seconds for which B's log is watched after the last verb; a mirror starts in six."""


def _promoted(bench: Bench, *, anew: bool) -> Observation:
    """Nobody asks to start the mirror a second time."""
    build = kafka(bench.variant.kafka)
    names = generation(build)
    assert names is not None  # the case needs a build, and `needs` says so
    topic, mirror = f"A.{bench.name('records')}", bench.name("mirror")
    bench.cluster("A").create_topic(topic, partitions=1)
    bench.write(topic, [b"of A"] * 5)
    configs = {names.mirror["bootstrap"]: bench.deployment.links["A->B"].bootstrap, names.mirror["groups"]: "(?!)"}
    folder = bench.folder / f"admin-{bench.stamp}"
    with closing(MirrorAdmin(build, java_for(build.version), folder, bench.bootstrap("B"))) as admin:

        def state() -> str:
            with contextlib.suppress(Refused):
                return next((row.state for row in admin.describe(mirror)), "")
            return ""

        def says(wanted: str) -> None:
            until(lambda: state() == wanted, within=WITHIN, what=f"{topic} to be {wanted}", every=0.2, state=state)

        admin.create(mirror, configs)
        admin.start(mirror, [topic], [])
        says(MIRRORING)
        until(lambda: _values(bench, topic).count("of A") == 5, within=WITHIN, what="the records of A to be on B", every=0.2)
        admin.stop(mirror, [topic], [])
        says("STOPPED")
        bench.write(topic, [b"of B"] * 5, cluster="B")
        before = _values(bench, topic)
        admin.delete(mirror)
        if anew:
            admin.create(mirror, configs)
        with contextlib.suppress(DeadlineExceeded):
            until(lambda: _values(bench, topic) != before, within=WATCHED, what="B's log to change", every=0.5)
        after, now = _values(bench, topic), state()
    facts = {
        "acknowledged_by_B": before.count("of B"),
        "in_B_log_at_the_end": after.count("of B"),
        "state_at_the_end": now or "in no mirror",
    }
    return Observation(shown=after.count("of B") < before.count("of B"), facts=facts)


def _values(bench: Bench, topic: str) -> list[str]:
    return [(record.value or b"").decode() for record in records(bench.log(topic, cluster="B"))]


CASE = Case(
    name="KIP-1279-created-anew",
    title="A build of the KIP-1279 branch truncates what a promoted topic acknowledged when a mirror of the old name is created",
    kind="proposal",
    claim_text=(
        "A mirror is stopped and deleted: its topic is promoted, and acknowledges records. Creating a mirror of that name, "
        "without starting it, starts the old topics: they follow the source again, and lose what they had acknowledged."
    ),
    sources=("docs/findings/cluster-mirroring-verbs.md", "KIP-1279: create, start and delete of a mirror"),
    expected=(Expected(shows=True, since="4.2.0"),),
    schedule="1. create; 2. start; 3. stop; 4. five records to B, acknowledged; 5. delete; 6. create, with the same name",
    reproduced="records that B had acknowledged are no longer in its log",
    control_text="the same without the second create: the records stay",
    refuted="B's records in its log, and its topic in no mirror",
    topology=PAIR,
    claim=partial(_promoted, anew=True),
    control=partial(_promoted, anew=False),
    clients=("java",),
    needs=BUILD,
)
