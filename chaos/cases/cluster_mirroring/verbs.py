"""KIP-1279 itself: random sequences of its verbs in any state, held against the reference model of
the KIP."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.branch_mirror import BUILD
from linkflap.chaos.cases.case import Case, Expected, Observation
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


def played(
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


def _random(bench: Bench, *, legal: bool) -> Observation:
    topics = [[f"A.{bench.name(f'{base}{number}')}" for base in "xy"] for number in range(SEEDS)]
    steps = [
        list(sequence(seed, named, LENGTH, legal=legal, but_known=True))
        for seed, named in enumerate(topics)
    ]
    return played(bench, steps, topics)


def _one(bench: Bench, names: Sequence[Name]) -> Observation:
    """A sequence about one topic."""
    topic = f"A.{bench.name('x')}"
    steps: list[tuple[Verb, ...]] = [
        (Verb(name=name) if name in ("create", "delete") else Verb(name=name, topics=(topic,)),)
        for name in names
    ]
    return played(bench, [steps], [[topic]])


def _known(
    name: str,
    title: str,
    claim: str,
    asked: Sequence[Name],
    control: Sequence[Name],
    texts: tuple[str, str, str],
) -> Case:
    return Case(
        name=f"KIP-1279-{name}",
        title=title,
        kind="proposal",
        claim_text=claim,
        sources=(
            "docs/findings/cluster-mirroring-verbs.md",
            "KIP-1279: verbs, states and error codes 136 to 146",
        ),
        expected=(Expected(shows=True, since="4.2.0", basis="runs"),),
        schedule="; ".join(f"{number}. {verb}" for number, verb in enumerate(asked, start=1)),
        reproduced=texts[0],
        control_text=texts[1],
        refuted=texts[2],
        topology=PAIR,
        claim=partial(_one, names=asked),
        control=partial(_one, names=control),
        clients=("java",),
        needs=BUILD,
    )


CASES: Final = [
    Case(
        name="KIP-1279-verbs",
        title="A build of the KIP-1279 branch answers a verb as no state of the mirror allows",
        kind="proposal",
        claim_text=(
            "Random sequences of create, start, pause, resume, stop and delete, some of them asked "
            "for by two admins at once, are held against a reference model of the KIP: a verb is "
            "answered, or changes the mirror, as it does not allow."
        ),
        sources=(
            "KIP-1279: verbs, states and error codes 136 to 146",
            "harness/mirrors/cluster_mirroring/verb_model.py",
        ),
        expected=(Expected(shows=True, since="4.2.0"),),
        schedule=(
            f"1. two topics of two partitions; 2. {SEEDS} sequences of {LENGTH} steps, one mirror "
            "each"
        ),
        reproduced=(
            "an answer that no order of the verbs explains, or a state that describe does not reach"
            " within a minute"
        ),
        control_text=(
            "sequences of what the model accepts alone, one verb at a time: every answer and every "
            "state agrees"
        ),
        refuted="sequences without a disagreement",
        tried=(
            "four sequences of 20 steps, 97 verbs of which 48 were refused: no answer and no state "
            "that the model does not allow. The model has the two cases below and "
            "KIP-1279-created-anew, which it found, left out"
        ),
        topology=PAIR,
        claim=partial(_random, legal=False),
        control=partial(_random, legal=True),
        runs=1,
        clients=("java",),
        needs=BUILD,
    ),
    _known(
        "start-without-a-mirror",
        "A build of the KIP-1279 branch accepts start for a mirror that was deleted",
        "Start names a mirror that is deleted or was never created, and is accepted instead of "
        "UNKNOWN_CLUSTER_MIRROR.",
        ("create", "delete", "start"),
        ("create", "start"),
        (
            "start is accepted",
            "the mirror is not deleted: start is accepted, and the topic mirrors",
            "a refused start",
        ),
    ),
    _known(
        "stop-of-a-paused-topic",
        "A build of the KIP-1279 branch accepts stop for a paused topic and does not stop it",
        "Stop is for topics that mirror and for those that are paused. For a paused one it is "
        "accepted, and without effect.",
        ("create", "start", "pause", "stop"),
        ("create", "start", "stop"),
        (
            "stop is accepted, and a minute later the topic is paused",
            "the topic is not paused: it is stopped",
            "a stopped topic",
        ),
    ),
]
