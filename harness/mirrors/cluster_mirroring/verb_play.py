"""Plays sequences of verbs on a build. Compares each answer, and the state after it, with the model
(`verb_model`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from linkflap.harness.mirrors.cluster_mirroring.admin import MirrorAdmin
from linkflap.harness.mirrors.cluster_mirroring.answers import DescribeRow, VerbRefused
from linkflap.harness.mirrors.cluster_mirroring.verb_model import (
    NONE,
    NOTHING,
    MirrorModel,
    Verb,
    expected,
    explained,
)
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until

SETTLE_SECONDS: Final = 60.0


REFUSED_FOR_A_MOMENT: Final = "INVALID_CLUSTER_MIRROR_STATES"
RETRY_SECONDS: Final = 10.0
"""A verb that describe's states allow may be refused for a moment. A refusal for longer than this
is a disagreement."""


class VerbTarget(Protocol):
    """A mirror on a build. Each verb returns the name of its error, or an empty string."""

    def ask(self, verb: Verb) -> str: ...
    def describe(self) -> Sequence[DescribeRow]: ...


class MirrorOnBuild:
    """A mirror between two clusters of a build, through its Java Admin. Topics are named in full;
    no pattern starts others."""

    def __init__(self, admin: MirrorAdmin, name: str, configs: Mapping[str, str]) -> None:
        self._admin, self._name, self._configs = admin, name, configs

    def ask(self, verb: Verb) -> str:
        try:
            self._call(verb)
        except VerbRefused as error:
            return error.name
        return NONE

    def _call(self, verb: Verb) -> None:
        match verb.name:
            case "create":
                self._admin.create(self._name, self._configs)
            case "start":
                self._admin.start(self._name, verb.topics, [])
            case "stop":
                self._admin.stop(self._name, verb.topics, [])
            case "pause":
                self._admin.pause(self._name, verb.topics)
            case "resume":
                self._admin.resume(self._name, verb.topics)
            case "delete":
                self._admin.delete(self._name)

    def describe(self) -> Sequence[DescribeRow]:
        return self._admin.describe(self._name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Concurrent verbs, the model's state before them, the answer to each, and describe's states
    after they settled.

    `early`: how often a single verb that the states allow was refused before it was accepted.
    """

    before: MirrorModel
    answers: tuple[tuple[Verb, str], ...]
    states: Mapping[str, str]
    early: int = 0
    wrong: str = ""

    @property
    def words(self) -> str:
        answers = "; ".join(
            f"{verb.words}: {answer or 'accepted'}" for verb, answer in self.answers
        )
        return f"[{self.before.words}] {answers}{f' -- {self.wrong}' if self.wrong else ''}"


def play(
    asked: VerbTarget,
    steps: Iterable[tuple[Verb, ...]],
    *,
    within: float = SETTLE_SECONDS,
    note: Callable[[Step], None] = lambda _: None,
    begin: MirrorModel = NOTHING,
) -> list[Step]:
    """Plays the steps from the state `begin`, up to the first that disagrees with the model. After
    that, no expectation is defined."""
    world, played = begin, list[Step]()
    for verbs in steps:
        step, world = _played(asked, world, verbs, within)
        played.append(step)
        note(step)
        if step.wrong:
            break
    return played


def _played(
    asked: VerbTarget, before: MirrorModel, verbs: tuple[Verb, ...], within: float
) -> tuple[Step, MirrorModel]:
    answers, early = _answered(asked, before, verbs)
    worlds = explained(before, answers)
    if not worlds:
        wrong = "; ".join(_unexplained(before, verb, answer) for verb, answer in answers)
        return (
            Step(before=before, answers=answers, states=_states(asked), early=early, wrong=wrong),
            before,
        )
    seen: Mapping[str, str] = {}

    def agrees() -> MirrorModel | None:
        nonlocal seen
        seen = _states(asked)
        return next((world for world in worlds if seen == dict(world.topics)), None)

    try:
        world = until(
            agrees,
            within=within,
            every=0.2,
            what="describe to report the states after the verbs",
        )
    except DeadlineExceeded:
        wanted = " or ".join(world.words for world in worlds)
        wrong = f"after {within:g} s describe says {_words(seen)}, expected: {wanted}"
        return Step(before=before, answers=answers, states=seen, early=early, wrong=wrong), before
    return Step(before=before, answers=answers, states=seen, early=early), world


def _answered(
    asked: VerbTarget, before: MirrorModel, verbs: tuple[Verb, ...]
) -> tuple[tuple[tuple[Verb, str], ...], int]:
    """The answer to each verb, and how often a single verb was only refused for a moment."""
    if len(verbs) > 1:
        with ThreadPoolExecutor(len(verbs)) as admins:
            return tuple(zip(verbs, admins.map(asked.ask, verbs), strict=True)), 0
    (verb,) = verbs
    answers: list[str] = []

    def final() -> bool:
        answers.append(asked.ask(verb))
        return answers[-1] != REFUSED_FOR_A_MOMENT or bool(expected(before, verb).errors)

    with suppress(DeadlineExceeded):
        until(final, within=RETRY_SECONDS, every=0.25, what=f"{verb.words} to be accepted")
    return ((verb, answers[-1]),), len(answers) - 1


def _unexplained(before: MirrorModel, verb: Verb, answer: str) -> str:
    wanted = expected(before, verb)
    return (
        f"{verb.words} was {_said(answer)}, expected: "
        f"{' or '.join(sorted(wanted.errors)) or 'accepted'}"
    )


def _said(answer: str) -> str:
    return f"refused with {answer}" if answer != NONE else "accepted"


def _states(asked: VerbTarget) -> Mapping[str, str]:
    """Topic -> the state of its partitions, or several states while they differ."""
    found: dict[str, set[str]] = {}
    try:
        for row in asked.describe():
            found.setdefault(row.topic, set()).add(row.state)
    except VerbRefused:
        return {}
    return {topic: "/".join(sorted(states)) for topic, states in found.items()}


def _words(states: Mapping[str, str]) -> str:
    return ", ".join(f"{topic} {state}" for topic, state in sorted(states.items())) or "nothing"


__all__ = ["MirrorOnBuild", "Step", "VerbTarget", "play"]
