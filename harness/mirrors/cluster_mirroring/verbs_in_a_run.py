"""A random sequence of verbs on a mirror in use. None promotes anything, and each is compared with
a model (`verb_model`).

Topics are paused and resumed. Verbs that their states do not allow must be refused and change
nothing. Every broker must refuse a write to a mirrored or paused topic. A verb without an answer
proves nothing: it ends the sequence, and is no disagreement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from linkflap.harness.mirrors.cluster_mirroring.answers import MIRRORING, DescribeRow
from linkflap.harness.mirrors.cluster_mirroring.read_only import Write, Writing
from linkflap.harness.mirrors.cluster_mirroring.verb_model import (
    NONE,
    PROMOTING_NOTHING,
    MirrorModel,
    Verb,
    sequence,
)
from linkflap.harness.mirrors.cluster_mirroring.verb_play import (
    SETTLE_SECONDS,
    Step,
    VerbTarget,
    play,
)
from linkflap.harness.model.events import VerbsPlayed
from linkflap.harness.model.protocols import PlayedVerbs

NO_ANSWER: Final = frozenset(
    {
        "NO_ANSWER",
        "REQUEST_TIMED_OUT",
        "NOT_CONTROLLER",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "CLOSED",
    }
)
"""Errors that are not an answer to a verb: no broker could be reached, or none answered in time."""


@dataclass(frozen=True, slots=True)
class SomeTopics:
    """A mirror on a build, of which only some topics are described."""

    asked: VerbTarget
    topics: frozenset[str]

    def ask(self, verb: Verb) -> str:
        return self.asked.ask(verb)

    def describe(self) -> Sequence[DescribeRow]:
        return [row for row in self.asked.describe() if row.topic in self.topics]


def steps_of(seed: str, topics: Sequence[str], count: int) -> list[tuple[Verb, ...]]:
    """The steps of a sequence. The first pauses all topics, so that every sequence changes
    something."""
    first = Verb(name="pause", topics=tuple(sorted(topics)))
    paused = MirrorModel(exists=True, topics=dict.fromkeys(topics, "PAUSED"))
    return [
        (first,),
        *sequence(seed, sorted(topics), count - 1, begin=paused, names=PROMOTING_NOTHING),
    ]


def played(
    asked: VerbTarget,
    link: str,
    topics: Sequence[str],
    seed: str,
    count: int,
    write: Writing,
    *,
    within: float = SETTLE_SECONDS,
) -> tuple[VerbsPlayed, PlayedVerbs]:
    """Plays a sequence on topics that are all MIRRORING, then writes to them. Returns the event,
    and the result for the fault."""
    begin = MirrorModel(exists=True, topics=dict.fromkeys(topics, MIRRORING))
    seen = play(
        SomeTopics(asked, frozenset(topics)),
        steps_of(seed, topics, count),
        begin=begin,
        within=within,
    )
    answers = [answer for step in seen for _, answer in step.answers]
    unanswered = _unanswered(seen[-1])
    wrong = "" if unanswered else seen[-1].wrong
    writes: Sequence[Write] = () if wrong or unanswered else write(topics)
    about = min(topics)
    if taken := next((each for each in writes if each.wrong), None):
        wrong, about = taken.wrong, taken.topic
    event = VerbsPlayed(
        link=link,
        seed=seed,
        steps=tuple(step.words for step in seen),
        wrong=wrong or None,
        topic=about if wrong else None,
        writes=_words(writes),
        unanswered=unanswered or None,
    )
    return event, PlayedVerbs(
        asked=len(answers), changed=answers.count(NONE), wrong=wrong, unanswered=unanswered
    )


def _words(writes: Sequence[Write]) -> tuple[str, ...] | None:
    """The writes in words; None when there were none."""
    return tuple(each.words for each in writes) or None


def _unanswered(last: Step) -> str:
    """The verb that got no answer, and its error; empty if all did."""
    return next(
        (f"{verb.words}: {error}" for verb, error in last.answers if error in NO_ANSWER), ""
    )
