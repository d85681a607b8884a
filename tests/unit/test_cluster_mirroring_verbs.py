"""The reference model of KIP-1279's verbs, and the player that compares a build's answers with
it."""

from __future__ import annotations

import pytest

from linkflap.harness.mirrors.cluster_mirroring.admin import DescribeRow
from linkflap.harness.mirrors.cluster_mirroring.verbs import (
    MIRRORING,
    NAMES,
    PAUSED,
    STOPPED,
    MirrorModel,
    Name,
    Verb,
    expected,
    explained,
    known,
    play,
    sequence,
)

NO_MIRROR = MirrorModel()
EMPTY = MirrorModel(exists=True)


def at(**states: str) -> MirrorModel:
    return MirrorModel(exists=True, topics=states)


def verb(name: Name, *topics: str) -> Verb:
    return Verb(name=name, topics=topics)


@pytest.mark.parametrize(
    ("world", "asked", "after"),
    [
        (NO_MIRROR, verb("create"), EMPTY),
        (EMPTY, verb("start", "x"), at(x=MIRRORING)),
        (at(x=STOPPED), verb("start", "x", "y"), at(x=MIRRORING, y=MIRRORING)),
        (at(x=MIRRORING, y=MIRRORING), verb("pause", "x"), at(x=PAUSED, y=MIRRORING)),
        (at(x=PAUSED), verb("resume", "x"), at(x=MIRRORING)),
        (at(x=MIRRORING, y=PAUSED), verb("stop", "x", "y"), at(x=STOPPED, y=STOPPED)),
        (at(x=STOPPED, y=STOPPED), verb("delete"), NO_MIRROR),
        (EMPTY, verb("delete"), NO_MIRROR),
    ],
)
def test_accepted_verbs_and_the_states_that_they_lead_to(
    world: MirrorModel, asked: Verb, after: MirrorModel
) -> None:
    wanted = expected(world, asked)
    assert (wanted.errors, wanted.after) == (frozenset(), after)
    assert wanted.fits("")
    assert not wanted.fits("INVALID_CLUSTER_MIRROR_STATES")


@pytest.mark.parametrize(
    ("world", "asked", "error"),
    [
        (EMPTY, verb("create"), "CLUSTER_MIRROR_ALREADY_EXISTS"),
        *(
            (NO_MIRROR, verb(name, "x"), "UNKNOWN_CLUSTER_MIRROR")
            for name in NAMES
            if name != "create"
        ),
        (at(x=MIRRORING), verb("start", "x"), "INVALID_CLUSTER_MIRROR_STATES"),
        (at(x=PAUSED), verb("start", "x"), "INVALID_CLUSTER_MIRROR_STATES"),
        (at(x=MIRRORING, y=PAUSED), verb("pause", "x", "y"), "INVALID_CLUSTER_MIRROR_STATES"),
        (at(x=MIRRORING), verb("resume", "x"), "MIRROR_TOPIC_NOT_PAUSED"),
        (at(x=STOPPED), verb("resume", "x"), "INVALID_CLUSTER_MIRROR_STATES"),
        (at(x=MIRRORING, y=STOPPED), verb("stop", "x", "y"), "INVALID_CLUSTER_MIRROR_STATES"),
        (at(x=MIRRORING), verb("stop", "z"), "TOPIC_NOT_IN_CLUSTER_MIRROR"),
        (at(x=STOPPED, y=PAUSED), verb("delete"), "CLUSTER_MIRROR_NOT_EMPTY"),
    ],
)
def test_refused_verbs_change_no_topic(world: MirrorModel, asked: Verb, error: str) -> None:
    wanted = expected(world, asked)
    assert wanted.after == world
    assert wanted.fits(error)
    assert not wanted.fits("")
    assert not wanted.fits("UNKNOWN_SERVER_ERROR")


def test_verbs_of_two_admins_are_explained_by_an_order() -> None:
    start, stop, pause = verb("start", "x"), verb("stop", "x"), verb("pause", "x")
    assert explained(EMPTY, [(start, ""), (stop, "")]) == [at(x=STOPPED)], "started, then stopped"
    assert explained(EMPTY, [(start, ""), (stop, "INVALID_CLUSTER_MIRROR_STATES")]) == [
        at(x=MIRRORING)
    ], "stopped first: refused"
    assert explained(at(x=MIRRORING), [(pause, ""), (stop, "")]) == [at(x=STOPPED)]
    assert explained(EMPTY, [(start, ""), (start, "")]) == [], "the second one has to be refused"
    assert explained(NO_MIRROR, [(start, "")]) == []
    both = explained(at(x=STOPPED, y=STOPPED), [(start, ""), (verb("start", "y"), "")])
    assert both == [at(x=MIRRORING, y=MIRRORING)]


