"""A cluster's answers to verbs and to describe, as values; and the retries until a verb is
accepted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.events import (
    DescribedPartition,
    MirrorDescribed,
    MirrorVerb,
    VerbAnswer,
)
from linkflap.harness.model.topology import CANARY, TopicPartition
from linkflap.harness.model.wait import until

MIRRORING: Final = "MIRRORING"
FAILED: Final = "FAILED"
PROMOTED: Final = frozenset({"STOPPING", "STOPPED"})
NEVER_AGAIN: Final = -1
"""The retry count that describe reports for a partition that is not retried any more."""
ALREADY_EXISTS: Final = "CLUSTER_MIRROR_ALREADY_EXISTS"
_EVERY: Final = 0.25
_SHOWN: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeRow:
    """One partition in describe's answer. Offsets and lag are -1 outside of MIRRORING; the lag is a
    cached value."""

    topic: str
    partition: int
    state: str
    source_offset: int
    destination_offset: int
    lag: int
    retries: int
    error: str


class VerbRefused(Exception):
    """A verb that was refused or not answered: Kafka's name of the error, its code, and its
    message."""

    def __init__(self, verb: str, name: str, code: int, message: str) -> None:
        super().__init__(f"{verb} was refused with {name} ({code}): {message}")
        self.verb, self.name, self.code, self.message = verb, name, code, message


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a verb: whether it was accepted, how often each error came (`refused`), and the
    seconds until it was accepted or given up."""

    verb: str
    accepted: bool
    tries: int
    refused: Mapping[str, int]
    seconds: float

    @property
    def written(self) -> VerbAnswer:
        """As a part of another event."""
        return VerbAnswer(
            verb=self.verb,
            accepted=self.accepted,
            tries=self.tries,
            refused=dict(self.refused),
            seconds=self.seconds,
        )

    def event(self, link: str) -> MirrorVerb:
        """As an event of its own."""
        return MirrorVerb(
            link=link,
            verb=self.verb,
            accepted=self.accepted,
            tries=self.tries,
            refused=dict(self.refused),
            seconds=self.seconds,
        )


def until_accepted(
    verb: str,
    ask: Callable[[], None],
    *,
    within: float,
    note: Callable[[Answer], None],
    never: str = "",
) -> Answer:
    """Repeats a verb until it is accepted, and passes the answer to `note`. Raises the last
    VerbRefused at the deadline, or at once for the error `never`."""
    began, tries = time.monotonic(), 0
    errors: Counter[str] = Counter()
    last = VerbRefused(verb, "NO_ANSWER", -1, "it was never answered")

    def accepted() -> bool:
        nonlocal last, tries
        tries += 1
        try:
            ask()
        except VerbRefused as error:
            last = error
            errors[f"{error.name} ({error.code})"] += 1
            if error.name == never:
                raise
            return False
        return True

    def answered(*, yes: bool) -> Answer:
        seconds = round(time.monotonic() - began, 3)
        answer = Answer(verb=verb, accepted=yes, tries=tries, refused=dict(errors), seconds=seconds)
        note(answer)
        return answer

    try:
        until(accepted, within=within, every=_EVERY, what=f"{verb} to be accepted")
    except DeadlineExceeded as error:
        answered(yes=False)
        raise last from error
    return answered(yes=True)


def given_up(rows: Sequence[DescribeRow]) -> dict[str, str]:
    """Topic -> why it is no longer mirrored, for topics with a partition that has failed for
    good."""
    return {
        row.topic: row.error or FAILED
        for row in rows
        if row.state == FAILED and row.retries == NEVER_AGAIN
    }


def mirroring(rows: Sequence[DescribeRow], partitions: Collection[TopicPartition]) -> bool:
    """Whether every partition is MIRRORING; one without a row is not."""
    states = {(row.topic, row.partition): row.state for row in rows}
    return bool(partitions) and all(states.get(tp) == MIRRORING for tp in partitions)


def described(link: str, asked: int, rows: Sequence[DescribeRow]) -> MirrorDescribed:
    """Describe's answer as an event, without the canary topic. `asked` is the time of the
    request."""
    named = tuple(
        DescribedPartition(
            topic=r.topic,
            partition=r.partition,
            state=r.state,
            mirrors=r.state == MIRRORING,
            lag=r.lag,
            promoted=r.state in PROMOTED,
        )
        for r in rows
        if not r.topic.endswith(f".{CANARY}")
    )
    return MirrorDescribed(link=link, asked=asked, rows=named)


def summary(rows: Sequence[DescribeRow]) -> str:
    """The number of partitions in each state, and the first error messages, in words."""
    counted = ", ".join(
        f"{count} {state}" for state, count in Counter(row.state for row in rows).most_common()
    )
    errors = sorted({row.error for row in rows if row.error})[:_SHOWN]
    return "; ".join([counted or "no rows", *errors])
