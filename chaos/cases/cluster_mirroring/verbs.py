"""KIP-1279 itself: random sequences of its verbs in any state, held against the reference model of
the KIP."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.machine.java import java_for
from linkflap.harness.mirrors.cluster_mirroring.admin import MirrorAdmin
from linkflap.harness.mirrors.cluster_mirroring.verb_model import Name, Verb, sequence
from linkflap.harness.mirrors.cluster_mirroring.verb_play import MirrorOnBuild, play
from linkflap.harness.model.errors import InputError
from linkflap.harness.runtimes.distribution.cluster_mirroring import generation, lacking
from linkflap.harness.runtimes.distribution.kafka import kafka

LENGTH: Final = 20
SEEDS: Final = 4


def _played(
    bench: Bench, steps_of: list[list[tuple[Verb, ...]]], topics: list[list[str]]
) -> Observation:
    """Each sequence on a mirror of its own; the first disagreement of each."""
    build = kafka(bench.variant.kafka)
    found = generation(build)
    if found is None:
        raise InputError(f"Kafka {build.version} {lacking(build)}")
    configs = {
        found.mirror["bootstrap"]: bench.deployment.links["A->B"].bootstrap,
        found.mirror["groups"]: "(?!)",
    }
    wrong: list[str] = []
    asked = refused = early = 0
    for number, (steps, named) in enumerate(zip(steps_of, topics, strict=True)):
        name = bench.name(f"verbs-{number}")
        folder = bench.folder / f"admin-{name}"
        for topic in named:
            bench.cluster("A").create_topic(topic, partitions=2)
        with closing(
            MirrorAdmin(build, java_for(build.version), folder, bench.bootstrap("B"))
        ) as admin:
            seen = play(MirrorOnBuild(admin, name, configs), steps)
        wrong += [step.words for step in seen if step.wrong]
        asked += sum(len(step.answers) for step in seen)
        refused += sum(answer != "" for step in seen for _, answer in step.answers)
        early += sum(step.early for step in seen)
    counts = {
        "sequences": len(steps_of),
        "verbs": asked,
        "refused": refused,
        "refused_for_a_moment": early,
        "disagreements": wrong,
    }
    return Observation(shown=bool(wrong), facts=counts | {"disagreements": wrong})


@case("KIP-1279-verbs", PAIR, claim={"legal": False}, control={"legal": True})
def random_verbs(bench: Bench, *, legal: bool) -> Observation:
    topics = [[f"A.{bench.name(f'{base}{number}')}" for base in "xy"] for number in range(SEEDS)]
    steps = [
        list(sequence(seed, named, LENGTH, legal=legal, but_known=True))
        for seed, named in enumerate(topics)
    ]
    return _played(bench, steps, topics)


@case(
    "KIP-1279-start-without-a-mirror",
    PAIR,
    claim={"names": ("create", "delete", "start")},
    control={"names": ("create", "start")},
)
@case(
    "KIP-1279-stop-of-a-paused-topic",
    PAIR,
    claim={"names": ("create", "start", "pause", "stop")},
    control={"names": ("create", "start", "stop")},
)
def one_sequence(bench: Bench, names: Sequence[Name]) -> Observation:
    """A sequence about one topic."""
    topic = f"A.{bench.name('x')}"
    steps: list[tuple[Verb, ...]] = [
        (Verb(name=name) if name in ("create", "delete") else Verb(name=name, topics=(topic,)),)
        for name in names
    ]
    return _played(bench, [steps], [[topic]])