def test_sequences_are_a_function_of_their_seed_and_reach_every_verb() -> None:
    assert list(sequence(7, ["x", "y"], 40)) == list(sequence(7, ["x", "y"], 40))
    steps = list(sequence(7, ["x", "y"], 60))
    assert {one.name for step in steps for one in step} == set(NAMES)
    assert {len(step) for step in steps} == {1, 2}
    world = MirrorModel()
    legal = list(sequence(7, ["x", "y"], 60, legal=True))
    for (one,) in legal:
        wanted = expected(world, one)
        assert not wanted.errors
        world = wanted.after
    assert len({one.name for (one,) in legal}) >= 5


def test_what_is_known_of_the_build_that_was_run() -> None:
    assert known(NO_MIRROR, verb("start", "x")) == "start-without-a-mirror"
    assert known(at(x=PAUSED, y=MIRRORING), verb("stop", "x", "y")) == "stop-of-a-paused-topic"
    assert known(at(x=STOPPED), verb("delete")) == "created-anew"
    others: list[tuple[MirrorModel, Name]]
    others = [
        (EMPTY, "start"),
        (at(x=MIRRORING), "stop"),
        (EMPTY, "delete"),
        (at(x=MIRRORING), "delete"),
        (NO_MIRROR, "create"),
    ]
    assert not [name for world, name in others if known(world, verb(name, "x"))]


def test_sequences_without_known_disagreements_continue() -> None:
    steps = list(sequence(11, ["x", "y"], 60, but_known=True))
    world = MirrorModel()
    for step in steps:
        for one in step:
            assert not known(world, one)
            world = expected(world, one).after
    assert {one.name for step in steps for one in step} == set(NAMES)
    assert any(known(NO_MIRROR, one) for step in sequence(2, ["x", "y"], 5) for one in step)


class Modelled:
    """A build that answers as the model does, except for the answers in `wrong`."""

    def __init__(self, wrong: dict[str, list[str]] | None = None, *, deaf: bool = False) -> None:
        self.world, self.wrong, self.deaf = MirrorModel(), wrong or {}, deaf

    def ask(self, asked: Verb) -> str:
        if planned := self.wrong.get(asked.words):
            return planned.pop(0)
        wanted = expected(self.world, asked)
        if not (self.deaf and asked.name == "stop"):
            self.world = wanted.after
        return min(wanted.errors, default="")

    def describe(self) -> list[DescribeRow]:
        return [
            DescribeRow(
                topic=t,
                partition=n,
                state=s,
                source_offset=-1,
                destination_offset=-1,
                lag=-1,
                retries=0,
                error="",
            )
            for t, s in self.world.topics.items()
            for n in range(2)
        ]


def test_a_build_that_does_as_the_kip_says_agrees() -> None:
    steps = [(one,) for step in sequence(3, ["x", "y"], 40) for one in step]
    seen = play(Modelled(), steps, within=5)
    assert len(seen) == len(steps)
    assert not [step for step in seen if step.wrong]
    assert any(answer for step in seen for _, answer in step.answers), "some were refused"


def test_a_verb_that_is_accepted_where_the_kip_refuses_it_ends_the_sequence() -> None:
    steps = [(verb("create"),), (verb("delete"),), (verb("start", "x"),), (verb("create"),)]
    seen = play(Modelled({"start x": [""]}), steps, within=5)
    assert [step.wrong for step in seen] == [
        "",
        "",
        "start x was accepted, expected: UNKNOWN_CLUSTER_MIRROR",
    ]
    assert seen[-1].words.startswith("[no mirror] start x: accepted -- ")


def test_a_verb_that_is_accepted_and_changes_nothing_is_a_disagreement() -> None:
    steps = [(verb("create"),), (verb("start", "x"),), (verb("stop", "x"),)]
    seen = play(Modelled(deaf=True), steps, within=0.3)
    assert seen[-1].wrong == "after 0.3 s describe says x MIRRORING, expected: x STOPPED"


def test_a_momentary_refusal_is_counted_and_is_no_disagreement() -> None:
    refused = {"stop x": ["INVALID_CLUSTER_MIRROR_STATES"]}
    steps = [(verb("create"),), (verb("start", "x"),), (verb("stop", "x"),)]
    seen = play(Modelled(refused), steps, within=5)
    assert [(step.wrong, step.early) for step in seen] == [("", 0), ("", 0), ("", 1)]
