"""A reference model of KIP-1279's verbs: the answer to each verb in each state, and the state after
it. Sequences of verbs are played on a build, and compared with the model after each verb.

A mirror exists or not, and each of its topics is mirroring, paused or stopped. A verb is atomic
over the topics that it names: if one topic's state does not allow it, it is refused for all, and
nothing changes. A verb on a mirror that does not exist is refused. Concurrent verbs of several
admins must be explained by some sequential order.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import permutations
from types import MappingProxyType
from typing import Final, Literal, Protocol

from linkflap.harness.mirrors.cluster_mirroring.admin import (
    MIRRORING,
    DescribeRow,
    MirrorAdmin,
    VerbRefused,
)
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until

Name = Literal["create", "start", "pause", "resume", "stop", "delete"]
PAUSED: Final = "PAUSED"
STOPPED: Final = "STOPPED"
NONE: Final = ""
"""The answer to a verb that is accepted; also the state of a topic that is in no mirror."""
UNKNOWN_MIRROR: Final = "UNKNOWN_CLUSTER_MIRROR"
_EXISTS: Final = frozenset({"CLUSTER_MIRROR_ALREADY_EXISTS"})
_WRONG_STATE: Final[Mapping[str, frozenset[str]]] = {
    "start": frozenset(
        {
            "INVALID_CLUSTER_MIRROR_STATES",
            "TOPIC_ALREADY_IN_CLUSTER_MIRROR",
            "MIRROR_TOPIC_NOT_STOPPED",
        }
    ),
    "pause": frozenset(
        {
            "INVALID_CLUSTER_MIRROR_STATES",
            "TOPIC_NOT_IN_CLUSTER_MIRROR",
            "MIRROR_TOPIC_ALREADY_PAUSED",
        }
    ),
    "resume": frozenset(
        {"INVALID_CLUSTER_MIRROR_STATES", "TOPIC_NOT_IN_CLUSTER_MIRROR", "MIRROR_TOPIC_NOT_PAUSED"}
    ),
    "stop": frozenset({"INVALID_CLUSTER_MIRROR_STATES", "TOPIC_NOT_IN_CLUSTER_MIRROR"}),
    "delete": frozenset(
        {"CLUSTER_MIRROR_NOT_EMPTY", "MIRROR_TOPIC_NOT_STOPPED", "INVALID_CLUSTER_MIRROR_STATES"}
    ),
}
"""Verb -> the errors that are allowed when a topic's state forbids it (KIP-1279, error codes 136 to
146)."""
_WITHOUT_MIRROR: Final[Mapping[str, frozenset[str]]] = dict.fromkeys(
    ("pause", "resume", "stop", "delete"),
    frozenset({UNKNOWN_MIRROR, "INVALID_CLUSTER_MIRROR_STATES"}),
)
"""Verb -> its allowed errors when there is no mirror, if there are several: a topic without a
mirror is in no state that these verbs allow."""
_FROM: Final[Mapping[str, frozenset[str]]] = {
    "start": frozenset({NONE, STOPPED}),
    "pause": frozenset({MIRRORING}),
    "resume": frozenset({PAUSED}),
    "stop": frozenset({MIRRORING, PAUSED}),
    "delete": frozenset({STOPPED}),
}
"""Verb -> the states that it allows for each of its topics."""
_TO: Final[Mapping[str, str]] = {
    "start": MIRRORING,
    "pause": PAUSED,
    "resume": MIRRORING,
    "stop": STOPPED,
}
_ALONE: Final = 0.75
"""Probability that a step is a single verb."""
_ACCEPTED: Final = 0.6
"""Probability that a single verb is redrawn until the model accepts it. Otherwise most verbs would
be refused, and little would happen."""
NAMES: Final[tuple[Name, ...]] = ("create", "start", "pause", "resume", "stop", "delete")
DRAWN: Final[tuple[Name, ...]] = (*NAMES, "start", "stop")
"""The verbs that sequences are drawn from."""
PROMOTING_NOTHING: Final[tuple[Name, ...]] = (
    "create",
    "start",
    "pause",
    "pause",
    "resume",
    "resume",
    "delete",
)
"""Verbs for a mirror in the middle of a run, whose topics are mirroring or paused: none promotes,
or ends the mirror."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A request of an admin. `topics` is only for start, pause, resume and stop."""

    name: Name
    topics: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        return " ".join((self.name, *self.topics))


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorModel:
    """The state of the mirror, according to the KIP."""

    exists: bool = False
    topics: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def words(self) -> str:
        if not self.exists:
            return "no mirror"
        return (
            ", ".join(f"{topic} {state}" for topic, state in sorted(self.topics.items()))
            or "a mirror without topics"
        )


NOTHING: Final = MirrorModel()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedAnswer:
    """The KIP's answer to a verb: accepted when `errors` is empty, else refused with one of them.
    `after` is the state after it."""

    errors: frozenset[str]
    after: MirrorModel

    def fits(self, answer: str) -> bool:
        return answer in self.errors if self.errors else answer == NONE


def expected(world: MirrorModel, verb: Verb) -> ExpectedAnswer:
    """The model's answer. A refused verb changes nothing."""
    if verb.name == "create":
        return (
            ExpectedAnswer(errors=_EXISTS, after=world)
            if world.exists
            else ExpectedAnswer(errors=frozenset(), after=MirrorModel(exists=True))
        )
    if not world.exists:
        return ExpectedAnswer(
            errors=_WITHOUT_MIRROR.get(verb.name, frozenset({UNKNOWN_MIRROR})), after=world
        )
    about = tuple(world.topics) if verb.name == "delete" else verb.topics
    if any(world.topics.get(topic, NONE) not in _FROM[verb.name] for topic in about):
        return ExpectedAnswer(errors=_WRONG_STATE[verb.name], after=world)
    if verb.name == "delete":
        return ExpectedAnswer(errors=frozenset(), after=MirrorModel())
    changed = dict(world.topics) | dict.fromkeys(verb.topics, _TO[verb.name])
    return ExpectedAnswer(
        errors=frozenset(), after=MirrorModel(exists=True, topics=MappingProxyType(changed))
    )


def explained(world: MirrorModel, answered: Sequence[tuple[Verb, str]]) -> list[MirrorModel]:
    """The possible states after concurrent verbs with these answers. Empty: no sequential order
    explains the answers."""
    found: list[MirrorModel] = []
    for order in permutations(answered):
        at, fits = world, True
        for verb, answer in order:
            wanted = expected(at, verb)
            at, fits = wanted.after, fits and wanted.fits(answer)
        if fits and at not in found:
            found.append(at)
    return found


def known(world: MirrorModel, verb: Verb) -> str:
    """The known disagreement of the build (docs/findings/cluster-mirroring-verbs.md) that a verb
    would run into; empty: none."""
    if verb.name == "start" and not world.exists:
        return "start-without-a-mirror"
    if verb.name == "delete" and world.topics and not expected(world, verb).errors:
        return "created-anew"  # a mirror created later under this name still has these topics
    if verb.name == "stop" and any(world.topics.get(topic) == PAUSED for topic in verb.topics):
        return "stop-of-a-paused-topic"
    return ""


def sequence(
    seed: int | str,
    topics: Sequence[str],
    length: int,
    *,
    legal: bool = False,
    but_known: bool = False,
    begin: MirrorModel = NOTHING,
    names: Sequence[Name] = DRAWN,
) -> Iterator[tuple[Verb, ...]]:
    """Steps of a random sequence: one verb, or two concurrent ones. A pure function of its
    arguments, from the state `begin`, with verbs of `names`. Follows the states of the model.

    `legal`: only single verbs that the model accepts. `but_known`: no verb that runs into a known
    disagreement, which would end the sequence there.
    """
    chance = random.Random(seed)
    worlds = [begin]

    def fits(step: tuple[Verb, ...], *, accepted: bool) -> bool:
        if accepted and any(expected(world, step[0]).errors for world in worlds):
            return False
        return not (
            but_known
            and any(
                known(at, verb)
                for order in permutations(step)
                for at, verb in _before(worlds, order)
            )
        )

    for _ in range(length):
        count = 1 if legal or chance.random() < _ALONE else 2
        accepted = legal or (count == 1 and len(worlds) == 1 and chance.random() < _ACCEPTED)
        step = tuple(_drawn(chance, topics, names) for _ in range(count))
        while not fits(step, accepted=accepted):
            step = tuple(_drawn(chance, topics, names) for _ in range(count))
        ends = (_after(world, order) for world in worlds for order in permutations(step))
        worlds = [*{world.words: world for world in ends}.values()]
        yield step


def _before(
    worlds: Sequence[MirrorModel], order: Sequence[Verb]
) -> Iterator[tuple[MirrorModel, Verb]]:
    """Each verb with each state in which it may run."""
    for world in worlds:
        at = world
        for verb in order:
            yield at, verb
            at = expected(at, verb).after


def _after(world: MirrorModel, order: Sequence[Verb]) -> MirrorModel:
    for verb in order:
        world = expected(world, verb).after
    return world


def _drawn(chance: random.Random, topics: Sequence[str], names: Sequence[Name]) -> Verb:
    name = chance.choice(names)
    if name in ("create", "delete"):
        return Verb(name=name)
    return Verb(
        name=name, topics=tuple(sorted(chance.sample(list(topics), chance.randint(1, len(topics)))))
    )


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
        admin, name = self._admin, self._name
        try:
            match verb.name:
                case "create":
                    admin.create(name, self._configs)
                case "start":
                    admin.start(name, verb.topics, [])
                case "stop":
                    admin.stop(name, verb.topics, [])
                case "pause":
                    admin.pause(name, verb.topics)
                case "resume":
                    admin.resume(name, verb.topics)
                case "delete":
                    admin.delete(name)
        except VerbRefused as error:
            return error.name
        return NONE

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
    begin: MirrorModel = NOTHING,
) -> list[Step]:
    """Plays the steps from the state `begin`, up to the first that disagrees with the model. After
    that, no expectation is defined."""
    world, played = begin, list[Step]()
    for verbs in steps:
        step, world = _played(asked, world, verbs, within)
        played.append(step)
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
